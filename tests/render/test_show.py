"""Depth and labels as colours, and many pictures as one."""

import numpy as np
import pytest

from worldloom.demo.film import LABEL_PALETTE, depth_colors, label_colors, tile


def test_near_is_light_and_nothing_is_darkest() -> None:
    depth = np.array([[[1.0, 2.0, 4.0, 100.0]]], np.float32)
    brightness = depth_colors(depth, 100.0).astype(int).sum(axis=-1)[0, 0]
    assert (np.diff(brightness) < 0).all()


def test_each_picture_has_all_the_colours_and_its_own_far_plane() -> None:
    ramp = np.linspace(1, 2, 64, dtype=np.float32).reshape(8, 8)
    depth = np.stack([ramp, 10 * ramp])
    near, far = depth_colors(depth, np.array([100.0, 100.0], np.float32))
    np.testing.assert_allclose(near.astype(int), far, atol=1)  # rounding
    cut = depth_colors(depth, np.array([100.0, 15.0], np.float32))[1]
    assert (cut[10 * ramp >= 15] == cut[-1, -1]).all()


@pytest.mark.parametrize("value", [0.0, -3.0, 5.0, 100.0])
def test_depth_that_is_the_same_everywhere_has_one_colour(value: float) -> None:
    colors = depth_colors(np.full((2, 4, 4), value, np.float32), 100.0)
    assert len(np.unique(colors.reshape(-1, 3), axis=0)) == 1


def test_every_label_has_its_own_colour() -> None:
    assert LABEL_PALETTE.shape == (256, 3)
    assert len(np.unique(LABEL_PALETTE, axis=0)) == 256
    labels = np.array([[0, 255], [7, 7]], np.uint8)
    assert (label_colors(labels) == LABEL_PALETTE[labels]).all()


def test_tiles_lie_row_after_row_with_gaps_around_them() -> None:
    pictures = np.arange(5, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 3, 3), np.uint8)
    sheet = tile(pictures, columns=2, gap=1, background=(9, 8, 7))
    assert sheet.shape == (3 * 3 + 1, 2 * 4 + 1, 3)
    for number in range(6):
        y, x = 1 + 3 * (number // 2), 1 + 4 * (number % 2)
        expected = number if number < 5 else (9, 8, 7)
        assert (sheet[y : y + 2, x : x + 3] == expected).all()
    assert (sheet[0] == (9, 8, 7)).all()
    assert (sheet[:, 4] == (9, 8, 7)).all()


@pytest.mark.parametrize(("shape", "columns", "gap"), [((0, 2, 2, 3), 1, 0), ((2, 2, 3), 1, 0), ((1, 2, 2, 3), 0, 0)])
def test_what_cannot_be_tiled_is_refused(shape: tuple[int, ...], columns: int, gap: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        tile(np.zeros(shape, np.uint8), columns, gap)
