"""Which renderer draws: the graphics card's where there is a card, the processor's where there is none.

A software OpenGL driver is never chosen by itself: the cpu renderer draws the same pictures several times faster.
"""

from dataclasses import dataclass

from worldloom.render.devices import Device, explain_missing, list_devices, probe
from worldloom.render.renderer import Renderer

NAMES = ("auto", "gl", "cpu")


@dataclass(frozen=True)
class Choice:
    """A renderer, and the reason for it in one sentence."""

    name: str
    device: int | None
    """The EGL number of the device that `gl` draws on; None lets EGL take its first."""
    reason: str


def choose(name: str = "auto", device: int | None = None, devices: list[Device] | None = None) -> Choice:
    """Which renderer a name stands for on this machine. `devices` are those known already, to save asking again."""
    if name not in NAMES:
        raise ValueError(f"unknown renderer {name!r}: expected one of {', '.join(NAMES)}")
    if name == "cpu":
        if device is not None:
            raise ValueError(f"the cpu renderer draws on the processor: a device ({device}) is for gl or auto only")
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
    """Make the renderer that a name stands for; `threads` is for the cpu renderer, `device` for gl.

    The thread that calls this is the one that must draw.
    """
    choice = choose(name, device)
    # Imported here: the cpu renderer must work where there is no OpenGL, and either takes a while to load.
    if choice.name == "gl":
        from worldloom.render.gl.renderer import GLRenderer

        return GLRenderer(choice.device)
    from worldloom.render.cpu import CPURenderer

    return CPURenderer(threads)


def explain(choice: Choice, asked: str = "auto") -> str:
    """One sentence for people: what was chosen and why."""
    if asked != "auto":
        return choice.reason
    on = f" on device {choice.device}" if choice.device is not None else ""
    return f"auto chooses {choice.name}{on}: {choice.reason}"


def _automatic(devices: list[Device]) -> Choice:
    if not devices:
        return Choice("cpu", None, f"no graphics device was found. {explain_missing()}")
    problems = []
    for device in devices:
        asked = device if device.is_software or device.name or device.problem else probe(device)
        if asked.problem:
            problems.append(f"device {asked.index} cannot be used ({asked.problem})")
        elif not asked.is_software:
            return Choice("gl", asked.index, f"{asked.name} is a graphics card.")
    if problems:
        return Choice("cpu", None, f"{'; '.join(problems)}.")
    return Choice(
        "cpu", None, "there is no graphics card, and cpu draws the same pictures faster than software OpenGL."
    )


def _numbers(devices: list[Device] | None) -> str:
    known = list_devices() if devices is None else devices
    if not known:
        return f"none, since none was found. {explain_missing()}"
    return " or ".join(str(device.index) for device in known)
