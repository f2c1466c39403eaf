"""The tree is tidy."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGING = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
ROOMS = {name.removeprefix("worldloom."): ROOT / folder for name, folder in PACKAGING["package-dir"].items()}
MOST_LINES = 400


def test_every_package_at_the_top_is_an_installed_room() -> None:
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_it_is_for_and_is_typed(room: str) -> None:
    assert ast.get_docstring(ast.parse((ROOMS[room] / "__init__.py").read_text()))
    assert (ROOMS[room] / "py.typed").is_file()


def test_no_file_is_too_long_to_read() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for folder in [*ROOMS.values(), ROOT / "scripts", ROOT / "examples"]
        for path in folder.rglob("*.py")
        if "_pb2" not in path.name  # generated
    }
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}
