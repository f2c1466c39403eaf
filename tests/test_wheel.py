"""worldloom can be installed: as a wheel, which holds every package, from a clone, and editable."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

import worldloom

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = sorted(PYPROJECT["tool"]["setuptools"]["package-dir"].values())
INSTALLED_SUFFIXES = {".py", ".pyi", ".typed", ".glsl", ".proto", ".html", ".css", ".js", ".svg"}

IMPORT_EVERYTHING = """
import importlib, json, pkgutil
import worldloom
found = {"worldloom": worldloom.__file__}
for module in pkgutil.walk_packages(worldloom.__path__, "worldloom."):
    try:
        found[module.name] = importlib.import_module(module.name).__file__
    except ModuleNotFoundError as error:  # of a learning library: the text says which extra has it
        extra = str(error).partition("pip install 'worldloom[")[2]
        assert extra, error
        found[module.name] = extra.removesuffix("]'")
print(json.dumps(found))
"""

USE_FRONT_DOOR = """
import json, sys
import worldloom
heavy = [name for name in ("numpy", "numba", "grpc", "gymnasium", "moderngl", "mujoco") if name in sys.modules]
import worldloom.client
print(json.dumps({
    "heavy": heavy,
    "version": worldloom.__version__,
    "same": worldloom.VectorEnv is worldloom.client.VectorEnv,
    "names": [name for name in worldloom.__all__ if name in dir(worldloom) and hasattr(worldloom, name)],
    "missing": hasattr(worldloom, "nothing"),
    "files": [worldloom.__file__, worldloom.client.__file__],
}))
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a program that sees nothing of this one's search path."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def source_files() -> set[str]:
    """Every file of the packages that a user needs, as the wheel should name it."""
    return {
        f"worldloom/{path.relative_to(ROOT).as_posix().removeprefix('front/')}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in INSTALLED_SUFFIXES or path.name == "py.typed"
    }


def copy_tree(folder: Path) -> Path:
    """Copy what an install reads, since builds read the repository's build/ and write to it."""
    tree = folder / "tree"
    for folder_name in FOLDERS:
        shutil.copytree(ROOT / folder_name, tree / folder_name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, tree)
    return tree


def install(folder: Path, *requirement: str | Path) -> Path:
    """Install worldloom alone into an empty environment, which borrows its dependencies; returns its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    [packages] = folder.glob("venv/lib/python*/site-packages")
    borrowed = Path(sysconfig.get_path("purelib"))
    # Builds without isolation need setuptools. It comes alone, since pip must not see the worldloom of the tests.
    tools = folder / "tools"
    tools.mkdir()
    for path in (*borrowed.glob("setuptools*"), borrowed / "_distutils_hack"):
        (tools / path.name).symlink_to(path)
    (packages / "tools.pth").write_text(f"{tools}\n")
    run(
        *(sys.executable, "-m", "pip", "--python", python, "install"),
        *("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", *requirement),
        cwd=folder,
    )
    # A path named in a .pth file comes after the environment's own packages, and the .pth files in it are not read:
    # so the editable install of the tests stays out.
    (packages / "borrowed.pth").write_text(f"{borrowed}\n")
    return python


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, cwd=copy_tree(folder))
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def fresh_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel."""
    return install(tmp_path_factory.mktemp("fresh"), wheel)


@pytest.fixture(scope="module", params=["wheel", "pip install .", "pip install -e ."])
def installed_python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with worldloom, for each way to install it."""
    if request.param == "wheel":
        python: Path = request.getfixturevalue("fresh_python")
        return python
    folder = tmp_path_factory.mktemp("installed")
    return install(folder, *(["--editable"] if "-e" in request.param else []), copy_tree(folder))


def test_the_wheel_holds_what_the_tree_holds(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert inside == source_files()


def test_every_module_imports_from_the_wheel_alone(fresh_python: Path, tmp_path: Path) -> None:
    found = json.loads(run(fresh_python, "-c", IMPORT_EVERYTHING, cwd=tmp_path).splitlines()[-1])
    expected = {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path in source_files()
        if path.endswith(".py")
    }
    assert set(found) == expected
    adaptors = "worldloom.client.adaptors"
    extras = {f"{adaptors}.{name}": name for name in ("pettingzoo", "rllib", "sb3", "torchrl")}
    extras |= {"worldloom.bench.learners": "sb3", "worldloom.bench.reading": "torch"}
    extras["worldloom.data.torch_datasets"] = "torch"
    for name in [f"{adaptors}.pettingzoo", f"{adaptors}.rllib"]:
        if Path(found[name]).is_absolute():
            del extras[name]  # packages of other extras, borrowed from the tests, are all that it needs
    assert {name: found.pop(name) for name in extras} == extras
    environment = fresh_python.parents[1]
    strangers = {name: path for name, path in found.items() if not Path(path).is_relative_to(environment)}
    assert strangers == {}


def test_the_command_comes_with_it(fresh_python: Path, tmp_path: Path) -> None:
    version = run(fresh_python.with_name("worldloom"), "--version", cwd=tmp_path)
    assert version == f"worldloom {PYPROJECT['project']['version']}\n"


def test_the_families_come_with_it(fresh_python: Path, tmp_path: Path) -> None:
    found = json.loads(run(fresh_python.with_name("worldloom"), "worlds", "--json", cwd=tmp_path))
    assert {one["family"] for one in found} >= set(PYPROJECT["project"]["entry-points"]["worldloom.families"])
    assert [one["problem"] for one in found if one["problem"]] == []


@pytest.mark.parametrize("is_root", [True, False], ids=["in the repository's root", "elsewhere"])
def test_import_worldloom(installed_python: Path, is_root: bool, tmp_path: Path) -> None:
    found = json.loads(run(installed_python, "-c", USE_FRONT_DOOR, cwd=ROOT if is_root else tmp_path))
    files = [Path(file) for file in found.pop("files")]
    assert all(file.is_relative_to(installed_python.parents[2]) for file in files), files
    assert found == {
        "heavy": [],
        "version": PYPROJECT["project"]["version"],
        "same": True,
        "names": worldloom.__all__,
        "missing": False,
    }
