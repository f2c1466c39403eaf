"""Drawing of light maps: what the light of each map meets first, and how near that is to it."""

import numpy as np

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.intrinsics import store
from worldloom.kernels.light_maps import (
    MAP_DEPTH,
    MAP_FROM,
    MAP_HEIGHT,
    MAP_IS_SPOT,
    MAP_KEY,
    MAP_TEXEL,
    MAP_WIDTH,
    MAP_X,
    MAP_Y,
    SPOT_NEAR,
    map_side,
    map_start,
    range_of_row,
    row_casts,
)
from worldloom.kernels.raster.cull import pose_determinant
from worldloom.kernels.raster.scratch import Scratch, padded
from worldloom.kernels.raster.triangles import clip_at_near_plane, depth_test
from worldloom.kernels.raster.visibility import select_triangles, transform_corners
from worldloom.kernels.simd import (
    SIMD_WIDTH,
    ceil,
    doubles,
    floats,
    maximum,
    minimum,
    rows_from,
    to_ints,
)
from worldloom.kernels.tables import (
    F32,
    F64,
    I32,
    I64,
    NO_MESH,
    AssetTable,
    InstanceTable,
    LaneTable,
    ViewTable,
)

NOTHING = np.float32(-3.0e38)
"""Key of a texel that the light passes."""
_UNLIMITED = 1e30


@device_function
def draw_light_maps(
    assets: AssetTable,
    instances: InstanceTable,
    lanes: LaneTable,
    views: ViewTable,
    view: int,
    count: int,
    scratch: Scratch,
) -> None:
    """Draw the first `count` light maps of a view into `scratch.map_keys` and `scratch.map_rows`, as far as seen."""
    lane = views.lane[view]
    first, last = np.int64(lanes.first_row[lane]), np.int64(lanes.first_row[lane]) + lanes.row_count[lane]
    side = map_side(np.int64(views.width[view]), np.int64(views.height[view]))
    nothing = floats(NOTHING)
    for number in range(count):
        light_map = scratch.maps[number]
        start = map_start(number, side)
        keys, rows = scratch.map_keys[start:], scratch.map_rows[start:]
        width, height = np.int64(light_map[MAP_WIDTH]), np.int64(light_map[MAP_HEIGHT])
        seen = scratch.map_seen[number]
        first_texel, end = padded(width) * np.uint64(seen[2]), padded(width) * np.uint64(seen[3])
        for texel in range(first_texel, end, np.uint64(SIMD_WIDTH)):
            store(keys, texel, nothing)
        for row in range(first, last):
            if not row_casts(instances, row):
                continue
            mesh = instances.mesh[row]
            is_drawn = _reaches(assets, instances.pose, mesh, row, light_map, seen)
            if is_drawn and not _turns_its_back(assets, instances.pose, mesh, row, light_map):
                _draw_row(
                    assets,
                    instances.pose,
                    mesh,
                    row,
                    light_map,
                    width,
                    height,
                    seen,
                    scratch.matrix,
                    scratch.vertices,
                    scratch.cells,
                    scratch.selected,
                    scratch.polygon,
                    scratch.spans,
                    keys,
                    rows,
                )
        _empty_edges(width, height, keys)


@inlined
def _empty_edges(width: int, height: int, keys: F32) -> None:
    """Empty the outermost texels, which stand for everything beyond the map."""
    stride = np.int64(padded(width))
    for x in range(width):
        keys[x] = keys[(height - 1) * stride + x] = NOTHING
    for y in range(height):
        keys[y * stride] = keys[y * stride + width - 1] = NOTHING


@inlined
def _reaches(assets: AssetTable, pose: F32, mesh: int, row: int, light_map: F64, seen: I64) -> bool:
    """Return whether an instance may cover texels of a light map that are seen; a texel more on each side is."""
    center, half, is_spot = assets.mesh_center, assets.mesh_half_size, light_map[MAP_IS_SPOT] == 1.0
    left, right, upper, lower, _, depth = range_of_row(light_map, center, half, mesh, pose, row, is_spot)
    # Written so that NaN fails it.
    return (
        right + 1.0 >= seen[0] and left - 1.0 <= seen[1] and lower + 1.0 >= seen[2] and upper - 1.0 <= seen[3]
    ) and depth < _UNLIMITED


@inlined
def _turns_its_back(assets: AssetTable, pose: F32, mesh: int, row: int, light_map: F64) -> bool:
    """Return whether a mesh is flat and one-sided, and parallel light meets its back."""
    x, y, z = (
        np.float64(assets.mesh_front[mesh, 0]),
        np.float64(assets.mesh_front[mesh, 1]),
        np.float64(assets.mesh_front[mesh, 2]),
    )
    if light_map[MAP_IS_SPOT] == 1.0 or (x == 0.0 and y == 0.0 and z == 0.0):
        return False
    # The light in local coordinates, times the determinant; its square is left out.
    a, b, c = np.float64(pose[row, 0, 0]), np.float64(pose[row, 0, 1]), np.float64(pose[row, 0, 2])
    d, e, f = np.float64(pose[row, 1, 0]), np.float64(pose[row, 1, 1]), np.float64(pose[row, 1, 2])
    g, h, i = np.float64(pose[row, 2, 0]), np.float64(pose[row, 2, 1]), np.float64(pose[row, 2, 2])
    u, v, w = light_map[MAP_FROM], light_map[MAP_FROM + 1], light_map[MAP_FROM + 2]
    along = (
        x * (u * (e * i - f * h) + v * (c * h - b * i) + w * (b * f - c * e))
        + y * (u * (f * g - d * i) + v * (a * i - c * g) + w * (c * d - a * f))
        + z * (u * (d * h - e * g) + v * (b * g - a * h) + w * (a * e - b * d))
    )
    return along * pose_determinant(pose, row) > 0.0


@inlined
def _draw_row(
    assets: AssetTable,
    pose: F32,
    mesh: int,
    row: int,
    light_map: F64,
    width: int,
    height: int,
    seen: I64,
    matrix: F64,
    vertices: F64,
    cells: I32,
    selected: I32,
    polygon: F64,
    spans: I32,
    keys: F32,
    rows: I32,
) -> None:
    """Draw an instance into a light map: where it is nearer than what is there, its key and its row."""
    is_spot = light_map[MAP_IS_SPOT] == 1.0
    write_map_matrix(pose, row, light_map, width, height, is_spot, matrix)
    near, farthest = SPOT_NEAR if is_spot else -_UNLIMITED, light_map[MAP_KEY]
    mesh = select_casting_detail(assets, mesh, pose, row, -matrix[2, 3] if is_spot else 1.0, light_map[MAP_TEXEL])
    is_two_sided = assets.mesh_is_two_sided[mesh] == 1
    first = assets.mesh_first_corner[mesh]
    transform_corners(
        assets.corners,
        first,
        first + assets.mesh_corner_count[mesh],
        matrix,
        1.0,
        width,
        height,
        0,
        height,
        near,
        not is_spot,
        1.0,
        vertices,
        cells,
    )
    triangles, continues = assets.triangle_corners, assets.triangle_continues
    triangle = assets.mesh_first_triangle[mesh]
    # Of the whole map, not of what is seen: which triangles are joined must not depend on the band of the frame.
    selected_count = select_triangles(
        triangles,
        triangle,
        triangle + assets.mesh_triangle_count[mesh],
        0.0 if is_two_sided else -pose_determinant(pose, row) * map_handedness(light_map),
        vertices,
        cells,
        selected,
    )
    is_joined = False
    for k in range(selected_count):
        if is_joined:  # it was drawn with the one before
            is_joined = False
            continue
        triangle = np.uint64(selected[k])
        a = np.uint64(triangles[triangle, 0])
        b = np.uint64(triangles[triangle, 1])
        c = np.uint64(triangles[triangle, 2])
        da, db, dc = vertices[3, a], vertices[3, b], vertices[3, c]
        if max(da, max(db, dc)) < near:
            continue
        # As in visibility.py: the plane of the key.
        ax, ay, aw = vertices[0, a], vertices[1, a], vertices[2, a]
        bx, by, bw = vertices[0, b], vertices[1, b], vertices[2, b]
        cx, cy, cw = vertices[0, c], vertices[1, c], vertices[2, c]
        inv_ax, inv_ay, inv_aw = by * cw - bw * cy, bw * cx - bx * cw, bx * cy - by * cx
        inv_bx, inv_by, inv_bw = cy * aw - cw * ay, cw * ax - cx * aw, cx * ay - cy * ax
        inv_cx, inv_cy, inv_cw = ay * bw - aw * by, aw * bx - ax * bw, ax * by - ay * bx
        det = ax * inv_ax + ay * inv_ay + aw * inv_aw
        if not 0.0 < abs(det) < np.inf:
            continue
        scale = 1.0 / det
        ka, kb, kc = farthest - da, farthest - db, farthest - dc
        if is_spot:
            ka, kb, kc = 1.0, 1.0, 1.0
        key_x = (inv_ax * ka + inv_bx * kb + inv_cx * kc) * scale
        key_y = (inv_ay * ka + inv_by * kb + inv_cy * kc) * scale
        key = (inv_aw * ka + inv_bw * kb + inv_cw * kc) * scale
        if not abs(key_x) + abs(key_y) + abs(key) < np.inf:
            continue
        corners = np.uint64(3)
        if min(da, min(db, dc)) < near:
            corners = np.uint64(clip_at_near_plane(vertices, a, b, c, near, not is_spot, polygon))
        else:
            for corner in range(np.uint64(3)):
                vertex = a if corner == 0 else (b if corner == 1 else c)
                polygon[corner, 0], polygon[corner, 1] = vertices[4, vertex], vertices[5, vertex]
            after = triangle + np.uint64(1)
            if k + np.uint64(1) < selected_count and np.uint64(selected[k + np.uint64(1)]) == after:
                is_joined = continues[after] != 0 and _join(triangles, triangle, after, near, vertices, polygon)
                corners = np.uint64(4) if is_joined else corners
        _cover(polygon, corners, width, seen, key_x, key_y, key, row, spans, keys, rows)


@inlined
def _join(triangles: I32, triangle: np.uint64, after: np.uint64, near: float, vertices: F64, polygon: F64) -> bool:
    """Add the corner of the next triangle to a triangle's polygon, if both form one and that is not clipped."""
    for k in range(np.uint64(3)):
        corner = triangles[after, k]
        if corner != triangles[triangle, 0] and corner != triangles[triangle, 1] and corner != triangles[triangle, 2]:
            if vertices[3, np.uint64(corner)] < near:
                return False
            # The corner opposite to it is the one that the next triangle lacks; it comes before that one's successor.
            last = triangles[triangle, 2]
            lacks_first = True
            lacks_last = True
            for j in range(np.uint64(3)):
                lacks_first = lacks_first and triangles[after, j] != triangles[triangle, 0]
                lacks_last = lacks_last and triangles[after, j] != last
            at = np.uint64(2) if lacks_first else (np.uint64(1) if lacks_last else np.uint64(3))
            for j in range(np.uint64(3), at, -1):
                polygon[j, 0], polygon[j, 1] = polygon[j - 1, 0], polygon[j - 1, 1]
            polygon[at, 0], polygon[at, 1] = vertices[4, np.uint64(corner)], vertices[5, np.uint64(corner)]
            return True
    return False


@inlined
def _cover(
    polygon: F64,
    corners: np.uint64,
    width: int,
    seen: I64,
    key_x: float,
    key_y: float,
    key: float,
    row: int,
    spans: I32,
    keys: F32,
    rows: I32,
) -> None:
    """Draw a convex polygon into the texels that are seen: its key and row, where it is nearer than what is there.

    A row of texels is covered from the last edge on its left to the first on its right. No corners are sorted, which
    takes less time than `fill` where there are few rows.
    """
    lowest = highest = polygon[0, 1]
    area = 0.0
    for corner in range(np.uint64(1), corners):
        lowest, highest = min(lowest, polygon[corner, 1]), max(highest, polygon[corner, 1])
        if corner > 1:
            before = corner - np.uint64(1)
            area += (polygon[before, 0] - polygon[0, 0]) * (polygon[corner, 1] - polygon[0, 1])
            area -= (polygon[corner, 0] - polygon[0, 0]) * (polygon[before, 1] - polygon[0, 1])
    first_row, last_row = np.float64(seen[2]), np.float64(seen[3])
    top = np.int64(min(max(np.ceil(lowest - 0.5), first_row), last_row))
    bottom = np.int64(min(max(np.ceil(highest - 0.5), first_row), last_row))
    stride = padded(width)
    step = np.float32(key_x)
    for first_y in range(top, bottom, SIMD_WIDTH):
        centers = rows_from(first_y) + 0.5
        lefts, rights = doubles(np.float64(seen[0])), doubles(np.float64(seen[1]))
        for corner in range(corners):
            after = np.uint64(0) if corner + np.uint64(1) == corners else corner + np.uint64(1)
            ax, ay, bx, by = polygon[corner, 0], polygon[corner, 1], polygon[after, 0], polygon[after, 1]
            if ay == by:
                continue
            # From the upper end, as for the polygon on the other side of the edge.
            is_down = ay < by
            top_x, top_y = (ax, ay) if is_down else (bx, by)
            crossings = ceil((centers - top_y) * ((bx - ax) / (by - ay)) + (top_x - 0.5))
            if is_down == (area > 0.0):
                rights = minimum(rights, crossings)
            else:
                lefts = maximum(lefts, crossings)
        store(spans, np.uint64(0), to_ints(lefts))
        store(spans, np.uint64(SIMD_WIDTH), to_ints(maximum(rights, 0.0)))
        for y in range(first_y, min(first_y + SIMD_WIDTH, int(bottom))):
            x_from = spans[np.uint64(y - first_y)]
            x_to = spans[np.uint64(y - first_y + SIMD_WIDTH)]
            if x_from >= x_to:
                continue
            start = np.float32(key_y * (y + 0.5) + key + key_x * 0.5)
            base = np.uint64(y) * stride
            vector, end = np.uint64(x_from) & ~np.uint64(SIMD_WIDTH - 1), np.uint64(x_to)
            while vector < end:
                at, x = base + vector, np.int32(vector)
                depth_test(keys, rows, at, x, x_from, x_to, start, step, np.int32(row))
                vector += np.uint64(SIMD_WIDTH)


@inlined
def write_map_matrix(pose: F32, row: int, light_map: F64, width: int, height: int, is_spot: bool, matrix: F64) -> None:
    """Write the transform from local coordinates to a light map's: from its middle, y up, behind the light."""
    for j in range(4):
        x = y = depth = 0.0
        for k in range(3):
            along = np.float64(pose[row, k, j])
            x += light_map[MAP_X + k] * along
            y += light_map[MAP_Y + k] * along
            depth += light_map[MAP_DEPTH + k] * along
        if j == 3:
            x, y, depth = x + light_map[MAP_X + 3], y + light_map[MAP_Y + 3], depth + light_map[MAP_DEPTH + 3]
        w = depth if is_spot else (1.0 if j == 3 else 0.0)
        matrix[0, j], matrix[1, j], matrix[2, j] = x - 0.5 * width * w, 0.5 * height * w - y, -depth


@inlined
def map_handedness(light_map: F64) -> float:
    """Return the sign of a light map's transform: negative where it mirrors."""
    a, b, c = light_map[MAP_X], light_map[MAP_X + 1], light_map[MAP_X + 2]
    d, e, f = light_map[MAP_Y], light_map[MAP_Y + 1], light_map[MAP_Y + 2]
    g, h, i = light_map[MAP_DEPTH], light_map[MAP_DEPTH + 1], light_map[MAP_DEPTH + 2]
    return np.sign(a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g))


@inlined
def select_casting_detail(assets: AssetTable, mesh: int, pose: F32, row: int, depth: float, texel: float) -> int:
    """Return the coarsest level of detail whose outline is exact to a texel of that side at that depth."""
    while assets.mesh_coarser[mesh] != NO_MESH:
        largest = 0.0
        for axis in range(3):
            size = np.float64(assets.mesh_coarser_size[mesh, axis])
            stretch = 0.0
            for k in range(3):
                stretch += np.float64(pose[row, k, axis]) ** 2
            largest = max(largest, stretch * size * size)
        if not (depth > 0.0 and largest < 16.0 * depth * depth * texel * texel):
            break
        mesh = assets.mesh_coarser[mesh]
    return mesh
