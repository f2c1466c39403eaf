"""Frames as images: colours of depth and labels, contact sheets, GIF files read by a reader of our own."""

from pathlib import Path

import hypothesis
import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.support.image_files import Gif, read_gif
from worldloom.demo.images import LABEL_PALETTE, depth_colors, label_colors, tile, write_gif

COLORS = 255
FRAME_S = 0.08


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


def written(frames: np.ndarray, path: Path) -> np.ndarray:
    write_gif(path, frames, FRAME_S)
    return shown(read_gif(path))


def shown(gif: Gif) -> np.ndarray:
    """What a viewer shows after each FRAME_S: equal frames in a row are stored as one that lasts longer."""
    return gif.frames.repeat([round(delay_s / FRAME_S) for delay_s in gif.delays_s], axis=0)


def test_few_colours_come_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    colors = rng.permutation(np.stack(np.meshgrid(*[np.arange(0, 256, 32)] * 3), -1).reshape(-1, 3))[:COLORS]
    frames = colors[rng.integers(0, COLORS, (6, 70, 90))].astype(np.uint8)
    read = written(frames, tmp_path / "a.gif")
    assert read.shape == frames.shape
    assert np.array_equal(read, frames)


def test_black_and_white_stay_so(tmp_path: Path) -> None:
    frames = np.array([0, 255], np.uint8)[np.random.default_rng(0).integers(0, 2, (2, 9, 9, 1))].repeat(3, 3)
    assert np.array_equal(written(frames, tmp_path / "a.gif"), frames)


def test_many_colours_come_back_about_right(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 96).astype(np.uint8)
    x, y = np.meshgrid(ramp, ramp)
    frames = np.stack([np.stack([x, y, np.full_like(x, blue)], -1) for blue in (0, 90, 180)])
    read = written(frames, tmp_path / "a.gif")
    # 255 colours of three planes of 255 × 255: boxes 28 wide and high, of which nothing is further than 14 away.
    assert np.abs(read.astype(int) - frames).mean() < 7


@hypothesis.given(
    arrays.arrays(
        np.uint8,
        st.tuples(st.integers(1, 4), st.integers(1, 12), st.integers(1, 12), st.just(3)),
        elements=st.sampled_from([0, 64, 128, 255]),
    )
)
@hypothesis.settings(max_examples=60)
def test_any_frames_come_back(tmp_path_factory: pytest.TempPathFactory, frames: np.ndarray) -> None:
    read = written(frames, tmp_path_factory.getbasetemp() / "any.gif")
    assert np.array_equal(read, frames)


def test_how_long_and_how_often(tmp_path: Path) -> None:
    frames = np.array([0, 255, 0], np.uint8).reshape(3, 1, 1, 1) * np.ones((1, 2, 2, 3), np.uint8)
    write_gif(tmp_path / "a.gif", frames, 0.12)
    read = read_gif(tmp_path / "a.gif")
    assert (read.delays_s, read.is_endless) == ([0.12] * 3, True)


def test_what_stands_still_takes_no_room(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3)).astype(np.uint8).repeat(20, 0)
    write_gif(tmp_path / "one.gif", frames[:1])
    write_gif(tmp_path / "still.gif", frames)
    one, still = read_gif(tmp_path / "one.gif"), read_gif(tmp_path / "still.gif")
    assert np.array_equal(shown(still), one.frames.repeat(20, 0))
    assert still.size_bytes < one.size_bytes + 20 * 40


@pytest.mark.parametrize(
    "frames",
    [
        np.zeros((2, 2, 3), np.uint8),
        np.zeros((1, 2, 2, 4), np.uint8),
        np.zeros((0, 2, 2, 3), np.uint8),
        np.zeros((1, 2, 2, 3), np.float32),
        np.broadcast_to(np.uint8(0), (1, 1, 65536, 3)),
    ],
)
def test_what_is_no_film_is_refused(frames: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="GIF frames"):
        write_gif(tmp_path / "a.gif", frames)
    assert not list(tmp_path.iterdir())


def test_a_frame_cannot_last_for_ever(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected 0 to 655\.35"):
        write_gif(tmp_path / "a.gif", np.zeros((1, 1, 1, 3), np.uint8), 1000)
