"""All that a sweep found, and the same as JSON. docs/profiling.md says what each field is."""

import importlib.metadata
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from worldloom.profiler.cases import Case
from worldloom.profiler.fit import Fit, fit_all
from worldloom.profiler.measure import Measured
from worldloom.server.engine.counters import STAGES

FORMAT = 1


@dataclass
class Findings:
    """What was measured so far."""

    settings: Mapping[str, Mapping[str, Any]]
    """The families' own, by family."""
    seconds: float
    """For each case."""
    planned: int
    """Cases."""
    measured: list[Measured] = field(default_factory=list)
    failed: list[tuple[Case, str]] = field(default_factory=list)
    """Cases that could not be measured, and why."""
    when: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))

    @property
    def fits(self) -> list[Fit]:
        """How cost grows with lanes and pixels."""
        return fit_all(self.measured)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "format": FORMAT,
            "kind": "sweep",
            "version": importlib.metadata.version("worldloom"),
            "when": self.when,
            "machine": machine(),
            "settings": {family: dict(given) for family, given in self.settings.items()},
            "seconds_each": self.seconds,
            "planned": self.planned,
            "is_complete": len(self.measured) == self.planned,
            "stages": list(STAGES),
            "configurations": [_measured(one) for one in self.measured],
            "failed": [{**_case(case), "problem": problem} for case, problem in self.failed],
            "fits": [_fit(one) for one in self.fits],
        }


def machine() -> dict[str, Any]:
    """Where it was measured."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _case(case: Case) -> dict[str, Any]:
    return {
        "family": case.family,
        "lanes": case.lanes,
        "width": case.width,
        "height": case.height,
        "outputs": list(case.outputs),
        "renderer": case.renderer,
        "transport": case.transport,
    }


def _measured(one: Measured) -> dict[str, Any]:
    frames = one.steps * one.case.lanes
    return {
        **_case(one.case),
        "device": one.device,
        "steps": one.steps,
        "seconds": one.seconds,
        "frames_per_s": one.frames_per_s,
        "us_per_frame": one.frame_us,
        "step_ms": {"median": one.step_ms[0], "p95": one.step_ms[1]},
        "wall_s": one.wall_s,
        "accounted": one.accounted,
        "stage_share": one.shares,
        "stage_us_per_frame": {stage: 1e6 * seconds / frames for stage, seconds in one.stage_s.items()},
    }


def _fit(one: Fit) -> dict[str, Any]:
    family, outputs, renderer, transport = one.group
    return {
        "family": family,
        "outputs": outputs.split("+"),
        "renderer": renderer,
        "transport": transport,
        "fixed_us": 1e6 * one.fixed_s,
        "us_per_lane": None if one.lane_s is None else 1e6 * one.lane_s,
        "ns_per_pixel": None if one.pixel_s is None else 1e9 * one.pixel_s,
        "points": one.points,
        "median_error": one.median_error,
        "largest_error": one.largest_error,
    }


def processor() -> str:
    """What the processor calls itself."""
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
