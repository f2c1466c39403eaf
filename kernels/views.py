"""Checks and sizes of views before they are drawn: frame offsets, scratch sizes, validity of a draw.

Columns of tables are separate arguments: numba unboxes an array in 0.05 µs, but a named tuple of ten in more than 1 µs.
"""

import numpy as np

from worldloom.kernels.compiling import device_function, inlined, kernel_holding_gil
from worldloom.kernels.light_maps import lamp_casts, map_side
from worldloom.kernels.outputs import OUTPUT_COUNT, PIXEL_BYTES
from worldloom.kernels.raster.scratch import MAX_WIDTH, padded
from worldloom.kernels.tables import F32, I32, I64, MAX_LAMPS, NO_MESH, NO_TEXTURE, ONE_SKY, SCREEN_SKY, TINTED_SKY, U8

SKY_SIDES = 6
"""Textures of a sky box."""
AXES_TOLERANCE = 1e-3
"""Largest error of the dot products of a camera's axes; a product of thousands of float32 rotations stays below."""
_LARGEST = 3.4028234663852886e38
"""Largest finite float32."""


@inlined
def _frame_bytes(width: I32, height: I32, outputs: U8, view: int, output: int) -> int:
    """Return the size of one output of a view, 0 if it was not asked for."""
    if outputs[view] >> output & 1 == 0:
        return 0
    return np.int64(width[view]) * np.int64(height[view]) * PIXEL_BYTES[output]


@kernel_holding_gil
def assign_offsets(width: I32, height: I32, outputs: U8, start: int, offsets: I64) -> int:
    """Assign offsets [V, outputs] to frames, output after output, from byte `start` on; return the end.

    -1 where an output was not asked for.
    """
    end = start
    for output in range(OUTPUT_COUNT):
        for view in range(width.size):
            size = _frame_bytes(width, height, outputs, view, output)
            offsets[view, output] = end if size != 0 else -1
            end += size
    return end


@kernel_holding_gil
def measure_views(
    lane: I32,
    width: I32,
    height: I32,
    shadows: U8,
    lamp_count: I32,
    lamps: F32,
    first_row: I32,
    row_count: I32,
    mesh: I32,
    mesh_triangle_count: I32,
    mesh_corner_count: I32,
) -> tuple[int, int, int, int, int]:
    """Return the scratch sizes that a batch needs, and the amount of work.

    These are the most corners of a mesh, triangles, (padded) pixels and texels of light maps of a view; and the pixels
    of all views.
    """
    most_corners, most_triangles, most_pixels, most_texels, pixels = 0, 0, 0, 1, 0
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
        if shadows[view] == 1:
            side = map_side(np.int64(width[view]), np.int64(height[view]))
            count = 1 if lamp_count[lane[view]] == 0 else 0
            for lamp in range(lamp_count[lane[view]]):
                count += np.int64(lamp_casts(lamps, lane[view], lamp))
            most_texels = max(most_texels, count * side * side)
    return most_corners, most_triangles, most_pixels, most_texels, pixels


@kernel_holding_gil
def is_valid_draw(
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
    shadows: U8,
    offsets: I64,
    ranges: I64,
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
    """Return whether a draw is valid; `render/check.py` explains what is wrong if not.

    Checked are the numbers of the views, their lanes and instance rows, and that frames lie in the arena without
    overlap. `ranges` [outputs * V, 2] is scratch.
    """
    for view in range(lane.size):
        if lane[view] < 0 or lane[view] >= first_row.size:
            return False
        if not (1 <= width[view] <= MAX_WIDTH and 1 <= height[view] <= MAX_WIDTH):
            return False
        if (
            not (samples[view] == 1 or samples[view] == 4)
            or outputs[view] >> OUTPUT_COUNT != 0
            or orthographic[view] > 1
            or shadows[view] > 1
        ):
            return False
        # Written so that NaN fails it.
        if not (0.0 < half_height[view] <= _LARGEST and -_LARGEST <= near[view] < far[view] <= _LARGEST):
            return False
        if near[view] <= 0.0 and orthographic[view] == 0:
            return False
        if not is_valid_camera(camera, view, tolerance):
            return False
        if lamp_count[lane[view]] < 0 or lamp_count[lane[view]] > MAX_LAMPS:
            return False
        if not _is_valid_sky(np.int64(sky_textures[lane[view]]), textures):
            return False
        if not _are_in_range(mesh, first_row[lane[view]], row_count[lane[view]], NO_MESH, meshes):
            return False
        if not _are_in_range(texture, first_row[lane[view]], row_count[lane[view]], NO_TEXTURE, textures):
            return False
    return _are_disjoint(width, height, outputs, offsets, arena_bytes, ranges)


@inlined
def _is_valid_sky(sky: int, textures: int) -> bool:
    """Return whether there is no sky box, or the textures of a sky box exist."""
    if sky <= ONE_SKY:
        return (SCREEN_SKY if sky <= SCREEN_SKY else ONE_SKY) - sky < textures
    first = sky - TINTED_SKY if sky >= TINTED_SKY else sky
    return sky == NO_TEXTURE or first <= textures - SKY_SIDES


@inlined
def _are_in_range(numbers: I32, first: int, count: int, none: int, known: int) -> bool:
    """Return whether the numbers of these rows are `none`, or in [0, known)."""
    # Without branches: this runs over all rows of all lanes that are drawn.
    lowest = highest = np.int32(none)
    for row in range(np.uint64(first), np.uint64(first + count)):
        lowest = min(lowest, numbers[row])
        highest = max(highest, numbers[row])
    return lowest >= none and highest < known


@inlined
def _are_disjoint(width: I32, height: I32, outputs: U8, offsets: I64, arena_bytes: int, ranges: I64) -> bool:
    """Return whether frames lie in the arena and do not overlap; adjacent frames are joined into one range."""
    count = 0
    in_order = True
    for output in range(OUTPUT_COUNT):
        for view in range(width.size):
            size = _frame_bytes(width, height, outputs, view, output)
            if size == 0:
                continue
            start = offsets[view, output]
            if start < 0 or start > arena_bytes - size:
                return False
            if count > 0 and start == ranges[count - 1, 1]:
                ranges[count - 1, 1] += size
                continue
            in_order &= count == 0 or start > ranges[count - 1, 1]
            ranges[count, 0], ranges[count, 1] = start, start + size
            count += 1
    if in_order:
        return True
    _sort(ranges, count)
    disjoint = True
    for k in range(1, count):
        disjoint &= ranges[k, 0] >= ranges[k - 1, 1]
    return disjoint


@device_function
def _sort(ranges: I64, count: int) -> None:
    """Shell-sort the first ranges by their start: this needs no memory, and is fast if little is out of order."""
    gap = 1
    while gap < count:
        gap = 3 * gap + 1
    while gap > 1:
        gap //= 3
        for k in range(gap, count):
            begin, end = ranges[k, 0], ranges[k, 1]
            index = k
            while index >= gap and ranges[index - gap, 0] > begin:
                ranges[index, 0], ranges[index, 1] = ranges[index - gap, 0], ranges[index - gap, 1]
                index -= gap
            ranges[index, 0], ranges[index, 1] = begin, end


@inlined
def is_valid_camera(camera: F32, view: int, tolerance: float) -> bool:
    """Return whether the numbers of a camera are finite and its axes orthonormal."""
    for i in range(3):
        for j in range(i, 3):
            product = 0.0
            for k in range(3):
                product += camera[view, k, i] * camera[view, k, j]
            # Written so that NaN fails it.
            if not abs(product - (1.0 if i == j else 0.0)) <= tolerance:
                return False
        if not abs(camera[view, i, 3]) < 3.5e38:
            return False
    return True


@kernel_holding_gil
def find_invalid_camera(camera: F32, tolerance: float) -> int:
    """Return the first view whose camera is not valid, else -1."""
    for view in range(camera.shape[0]):
        if not is_valid_camera(camera, view, tolerance):
            return view
    return -1
