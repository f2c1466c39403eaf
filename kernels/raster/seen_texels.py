"""Texels of light maps that the pixels of a view look up: nothing else of a map has to be drawn."""

import numpy as np

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.intrinsics import load_floats, store
from worldloom.kernels.light_maps import MAP_HEIGHT, MAP_IS_SPOT, MAP_WIDTH
from worldloom.kernels.raster.scratch import ON_MAP_X, ON_MAP_Y, Scratch, padded
from worldloom.kernels.simd import SIMD_WIDTH, count_from, floats, is_any_above, maximum, minimum, where_at_least
from worldloom.kernels.tables import F32, F64, ViewTable

_UNLIMITED = 1e30
_FARTHEST_TEXEL = 1e6
"""Number of a texel up to which float32 tells it from its neighbours."""
_TILE_ROWS = 8
"""Rows of pixels whose positions on a light map are bounded together."""


@device_function
def find_seen_texels(views: ViewTable, view: int, count: int, background: np.float32, scratch: Scratch) -> None:
    """Write the texels that pixels of the visibility buffer look up, and some around them, to `scratch.map_seen`.

    With four samples a pixel may be shaded at other depths than those in the buffer, and a spot's map is not linear in
    them: then it is the whole map.
    """
    for number in range(count):
        light_map, seen = scratch.maps[number], scratch.map_seen[number]
        width, height = np.int64(light_map[MAP_WIDTH]), np.int64(light_map[MAP_HEIGHT])
        seen[0], seen[1], seen[2], seen[3] = 0, width, 0, height
        if views.samples[view] == 4 or light_map[MAP_IS_SPOT] == 1.0:
            continue
        plane, is_flat = scratch.map_planes[number], views.orthographic[view] == 1
        u_from, u_to, v_from, v_to = _bound_pixels(
            plane,
            np.uint64(views.width[view]),
            np.int64(scratch.band[0]),
            np.int64(scratch.band[1]),
            is_flat,
            background,
            scratch.nearness,
            scratch.lit,
        )
        far_off = (
            abs(plane[ON_MAP_X + 3]) + abs(plane[ON_MAP_Y + 3]) + max(abs(u_from), abs(u_to), abs(v_from), abs(v_to))
        )
        if u_from > u_to:
            seen[1] = seen[3] = 0
        elif far_off < _FARTHEST_TEXEL:
            # A texel more on each side for bilinear look-ups, and one for rounding.
            seen[0], seen[1] = max(np.int64(np.floor(u_from)) - 2, 0), min(np.int64(np.floor(u_to)) + 3, width)
            seen[2], seen[3] = max(np.int64(np.floor(v_from)) - 2, 0), min(np.int64(np.floor(v_to)) + 3, height)


@inlined
def _bound_pixels(
    plane: F64,
    width: np.uint64,
    top: int,
    bottom: int,
    is_flat: bool,
    background: np.float32,
    nearness: F32,
    found: F32,
) -> tuple[float, float, float, float]:
    """Return the least and greatest position on a light map, across and along, of all pixels but the background.

    Pixels of a column of a few rows lie between the first and last row, and between the nearest and farthest of them.
    """
    none, one = np.float32(_UNLIMITED), np.float32(1.0)
    least_u, least_v, greatest_u, greatest_v = floats(none), floats(none), floats(-none), floats(-none)
    across, along = np.float32(plane[ON_MAP_X]), np.float32(plane[ON_MAP_Y])
    eye_u, eye_v = np.float32(plane[ON_MAP_X + 3]), np.float32(plane[ON_MAP_Y + 3])
    for first_y in range(top, bottom, _TILE_ROWS):
        last_y = min(first_y + _TILE_ROWS, bottom) - 1
        for x in range(np.uint64(0), width, np.uint64(SIMD_WIDTH)):
            nearest, farthest = floats(background), floats(none)
            for y in range(first_y, last_y + 1):
                here = load_floats(nearness, np.uint64(y - top) * padded(width) + x)
                nearest = maximum(nearest, here)
                farthest = minimum(farthest, where_at_least(floats(background), here, floats(none), here))
            if not is_any_above(nearest, background):
                continue
            at = count_from(x)
            for corner in range(4):
                y = first_y if corner < 2 else last_y
                key = nearest if corner % 2 == 0 else farthest
                u = np.float32(plane[ON_MAP_X + 1] * y + plane[ON_MAP_X + 2]) + across * at
                v = np.float32(plane[ON_MAP_Y + 1] * y + plane[ON_MAP_Y + 2]) + along * at
                if is_flat:
                    u, v = u + eye_u * key, v + eye_v * key
                else:
                    depth = one / key
                    u, v = u * depth + eye_u, v * depth + eye_v
                least_u = minimum(where_at_least(floats(background), nearest, floats(none), u), least_u)
                least_v = minimum(where_at_least(floats(background), nearest, floats(none), v), least_v)
                greatest_u = maximum(where_at_least(floats(background), nearest, floats(-none), u), greatest_u)
                greatest_v = maximum(where_at_least(floats(background), nearest, floats(-none), v), greatest_v)
    store(found, np.uint64(0), least_u)
    store(found, np.uint64(SIMD_WIDTH), greatest_u)
    store(found, np.uint64(2 * SIMD_WIDTH), least_v)
    store(found, np.uint64(3 * SIMD_WIDTH), greatest_v)
    u_from, u_to, v_from, v_to = _UNLIMITED, -_UNLIMITED, _UNLIMITED, -_UNLIMITED
    for k in range(np.uint64(SIMD_WIDTH)):
        u_from = min(u_from, np.float64(found[k]))
        u_to = max(u_to, np.float64(found[np.uint64(SIMD_WIDTH) + k]))
        v_from = min(v_from, np.float64(found[np.uint64(2 * SIMD_WIDTH) + k]))
        v_to = max(v_to, np.float64(found[np.uint64(3 * SIMD_WIDTH) + k]))
    return u_from, u_to, v_from, v_to
