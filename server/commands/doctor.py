"""`worldloom doctor`: print graphics devices, the renderer that is chosen and why, and what to install."""

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from worldloom.kernels.compiling import CACHE_FOLDER
from worldloom.render.choose import Choice, choose, explain
from worldloom.render.devices import INSTALL_COMMAND, Device, list_devices, missing_parts, probe
from worldloom.terminal import print_columns, print_heading, print_text

_PACKAGES = {
    "worldloom": "",
    "numpy": "arrays",
    "numba": "compiles the kernels for this processor",
    "moderngl": "talks to OpenGL",
}


@dataclass(frozen=True)
class Findings:
    """All results of the examination."""

    python: str
    versions: dict[str, str | None]
    threads: int
    cache_folder: str
    cache_bytes: int
    devices: list[Device]
    choice: Choice
    """Renderer that `auto` chooses."""
    cpu_problem: str | None
    missing: list[str]

    @property
    def usable_devices(self) -> list[int]:
        """Devices that the gl renderer can use."""
        return [device.index for device in self.devices if not device.problem]

    @property
    def can_draw(self) -> bool:
        """Some renderer works, chosen automatically or not."""
        return self.cpu_problem is None or bool(self.usable_devices)

    def as_dict(self) -> dict[str, object]:
        """Return the results as plain data for JSON."""
        install = INSTALL_COMMAND if self.missing else None
        return {**asdict(self), "can_draw": self.can_draw, "install": install}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `worldloom doctor`."""
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument("--device", type=int, metavar="N", help="look at this graphics device only")


def run(args: argparse.Namespace) -> int:
    """Examine this machine and print the results; return 0 if some renderer works, 1 if not."""
    findings = examine(args.device)
    if args.json:
        print(json.dumps(findings.as_dict(), indent=2))
    else:
        _print(findings)
    return 0 if findings.can_draw else 1


def examine(device: int | None = None) -> Findings:
    """Examine this machine. Every driver is tried in a process of its own, which takes about a second each."""
    found = list_devices()
    if device is not None:
        choose("gl", device, found)  # raises an error if there is no such device
        found = [one for one in found if one.index == device]
    devices = [probe(one) for one in found]
    return Findings(
        python=platform.python_version(),
        versions={name: _version(name) for name in _PACKAGES},
        threads=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        cache_folder=str(CACHE_FOLDER),
        cache_bytes=sum(file.stat().st_size for file in Path(CACHE_FOLDER).rglob("*") if file.is_file()),
        devices=devices,
        choice=choose("auto", device, devices),
        cpu_problem=_cpu_problem(),
        missing=missing_parts(),
    )


def _print(findings: Findings) -> None:
    """Print the findings as text for people."""
    packages = [("python", findings.python, "")]
    packages += [(name, findings.versions[name] or "not installed", why) for name, why in _PACKAGES.items()]
    cache = f"{findings.cache_folder} ({findings.cache_bytes / 1e6:.1f} MB)"
    print_heading("Versions")
    print_columns(packages)
    print()
    print_heading("Processor")
    print_columns([("threads", f"{findings.threads} that the cpu renderer may use"), ("kernel cache", cache)])
    _print_section(
        "Graphics devices, as EGL lists them (EGL is OpenGL without a window)", _device_lines(findings.devices)
    )
    _print_section("Renderer", _renderer_lines(findings))
    if findings.missing:
        _print_section("Missing for OpenGL", [f"- {part}" for part in findings.missing])
        print()
        print_text("Install with:", indent=2)
        print(f"    {INSTALL_COMMAND}")


def _print_section(title: str, lines: Iterable[str]) -> None:
    print()
    print_heading(title)
    for line in lines:
        text = line.lstrip()
        print_text(text, indent=2 + len(line) - len(text))


def _device_lines(devices: list[Device]) -> list[str]:
    if not devices:
        return ["none"]
    lines = []
    for device in devices:
        kind = "software: it draws on the processor" if device.is_software else "graphics card"
        file = f", {device.file}" if device.file else ""
        lines.append(f"{device.index}  {device.name or 'unknown'}")
        lines.append(f"   cannot be used: {device.problem}" if device.problem else f"   {kind}{file}")
    return lines


def _renderer_lines(findings: Findings) -> list[str]:
    lines = [explain(findings.choice)]
    if findings.cpu_problem:
        lines.append(f"cpu cannot be used here: {findings.cpu_problem}")
    if not findings.can_draw:
        lines.append("Nothing can draw on this machine.")
    elif findings.choice.name == "cpu" and findings.usable_devices:
        first = findings.usable_devices[0]
        lines.append(f"To draw with OpenGL instead: worldloom serve --renderer gl --device {first}")
    return lines


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_problem() -> str | None:
    try:
        importlib.import_module("worldloom.render.cpu")
    except Exception as error:  # any error while loading is the result
        return f"{type(error).__name__}: {error}"
    return None
