"""How cost grows: a step takes so much however small, so much for each lane, and so much for each pixel."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from worldloom.profiler.measure import Measured


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
