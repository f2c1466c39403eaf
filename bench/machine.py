"""What a measurement was taken on, in one line."""

import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version

from worldloom.profiler.findings import processor
from worldloom.render.devices import list_devices, probe


def graphics() -> str:
    """The device that OpenGL draws on, as its driver names it."""
    devices = list_devices()
    return (probe(devices[0]).name or "no graphics device that works") if devices else "no graphics device"


def take_cores(count: int) -> int:
    """Let this process, and those it starts from now on, have so many cores; how many there were."""
    available = sorted(os.sched_getaffinity(0))
    if not 1 <= count <= len(available):
        raise ValueError(f"--cores is {count}: expected 1 to {len(available)}, which is what this process has")
    os.sched_setaffinity(0, available[:count])
    return len(available)


def circumstances(packages: Iterable[str]) -> str:
    """Processor, cores in use, versions and date."""
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    count = len(os.sched_getaffinity(0))
    cores = f"{count} core{'' if count == 1 else 's'}"
    today = datetime.now(UTC).date().isoformat()
    return f"{processor()}, {cores} in use; Python {platform.python_version()}, {versions}; {today}"
