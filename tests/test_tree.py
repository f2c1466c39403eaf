"""The tree is tidy."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGING = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
PACKAGES = {folder: ROOT / folder for folder in PACKAGING["package-dir"].values()}
MOST_LINES = 400


def test_every_package_at_the_top_is_installed() -> None:
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_a_docstring_and_is_typed(package: str) -> None:
    assert ast.get_docstring(ast.parse((PACKAGES[package] / "__init__.py").read_text()))
    assert (PACKAGES[package] / "py.typed").is_file()


def test_no_file_is_too_long_to_read() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for folder in [*PACKAGES.values(), ROOT / "scripts", ROOT / "examples"]
        for path in folder.rglob("*.py")
        if "_pb2" not in path.name  # generated
    }
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}
