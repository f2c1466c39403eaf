"""Light maps: where they lie in the world. A view with shadows has one for each light that casts some.

A light map is a grid of texels on a plane across a light; each holds what of the casting instances the light meets
first along the line through its centre. docs/rendering.md has the rules. Both renderers draw the maps fitted here.
"""

import math

import numpy as np

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.tables import (
    CASTS,
    F32,
    F64,
    HEADLIGHT,
    LAMP_DIRECTION,
    LAMP_KIND,
    LAMP_POSITION,
    LAMP_SHADOW,
    MAX_LAMPS,
    SPOT,
    STANDS_FOR_SHADOW,
    AssetTable,
    InstanceTable,
    LaneTable,
    ViewTable,
)

# Columns of a light map. The first twelve take a point of the world to the map: to x and y in texels, both times w, and
# to its depth. A spot's w is the depth, that of parallel light is 1. MAP_KEY is what a parallel light's depth is
# subtracted from. MAP_NEAREST is the least depth of what casts, MAP_FARTHEST the greatest at which it shadows what is
# seen. MAP_TEXEL is the side of a texel in metres, at depth 1 of a spot. MAP_FROM is parallel light's direction, and
# the position of a spot.
MAP_X, MAP_Y, MAP_DEPTH = 0, 4, 8
MAP_WIDTH, MAP_HEIGHT, MAP_KEY, MAP_TEXEL, MAP_IS_SPOT, MAP_LAMP, MAP_FROM = 12, 13, 14, 15, 16, 17, 18
MAP_NEAREST, MAP_FARTHEST = 21, 22
LIGHT_MAP_SIZE = 23
SPOT_NEAR = 0.01
"""Metres from a spot within which nothing casts a shadow."""
_WIDEST = math.tan(math.radians(80.0))
"""Tangent of the widest angle to a spot's direction at which it casts shadows."""
_SMALLEST, _LARGEST = 128, 2048
"""Least and greatest side of a map in texels."""
_LEAST_TEXEL = 2.0**-24
_UNLIMITED = 1e30
"""Metres; more than any scene has."""


def compute_map_side(width: int, height: int) -> int:
    """Return the greatest side of the light maps of a view of this size, in texels: a multiple of sixteen."""
    return min(max((max(width, height) + 7) // 8 * 16, _SMALLEST), _LARGEST)


map_side = inlined(compute_map_side)
"""`compute_map_side` in kernels."""


@inlined
def map_start(number: int, side: int) -> int:
    """Return the index of the first texel of a light map, whose greatest side is `side`."""
    return number * side * side


@inlined
def lamp_casts(lamps: F32, lane: int, lamp: int) -> bool:
    """Return whether a lamp casts shadows."""
    return lamps[lane, lamp, LAMP_KIND] != HEADLIGHT and lamps[lane, lamp, LAMP_SHADOW] > np.float32(0.0)


@inlined
def row_casts(instances: InstanceTable, row: int) -> bool:
    """Return whether an instance casts shadows."""
    return instances.mesh[row] >= 0 and instances.shadow[row] == CASTS and instances.alpha[row] > np.float32(0.0)


@device_function
def fit_light_maps(
    assets: AssetTable,
    instances: InstanceTable,
    lanes: LaneTable,
    views: ViewTable,
    view: int,
    maps: F64,
) -> int:
    """Write the light maps of a view into `maps` [MAX_LAMPS, LIGHT_MAP_SIZE]; return their number.

    A light without a map reaches everything that the view shows.
    """
    lane = views.lane[view]
    first, last = np.int64(lanes.first_row[lane]), np.int64(lanes.first_row[lane]) + lanes.row_count[lane]
    is_empty, x, y, z, hx, hy, hz = _find_visible_box(assets, instances, first, last, views, view)
    if is_empty:
        return 0
    side = map_side(np.int64(views.width[view]), np.int64(views.height[view]))
    count = 0
    for light in range(max(int(lanes.lamp_count[lane]), 1)):
        light_map = maps[count]
        if not _write_axes(lanes, lane, light, light_map):
            continue
        is_spot = light_map[MAP_IS_SPOT] == 1.0
        # What the view shows, within the lamp's square: no shadow elsewhere can be seen.
        seen = _range_of_box(light_map, x, y, z, hx, hy, hz, is_spot)
        reach, middle_u, middle_v = _square_of(lanes, lane, light, light_map, is_spot)
        left, right, upper, lower = middle_u - reach, middle_u + reach, middle_v - reach, middle_v + reach
        u_from, u_to, v_from, v_to = max(seen[0], left), min(seen[1], right), max(seen[2], upper), min(seen[3], lower)
        low_u, high_u, low_v, high_v = _UNLIMITED, -_UNLIMITED, _UNLIMITED, -_UNLIMITED
        all_low_u, all_high_u, all_low_v, all_high_v = _UNLIMITED, -_UNLIMITED, _UNLIMITED, -_UNLIMITED
        nearest, farthest = _UNLIMITED, -_UNLIMITED
        for row in range(first, last):
            if not row_casts(instances, row):
                continue
            mesh = instances.mesh[row]
            u0, u1, v0, v1, d0, d1 = range_of_row(
                light_map, assets.mesh_center, assets.mesh_half_size, mesh, instances.pose, row, is_spot
            )
            # Written so that NaN fails it.
            if not (u1 >= left and u0 <= right and v1 >= upper and v0 <= lower and d1 < _UNLIMITED):
                continue
            nearest = min(nearest, d0)
            all_low_u, all_high_u = min(all_low_u, max(u0, left)), max(all_high_u, min(u1, right))
            all_low_v, all_high_v = min(all_low_v, max(v0, upper)), max(all_high_v, min(v1, lower))
            if u1 >= u_from and u0 <= u_to and v1 >= v_from and v0 <= v_to and d0 <= seen[5]:
                if not is_spot and not _may_be_seen(
                    assets, instances.pose, mesh, row, light_map, seen[5] - d0, views, view
                ):
                    continue
                low_u, high_u = min(low_u, max(u0, u_from)), max(high_u, min(u1, u_to))
                low_v, high_v = min(low_v, max(v0, v_from)), max(high_v, min(v1, v_to))
                farthest = max(farthest, d1)
        if not (low_u <= high_u and low_v <= high_v):
            continue
        # The side of a texel does not depend on what is seen, and texels begin at multiples of it: so they stay where
        # they are in the world while the camera moves. One texel more on each side, which stays empty.
        texel = max(max(all_high_u - all_low_u, all_high_v - all_low_v) / (side - 3), _LEAST_TEXEL)
        texel = 2.0 ** (0.5 * np.ceil(2.0 * np.log2(texel)))
        x_from, y_from = np.floor(low_u / texel) - 1.0, np.floor(low_v / texel) - 1.0
        light_map[MAP_WIDTH] = min(np.floor(high_u / texel) + 2.0 - x_from, np.float64(side))
        light_map[MAP_HEIGHT] = min(np.floor(high_v / texel) + 2.0 - y_from, np.float64(side))
        for k in range(4):
            w = light_map[MAP_DEPTH + k] if is_spot else (1.0 if k == 3 else 0.0)
            light_map[MAP_X + k] = light_map[MAP_X + k] / texel - x_from * w
            light_map[MAP_Y + k] = light_map[MAP_Y + k] / texel - y_from * w
        light_map[MAP_KEY], light_map[MAP_TEXEL], light_map[MAP_LAMP] = farthest, texel, light
        light_map[MAP_NEAREST], light_map[MAP_FARTHEST] = nearest, max(farthest, seen[5])
        count += 1
    return count


@inlined
def _may_be_seen(
    assets: AssetTable,
    pose: F32,
    mesh: int,
    row: int,
    light_map: F64,
    depth: float,
    views: ViewTable,
    view: int,
) -> bool:
    """Return whether a view may show something in parallel light's shadow of an instance.

    The instance's box along the axes of the world, extended along the light by that depth, is compared with the planes
    at the sides of the frustum.
    """
    center, half, camera = assets.mesh_center, assets.mesh_half_size, views.camera
    x, hx = _reach(center, half, mesh, pose, row, 1.0, 0.0, 0.0)
    y, hy = _reach(center, half, mesh, pose, row, 0.0, 1.0, 0.0)
    z, hz = _reach(center, half, mesh, pose, row, 0.0, 0.0, 1.0)
    along = (
        abs(light_map[MAP_DEPTH] * light_map[MAP_FROM])
        + abs(light_map[MAP_DEPTH + 1] * light_map[MAP_FROM + 1])
        + abs(light_map[MAP_DEPTH + 2] * light_map[MAP_FROM + 2])
    )
    step = 0.5 * max(depth, 0.0) / along
    sx, sy, sz = step * light_map[MAP_FROM], step * light_map[MAP_FROM + 1], step * light_map[MAP_FROM + 2]
    x, y, z = x + sx - camera[view, 0, 3], y + sy - camera[view, 1, 3], z + sz - camera[view, 2, 3]
    hx, hy, hz = hx + abs(sx), hy + abs(sy), hz + abs(sz)
    is_flat = views.orthographic[view] == 1
    for axis in range(2):
        slope = np.float64(views.half_height[view])
        if axis == 0:
            slope *= views.width[view] / views.height[view]
        limit = slope if is_flat else 0.0
        slope = 0.0 if is_flat else slope
        for turn in range(2):
            side = 1.0 if turn == 0 else -1.0
            # The outward normal of a side of the frustum.
            nx = side * camera[view, 0, axis] + slope * camera[view, 0, 2]
            ny = side * camera[view, 1, axis] + slope * camera[view, 1, 2]
            nz = side * camera[view, 2, axis] + slope * camera[view, 2, 2]
            if nx * x + ny * y + nz * z - limit > abs(nx) * hx + abs(ny) * hy + abs(nz) * hz:
                return False
    return True


@inlined
def _find_visible_box(
    assets: AssetTable, instances: InstanceTable, first: int, last: int, views: ViewTable, view: int
) -> tuple[bool, float, float, float, float, float, float]:
    """Return a box around all that a view shows of its lane: whether it is empty, its centre, half its size.

    The box, along the axes of the world, is that around all instances, cut by that around the frustum.
    """
    low = (_UNLIMITED, _UNLIMITED, _UNLIMITED)
    high = (-_UNLIMITED, -_UNLIMITED, -_UNLIMITED)
    center, half, pose, camera = assets.mesh_center, assets.mesh_half_size, instances.pose, views.camera
    for row in range(first, last):
        mesh = instances.mesh[row]
        if mesh < 0 or instances.shadow[row] == STANDS_FOR_SHADOW or not instances.alpha[row] > np.float32(0.0):
            continue
        x, rx = _reach(center, half, mesh, pose, row, 1.0, 0.0, 0.0)
        y, ry = _reach(center, half, mesh, pose, row, 0.0, 1.0, 0.0)
        z, rz = _reach(center, half, mesh, pose, row, 0.0, 0.0, 1.0)
        if abs(x) + abs(y) + abs(z) + rx + ry + rz < _UNLIMITED:
            low = (min(low[0], x - rx), min(low[1], y - ry), min(low[2], z - rz))
            high = (max(high[0], x + rx), max(high[1], y + ry), max(high[2], z + rz))
    if not low[0] <= high[0]:
        return True, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    # Of the frustum, the part that is no deeper than the box's farthest corner.
    near, farthest = np.float64(views.near[view]), 0.0
    for k in range(3):
        back, eye = np.float64(camera[view, k, 2]), np.float64(camera[view, k, 3])
        farthest += max(-back * (low[k] - eye), -back * (high[k] - eye))
    farthest = min(farthest, np.float64(views.far[view]))
    if not farthest >= near:
        return True, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    half_height = np.float64(views.half_height[view])
    half_width = half_height * views.width[view] / views.height[view]
    is_flat = views.orthographic[view] == 1
    box = (0.0, 0.0, 0.0)
    size = (0.0, 0.0, 0.0)
    for k in range(3):
        right, up = abs(np.float64(camera[view, k, 0])) * half_width, abs(np.float64(camera[view, k, 1])) * half_height
        back, eye = np.float64(camera[view, k, 2]), np.float64(camera[view, k, 3])
        here, there = (1.0, 1.0) if is_flat else (near, farthest)
        lowest = eye + min(-near * back - here * (right + up), -farthest * back - there * (right + up))
        highest = eye + max(-near * back + here * (right + up), -farthest * back + there * (right + up))
        lowest, highest = max(lowest, low[k]), min(highest, high[k])
        if not lowest <= highest:
            return True, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        middle, around = 0.5 * (lowest + highest), 0.5 * (highest - lowest)
        box = (middle, box[1], box[2]) if k == 0 else ((box[0], middle, box[2]) if k == 1 else (box[0], box[1], middle))
        size = (
            (around, size[1], size[2])
            if k == 0
            else ((size[0], around, size[2]) if k == 1 else (size[0], size[1], around))
        )
    return False, box[0], box[1], box[2], size[0], size[1], size[2]


@inlined
def _reach(center: F32, half: F32, mesh: int, pose: F32, row: int, x: float, y: float, z: float) -> tuple[float, float]:
    """Return where an instance's bounding box lies along an axis of the world: its centre, and how far it reaches."""
    middle = x * pose[row, 0, 3] + y * pose[row, 1, 3] + z * pose[row, 2, 3]
    reach = 0.0
    for k in range(3):
        along = x * pose[row, 0, k] + y * pose[row, 1, k] + z * pose[row, 2, k]
        middle += along * center[mesh, k]
        reach += abs(along) * half[mesh, k]
    return middle, reach


@inlined
def _write_axes(lanes: LaneTable, lane: int, light: int, light_map: F64) -> bool:
    """Write the transform to a plane across a light, in metres; return False for a light that casts no shadow."""
    lamps = lanes.lamps
    is_sun = lanes.lamp_count[lane] == 0
    if not is_sun and not lamp_casts(lamps, lane, light):
        return False
    is_spot = not is_sun and lamps[lane, light, LAMP_KIND] == SPOT
    direction = lanes.light_direction[lane] if is_sun else lamps[lane, light, LAMP_DIRECTION : LAMP_DIRECTION + 3]
    fx, fy, fz = np.float64(direction[0]), np.float64(direction[1]), np.float64(direction[2])
    length = np.sqrt(fx * fx + fy * fy + fz * fz)
    if not 0.0 < length < _UNLIMITED * _UNLIMITED:
        return False
    fx, fy, fz = fx / length, fy / length, fz / length
    for k in range(12):
        light_map[k] = 0.0
    light_map[MAP_IS_SPOT] = 1.0 if is_spot else 0.0
    for k in range(3):
        light_map[MAP_FROM + k] = lamps[lane, light, LAMP_POSITION + k] if is_spot else np.float64(direction[k])
    if is_spot:
        # Up is across the direction and the x axis, or the y axis where that is nearly the direction.
        ux, uy, uz = 0.0, -fz, fy
        if uy * uy + uz * uz <= 0.01:
            ux, uy, uz = -fz, 0.0, fx
        length = np.sqrt(ux * ux + uy * uy + uz * uz)
        ux, uy, uz = ux / length, uy / length, uz / length
        light_map[0], light_map[1], light_map[2] = fy * uz - fz * uy, fz * ux - fx * uz, fx * uy - fy * ux
        light_map[4], light_map[5], light_map[6] = ux, uy, uz
        light_map[8], light_map[9], light_map[10] = fx, fy, fz
        for axis in range(3):
            for k in range(3):
                light_map[4 * axis + 3] -= light_map[4 * axis + k] * lamps[lane, light, LAMP_POSITION + k]
        return True
    # Along the axis of the world that is nearest to the light: edges along the two others are straight on the map.
    along = 0 if abs(fx) >= abs(fy) and abs(fx) >= abs(fz) else (1 if abs(fy) >= abs(fz) else 2)
    b, c = (1 if along == 0 else 0), (1 if along == 2 else 2)
    f_along, f_b, f_c = (
        fx if along == 0 else (fy if along == 1 else fz),
        fy if along == 0 else fx,
        fy if along == 2 else fz,
    )
    light_map[MAP_X + b], light_map[MAP_X + along] = 1.0, -f_b / f_along
    light_map[MAP_Y + c], light_map[MAP_Y + along] = 1.0, -f_c / f_along
    light_map[MAP_DEPTH + along] = 1.0 if f_along > 0.0 else -1.0
    return True


@inlined
def _square_of(lanes: LaneTable, lane: int, light: int, light_map: F64, is_spot: bool) -> tuple[float, float, float]:
    """Return half the side of the square in which a light casts shadows, and its middle, across the light."""
    if lanes.lamp_count[lane] == 0:
        return _UNLIMITED, 0.0, 0.0
    reach = min(np.float64(lanes.lamps[lane, light, LAMP_SHADOW]), _WIDEST if is_spot else _UNLIMITED)
    u = v = 0.0
    if not is_spot:
        for k in range(3):
            u += light_map[MAP_X + k] * lanes.lamps[lane, light, LAMP_POSITION + k]
            v += light_map[MAP_Y + k] * lanes.lamps[lane, light, LAMP_POSITION + k]
    return reach, u, v


@inlined
def _range_of_box(
    light_map: F64, x: float, y: float, z: float, hx: float, hy: float, hz: float, is_spot: bool
) -> tuple[float, float, float, float, float, float]:
    """Return the least and greatest u, v and depth, across a light, of a box along the axes of the world."""
    u = light_map[0] * x + light_map[1] * y + light_map[2] * z + light_map[3]
    v = light_map[4] * x + light_map[5] * y + light_map[6] * z + light_map[7]
    d = light_map[8] * x + light_map[9] * y + light_map[10] * z + light_map[11]
    ru = abs(light_map[0]) * hx + abs(light_map[1]) * hy + abs(light_map[2]) * hz
    rv = abs(light_map[4]) * hx + abs(light_map[5]) * hy + abs(light_map[6]) * hz
    rd = abs(light_map[8]) * hx + abs(light_map[9]) * hy + abs(light_map[10]) * hz
    return _divided(u, ru, v, rv, d, rd, is_spot)


@inlined
def range_of_row(
    light_map: F64, center: F32, half: F32, mesh: int, pose: F32, row: int, is_spot: bool
) -> tuple[float, float, float, float, float, float]:
    """Return the least and greatest u, v and depth, across a light, of the bounding box of an instance."""
    u, ru = _reach(center, half, mesh, pose, row, light_map[0], light_map[1], light_map[2])
    v, rv = _reach(center, half, mesh, pose, row, light_map[4], light_map[5], light_map[6])
    d, rd = _reach(center, half, mesh, pose, row, light_map[8], light_map[9], light_map[10])
    return _divided(u + light_map[3], ru, v + light_map[7], rv, d + light_map[11], rd, is_spot)


@inlined
def _divided(
    u: float, ru: float, v: float, rv: float, d: float, rd: float, is_spot: bool
) -> tuple[float, float, float, float, float, float]:
    """Return ranges from middles and reaches, for a spot divided by depth; an empty one of what is behind a spot."""
    if not is_spot:
        return u - ru, u + ru, v - rv, v + rv, d - rd, d + rd
    near, far = max(d - rd, SPOT_NEAR), d + rd
    if not far > SPOT_NEAR:
        return _UNLIMITED, -_UNLIMITED, _UNLIMITED, -_UNLIMITED, _UNLIMITED, -_UNLIMITED
    return (
        (u - ru) / (near if u - ru < 0.0 else far),
        (u + ru) / (near if u + ru > 0.0 else far),
        (v - rv) / (near if v - rv < 0.0 else far),
        (v + rv) / (near if v + rv > 0.0 else far),
        near,
        far,
    )


def allocate_light_maps() -> F64:
    """Allocate the light maps of a view."""
    return np.zeros((MAX_LAMPS, LIGHT_MAP_SIZE))
