"""How cost grows: a step takes so much however small, so much for each lane, and so much for each pixel.

All that a sweep found, and the same as JSON. docs/profiling.md says what each field is.
"""

import importlib.metadata
import itertools
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import Any

import numpy as np

from worldloom.profiler.measure import Case, Measured
from worldloom.server.engine.timing import STAGES


@dataclass(frozen=True)
class Fit:
    """seconds of a step = fixed_s + lane_s × lanes + pixel_s × lanes × pixels of a picture."""

    group: tuple[str, str, str, str]
    """Family, outputs, renderer, transport."""
    fixed_s: float
    lane_s: float | None
    """None where all cases had equally many lanes, or pictures of one size: then it cannot be told from the others."""
    pixel_s: float | None
    points: int
    median_error: float
    """Of what was measured: by how much the fit misses half of the cases at most."""
    largest_error: float

    def step_s(self, lanes: int, pixels: int) -> float:
        """What a step should take."""
        return self.fixed_s + (self.lane_s or 0.0) * lanes + (self.pixel_s or 0.0) * lanes * pixels


def fit_all(measured: Iterable[Measured]) -> list[Fit]:
    """A fit for all cases that differ in lanes and size alone, where there are enough of them."""
    groups: dict[tuple[str, str, str, str], list[Measured]] = {}
    for one in measured:
        groups.setdefault(one.case.group(), []).append(one)
    fits = []
    for group, members in groups.items():
        points = [(one.case.lanes, one.case.pixels, one.step_s) for one in members]
        found = fit(group, points)
        if found is not None:
            fits.append(found)
    return fits


def fit(group: tuple[str, str, str, str], points: Sequence[tuple[int, int, float]]) -> Fit | None:
    """The coefficients, none below zero, that miss (lanes, pixels, seconds) by the least part; None for too few."""
    lanes, pixels, seconds = (np.array(column, np.float64) for column in zip(*points, strict=True))
    terms = {"fixed_s": np.ones_like(lanes)}
    if len(set(lanes.tolist())) > 1:
        terms["lane_s"] = lanes
    if len(set(pixels.tolist())) > 1:
        terms["pixel_s"] = lanes * pixels
    # With no more points than terms any line would do, and nobody could tell how good it is.
    if len(terms) == 1 or len(points) <= len(terms) or np.linalg.matrix_rank(_scaled(terms, seconds)) < len(terms):
        return None
    coefficients = _least_squares(_scaled(terms, seconds)) / _largest(terms)
    found: dict[str, float] = dict(zip(terms, coefficients.tolist(), strict=True))
    errors = np.abs(sum(found[name] * terms[name] for name in terms) / seconds - 1)
    return Fit(
        group,
        found["fixed_s"],
        found.get("lane_s"),
        found.get("pixel_s"),
        len(points),
        float(median(errors.tolist())),
        float(errors.max()),
    )


def _largest(terms: dict[str, np.ndarray]) -> np.ndarray:
    return np.array([column.max() for column in terms.values()])


def _scaled(terms: dict[str, np.ndarray], seconds: np.ndarray) -> np.ndarray:
    """A column for each term, each row in parts of what was measured: an error of a tenth counts alike everywhere."""
    scaled: np.ndarray = np.stack(list(terms.values()), axis=1) / _largest(terms) / seconds[:, None]
    return scaled


def _least_squares(columns: np.ndarray) -> np.ndarray:
    """The coefficients of at least 0 that make the columns come closest to 1: the best of all choices of terms."""
    best, least = np.zeros(columns.shape[1]), np.inf
    for used in itertools.product((False, True), repeat=columns.shape[1]):
        found = np.zeros(columns.shape[1])
        if any(used):
            found[list(used)] = np.linalg.lstsq(columns[:, list(used)], np.ones(len(columns)), rcond=None)[0]
        missed = float(((columns @ found - 1) ** 2).sum())
        if (found >= 0).all() and missed < least:
            best, least = found, missed
    return best


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
