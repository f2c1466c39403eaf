"""Shadows: which part of each light that casts some reaches the pixels of a run.

Along a run, a pixel's position on a light map is the quotient of two linear functions. There, the surface's plane is
compared with what the four nearest texels hold; docs/rendering.md has the rule.
"""

import numpy as np

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.intrinsics import gather_pairs, store
from worldloom.kernels.light_maps import (
    MAP_DEPTH,
    MAP_HEIGHT,
    MAP_IS_SPOT,
    MAP_KEY,
    MAP_LAMP,
    MAP_TEXEL,
    MAP_WIDTH,
    MAP_X,
    MAP_Y,
    lamp_casts,
    map_side,
    map_start,
)
from worldloom.kernels.raster.scratch import (
    HAS_SHADOWS,
    KEY,
    LAMP_COUNT,
    LAMPS,
    LOWER_TEXEL,
    MAP_COUNT,
    ON_MAP_KEY,
    ON_MAP_W,
    ON_MAP_X,
    ON_MAP_Y,
    ROW,
    STRIDE,
    TRIANGLE,
    UPPER_TEXEL,
    Scratch,
    padded,
    row_start,
)
from worldloom.kernels.shading.lamps import NO_SHADOW, ONE_SHADOW
from worldloom.kernels.simd import (
    SIMD_WIDTH,
    Floats,
    Ints,
    count_from,
    floats,
    floor,
    from_bits,
    maximum,
    minimum,
    to_floats,
    to_ints,
    where_at_least,
)
from worldloom.kernels.tables import (
    F32,
    F64,
    I32,
    LAMP_SHADOW,
    LAMP_SIZE,
    AssetTable,
    InstanceTable,
    LaneTable,
    ViewTable,
)

_ZERO, _HALF, _ONE, _TINY = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(1e-30)
_MARGIN = np.float32(0.25)
"""Sides of a texel by which something must be nearer to the light than a surface to shadow it."""
_STEEPEST = np.float32(64.0)
"""Sides of a texel by which the depth of a surface's plane changes from one texel to the next, at most."""


@device_function
def read_light_maps(
    lanes: LaneTable, views: ViewTable, view: int, count: int, maps: F64, planes: F64, constants: F32
) -> None:
    """Write how the pixels of a view are found on its light maps into `planes`, and which lamp has which map."""
    constants[HAS_SHADOWS], constants[MAP_COUNT] = views.shadows[view], count
    for lamp in range(np.int64(constants[LAMP_COUNT])):
        at = LAMPS + lamp * LAMP_SIZE + LAMP_SHADOW
        constants[at] = ONE_SHADOW if lamp_casts(lanes.lamps, views.lane[view], lamp) else NO_SHADOW
    camera, orthographic = views.camera, views.orthographic[view] == 1
    pixel = 2.0 * np.float64(views.half_height[view]) / views.height[view]
    first_x, first_y = (0.5 - 0.5 * views.width[view]) * pixel, (0.5 * views.height[view] - 0.5) * pixel
    for number in range(count):
        light_map, out = maps[number], planes[number]
        if constants[LAMP_COUNT] > _ZERO:
            constants[LAMPS + np.int64(light_map[MAP_LAMP]) * LAMP_SIZE + LAMP_SHADOW] = ONE_SHADOW + 1 + number
        for axis in range(3):
            first = MAP_X if axis == 0 else (MAP_Y if axis == 1 else MAP_DEPTH)
            into = ON_MAP_X if axis == 0 else (ON_MAP_Y if axis == 1 else ON_MAP_KEY)
            right = up = back = 0.0
            at_eye = light_map[first + 3]
            for k in range(3):
                right += light_map[first + k] * camera[view, k, 0]
                up += light_map[first + k] * camera[view, k, 1]
                back += light_map[first + k] * camera[view, k, 2]
                at_eye += light_map[first + k] * camera[view, k, 3]
            corner = right * first_x + up * first_y
            out[into], out[into + 1] = right * pixel, -up * pixel
            if orthographic:
                out[into + 2], out[into + 3] = at_eye + corner - views.far[view] * back, back
            else:
                out[into + 2], out[into + 3] = corner - back, at_eye
        # A pixel's values are divided by its depth in perspective: so is 1, which then is the key.
        one = 2 if orthographic else 3
        for k in range(4):
            depth = out[ON_MAP_KEY + k]
            is_one = 1.0 if k == one else 0.0
            if light_map[MAP_IS_SPOT] == 1.0:
                out[ON_MAP_W + k], out[ON_MAP_KEY + k] = depth, is_one
            else:
                out[ON_MAP_W + k], out[ON_MAP_KEY + k] = is_one, light_map[MAP_KEY] * is_one - depth


@device_function
def prepare_slopes(record: int, count: int, record_floats: F64, planes: F64, slopes: F64) -> None:
    """Write how the key of a triangle's plane changes from texel to texel, to the right and down, on each light map."""
    key_x, key_y = record_floats[record, KEY], record_floats[record, KEY + 1]
    key = row_start(record_floats, record, KEY, 0.5)
    for number in range(count):
        # The columns of a pixel's x, y and 1 in four linear functions of them; of the three of the map, the inverse.
        plane = planes[number]
        x0, x1, x2 = _on_plane(plane, ON_MAP_X, key_x, key_y, key)
        y0, y1, y2 = _on_plane(plane, ON_MAP_Y, key_x, key_y, key)
        w0, w1, w2 = _on_plane(plane, ON_MAP_W, key_x, key_y, key)
        k0, k1, k2 = _on_plane(plane, ON_MAP_KEY, key_x, key_y, key)
        a, b, c = y1 * w2 - y2 * w1, y2 * w0 - y0 * w2, y0 * w1 - y1 * w0
        d, e, f = w1 * x2 - w2 * x1, w2 * x0 - w0 * x2, w0 * x1 - w1 * x0
        det = x0 * a + x1 * b + x2 * c
        right, down = (k0 * a + k1 * b + k2 * c) / det, (k0 * d + k1 * e + k2 * f) / det
        is_finite = abs(right) + abs(down) < np.inf
        slopes[record, 2 * number] = right if is_finite else 0.0
        slopes[record, 2 * number + 1] = down if is_finite else 0.0


@inlined
def _on_plane(plane: F64, first: int, key_x: float, key_y: float, key: float) -> tuple[float, float, float]:
    """Return a function of pixels on a triangle's plane, whose key is linear: its factors of x, y and 1."""
    of_key = plane[first + 3]
    return plane[first] + of_key * key_x, plane[first + 1] + of_key * key_y, plane[first + 2] + of_key * key


@inlined
def find_lit(
    assets: AssetTable,
    instances: InstanceTable,
    views: ViewTable,
    view: int,
    record: int,
    y: int,
    x_from: np.uint64,
    x_to: np.uint64,
    scratch: Scratch,
) -> bool:
    """Write the part of each light that reaches pixels x_from..x_to of row y into `scratch.lit`.

    Return False if all of all lights does.
    """
    constants, record_floats = scratch.constants, scratch.record_floats
    row = np.uint64(scratch.record_ints[record, ROW])
    # Something convex does not shadow itself: where it faces away from the light, it is dark anyway. With flat
    # triangles comparing planes has that result; round shapes are lit a little further than their triangles face it.
    is_round = assets.triangle_is_flat[np.uint64(scratch.record_ints[record, TRIANGLE])] == 0
    skips_own = is_round and assets.mesh_is_convex[instances.mesh[row]] == 1
    side = map_side(np.int64(views.width[view]), np.int64(views.height[view]))
    key_start, key_step = row_start(record_floats, record, KEY, y + 0.5), record_floats[record, KEY]
    touched = False
    for number in range(np.int64(constants[MAP_COUNT])):
        plane = scratch.map_planes[number]
        u, u_step = _along_row(plane, ON_MAP_X, y, key_start, key_step)
        v, v_step = _along_row(plane, ON_MAP_Y, y, key_start, key_step)
        w, w_step = _along_row(plane, ON_MAP_W, y, key_start, key_step)
        width, height = scratch.maps[number, MAP_WIDTH], scratch.maps[number, MAP_HEIGHT]
        lit_row = np.uint64(number) * np.uint64(STRIDE)
        a, b = np.float64(x_from), np.float64(x_to) - 1.0
        if _is_beside(u, u_step, v, v_step, w, w_step, a, b, width, height):
            for x in range(x_from, x_to, np.uint64(SIMD_WIDTH)):
                store(scratch.lit, lit_row + x, floats(_ONE))
            continue
        touched = True
        key, step = _along_row(plane, ON_MAP_KEY, y, key_start, key_step)
        texel = np.float32(scratch.maps[number, MAP_TEXEL])
        is_spot = scratch.maps[number, MAP_IS_SPOT] == 1.0
        _look_up(
            np.float32(u),
            np.float32(u_step),
            np.float32(v),
            np.float32(v_step),
            np.float32(w),
            np.float32(w_step),
            np.float32(key),
            np.float32(step),
            np.float32(scratch.record_slopes[record, 2 * number]),
            np.float32(scratch.record_slopes[record, 2 * number + 1]),
            _ZERO if is_spot else texel,
            texel if is_spot else _ZERO,
            np.float32(width),
            np.float32(height),
            np.int32(map_start(number, side)),
            np.int32(padded(np.int64(width))),
            skips_own,
            np.int32(row),
            x_from,
            x_to,
            lit_row,
            scratch.map_keys,
            scratch.map_rows,
            scratch.texels,
            scratch.lit,
        )
    return touched


@inlined
def _along_row(plane: F64, first: int, y: int, key_start: float, key_step: float) -> tuple[float, float]:
    """Return a function of pixels of a row of a triangle: its value at pixel 0, and its step."""
    of_key = plane[first + 3]
    return plane[first + 1] * y + plane[first + 2] + of_key * key_start, plane[first] + of_key * key_step


@inlined
def _is_beside(
    u: float,
    u_step: float,
    v: float,
    v_step: float,
    w: float,
    w_step: float,
    a: float,
    b: float,
    width: float,
    height: float,
) -> bool:
    """Return whether the pixels from a to b all lie beyond one edge of a light map."""
    ua, ub, va, vb = u + u_step * a, u + u_step * b, v + v_step * a, v + v_step * b
    wa, wb = w + w_step * a, w + w_step * b
    if not (wa > 0.0 and wb > 0.0):
        return False
    right, down = width - 0.5, height - 0.5
    return (
        (ua <= 0.5 * wa and ub <= 0.5 * wb)
        or (va <= 0.5 * wa and vb <= 0.5 * wb)
        or (ua >= right * wa and ub >= right * wb)
        or (va >= down * wa and vb >= down * wb)
    )


@inlined
def _look_up(
    u: np.float32,
    u_step: np.float32,
    v: np.float32,
    v_step: np.float32,
    w: np.float32,
    w_step: np.float32,
    key: np.float32,
    key_step: np.float32,
    right: np.float32,
    down: np.float32,
    side: np.float32,
    side_of_key: np.float32,
    width: np.float32,
    height: np.float32,
    start: np.int32,
    stride: np.int32,
    skips_own: bool,
    row: np.int32,
    x_from: np.uint64,
    x_to: np.uint64,
    lit_row: np.uint64,
    keys: F32,
    rows: I32,
    buffers: I32,
    lit: F32,
) -> None:
    """Write the part of one light that reaches the pixels of a run."""
    for x in range(x_from, x_to, np.uint64(SIMD_WIDTH)):
        at = count_from(x)
        depth = w + w_step * at
        scale = _ONE / depth
        here = (key + key_step * at) * scale
        # Behind a spot is no light: the map's outermost texels are empty.
        across = where_at_least(depth, _TINY, (u + u_step * at) * scale, _ZERO)
        along = where_at_least(depth, _TINY, (v + v_step * at) * scale, _ZERO)
        across = minimum(maximum(across, _HALF), width - _HALF) - _HALF
        along = minimum(maximum(along, _HALF), height - _HALF) - _HALF
        left, upper = floor(across), floor(along)
        across, along = across - left, along - upper
        index = to_ints(upper) * stride + to_ints(left) + start
        store(buffers, UPPER_TEXEL + x, index)
        store(buffers, LOWER_TEXEL + x, index + stride)
        # The key of the surface's plane at each texel's centre, and what a caster there must exceed.
        unit = side_of_key * here + side
        limit = unit * _STEEPEST
        to_right, to_below = (
            maximum(minimum(limit, right), _ZERO - limit),
            maximum(minimum(limit, down), _ZERO - limit),
        )
        at_first = here + unit * _MARGIN - to_right * across - to_below * along
        at_lower = at_first + to_below
        first, second = gather_pairs(keys, buffers, UPPER_TEXEL + x)
        third, fourth = gather_pairs(keys, buffers, LOWER_TEXEL + x)
        a, b = _is_nearer(first, at_first), _is_nearer(second, at_first + to_right)
        c, d = _is_nearer(third, at_lower), _is_nearer(fourth, at_lower + to_right)
        if skips_own:
            first, second = gather_pairs(rows, buffers, UPPER_TEXEL + x)
            third, fourth = gather_pairs(rows, buffers, LOWER_TEXEL + x)
            a, b, c, d = (
                a * _is_other(first, row),
                b * _is_other(second, row),
                c * _is_other(third, row),
                d * _is_other(fourth, row),
            )
        above, below = a + (b - a) * across, c + (d - c) * across
        store(lit, lit_row + x, _ONE - (above + (below - above) * along))


@inlined
def _is_nearer(texel: Ints, limit: Floats) -> Floats:
    """Return 1 where a texel's key is at least a limit, else 0."""
    return where_at_least(from_bits(texel), limit, floats(_ONE), _ZERO)


@inlined
def _is_other(texel: Ints, row: np.int32) -> Floats:
    """Return 0 where a texel holds this row, else 1."""
    return minimum(to_floats((texel - row) & np.int32(0x7FFFFFFF)), _ONE)
