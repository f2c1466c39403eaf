"""The fit finds the coefficients that numbers were made with, and says how far off it is where there are none."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from worldloom.profiler.results import CostFit, fit

GROUP = ("maze", "rgb", "cpu", "local")
LANES = st.lists(st.integers(1, 4096), min_size=2, max_size=5, unique=True)
PIXELS = st.lists(st.sampled_from([64, 256, 1024, 4096, 19_200, 65_536]), min_size=2, max_size=4, unique=True)
COEFFICIENT = st.one_of(st.just(0.0), st.floats(1e-3, 1e3))


def plane(
    fixed_s: float, lane_s: float, pixel_s: float, lanes: list[int], pixels: list[int]
) -> list[tuple[int, int, float]]:
    return [(lane, pixel, fixed_s + lane_s * lane + pixel_s * lane * pixel) for lane in lanes for pixel in pixels]


def found(points: list[tuple[int, int, float]]) -> CostFit:
    made = fit(GROUP, points)
    assert made is not None
    return made


@given(fixed=COEFFICIENT, lane=COEFFICIENT, pixel=COEFFICIENT, lanes=LANES, pixels=PIXELS)
def test_it_recovers_what_the_numbers_were_made_with(
    fixed: float, lane: float, pixel: float, lanes: list[int], pixels: list[int]
) -> None:
    assume(fixed or lane or pixel)
    fixed_s, lane_s, pixel_s = 1e-3 * fixed, 1e-5 * lane, 1e-8 * pixel
    points = plane(fixed_s, lane_s, pixel_s, lanes, pixels)
    made = found(points)
    assert made.points == len(points)
    assert made.median_error <= made.largest_error < 1e-6
    for lane_count, pixel_count, seconds in points:
        assert math.isclose(made.step_s(lane_count, pixel_count), seconds, rel_tol=1e-6)
    # What makes up less than a millionth of everything cannot be told from nothing.
    for got, expected, most in (
        (made.fixed_s, fixed_s, 1),
        (made.lane_s, lane_s, max(lanes)),
        (made.pixel_s, pixel_s, max(lanes) * max(pixels)),
    ):
        assert got is not None
        assert got == pytest.approx(expected, rel=1e-3, abs=1e-5 * max(s for _, _, s in points) / most)


@given(lanes=LANES.filter(lambda some: len(some) > 2), fixed=st.floats(0.1, 10), lane=st.floats(0.01, 10))
def test_with_one_size_pixels_count_with_lanes(lanes: list[int], fixed: float, lane: float) -> None:
    made = found(plane(fixed, lane, 0.0, lanes, [4096]))
    assert made.pixel_s is None
    assert made.lane_s == pytest.approx(lane, rel=1e-6)
    assert made.fixed_s == pytest.approx(fixed, rel=1e-4, abs=1e-6 * lane * max(lanes))


@given(pixels=PIXELS.filter(lambda some: len(some) > 2), fixed=st.floats(0.1, 10), pixel=st.floats(0.01, 10))
def test_with_one_number_of_lanes_they_count_with_the_rest(pixels: list[int], fixed: float, pixel: float) -> None:
    made = found(plane(fixed, 0.0, pixel, [16], pixels))
    assert made.lane_s is None
    assert made.pixel_s == pytest.approx(pixel, rel=1e-6)


@pytest.mark.parametrize(
    "points",
    [
        [(16, 4096, 0.1)],
        [(16, 4096, 0.1), (16, 4096, 0.2)],
        [(16, 4096, 0.1), (64, 1024, 0.2)],
        [(16, 4096, 0.1), (32, 4096, 0.2)],
        [(16, 4096, 0.1), (32, 2048, 0.1), (64, 1024, 0.1), (128, 512, 0.1)],
    ],
    ids=["one", "one twice", "too few", "as many as terms", "all the same pixels"],
)
def test_too_little_to_tell(points: list[tuple[int, int, float]]) -> None:
    assert fit(GROUP, points) is None


def test_it_says_how_far_it_is_off() -> None:
    points = plane(1e-3, 1e-5, 1e-8, [16, 64, 256], [1024, 4096])
    lanes, pixels, seconds = points[2]
    points[2] = (lanes, pixels, 2 * seconds)
    made = found(points)
    worst = max(abs(made.step_s(lane, pixel) / taken - 1) for lane, pixel, taken in points)
    assert made.largest_error == pytest.approx(worst)
    assert made.largest_error > 0.2
    assert made.median_error < made.largest_error


@given(st.lists(st.tuples(st.integers(1, 9999), st.integers(1, 9999), st.floats(1e-6, 1e3)), min_size=3, max_size=12))
def test_costs_are_never_below_zero(points: list[tuple[int, int, float]]) -> None:
    made = fit(GROUP, points)
    if made is not None:
        assert made.fixed_s >= 0
        assert (made.lane_s or 0) >= 0
        assert (made.pixel_s or 0) >= 0
