"""docs/worlds.md agrees with `worldloom describe`, and its images exist."""

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import worlds_page
from scripts.worlds_images import SHEET_SHAPE, draw_cameras
from tests.support.determinism import check_same_bytes
from worldloom.render.renderer import Renderer
from worldloom.worlds.describe import describe
from worldloom.worlds.registry import Registry


@pytest.fixture
def forget_balloon() -> Iterator[None]:
    yield
    sys.modules.pop("balloon", None)


def png_size(path: Path) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", path.read_bytes(), 16)
    return height, width


def test_the_page_is_what_would_be_made_now() -> None:
    assert worlds_page.PAGE.read_text() == worlds_page.page(), "run `make docs`, look at the images, commit both"


def test_every_camera_has_an_image() -> None:
    for family in worlds_page.families():
        for camera in describe(family)["cameras"]:
            file = worlds_page.IMAGES / worlds_page.image_name(family.name, camera["name"])
            assert png_size(file) == SHEET_SHAPE[:2]


@pytest.mark.parametrize("name", worlds_page.FAMILIES)
def test_images_can_be_drawn(name: str, cpu: Renderer) -> None:
    [family] = [one for one in worlds_page.families() if one.name == name]
    sheets = draw_cameras(family, cpu)
    assert "eye" in sheets
    assert {sheet.shape for sheet in sheets.values()} == {SHEET_SHAPE}


def test_no_image_is_left_over() -> None:
    names = {file.name for file in worlds_page.IMAGES.iterdir()}
    shown = worlds_page.PAGE.read_text() + worlds_page.TUTORIAL.read_text()
    assert {name for name in names if f"worlds/{name}" not in shown} == set()


def test_the_tutorial_draws_its_image(
    tmp_path: Path, fresh_registry: Registry, forget_balloon: None, capsys: pytest.CaptureFixture[str]
) -> None:
    worlds_page.run_tutorial(tmp_path)
    assert "coins collected" in capsys.readouterr().out
    assert "balloon" in fresh_registry.known()
    assert png_size(tmp_path / "balloon.png") == png_size(worlds_page.IMAGES / "balloon.png")


def test_the_tutorial_keeps_the_rules_it_states(tmp_path: Path, fresh_registry: Registry, forget_balloon: None) -> None:
    worlds_page.run_tutorial(tmp_path)
    check_same_bytes(lambda assets: fresh_registry.find("balloon")({}, assets))


def test_the_tutorial_is_as_short_as_it_says() -> None:
    code = worlds_page.TUTORIAL.read_text().partition("```python\n")[2].partition("```")[0]
    assert len(code.splitlines()) <= 100
