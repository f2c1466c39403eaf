"""`worldloom doctor` says what there is, what is taken and why, and what to install."""

import argparse
import json

import pytest

from worldloom.render.devices import Device
from worldloom.server.commands import doctor

CARD = Device(index=0, is_software=False, file="/dev/dri/card0", name="Some Card, OpenGL 4.6")
SOFTWARE = Device(index=0, is_software=True, file=None, name="llvmpipe, OpenGL 4.5")
BROKEN = Device(index=0, is_software=False, file=None, problem="its driver crashed (signal 11)")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine with nothing but a processor."""
    set_machine(monkeypatch, [], missing=["libEGL.so.1 (the EGL library)"])
    return monkeypatch


def set_machine(
    monkeypatch: pytest.MonkeyPatch, devices: list[Device], missing: list[str], cpu_problem: str | None = None
) -> None:
    monkeypatch.setattr(doctor, "list_devices", lambda: devices)
    monkeypatch.setattr(doctor, "probe", lambda device: device)
    monkeypatch.setattr(doctor, "missing_parts", lambda: missing)
    monkeypatch.setattr(doctor, "_cpu_problem", lambda: cpu_problem)


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    doctor.add_arguments(parser)
    return doctor.run(parser.parse_args(words))


def test_without_graphics_it_draws_on_the_processor_and_says_what_is_missing(
    machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 0
    text = capsys.readouterr().out
    assert "auto chooses cpu: no graphics device was found" in text
    assert "- libEGL.so.1 (the EGL library)" in text
    assert "sudo apt-get install" in text
    for name in ("python", "numpy", "numba", "moderngl", "kernel cache", "threads"):
        assert f"  {name} " in text


def test_with_a_card_nothing_is_missing(machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    set_machine(machine, [CARD], missing=[])
    assert run() == 0
    text = capsys.readouterr().out
    assert "auto chooses gl on device 0: Some Card, OpenGL 4.6 is a graphics card." in text
    assert "/dev/dri/card0" in text
    assert "apt-get" not in text


def test_software_gl_is_offered_but_not_chosen(machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    set_machine(machine, [SOFTWARE], missing=[])
    assert run() == 0
    text = capsys.readouterr().out
    assert "auto chooses cpu" in text
    assert "--renderer gl --device 0" in text


def test_json_says_the_same(machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    set_machine(machine, [SOFTWARE], missing=["a driver"])
    assert run("--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["choice"]["name"] == "cpu"
    assert found["devices"][0]["name"] == "llvmpipe, OpenGL 4.5"
    assert found["missing"] == ["a driver"]
    assert found["install"].startswith("sudo apt-get install")


def test_where_the_cpu_renderer_does_not_load_opengl_is_offered(
    machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_machine(machine, [SOFTWARE], missing=[], cpu_problem="ImportError: no numba")
    assert run() == 0
    text = capsys.readouterr().out
    assert "cpu cannot be used here: ImportError: no numba" in text
    assert "--renderer gl --device 0" in text


def test_a_machine_that_cannot_draw_at_all_is_a_failure(
    machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_machine(machine, [BROKEN], missing=[], cpu_problem="ImportError: no numba")
    assert run() == 1
    text = capsys.readouterr().out
    assert "Nothing can draw" in text
    assert "its driver crashed (signal 11)" in text


def test_an_unknown_device_is_refused(machine: pytest.MonkeyPatch) -> None:
    set_machine(machine, [CARD], missing=[])
    with pytest.raises(ValueError, match="no graphics device 4: expected 0"):
        run("--device", "4")


@pytest.mark.gl
def test_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert "Graphics devices" in capsys.readouterr().out
