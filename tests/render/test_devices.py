"""Devices are found without drawing, failing drivers are reported, and missing parts come with a command to install."""

import subprocess
import sys

import pytest

from worldloom.render import devices
from worldloom.render.devices import Device, explain_missing, list_devices, missing_parts, probe


@pytest.mark.gl
def test_every_device_found_can_be_asked_for_its_name() -> None:
    found = list_devices()
    assert [device.index for device in found] == list(range(len(found)))
    assert found
    named = [probe(device) for device in found]
    assert any(device.name and "OpenGL 4." in device.name for device in named)
    assert all(device.name or device.problem for device in named)


@pytest.mark.gl
def test_a_software_driver_is_known_as_one() -> None:
    named = [probe(device) for device in list_devices()]
    software = [device for device in named if device.name and "llvmpipe" in device.name]
    assert all(device.is_software for device in software)


@pytest.mark.gl
def test_a_device_that_is_not_there_is_a_problem_not_an_error() -> None:
    asked = probe(Device(index=77, is_software=False, file=None))
    assert asked.name is None
    assert asked.problem is not None
    assert "77" in asked.problem


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("import os; os.kill(os.getpid(), 11)", "crashed (signal 11)"),
        ("raise RuntimeError('no such chip')", "no such chip"),
        ("import sys; sys.exit(3)", "gave no reason"),
        ("import time; time.sleep(60)", "did not answer within 1 s"),
    ],
)
def test_a_broken_driver_cannot_take_us_down(monkeypatch: pytest.MonkeyPatch, program: str, problem: str) -> None:
    monkeypatch.setattr(devices, "_PROBE", program)
    asked = probe(Device(index=0, is_software=False, file=None), timeout_s=1.0 if "sleep" in program else 30.0)
    assert problem in str(asked.problem)


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "EGL_LIBRARY", "libNoSuchEGL.so.1")
    assert list_devices() == []
    assert any("libNoSuchEGL.so.1" in part for part in missing_parts())
    assert "apt-get install" in explain_missing()
    assert "libegl1" in explain_missing()


def test_missing_drivers_are_told_from_missing_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_load", lambda library: object())
    monkeypatch.setattr(devices, "list_devices", list)
    monkeypatch.setattr(devices, "_VENDOR_FOLDERS", ("/no/such/folder",))
    assert [part.split(" (")[0] for part in missing_parts()] == ["an EGL vendor"]


@pytest.mark.gl
def test_a_context_that_cannot_be_made_says_why_and_what_else_there_is() -> None:
    program = "from worldloom.render.gl.context import GLContext; GLContext(77)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "device 77" in done.stderr
    assert "cpu renderer" in done.stderr
