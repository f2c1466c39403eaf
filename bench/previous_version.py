"""An earlier version of worldloom from the history of this repository, to be measured beside this one."""

import io
import subprocess
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "out" / "previous"
COMMIT = "7da3d9eb6d84"
"""Last commit before steps were prepared: a step of `local` was encoded, sent and decoded within the process."""


class HistoryError(Exception):
    """A version that cannot be had here; the text says why."""


def extract(commit: str, root: Path = ROOT, folder: Path = FOLDER) -> Path:
    """Return a folder that holds the package `worldloom` as of a commit, for PYTHONPATH.

    It has that version's sources, and a package of links to them as `make links` makes it. Nothing is installed: the
    packages that worldloom needs are those of this environment.
    """
    found = folder / commit
    if found.is_dir():
        return found
    try:
        archive = subprocess.run(["git", "archive", commit], cwd=root, capture_output=True, check=True).stdout
    except FileNotFoundError:
        raise HistoryError(
            f"the version of commit {commit} is taken from the history, and git is not installed"
        ) from None
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip().splitlines()[:1]
        raise HistoryError(f"the history here has no commit {commit} ({' '.join(reason)})") from None
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as unfinished:
        made = Path(unfinished) / commit
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(made / "sources", filter="data")
        _link_packages(made)
        made.rename(found)  # whole or not at all
    return found


def _link_packages(made: Path) -> None:
    """Make the package `worldloom` of links, by the mapping of names to folders in pyproject.toml."""
    project = tomllib.loads((made / "sources" / "pyproject.toml").read_text())
    folders: dict[str, str] = project["tool"]["setuptools"]["package-dir"]
    package = made / "worldloom"
    package.mkdir()
    for file in (made / "sources" / folders.pop("worldloom")).iterdir():
        (package / file.name).symlink_to(Path("../sources") / file.relative_to(made / "sources"))
    for name, path in folders.items():
        (package / name.removeprefix("worldloom.")).symlink_to(Path("../sources") / path)
