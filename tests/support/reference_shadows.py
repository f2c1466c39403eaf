"""Shadows of the reference renderer: docs/rendering.md in plain NumPy, by casting rays from the lights.

A light map has a ray for each texel, from the light through the texel's centre; along it, depth grows by one a metre.
Unlike in `reference_renderer.py`, points are those of the world. Everything is float64.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tests.support.reference_lights import F64, Int, dot, unit
from worldloom.kernels.tables import (
    CASTS,
    HEADLIGHT,
    LAMP_DIRECTION,
    LAMP_KIND,
    LAMP_POSITION,
    LAMP_SHADOW,
    NO_MESH,
    SPOT,
    STANDS_FOR_SHADOW,
    AssetTable,
    ViewTable,
)
from worldloom.render.scene import Scene

Bool: TypeAlias = NDArray[np.bool_]

SPOT_NEAR = 0.01
WIDEST = float(np.tan(np.radians(80)))
MARGIN, STEEPEST = 1 / 4, 64
TIE = 1e-3  # sides of a texel: nearer to a comparison's limit, float32 may decide otherwise
ROUNDING = 1 / 100  # sides of a texel: corners are rounded to 1/256 in both directions
DETAIL = 4  # the outline of a coarser mesh may be off by a texel, by a quarter of a pixel on the screen


class Light(NamedTuple):
    """A light that casts shadows: rows u, v and depth of the transform to the plane across it, and its square."""

    lamp: int  # -1 for the sun
    is_spot: bool
    axes: F64  # [3, 3]
    position: F64  # [3] of a spot, else the origin
    middle: F64  # [2] of the square in which it casts shadows
    reach: float

    def locate(self, points: F64) -> F64:
        """Return u, v and depth [n, 3] of points."""
        located = (points - self.position) @ self.axes.T
        if self.is_spot:
            located[:, :2] /= located[:, 2:]
        return np.asarray(located)

    def rays(self, uv: F64) -> tuple[F64, F64]:
        """Return origins and directions [n, 3] of the rays at u and v; a direction is one metre of depth long."""
        inverse, zeros, ones = np.linalg.inv(self.axes), np.zeros((len(uv), 1)), np.ones((len(uv), 1))
        if self.is_spot:
            return np.broadcast_to(self.position, (len(uv), 3)), np.concatenate([uv, ones], axis=1) @ inverse.T
        along = np.broadcast_to(inverse[:, 2], (len(uv), 3))
        return np.concatenate([uv, zeros], axis=1) @ inverse.T + self.position, along

    def key(self, depth: F64) -> F64:
        """Return depth as it is compared: linear over a plane, greater where it is nearer."""
        return np.asarray(1 / depth if self.is_spot else -depth)

    def box(self, points: F64) -> tuple[F64, F64]:
        """Return the least and greatest u, v and depth of boxes with these corners [..., 8, 3]."""
        located = (points - self.position) @ self.axes.T
        low, high = located.min(axis=-2), located.max(axis=-2)
        if self.is_spot:
            near, far = np.maximum(low[..., 2:], SPOT_NEAR), high[..., 2:]
            low[..., 2:] = near
            low[..., :2] /= np.where(low[..., :2] < 0, near, far)
            high[..., :2] /= np.where(high[..., :2] > 0, near, far)
            behind = high[..., 2] <= SPOT_NEAR
            low[behind], high[behind] = np.inf, -np.inf
        return low, high


class LightMap(NamedTuple):
    """What a light meets first along the ray of each texel."""

    light: Light
    first: F64  # [2] u and v where texel 0 begins, in texels
    texel: float
    key: F64  # [height, width]; -inf where that is nothing
    row: Int  # [height, width]
    is_near_edge: Bool  # [height, width] true where a ray passes so near to a triangle's edge that rounding may decide


def casting_lights(scene: Scene, lane: int) -> list[Light]:
    """Return the lights of a lane that cast shadows."""
    lanes = scene.lanes
    if not lanes.lamp_count[lane]:
        return [_parallel(-1, lanes.light_direction[lane], np.zeros(3), np.inf)]
    lights = []
    for number, lamp in enumerate(lanes.lamps[lane, : lanes.lamp_count[lane]].astype(np.float64)):
        direction, position = (lamp[first : first + 3] for first in (LAMP_DIRECTION, LAMP_POSITION))
        if lamp[LAMP_KIND] == HEADLIGHT or not lamp[LAMP_SHADOW] > 0:
            continue
        if lamp[LAMP_KIND] != SPOT:
            lights.append(_parallel(number, direction, position, float(lamp[LAMP_SHADOW])))
            continue
        forward = unit(direction)
        across = np.cross(forward, (-1, 0, 0))
        up = unit(across if across @ across > 0.01 else np.cross(forward, (0, 1, 0)))
        axes = np.stack([np.cross(forward, up), up, forward])
        lights.append(Light(number, True, axes, position, np.zeros(2), min(WIDEST, float(lamp[LAMP_SHADOW]))))
    return lights


def _parallel(lamp: int, direction: NDArray[Any], position: F64, reach: float) -> Light:
    along = unit(direction)
    a = int(abs(along).argmax())
    b, c = (axis for axis in range(3) if axis != a)
    axes = np.zeros((3, 3))
    axes[0, b], axes[0, a], axes[1, c], axes[1, a] = 1, -along[b] / along[a], 1, -along[c] / along[a]
    axes[2, a] = np.sign(along[a])
    return Light(lamp, False, axes, np.zeros(3), axes[:2] @ position, reach)


def draw_map(scene: Scene, views: ViewTable, view: int, light: Light) -> LightMap | None:
    """Return a light's map of what a view shows; None if nothing casts a shadow there."""
    casting = [row for row in _rows(scene, views, view) if scene.instances.shadow[row] == CASTS]
    seen = _visible_box(scene, views, view)
    if not casting or seen is None:
        return None
    seen_low, seen_high = light.box(seen)
    window = (
        np.maximum(seen_low[:2], light.middle - light.reach),
        np.minimum(seen_high[:2], light.middle + light.reach),
    )
    low, high = light.box(np.stack([_box(scene, row) for row in casting]))
    low_uv, high_uv = np.maximum(low[:, :2], window[0]), np.minimum(high[:, :2], window[1])
    kept = (low_uv <= high_uv).all(axis=1) & (low[:, 2] <= seen_high[2])
    if not light.is_spot:
        shadows = [
            _extend(_box(scene, row), light, seen_high[2] - near) for row, near in zip(casting, low[:, 2], strict=True)
        ]
        kept &= [_may_be_seen(views, view, corners) for corners in shadows]
    if not kept.any():
        return None
    start, end = low_uv[kept].min(axis=0), high_uv[kept].max(axis=0)
    side = max(128, min(2048, -(-max(_shape(views, view)) // 8) * 16))
    square = light.middle - light.reach, light.middle + light.reach
    low_uv, high_uv = np.maximum(low[:, :2], square[0]), np.minimum(high[:, :2], square[1])
    within = (low_uv <= high_uv).all(axis=1)
    widest = (high_uv[within].max(axis=0) - low_uv[within].min(axis=0)).max()
    texel = 2.0 ** (np.ceil(2 * np.log2(max(widest / (side - 3), 2.0**-24))) / 2)
    first = np.floor(start / texel) - 1
    width, height = (np.floor(end / texel) + 2 - first).astype(int)
    y, x = np.mgrid[:height, :width].reshape(2, -1)
    rays = light.rays((first + np.stack([x, y], axis=1) + 0.5) * texel)
    nearest, hit, near_edge = np.full(len(x), np.inf), np.full(len(x), -1), np.zeros(len(x), np.bool_)
    for row in casting:
        depth = _depths(scene, row, light, texel, *rays, near_edge)
        closer = depth < nearest
        nearest[closer], hit[closer] = depth[closer], row
    inside = (x > 0) & (x < width - 1) & (y > 0) & (y < height - 1)
    with np.errstate(divide="ignore"):
        key = np.where(inside & (hit >= 0), light.key(nearest), -np.inf)
    shape = (height, width)
    return LightMap(light, first, float(texel), key.reshape(shape), hit.reshape(shape), near_edge.reshape(shape))


def _extend(corners: F64, light: Light, depth: float) -> F64:
    """Return the corners of the box, along the world's axes, around a box and that box moved along the light."""
    _, along = light.rays(np.zeros((1, 2)))
    both = np.concatenate([corners, corners + max(depth, 0.0) * along])
    return _corners(both.min(axis=0), both.max(axis=0))


def _may_be_seen(views: ViewTable, view: int, corners: F64) -> bool:
    """Return whether a box is not beyond one of the planes at the sides of a view's frustum."""
    right, up, back, eye = views.camera[view].astype(np.float64).T
    height, width = _shape(views, view)
    half = float(views.half_height[view])
    depth = (eye - corners) @ back if not views.orthographic[view] else 1.0
    return all(
        (side * ((corners - eye) @ axis) <= limit * depth).any()
        for axis, limit in ((right, half * width / height), (up, half))
        for side in (1, -1)
    )


def _corners(low: F64, high: F64) -> F64:
    signs = np.stack(np.meshgrid((0, 1), (0, 1), (0, 1)), axis=-1).reshape(8, 3)
    return np.where(signs == 1, high, low)


def _depths(scene: Scene, row: int, light: Light, texel: float, origins: F64, along: F64, near_edge: Bool) -> F64:
    """Return the depth at which each ray meets an instance first; inf where it does not. Note rays near edges."""
    table, pose = scene.assets.table, scene.instances.pose[row].astype(np.float64)
    mesh, away = int(scene.instances.mesh[row]), float(((pose[:, 3] - light.position) @ light.axes.T)[2])
    away = away if light.is_spot else 1.0
    mesh = _detail(table, mesh, pose, texel * away)
    first, count = int(table.mesh_first_triangle[mesh]), int(table.mesh_triangle_count[mesh])
    local = table.positions[table.triangles[first : first + count]].astype(np.float64)
    corners = local @ pose[:, :3].T + pose[:, 3]
    points = corners.reshape(-1, 3)
    center = (points.min(axis=0) + points.max(axis=0)) / 2
    radius = np.linalg.norm(points - center, axis=1).max() * (1 + 1e-9)
    off_axis = np.linalg.norm(np.cross(center - origins, along), axis=1)
    close = np.flatnonzero(off_axis <= radius * np.linalg.norm(along, axis=1))
    nearest = np.full(len(origins), np.inf)
    volume, two_sided = np.linalg.det(pose[:, :3]), bool(table.mesh_is_two_sided[mesh])
    for a, b, c in corners:
        plane = np.cross(b - a, c - a)
        slope = along[close] @ plane
        with np.errstate(divide="ignore", invalid="ignore"):
            depth = (a - origins[close]) @ plane / slope
            at = origins[close] + depth[:, None] * along[close]
            sides = [np.cross(q - p, at - p) @ plane for p, q in ((a, b), (b, c), (c, a))]
            inside = np.min(sides, axis=0) >= 0
        if volume != 0 and not two_sided:
            inside &= slope * volume < 0
        if light.is_spot:
            inside &= depth >= SPOT_NEAR
        near_edge[close] |= _pass_near_edges(light, texel, np.stack([a, b, c]), origins[close] + along[close])
        nearest[close] = np.where(inside, np.minimum(nearest[close], depth), nearest[close])
    return nearest


def _pass_near_edges(light: Light, texel: float, corners: F64, points: F64) -> Bool:
    """Return whether rays through these points pass a triangle's edge so closely that rounding may decide the side."""
    at, (a, b, c) = light.locate(points)[:, :2], light.locate(corners)[:, :2]
    distances = []
    for p, q in ((a, b), (b, c), (c, a)):
        x, y = q - p
        with np.errstate(divide="ignore", invalid="ignore"):
            distances.append((x * (at[:, 1] - p[1]) - y * (at[:, 0] - p[0])) / np.hypot(x, y))
    (x, y), (z, w) = b - a, c - a
    least = np.min(distances, axis=0) if x * w > y * z else -np.max(distances, axis=0)
    return np.asarray(abs(least) < ROUNDING * texel)


def _detail(table: AssetTable, mesh: int, pose: F64, texel: float) -> int:
    stretch = np.linalg.norm(pose[:, :3], axis=0)
    while table.mesh_coarser[mesh] != NO_MESH and (stretch * table.mesh_coarser_size[mesh]).max() < DETAIL * texel:
        mesh = int(table.mesh_coarser[mesh])
    return mesh


def lit_share(scene: Scene, light_map: LightMap, row: Int, point: F64, plane: F64) -> tuple[F64, Bool]:
    """Return the part of a light that reaches surfaces [n], and where that is an edge or nearly one.

    `point` [n, 3] and `plane` [n, 3] are a point of the surface and the normal of its triangle, of any length.
    """
    light, texel, table = light_map.light, light_map.texel, scene.assets.table
    height, width = light_map.key.shape
    with np.errstate(divide="ignore", invalid="ignore"):
        located = light.locate(point)
        here, at = light.key(located[:, 2]), located[:, :2] / texel - light_map.first
        unit_key = texel * here if light.is_spot else np.full(len(here), texel)
        slopes = []
        for step in ((texel, 0), (0, texel)):
            origins, along = light.rays(located[:, :2] + step)
            slope = light.key(dot(point - origins, plane) / dot(along, plane)) - here
            slopes.append(np.clip(np.nan_to_num(slope, posinf=0, neginf=0), -STEEPEST * unit_key, STEEPEST * unit_key))
    behind = light.is_spot & ~(located[:, 2] > 0)
    at = np.where(behind[:, None], 0, at)
    held = np.clip(at, 0.5, (width - 0.5, height - 0.5)) - 0.5
    low = np.floor(held).astype(np.int64)
    part = held - low
    skips_own = table.mesh_is_convex[scene.instances.mesh[row]] == 1
    share, tie = np.zeros(len(row)), np.zeros(len(row), np.bool_)
    for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
        x, y = np.minimum(low[:, 0] + dx, width - 1), np.minimum(low[:, 1] + dy, height - 1)
        weight = abs(1 - dx - part[:, 0]) * abs(1 - dy - part[:, 1])
        limit = here + slopes[0] * (dx - part[:, 0]) + slopes[1] * (dy - part[:, 1]) + MARGIN * unit_key
        key = light_map.key[y, x]
        counts = ~(skips_own & (light_map.row[y, x] == row))
        share += weight * (1 - (counts & (key >= limit)))
        tie |= counts & (abs(key - limit) < TIE * unit_key) & (weight > 0)
        tie |= light_map.is_near_edge[y, x] & (weight > 0)
    share[behind] = 1
    return share, tie | ((share > 1e-9) & (share < 1 - 1e-9))


def _rows(scene: Scene, views: ViewTable, view: int) -> list[int]:
    """Return the rows that a view with shadows may show."""
    instances, lane = scene.instances, int(views.lane[view])
    rows = scene.lanes.first_row[lane] + np.arange(scene.lanes.row_count[lane])
    shown = (
        (instances.mesh[rows] != NO_MESH) & (instances.shadow[rows] != STANDS_FOR_SHADOW) & (instances.alpha[rows] > 0)
    )
    return [int(row) for row in rows[shown & np.isfinite(instances.pose[rows]).all(axis=(1, 2))]]


def _box(scene: Scene, row: int) -> F64:
    """Return the corners [8, 3] of an instance's bounding box."""
    table, mesh = scene.assets.table, int(scene.instances.mesh[row])
    pose = scene.instances.pose[row].astype(np.float64)
    signs = np.stack(np.meshgrid((-1, 1), (-1, 1), (-1, 1)), axis=-1).reshape(8, 3)
    local = table.mesh_center[mesh].astype(np.float64) + signs * table.mesh_half_size[mesh]
    return np.asarray(local @ pose[:, :3].T + pose[:, 3])


def _visible_box(scene: Scene, views: ViewTable, view: int) -> F64 | None:
    """Return the corners [8, 3] of a box, along the world's axes, around what a view shows; None if that is nothing."""
    rows = _rows(scene, views, view)
    if not rows:
        return None
    boxes = np.concatenate([_box(scene, row) for row in rows])
    low, high = boxes.min(axis=0), boxes.max(axis=0)
    right, up, back, eye = views.camera[view].astype(np.float64).T
    signs = np.stack(np.meshgrid((0, 1), (0, 1), (0, 1)), axis=-1).reshape(8, 3)
    corners = np.where(signs == 1, high, low)
    near, far = float(views.near[view]), min(float(views.far[view]), ((eye - corners) @ back).max())
    if far < near:
        return None
    height, width = _shape(views, view)
    half = float(views.half_height[view])
    frustum = [
        eye - depth * back + (1 if views.orthographic[view] else depth) * half * (x * width / height * right + y * up)
        for depth in (near, far)
        for x in (-1, 1)
        for y in (-1, 1)
    ]
    low, high = np.maximum(low, np.min(frustum, axis=0)), np.minimum(high, np.max(frustum, axis=0))
    return None if (low > high).any() else np.where(signs == 1, high, low)


def _shape(views: ViewTable, view: int) -> tuple[int, int]:
    return int(views.height[view]), int(views.width[view])
