"""The picture of a learning curve shows the numbers it was given."""

from pathlib import Path

import numpy as np
import pytest

import learning_curve

BETWEEN = (-1.0, 1.0)


def drawn(monkeypatch: pytest.MonkeyPatch, curve: list[tuple[int, float]], random_return: float) -> np.ndarray:
    pictures: list[np.ndarray] = []
    monkeypatch.setattr(learning_curve, "write_png", lambda path, pixels: pictures.append(pixels))
    learning_curve.draw_learning_curve(Path("unused.png"), curve, random_return, BETWEEN, 200)
    [picture] = pictures
    return picture


def height_of(picture: np.ndarray, color: tuple[int, int, int], x: float) -> float:
    """The return at which a column of the plot has this colour, x from 0 at its left to 1."""
    left, right = learning_curve.LEFT, picture.shape[1] - learning_curve.RIGHT
    top, bottom = learning_curve.TOP, picture.shape[0] - learning_curve.BOTTOM
    column = picture[:, round(left + x * (right - left))]
    rows = np.flatnonzero((column == color).all(axis=1))
    assert len(rows) > 0
    return float(1 - 2 * (rows.mean() - top) / (bottom - top))


def test_lines_are_where_the_numbers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = drawn(monkeypatch, [(0, -0.9), (50_000, 0.3), (100_000, 0.3)], random_return=-0.6)
    pixel = 2 / (learning_curve.HEIGHT - learning_curve.TOP - learning_curve.BOTTOM)
    for x, expected in ((0.1, -0.66), (0.25, -0.3), (0.52, 0.3), (0.6, 0.3)):
        assert height_of(picture, learning_curve.BLUE, x) == pytest.approx(expected, abs=2 * pixel)
    # The first dash: it begins at the left, where the curve has not come up to it yet.
    assert height_of(picture, learning_curve.ORANGE, 0.005) == pytest.approx(-0.6, abs=2 * pixel)


@pytest.mark.parametrize("steps", [1, 32, 4096, 99_999, 100_000, 12_345_678])
@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0])
def test_any_curve_can_be_drawn(monkeypatch: pytest.MonkeyPatch, steps: int, value: float) -> None:
    picture = drawn(monkeypatch, [(steps, value)], random_return=value)
    assert (picture == learning_curve.INK).all(axis=2).any()
    edge = np.concatenate([picture[[0, -1]].reshape(-1, 3), picture[:, [0, -1]].reshape(-1, 3)])
    assert (edge == 255).all()  # nothing is cut off
