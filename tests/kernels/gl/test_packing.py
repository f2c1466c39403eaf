"""Frames are unpacked to any byte offset, and no other byte changes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from worldloom.kernels.gl.packing import unpack_frames
from worldloom.kernels.outputs import DEPTH, PIXEL_BYTES
from worldloom.kernels.tables import I64, U8, ViewTable
from worldloom.render.views import frame_bytes, make_views

CANARY = 0xA5


def expected(words: np.ndarray, depths: np.ndarray, asked: int, output: int) -> U8:
    """Return one output of one layer, by plain NumPy."""
    red, green, blue, label = words.view(np.uint8).reshape(-1, 4).T.astype(np.int64)
    if 1 << output == DEPTH:
        return np.ascontiguousarray(depths).view(np.uint8)
    frames = {
        0: np.stack([red, green, blue], axis=1).ravel(),
        1: (77 * red + 150 * green + 29 * blue + 128) >> 8,
        3: label,
    }
    return frames[output].astype(np.uint8)


def scatter(views: ViewTable, gaps: np.ndarray) -> tuple[I64, int]:
    """Return offsets in a shuffled order with gaps, not aligned, and the end."""
    sizes = frame_bytes(views)
    offsets = np.full(sizes.shape, -1, np.int64)
    end = 0
    for index in np.random.default_rng(int(gaps.sum())).permutation(sizes.size):
        view, output = divmod(int(index), len(PIXEL_BYTES))
        if sizes[view, output]:
            end += int(gaps[view, output])
            offsets[view, output] = end
            end += int(sizes[view, output])
    return offsets, end + int(gaps[0, 0])


@given(
    width=st.integers(1, 37),
    height=st.integers(1, 9),
    asked=st.lists(st.integers(1, 15), min_size=1, max_size=6),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_output_lands_where_it_belongs_and_nowhere_else(
    width: int, height: int, asked: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    views = make_views(np.zeros(len(asked)), width=width, height=height, outputs=asked)
    page = rng.permutation(len(asked)).astype(np.int64)
    words = rng.integers(0, 2**32, (len(asked), width * height), dtype=np.uint32)
    depths = rng.random((len(asked), width * height), dtype=np.float32)
    offsets, size = scatter(views, rng.integers(0, 8, (len(asked), 4)))
    arena = np.full(size, CANARY, np.uint8)
    wanted = arena.copy()
    for layer, view in enumerate(page):
        for output in range(4):
            if asked[view] >> output & 1:
                frame = expected(words[layer], depths[layer], asked[view], output)
                wanted[offsets[view, output] : offsets[view, output] + frame.size] = frame

    unpack_frames(words, depths.view(np.uint8), views, page, offsets, arena)

    np.testing.assert_array_equal(arena, wanted)


def test_no_depth_is_needed_where_none_is_asked_for() -> None:
    views = make_views([0], width=3, height=1, outputs=1)
    arena = np.zeros(9, np.uint8)
    words = np.array([[0x00030201, 0x11060504, 0xFF090807]], np.uint32)

    unpack_frames(words, np.empty((0, 0), np.uint8), views, np.array([0]), np.array([[0, -1, -1, -1]]), arena)

    assert arena.tolist() == list(range(1, 10))
