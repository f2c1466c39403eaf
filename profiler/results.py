"""Results of a sweep: its measurements, a fit of how cost grows with lanes and pixels, and both as JSON.

docs/profiling.md describes every field of the JSON.
"""

import importlib.metadata
import itertools
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import Any

import numpy as np

from worldloom.profiler.measure import Configuration, Measurement
from worldloom.server.engine.timing import STAGES


@dataclass(frozen=True)
class CostFit:
    """A fit: seconds of a step = fixed_s + lane_s × lanes + pixel_s × lanes × pixels of a frame.

    The seconds are those that a step takes, or processor time of one side.
    """

    group: tuple[str, str, str, str]
    """Family, outputs, renderer, transport."""
    fixed_s: float
    lane_s: float | None
    """None where all configurations have the same lanes: the term cannot be separated from the others."""
    pixel_s: float | None
    """None where all configurations have the same size."""
    points: int
    median_error: float
    """Relative error of the fit: median over the configurations."""
    largest_error: float
    """The same: the largest."""

    def step_s(self, lanes: float, pixels: int) -> float:
        """Return the time of a step by the fit."""
        return self.fixed_s + (self.lane_s or 0.0) * lanes + (self.pixel_s or 0.0) * lanes * pixels


def _step_s(one: Measurement) -> float | None:
    return one.step_s


def _client_cpu_s(one: Measurement) -> float | None:
    return one.client_cpu_s / one.steps


def _server_cpu_s(one: Measurement) -> float | None:
    return None if one.server_cpu_s is None else one.server_cpu_s / one.steps


CPU_SIDES = {"client": _client_cpu_s, "server": _server_cpu_s}
"""Processor time of a step, by the side that spends it."""


def fit_all(
    measured: Iterable[Measurement], seconds_of: Callable[[Measurement], float | None] = _step_s
) -> list[CostFit]:
    """Return a fit of a step's seconds for each group of configurations, where enough of them have any."""
    groups: dict[tuple[str, str, str, str], list[tuple[int, int, float]]] = {}
    for one in measured:
        seconds = seconds_of(one)
        if seconds:
            point = (one.configuration.lanes, one.configuration.pixels, seconds)
            groups.setdefault(one.configuration.group(), []).append(point)
    found = [fit(group, points) for group, points in groups.items()]
    return [one for one in found if one is not None]


def fit(group: tuple[str, str, str, str], points: Sequence[tuple[int, int, float]]) -> CostFit | None:
    """Fit (lanes, pixels, seconds) with coefficients of at least 0 and least relative error; None if too few."""
    lanes, pixels, seconds = (np.array(column, np.float64) for column in zip(*points, strict=True))
    terms = {"fixed_s": np.ones_like(lanes)}
    if len(set(lanes.tolist())) > 1:
        terms["lane_s"] = lanes
    if len(set(pixels.tolist())) > 1:
        terms["pixel_s"] = lanes * pixels
    # With no more points than terms the fit would be exact and its error meaningless.
    if len(terms) == 1 or len(points) <= len(terms) or np.linalg.matrix_rank(_scaled(terms, seconds)) < len(terms):
        return None
    coefficients = _least_squares(_scaled(terms, seconds)) / _largest(terms)
    found: dict[str, float] = dict(zip(terms, coefficients.tolist(), strict=True))
    errors = np.abs(sum(found[name] * terms[name] for name in terms) / seconds - 1)
    return CostFit(
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
    """Return a column for each term, rows divided by the measured time: relative errors count alike."""
    scaled: np.ndarray = np.stack(list(terms.values()), axis=1) / _largest(terms) / seconds[:, None]
    return scaled


def _least_squares(columns: np.ndarray) -> np.ndarray:
    """Return the coefficients of at least 0 whose sum of columns is closest to 1, trying every subset of terms."""
    best, least = np.zeros(columns.shape[1]), np.inf
    for used in itertools.product((False, True), repeat=columns.shape[1]):
        found = np.zeros(columns.shape[1])
        if any(used):
            found[list(used)] = np.linalg.lstsq(columns[:, list(used)], np.ones(len(columns)), rcond=None)[0]
        error = float(((columns @ found - 1) ** 2).sum())
        if (found >= 0).all() and error < least:
            best, least = found, error
    return best


FORMAT = 1


@dataclass
class SweepResult:
    """Measurements of a sweep so far."""

    settings: Mapping[str, Mapping[str, Any]]
    """Settings of the worlds, by family."""
    seconds: float
    """Measured time of each configuration."""
    planned: int
    """Number of configurations."""
    measured: list[Measurement] = field(default_factory=list)
    failed: list[tuple[Configuration, str]] = field(default_factory=list)
    """Configurations that could not be measured, and why."""
    when: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))

    @property
    def fits(self) -> list[CostFit]:
        """Fits of how cost grows with lanes and pixels."""
        return fit_all(self.measured)

    @property
    def cpu_fits(self) -> dict[str, list[CostFit]]:
        """The same of the processor time of a step, by side: client and server."""
        return {side: fit_all(self.measured, seconds_of) for side, seconds_of in CPU_SIDES.items()}

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
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
            "configurations": [_measurement_dict(one) for one in self.measured],
            "failed": [
                {**_configuration_dict(configuration), "problem": problem} for configuration, problem in self.failed
            ],
            "fits": [_fit_dict(one) for one in self.fits],
            "cpu_fits": {side: [_fit_dict(one) for one in fits] for side, fits in self.cpu_fits.items()},
        }


def machine() -> dict[str, Any]:
    """Return the processor, cores, system and Python that this runs on."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _configuration_dict(configuration: Configuration) -> dict[str, Any]:
    return {
        "family": configuration.family,
        "lanes": configuration.lanes,
        "width": configuration.width,
        "height": configuration.height,
        "outputs": list(configuration.outputs),
        "renderer": configuration.renderer,
        "transport": configuration.transport,
    }


def _measurement_dict(one: Measurement) -> dict[str, Any]:
    frames = one.steps * one.configuration.lanes
    return {
        **_configuration_dict(one.configuration),
        "device": one.device,
        "steps": one.steps,
        "seconds": one.seconds,
        "frames_per_s": one.frames_per_s,
        "us_per_frame": one.frame_us,
        "step_ms": {"median": one.step_ms[0], "p95": one.step_ms[1]},
        "cpu_us_per_frame": {
            side: None if (seconds := seconds_of(one)) is None else 1e6 * seconds / one.configuration.lanes
            for side, seconds_of in CPU_SIDES.items()
        },
        "wall_s": one.wall_s,
        "accounted": one.accounted,
        "stage_share": one.shares,
        "stage_us_per_frame": {stage: 1e6 * seconds / frames for stage, seconds in one.stage_s.items()},
    }


def _fit_dict(one: CostFit) -> dict[str, Any]:
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
    """Return the processor's name of itself."""
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
