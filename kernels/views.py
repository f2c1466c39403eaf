"""Views before they are painted: where their pictures go, what painting them takes, whether it can be done at all.

Columns of tables are handed over one by one: numba takes an array in a twentieth of a microsecond, but a named tuple of
ten in more than one.

Whether cameras are what kernels take for granted.
"""

import numpy as np

from worldloom.kernels.compiling import brief, called, inlined
from worldloom.kernels.raster.scratch import MAX_WIDTH, padded
from worldloom.kernels.tables import F32, I32, I64, MAX_LAMPS, NO_MESH, NO_TEXTURE, OUTPUT_BYTES, OUTPUTS, U8

SKY_SIDES = 6
"""Textures of a sky that has any."""
_OUTPUTS = len(OUTPUTS)
_LARGEST = 3.4028234663852886e38
"""Of float32."""


@inlined
def _frame_bytes(width: I32, height: I32, outputs: U8, view: int, output: int) -> int:
    """What an output of a view takes, 0 if it was not asked for."""
    if outputs[view] >> output & 1 == 0:
        return 0
    return np.int64(width[view]) * np.int64(height[view]) * OUTPUT_BYTES[output]


@brief
def place_frames(width: I32, height: I32, outputs: U8, start: int, offsets: I64) -> int:
    """Offsets [V, 4] that put output after output from byte `start` on, -1 where there is none; the byte after all."""
    end = start
    for output in range(_OUTPUTS):
        for view in range(width.size):
            size = _frame_bytes(width, height, outputs, view, output)
            offsets[view, output] = end if size != 0 else -1
            end += size
    return end


@brief
def measure_views(
    lane: I32,
    width: I32,
    height: I32,
    first_row: I32,
    row_count: I32,
    mesh: I32,
    mesh_triangle_count: I32,
    mesh_corner_count: I32,
) -> tuple[int, int, int, int]:
    """What a worker needs room for, and how much there is to do.

    The most corners of a mesh, triangles of a view and (padded) pixels of a view; and the pixels of all views together.
    """
    most_corners, most_triangles, most_pixels, pixels = 0, 0, 0, 0
    for view in range(lane.size):
        first = first_row[lane[view]]
        triangles = 0
        for row in range(first, first + row_count[lane[view]]):
            if mesh[row] != NO_MESH:
                triangles += mesh_triangle_count[mesh[row]]
                most_corners = max(most_corners, mesh_corner_count[mesh[row]])
        most_triangles = max(most_triangles, triangles)
        most_pixels = max(most_pixels, np.int64(padded(width[view])) * height[view])
        pixels += np.int64(width[view]) * height[view]
    return most_corners, most_triangles, most_pixels, pixels


@brief
def is_sound(
    lane: I32,
    camera: F32,
    orthographic: U8,
    half_height: F32,
    near: F32,
    far: F32,
    width: I32,
    height: I32,
    outputs: U8,
    samples: U8,
    offsets: I64,
    blocks: I64,
    arena_bytes: int,
    first_row: I32,
    row_count: I32,
    sky_textures: I32,
    lamp_count: I32,
    mesh: I32,
    texture: I32,
    meshes: int,
    textures: int,
    tolerance: float,
) -> bool:
    """Whether nothing is wrong with a draw; `render/check.py` has the words for what is.

    Not with the numbers in views, nor with their lanes and the rows of those, nor with the slots: they lie in the arena
    and do not overlap. `blocks` [4 * V, 2] is scratch.
    """
    for view in range(lane.size):
        if lane[view] < 0 or lane[view] >= first_row.size:
            return False
        if not (1 <= width[view] <= MAX_WIDTH and 1 <= height[view] <= MAX_WIDTH):
            return False
        if not (samples[view] == 1 or samples[view] == 4) or outputs[view] >> _OUTPUTS != 0 or orthographic[view] > 1:
            return False
        # Phrased so that NaN fails it.
        if not (0.0 < half_height[view] <= _LARGEST and -_LARGEST <= near[view] < far[view] <= _LARGEST):
            return False
        if near[view] <= 0.0 and orthographic[view] == 0:
            return False
        if is_crooked(camera, view, tolerance):
            return False
        if lamp_count[lane[view]] < 0 or lamp_count[lane[view]] > MAX_LAMPS:
            return False
        if sky_textures[lane[view]] != NO_TEXTURE and not 0 <= sky_textures[lane[view]] <= textures - SKY_SIDES:
            return False
        if not _are_known(mesh, first_row[lane[view]], row_count[lane[view]], NO_MESH, meshes):
            return False
        if not _are_known(texture, first_row[lane[view]], row_count[lane[view]], NO_TEXTURE, textures):
            return False
    return _are_apart(width, height, outputs, offsets, arena_bytes, blocks)


@inlined
def _are_known(numbers: I32, first: int, count: int, none: int, known: int) -> bool:
    """Whether the numbers of these rows are `none`, or from 0 to before `known`."""
    # Without branches: all rows of all lanes that are drawn come by here.
    lowest = highest = np.int32(none)
    for row in range(np.uint64(first), np.uint64(first + count)):
        lowest = min(lowest, numbers[row])
        highest = max(highest, numbers[row])
    return lowest >= none and highest < known


@inlined
def _are_apart(width: I32, height: I32, outputs: U8, offsets: I64, arena_bytes: int, blocks: I64) -> bool:
    """Whether slots lie in the arena and no two of them overlap. A block is slots that follow each other."""
    count = 0
    in_order = True
    for output in range(_OUTPUTS):
        for view in range(width.size):
            size = _frame_bytes(width, height, outputs, view, output)
            if size == 0:
                continue
            start = offsets[view, output]
            if start < 0 or start > arena_bytes - size:
                return False
            if count > 0 and start == blocks[count - 1, 1]:
                blocks[count - 1, 1] += size
                continue
            in_order &= count == 0 or start > blocks[count - 1, 1]
            blocks[count, 0], blocks[count, 1] = start, start + size
            count += 1
    if in_order:
        return True
    _sort(blocks, count)
    apart = True
    for block in range(1, count):
        apart &= blocks[block, 0] >= blocks[block - 1, 1]
    return apart


@called
def _sort(blocks: I64, count: int) -> None:
    """Shell's sort of the first blocks by where they begin: needs no memory, and is quick if little is out of order."""
    gap = 1
    while gap < count:
        gap = 3 * gap + 1
    while gap > 1:
        gap //= 3
        for block in range(gap, count):
            begin, end = blocks[block, 0], blocks[block, 1]
            place = block
            while place >= gap and blocks[place - gap, 0] > begin:
                blocks[place, 0], blocks[place, 1] = blocks[place - gap, 0], blocks[place - gap, 1]
                place -= gap
            blocks[place, 0], blocks[place, 1] = begin, end


@inlined
def is_crooked(camera: F32, view: int, tolerance: float) -> bool:
    """Whether a camera has axes that are not square and of unit length, or a number not finite."""
    for i in range(3):
        for j in range(i, 3):
            product = 0.0
            for k in range(3):
                product += camera[view, k, i] * camera[view, k, j]
            # Phrased so that NaN fails it.
            if not abs(product - (1.0 if i == j else 0.0)) <= tolerance:
                return True
        if not abs(camera[view, i, 3]) < 3.5e38:
            return True
    return False


@brief
def first_crooked(camera: F32, tolerance: float) -> int:
    """The first view whose camera is crooked; else -1."""
    for view in range(camera.shape[0]):
        if is_crooked(camera, view, tolerance):
            return view
    return -1
