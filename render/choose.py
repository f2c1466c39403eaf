"""Choice of the renderer: gl where there is a graphics card, cpu where there is none.

A software OpenGL driver is never chosen automatically: the cpu renderer draws the same frames several times faster.
"""

from dataclasses import dataclass

from worldloom.render.devices import Device, explain_missing, list_devices, probe
from worldloom.render.renderer import Renderer

NAMES = ("auto", "gl", "cpu")


@dataclass(frozen=True)
class Choice:
    """A chosen renderer, and the reason in one sentence."""

    name: str
    device: int | None
    """EGL number of the device that `gl` draws on; None for the first that EGL lists."""
    reason: str


def choose(name: str = "auto", device: int | None = None, devices: list[Device] | None = None) -> Choice:
    """Choose the renderer for a name on this machine; `devices` are the result of `list_devices`, if known."""
    if name not in NAMES:
        raise ValueError(f"unknown renderer {name!r}: expected one of {', '.join(NAMES)}")
    if name == "cpu":
        if device is not None:
            raise ValueError(f"device is {device} with the cpu renderer: expected none, devices are for gl and auto")
        return Choice("cpu", None, "The cpu renderer was asked for.")
    known = list_devices() if devices is None else devices
    if device is not None:
        known = [one for one in known if one.index == device]
        if not known:
            raise ValueError(f"there is no graphics device {device}: expected {_numbers(devices)}")
    if name == "gl":
        first_card = next((one.index for one in known if not one.is_software), None)
        return Choice("gl", first_card if device is None else device, "The gl renderer was asked for.")
    return _automatic(known)


def make_renderer(name: str = "auto", device: int | None = None, threads: int | None = None) -> Renderer:
    """Create the renderer for a name; `threads` is for the cpu renderer, `device` for gl.

    The calling thread is the one that must draw with it.
    """
    choice = choose(name, device)
    # Imported here: the cpu renderer must work without OpenGL, and either takes a while to import.
    if choice.name == "gl":
        from worldloom.render.gl.renderer import GLRenderer

        return GLRenderer(choice.device)
    from worldloom.render.cpu import CPURenderer

    return CPURenderer(threads)


def explain(choice: Choice, asked: str = "auto") -> str:
    """Return a sentence that says what was chosen and why."""
    if asked != "auto":
        return choice.reason
    on = f" on device {choice.device}" if choice.device is not None else ""
    return f"auto chooses {choice.name}{on}: {choice.reason}"


def _automatic(devices: list[Device]) -> Choice:
    if not devices:
        return Choice("cpu", None, f"no graphics device was found. {explain_missing()}")
    problems = []
    for device in devices:
        probed = device if device.is_software or device.name or device.problem else probe(device)
        if probed.problem:
            problems.append(f"device {probed.index} cannot be used ({probed.problem})")
        elif not probed.is_software:
            return Choice("gl", probed.index, f"{probed.name} is a graphics card.")
    if problems:
        return Choice("cpu", None, f"{'; '.join(problems)}.")
    return Choice("cpu", None, "there is no graphics card, and cpu draws the same frames faster than software OpenGL.")


def _numbers(devices: list[Device] | None) -> str:
    known = list_devices() if devices is None else devices
    if not known:
        return f"none, since none was found. {explain_missing()}"
    return " or ".join(str(device.index) for device in known)
