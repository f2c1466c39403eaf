"""Moving pictures as GIF files, read again by a reader that knows nothing of the writer."""

from pathlib import Path

import hypothesis
import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.support.image_files import read_gif
from worldloom.render.gif import COLORS, write_gif

ONE_BIN = 4
"""Colours that differ in the two lowest bits of a channel are taken for one."""


def written(frames: np.ndarray, path: Path, frame_s: float = 0.08) -> np.ndarray:
    write_gif(path, frames, frame_s)
    return read_gif(path).frames


def test_few_colours_come_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    colors = rng.permutation(np.stack(np.meshgrid(*[np.arange(0, 256, 32)] * 3), -1).reshape(-1, 3))[:COLORS]
    frames = colors[rng.integers(0, COLORS, (6, 70, 90))].astype(np.uint8)
    read = written(frames, tmp_path / "a.gif")
    assert read.shape == frames.shape
    assert np.abs(read.astype(int) - frames).max() < ONE_BIN


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
    assert np.abs(read.astype(int) - frames).max() < ONE_BIN


def test_how_long_and_how_often(tmp_path: Path) -> None:
    write_gif(tmp_path / "a.gif", np.zeros((3, 2, 2, 3), np.uint8), 0.12)
    read = read_gif(tmp_path / "a.gif")
    assert (read.delays_s, read.is_endless) == ([0.12] * 3, True)


def test_what_stands_still_takes_no_room(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3)).astype(np.uint8).repeat(20, 0)
    write_gif(tmp_path / "one.gif", frames[:1])
    write_gif(tmp_path / "still.gif", frames)
    one, still = read_gif(tmp_path / "one.gif"), read_gif(tmp_path / "still.gif")
    assert np.array_equal(still.frames, one.frames.repeat(20, 0))
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
