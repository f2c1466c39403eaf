"""An earlier version can be imported beside this one, and a clone without history says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from worldloom.bench.previous_version import HistoryError, extract

PROJECT = """
[tool.setuptools.package-dir]
"worldloom" = "front"
"worldloom.client" = "client"
"""
WHERE = "import worldloom, worldloom.client.names as names; print(worldloom.__file__, names.VERSION)"


def git(root: Path, *arguments: str) -> str:
    """Run git in a repository."""
    identity = ["-c", "user.name=Tests", "-c", "user.email=tests@example.org"]
    done = subprocess.run(["git", *identity, *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with packages in folders as here, and two versions of them."""
    root = tmp_path / "repository"
    for folder in ("front", "client"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").touch()
    (root / "pyproject.toml").write_text(PROJECT)
    git(tmp_path, "init", "--quiet", str(root))
    for version in (1, 2):
        (root / "client" / "names.py").write_text(f"VERSION = {version}\n")
        git(root, "add", ".")
        git(root, "commit", "--quiet", "--message", f"Version {version}")
    return root


def test_that_version_is_imported_and_not_this_one(repository: Path, tmp_path: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD~1")
    made = extract(commit, repository, tmp_path / "out")
    said = subprocess.run(
        [sys.executable, "-c", WHERE],
        env={**os.environ, "PYTHONPATH": str(made)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert said == [str(made / "worldloom" / "__init__.py"), "1"]
    assert extract(commit, tmp_path / "no repository", tmp_path / "out") == made, "it is made once"
    assert [path.name for path in (tmp_path / "out").iterdir()] == [commit]


def test_a_commit_that_is_not_there(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"the history here has no commit 0123456789ab \(.+\)"):
        extract("0123456789ab", repository, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_git(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HistoryError, match="git is not installed"):
        extract("HEAD", repository, tmp_path / "out")
