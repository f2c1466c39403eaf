"""What drawing a view needs beside the tables: the visibility buffer, triangle records and row buffers of one worker.

The visibility buffer is two arrays: how near each sample is, and which triangle record it belongs to. Nearness is a
float32 that is linear on the screen and grows towards the viewer: 1/depth in perspective, far - depth in orthographic
views.
"""

from typing import NamedTuple

import numpy as np

from worldloom.kernels.compiling import called, inlined
from worldloom.kernels.intrinsics import load_ints
from worldloom.kernels.simd import (
    LANES,
    changes,
    ints,
    lowest_bit,
)
from worldloom.kernels.tables import F32, F64, I32, I64, LAMP_NUMBERS, MAX_LAMPS, U32

BLOCK = LANES
"""Pixels that are worked on together: a vector register of float32."""

MAX_WIDTH = 8192
"""Pixels, of the widest view."""
STRIDE = MAX_WIDTH + 264
"""Numbers from one row buffer to the next. A constant, so the compiler knows that the rows do not overlap; not a power
of two, so they do not compete for the same places in the cache."""

# Columns of Scratch.whole: what was found out when the triangle was set up.
ROW, TRIANGLE, TURNED, READY = 0, 1, 2, 3
TEXTURE, SMOOTH, LEVEL = 4, 5, 6
WHOLE_COLUMNS = 7
# Columns of Scratch.real: planes a·x + b·y + c over the picture, three numbers each.
INVERSE, KEY, OVER_W, OVER_U, OVER_V, NORMAL, COLOR = 0, 9, 12, 15, 18, 21, 30
SHINE = 33
REAL_COLUMNS = 36
# Positions in Scratch.look: a lane's light, fog and sky, ready for use.
AMBIENT_MEAN, AMBIENT_TILT, LIGHT, TO_LIGHT, FOG, FOG_BEGIN, FOG_SCALE, HORIZON, SKY = 0, 3, 6, 9, 12, 15, 16, 17, 20
# The rays of its pixels: to the first of them, one metre ahead; from one to the next right, and down; the camera.
CORNER, RIGHT, DOWN, BACK, EYE = 23, 26, 29, 32, 35
SKY_FIRST, SKY_LEVEL, LAMP_COUNT, LAMPS = 38, 39, 40, 41
LOOK_NUMBERS = LAMPS + MAX_LAMPS * LAMP_NUMBERS
# Where the rows of Scratch.rows begin: depth, and light times colour in three channels.
DEPTH_ROW, RED, GREEN, BLUE = np.uint64(0), np.uint64(STRIDE), np.uint64(2 * STRIDE), np.uint64(3 * STRIDE)
ROW_BUFFERS = 4
# Where the rows of Scratch.texels begin: where the upper and the lower left texel are, and the point's place between.
UPPER, LOWER, BETWEEN = np.uint64(0), np.uint64(STRIDE), np.uint64(2 * STRIDE)
TEXEL_BUFFERS = 3
# Where the rows of Scratch.colors begin: one a sample, and one to shade the other three into.
SAMPLE, SPARE = np.uint64(STRIDE), np.uint64(4 * STRIDE)
COLOR_BUFFERS = 5


NO_BACKDROP = -1


class Scratch(NamedTuple):
    """What one worker needs to draw a view; made once, large enough for the largest view."""

    matrix: F64  # [3, 4] local to camera
    vertices: F64  # [6, most corners of a mesh]: homogeneous x, y, w; depth; rounded pixel x, y; whole blocks
    cells: I32  # [most corners of a mesh] where each comes to lie between the samples, see raster.py
    picked: I32  # [capacity] triangles of a mesh that may be seen
    polygon: F64  # [4, 2] a triangle cut by the near plane: pixel x, y
    whole: I32  # [capacity, WHOLE_COLUMNS] triangle records: one row is one triangle that may be seen
    real: F64  # [capacity, REAL_COLUMNS]
    nearness: F32  # [4 * pixels] one part a sample, rows padded to whole blocks
    owner: I32  # [4 * pixels] the number of the triangle record; 0 is the background
    rows: F32  # [ROW_BUFFERS * STRIDE]
    texels: I32  # [TEXEL_BUFFERS * STRIDE]
    colors: U32  # [COLOR_BUFFERS * STRIDE] finished pixels of a row, red in the lowest byte
    runs: I32  # [STRIDE] where the runs of a row begin, see find_runs
    look: F32  # [LOOK_NUMBERS]
    laid: I64  # [3] which backdrop the picture began with, or NO_BACKDROP; from and to which row it is covered
    touched: I64  # [2] the first row of the picture that a triangle may be in, and the row after the last


def make_scratch(corners: int, triangles: int, pixels: int) -> Scratch:
    """Room for meshes of so many corners, and views of so many triangles and (padded) pixels."""
    return Scratch(
        matrix=np.zeros((3, 4)),
        vertices=np.zeros((6, -(-corners // BLOCK) * BLOCK)),
        cells=np.zeros(-(-corners // BLOCK) * BLOCK, np.int32),
        picked=np.zeros(triangles, np.int32),
        polygon=np.zeros((4, 2)),
        whole=np.zeros((triangles, WHOLE_COLUMNS), np.int32),
        real=np.zeros((triangles, REAL_COLUMNS)),
        nearness=np.zeros(4 * pixels, np.float32),
        owner=np.zeros(4 * pixels, np.int32),
        rows=np.zeros(ROW_BUFFERS * STRIDE, np.float32),
        texels=np.zeros(TEXEL_BUFFERS * STRIDE, np.int32),
        colors=np.zeros(COLOR_BUFFERS * STRIDE, np.uint32),
        runs=np.zeros(STRIDE, np.int32),
        look=np.zeros(LOOK_NUMBERS, np.float32),
        laid=np.array([NO_BACKDROP, 0, 0]),
        touched=np.zeros(2, np.int64),
    )


@inlined
def padded(width: int) -> np.uint64:
    """A row's length in the visibility buffer: whole blocks."""
    return (np.uint64(width) + np.uint64(BLOCK - 1)) & ~np.uint64(BLOCK - 1)


@inlined
def first_pixel(owner: I32, sample: int, y: int, width: int) -> np.uint64:
    """Where a row of a sample begins in the visibility buffer."""
    return np.uint64(sample) * np.uint64(owner.size // 4) + np.uint64(y) * padded(width)


@called
def find_runs(owner: I32, row: int, width: int, runs: I32) -> np.uint64:
    """Cut a row, that begins at `row`, into runs of one owner each.

    How many there are; `runs` says where each begins, and the end behind the last. All ends among 64 pixels are found
    before one is written: at every branch that depends on one the processor would guess wrong.
    """
    count, one, width = np.uint64(0), np.uint64(1), np.uint64(width)
    runs[0] = 0
    before = ints(owner[row])
    for part in range(np.uint64(0), width, np.uint64(64)):
        after = part + np.uint64(64) if part + np.uint64(64) < width else width
        ends = np.uint64(0)
        for x in range(part, after, np.uint64(BLOCK)):
            here = load_ints(owner, row + x)
            ends |= changes(before, here) << (x - part)
            before = here
        ends &= ~np.uint64(0) >> (part + np.uint64(64) - after)  # behind the last pixel is padding
        while ends != 0:
            count += one
            runs[count] = part + lowest_bit(ends)
            ends &= ends - one
    count += one
    runs[count] = width
    return count


@called
def find_other_runs(owner: I32, row: int, first_row: int, width: int, runs: I32) -> np.uint64:
    """The same for a further sample: its runs either show what the first sample shows all along, or nowhere."""
    count = np.uint64(0)
    runs[0] = 0
    for x in range(np.uint64(1), np.uint64(width)):
        here, before = owner[row + x], owner[row + x - np.uint64(1)]
        same_here = here == owner[first_row + x]
        same_before = before == owner[first_row + x - np.uint64(1)]
        runs[count + np.uint64(1)] = x
        count += np.uint64((here != before) | (same_here != same_before))
    count += np.uint64(1)
    runs[count] = width
    return count


@inlined
def row_start(real: F64, number: int, plane: int, center_y: float) -> float:
    """A plane's value at the centre of pixel 0 of a row."""
    return real[number, plane] * 0.5 + real[number, plane + 1] * center_y + real[number, plane + 2]


@inlined
def plane_at(real: F64, number: int, plane: int, center_y: float) -> np.float32:
    """The same, rounded for what is worked out for each pixel."""
    return np.float32(row_start(real, number, plane, center_y))
