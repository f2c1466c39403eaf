"""Scratch memory of one worker of the CPU renderer: the visibility buffer, triangle records and row buffers.

The visibility buffer is two arrays: nearness of each sample, and its owner, which is the index of a triangle record.
Nearness is a float32 that is linear on the screen and grows towards the camera: 1/depth in perspective, far - depth in
orthographic views. Other modules index the arrays with the constants here.
"""

from typing import NamedTuple

import numpy as np

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.intrinsics import load_ints
from worldloom.kernels.light_maps import allocate_light_maps
from worldloom.kernels.simd import SIMD_WIDTH, change_mask, ints, lowest_set_bit
from worldloom.kernels.tables import F32, F64, I32, I64, LAMP_SIZE, MAX_LAMPS, U32

MAX_WIDTH = 8192
"""Largest width and height of a view, in pixels."""
STRIDE = MAX_WIDTH + 264
"""Elements from a row buffer to the next. A constant, so that the compiler knows that rows do not overlap; not a power
of two, so that they do not map to the same cache lines."""

# Columns of Scratch.record_ints. Those of the second line are valid once PREPARED is 1.
ROW, TRIANGLE, NORMAL_FLIPPED, PREPARED = 0, 1, 2, 3
TEXTURE, LIT_PER_PIXEL, MIP_LEVEL = 4, 5, 6
RECORD_INTS = 7
LIT_BY_SUN = 2
"""Value of LIT_PER_PIXEL where all pixels have the same light, except that shadows take the sun from some."""
# Columns of Scratch.record_floats: planes a·x + b·y + c in pixel coordinates, three numbers each; colour; shine.
INVERSE, KEY, OVER_W, OVER_U, OVER_V, NORMAL, COLOR = 0, 9, 12, 15, 18, 21, 30
SHINE = 33
SUNLIT = NORMAL + 3  # what the sun adds to the colour, with LIT_BY_SUN
RECORD_FLOATS = 36
# Indices of Scratch.constants: light, fog and sky of the view's lane.
AMBIENT_MEAN, AMBIENT_TILT, LIGHT, TO_LIGHT, FOG, FOG_BEGIN, FOG_SCALE, HORIZON, SKY = 0, 3, 6, 9, 12, 15, 16, 17, 20
# Camera rays: to the first pixel, one metre ahead; steps to the next pixel right and down; backward axis; position.
CORNER, RIGHT, DOWN, BACK, EYE = 23, 26, 29, 32, 35
SKY_FIRST, SKY_LEVEL, SKY_TINT, LAMP_COUNT, HAS_SHADOWS, MAP_COUNT, LAMPS = 38, 39, 40, 43, 44, 45, 46
CONSTANTS_SIZE = LAMPS + MAX_LAMPS * LAMP_SIZE
# Offsets of the rows of Scratch.rows: depth, and light times colour in three channels.
DEPTH_ROW, RED, GREEN, BLUE = np.uint64(0), np.uint64(STRIDE), np.uint64(2 * STRIDE), np.uint64(3 * STRIDE)
ROW_BUFFERS = 4
# Offsets of the rows of Scratch.texels: indices of the upper and lower left texel, and the fraction between texels.
UPPER_TEXEL, LOWER_TEXEL, TEXEL_FRACTION = np.uint64(0), np.uint64(STRIDE), np.uint64(2 * STRIDE)
TEXEL_BUFFERS = 3
# Offsets of the rows of Scratch.colors: one for each sample, and one that samples 1 to 3 are shaded into.
SAMPLE, SPARE = np.uint64(STRIDE), np.uint64(4 * STRIDE)
COLOR_BUFFERS = 5

# Columns of Scratch.map_planes: numbers that a pixel's x, y, 1 and key are multiplied by. Their sums give its x and y
# on a light map and its key there, each times the last sum.
ON_MAP_X, ON_MAP_Y, ON_MAP_KEY, ON_MAP_W = 0, 4, 8, 12
PLANES_SIZE = 16

NO_BACKDROP = -1
"""Stands for the cache entry, or the offset, of a view without a backdrop."""
NO_BACKGROUND = -2
"""Stands for that offset where nothing is shaded behind the triangles: for a translucent row."""


class Scratch(NamedTuple):
    """The arrays of one worker, large enough for the largest view so far."""

    matrix: F64  # [3, 4] local to camera
    vertices: F64  # [6, most corners of a mesh]: homogeneous x, y, w; depth; rounded pixel x, y; whole vectors
    cells: I32  # [most corners of a mesh] cell of the sample grid that each lies in, see visibility.py
    selected: I32  # [capacity] triangles of a mesh that may be visible
    polygon: F64  # [4, 2] a triangle cut by the near plane: pixel x, y
    spans: I32  # [2 * SIMD_WIDTH] first pixel of eight rows of a triangle, and the pixel after their last
    record_ints: I32  # [capacity, RECORD_INTS] triangle records: a row for each triangle that may be visible
    record_floats: F64  # [capacity, RECORD_FLOATS]
    nearness: F32  # [4 * pixels] a part for each sample, rows padded to whole vectors
    owner: I32  # [4 * pixels] index of the triangle record; 0 is the background
    rows: F32  # [ROW_BUFFERS * STRIDE]
    texels: I32  # [TEXEL_BUFFERS * STRIDE]
    colors: U32  # [COLOR_BUFFERS * STRIDE] finished pixels of a row, red in the lowest byte
    runs: I32  # [STRIDE] first pixel of each run of a row, see find_runs
    constants: F32  # [CONSTANTS_SIZE]
    restored: I64  # [3] backdrop in the visibility buffer or NO_BACKDROP; rows [from, to) of it drawn over
    drawn_rows: I64  # [2] rows [from, to) of the frame that triangles may cover
    band: I64  # [2] rows [from, to) of the frame that are drawn; the visibility buffer has those alone
    maps: F64  # [MAX_LAMPS, LIGHT_MAP_SIZE] light maps of a view with shadows
    map_planes: F64  # [MAX_LAMPS, PLANES_SIZE] how a pixel of the view is found on each, see shading/shadows.py
    map_seen: I64  # [MAX_LAMPS, 4] texels of each that pixels look up: x from, x to, y from, y to
    map_keys: F32  # [texels] nearness to the light, map after map, rows padded to whole vectors
    map_rows: I32  # [texels] instance row of what is there
    record_slopes: F64  # [capacity, 2 * MAX_LAMPS] slopes of each triangle's plane on each light map
    lit: F32  # [MAX_LAMPS * STRIDE] part of each light that reaches the pixels of a row
    # For translucent rows, see translucent.py: memory that is not used is not committed.
    layer_rows: I32  # [capacity] instance rows from far to near
    layer_keys: F64  # [capacity] what they are sorted by
    opaque_nearness: F32  # [4 * pixels] the visibility buffer with opaque rows only
    opaque_owner: I32  # [4 * pixels]
    frame: U32  # [4 * pixels] finished colours so far, laid out like the visibility buffer


def allocate_scratch(corners: int, triangles: int, pixels: int, texels: int = 1) -> Scratch:
    """Allocate scratch for meshes of at most so many corners, and views of so many triangles and (padded) pixels.

    `texels` are those of the light maps of a view. What is only used with shadows is not touched without them.
    """
    return Scratch(
        matrix=np.zeros((3, 4)),
        vertices=np.zeros((6, -(-corners // SIMD_WIDTH) * SIMD_WIDTH)),
        cells=np.zeros(-(-corners // SIMD_WIDTH) * SIMD_WIDTH, np.int32),
        selected=np.zeros(triangles, np.int32),
        polygon=np.zeros((4, 2)),
        spans=np.zeros(2 * SIMD_WIDTH, np.int32),
        record_ints=np.zeros((triangles, RECORD_INTS), np.int32),
        record_floats=np.zeros((triangles, RECORD_FLOATS)),
        nearness=np.zeros(4 * pixels, np.float32),
        owner=np.zeros(4 * pixels, np.int32),
        rows=np.zeros(ROW_BUFFERS * STRIDE, np.float32),
        texels=np.zeros(TEXEL_BUFFERS * STRIDE, np.int32),
        colors=np.zeros(COLOR_BUFFERS * STRIDE, np.uint32),
        runs=np.zeros(STRIDE, np.int32),
        constants=np.zeros(CONSTANTS_SIZE, np.float32),
        restored=np.array([NO_BACKDROP, 0, 0]),
        drawn_rows=np.zeros(2, np.int64),
        band=np.zeros(2, np.int64),
        maps=allocate_light_maps(),
        map_planes=np.zeros((MAX_LAMPS, PLANES_SIZE)),
        map_seen=np.zeros((MAX_LAMPS, 4), np.int64),
        map_keys=np.zeros(texels + MAX_WIDTH, np.float32),
        map_rows=np.zeros(texels + MAX_WIDTH, np.int32),
        record_slopes=np.zeros((triangles, 2 * MAX_LAMPS)),
        lit=np.zeros(MAX_LAMPS * STRIDE, np.float32),
        layer_rows=np.zeros(triangles, np.int32),
        layer_keys=np.zeros(triangles),
        opaque_nearness=np.zeros(4 * pixels, np.float32),
        opaque_owner=np.zeros(4 * pixels, np.int32),
        frame=np.zeros(4 * pixels, np.uint32),
    )


@inlined
def padded(width: int) -> np.uint64:
    """Return the length of a row in the visibility buffer: whole vectors."""
    return (np.uint64(width) + np.uint64(SIMD_WIDTH - 1)) & ~np.uint64(SIMD_WIDTH - 1)


@inlined
def first_pixel(owner: I32, sample: int, y: int, width: int) -> np.uint64:
    """Return the index of the first pixel of a row of a sample in the visibility buffer; the band's first row is 0."""
    return np.uint64(sample) * np.uint64(owner.size // 4) + np.uint64(y) * padded(width)


@device_function
def find_runs(owner: I32, row: int, width: int, runs: I32) -> np.uint64:
    """Split the row that begins at index `row` into runs of one owner each; return their number.

    `runs` receives the first pixel of each, then the width. The ends among 64 pixels are found without branches before
    any is written: branches on them would be mispredicted.
    """
    count, one, width = np.uint64(0), np.uint64(1), np.uint64(width)
    runs[0] = 0
    before = ints(owner[row])
    for part in range(np.uint64(0), width, np.uint64(64)):
        after = part + np.uint64(64) if part + np.uint64(64) < width else width
        ends = np.uint64(0)
        for x in range(part, after, np.uint64(SIMD_WIDTH)):
            here = load_ints(owner, row + x)
            ends |= change_mask(before, here) << (x - part)
            before = here
        ends &= ~np.uint64(0) >> (part + np.uint64(64) - after)  # padding follows the last pixel
        while ends != 0:
            count += one
            runs[count] = part + lowest_set_bit(ends)
            ends &= ends - one
    count += one
    runs[count] = width
    return count


@inlined
def run_at(owner: I32, row: np.uint64, runs: I32, run: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Return the first pixel of a run of the row that begins at index `row`, the pixel after its last, its record."""
    x_from = np.uint64(runs[run])
    return x_from, np.uint64(runs[run + np.uint64(1)]), np.uint64(owner[row + x_from])


@device_function
def find_other_runs(owner: I32, row: int, first_row: int, width: int, runs: I32) -> np.uint64:
    """Do the same for samples 1 to 3, whose runs also end where they begin or cease to equal the first sample's."""
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
def row_rays(constants: F32, row: np.float32) -> tuple[np.float32, np.float32, np.float32]:
    """Return where the camera rays of a row begin: to its first pixel, across one metre ahead."""
    return (
        constants[CORNER] + row * constants[DOWN],
        constants[CORNER + 1] + row * constants[DOWN + 1],
        constants[CORNER + 2] + row * constants[DOWN + 2],
    )


@inlined
def row_start(record_floats: F64, record: int, plane: int, center_y: float) -> float:
    """Return the value of a plane at the centre of pixel 0 of a row."""
    return (
        record_floats[record, plane] * 0.5
        + record_floats[record, plane + 1] * center_y
        + record_floats[record, plane + 2]
    )


@inlined
def plane_at(record_floats: F64, record: int, plane: int, center_y: float) -> np.float32:
    """Return `row_start` as float32, for computations of each pixel."""
    return np.float32(row_start(record_floats, record, plane, center_y))
