"""auto chooses a graphics card where one works and the CPU elsewhere, and explains it."""

import subprocess
import sys

import pytest

from worldloom.render.choose import Choice, choose, explain, make_renderer
from worldloom.render.devices import Device

CARD = Device(index=1, is_software=False, file="/dev/dri/card0", name="Some Card, OpenGL 4.6")
BROKEN = Device(index=0, is_software=False, file="/dev/dri/card1", problem="its driver crashed (signal 11)")
SOFTWARE = Device(index=2, is_software=True, file=None)


@pytest.mark.parametrize(
    ("devices", "name", "device", "reason"),
    [
        ([], "cpu", None, "no graphics device"),
        ([SOFTWARE], "cpu", None, "no graphics card"),
        ([SOFTWARE, CARD], "gl", 1, "Some Card"),
        ([BROKEN, CARD], "gl", 1, "Some Card"),
        ([BROKEN, SOFTWARE], "cpu", None, "crashed"),
    ],
)
def test_auto(devices: list[Device], name: str, device: int | None, reason: str) -> None:
    choice = choose("auto", devices=devices)
    assert (choice.name, choice.device) == (name, device)
    assert reason in choice.reason
    assert explain(choice).startswith(f"auto chooses {name}")


def test_auto_looks_only_at_the_device_it_is_given() -> None:
    assert choose("auto", 2, [SOFTWARE, CARD]).name == "cpu"
    assert choose("auto", 1, [SOFTWARE, CARD]).device == 1


def test_gl_takes_a_card_before_software_and_the_device_it_is_given_before_both() -> None:
    assert choose("gl", devices=[SOFTWARE, CARD]).device == 1
    assert choose("gl", devices=[SOFTWARE]).device is None
    assert choose("gl", 2, [SOFTWARE, CARD]).device == 2


def test_what_was_asked_for_is_not_explained_away() -> None:
    assert explain(Choice("cpu", None, "The cpu renderer was asked for."), "cpu") == "The cpu renderer was asked for."


@pytest.mark.parametrize(
    ("name", "device", "message"),
    [
        ("vulkan", None, "'vulkan': expected one of auto, gl, cpu"),
        ("gl", 9, "device 9: expected 2 or 1"),
        ("cpu", 0, "0"),
    ],
)
def test_what_cannot_be_had_is_refused(name: str, device: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose(name, device, [SOFTWARE, CARD])


def test_the_cpu_renderer_loads_no_graphics_library() -> None:
    program = """
import sys
from worldloom.render.choose import make_renderer
make_renderer("cpu", threads=1).close()
assert "moderngl" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.gl
def test_gl_by_name() -> None:
    renderer = make_renderer("gl")
    assert renderer.name == "gl"
    renderer.close()
