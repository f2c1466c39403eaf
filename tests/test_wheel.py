"""The wheel holds every package, and works where neither the repository nor its editable install can help it."""

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

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = sorted(PYPROJECT["tool"]["setuptools"]["package-dir"].values())
INSTALLED_SUFFIXES = {".py", ".pyi", ".typed", ".glsl", ".proto"}

IMPORT_EVERYTHING = """
import importlib, json, pkgutil
import worldloom
found = {"worldloom": worldloom.__file__}
for module in pkgutil.walk_packages(worldloom.__path__, "worldloom."):
    found[module.name] = importlib.import_module(module.name).__file__
print(json.dumps(found))
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from a copy, so that nothing left over in the repository's build/ can slip in."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    for folder_name in FOLDERS:
        shutil.copytree(ROOT / folder_name, tree / folder_name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, tree)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, cwd=tree)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def fresh_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment with just the wheel; what it depends on is lent from the environment of the tests."""
    folder = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    run(
        *(sys.executable, "-m", "pip", "--python", python, "install"),
        *("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", wheel),
        cwd=folder,
    )
    # A path named in a .pth file comes after the environment's own packages, and the .pth files in it are not read:
    # so the hook of the editable install stays out.
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


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
