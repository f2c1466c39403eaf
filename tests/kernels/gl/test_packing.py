"""Frames are unpacked to any byte offset, and no other byte changes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from worldloom.kernels.gl.packing import unpack_floats, unpack_frames
from worldloom.kernels.outputs import DEPTH_COLUMN, FLOW_COLUMN, NORMALS_COLUMN, OUTPUT_COUNT, PIXEL_BYTES
from worldloom.kernels.tables import I64, U8, ViewTable
from worldloom.render.views import frame_bytes, make_views

CANARY = 0xA5


def expected(words: np.ndarray, floats: dict[int, np.ndarray], layer: int, output: int) -> U8:
    """Return one output of one layer, by plain NumPy."""
    red, green, blue, label = words[layer].view(np.uint8).reshape(-1, 4).T.astype(np.int64)
    if output in floats:
        return np.asarray(floats[output][layer].view(np.uint8))
    frames = {
        0: np.stack([red, green, blue], axis=1).ravel(),
        1: (77 * red + 150 * green + 29 * blue + 128) >> 8,
        3: label,
    }
    return np.asarray(frames[output], np.uint8)


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
    count=st.integers(1, 6),
    floats=st.sets(st.sampled_from([DEPTH_COLUMN, NORMALS_COLUMN, FLOW_COLUMN])),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_output_lands_where_it_belongs_and_nowhere_else(
    width: int, height: int, count: int, floats: set[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    asked = (rng.integers(0, 16, count) & ~(1 << DEPTH_COLUMN)) | sum(1 << column for column in floats)
    views = make_views(np.zeros(len(asked)), width=width, height=height, outputs=asked)
    page = rng.permutation(len(asked)).astype(np.int64)
    words = rng.integers(0, 2**32, (len(asked), width * height), dtype=np.uint32)
    shapes = {column: (len(asked), width * height * PIXEL_BYTES[column] // 4) for column in floats}
    frames = {column: rng.random(shape, dtype=np.float32) for column, shape in shapes.items()}
    offsets, size = scatter(views, rng.integers(0, 8, (len(asked), OUTPUT_COUNT)))
    arena = np.full(size, CANARY, np.uint8)
    wanted = arena.copy()
    for layer, view in enumerate(page):
        for output in range(OUTPUT_COUNT):
            if asked[view] >> output & 1:
                frame = expected(words, frames, layer, output)
                wanted[offsets[view, output] : offsets[view, output] + frame.size] = frame

    unpack_frames(words, views, page, offsets, arena)
    for column, array in frames.items():
        unpack_floats(array.view(np.uint8), column, page, offsets, arena)

    np.testing.assert_array_equal(arena, wanted)
