"""The plot of a learning curve shows the numbers it was given."""

from pathlib import Path

import numpy as np
import pytest

import learning_curve
from tests.support.image_files import read_png

BETWEEN = (-1.0, 1.0)


def rgb(color: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(color[1:]))


def drawn(path: Path, curve: list[tuple[int, float]], random_return: float) -> np.ndarray:
    learning_curve.draw_learning_curve(path, curve, random_return, BETWEEN, 200)
    return read_png(path)


def height_of(image: np.ndarray, color: str, x: float) -> float:
    """The return at which a column of the plot has this colour, x from 0 at its left to 1."""
    left, right = learning_curve.LEFT, image.shape[1] - learning_curve.RIGHT
    top, bottom = learning_curve.TOP, image.shape[0] - learning_curve.BOTTOM
    column = image[:, round(left + x * (right - left))]
    rows = np.flatnonzero((column == rgb(color)).all(axis=1))
    assert len(rows) > 0
    return float(1 - 2 * (rows.mean() - top) / (bottom - top))


def test_lines_are_where_the_numbers_are(tmp_path: Path) -> None:
    image = drawn(tmp_path / "curve.png", [(0, -0.9), (50_000, 0.3), (100_000, 0.3)], random_return=-0.6)
    pixel = 2 / (learning_curve.HEIGHT - learning_curve.TOP - learning_curve.BOTTOM)
    for x, expected in ((0.1, -0.66), (0.25, -0.3), (0.52, 0.3), (0.6, 0.3)):
        assert height_of(image, learning_curve.BLUE, x) == pytest.approx(expected, abs=2 * pixel)
    # The first dash: it begins at the left, where the curve has not come up to it yet.
    assert height_of(image, learning_curve.ORANGE, 0.005) == pytest.approx(-0.6, abs=2 * pixel)


@pytest.mark.parametrize("steps", [1, 32, 4096, 99_999, 100_000, 12_345_678])
@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0])
def test_any_curve_can_be_drawn(tmp_path: Path, steps: int, value: float) -> None:
    image = drawn(tmp_path / "curve.png", [(steps, value)], random_return=value)
    assert (image == rgb(learning_curve.INK)).all(axis=2).any()
    edge = np.concatenate([image[[0, -1]].reshape(-1, 3), image[:, [0, -1]].reshape(-1, 3)])
    assert (edge == 255).all()  # nothing is cut off
