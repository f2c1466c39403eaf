"""Rasterisation: the instances of a view to triangle records and the visibility buffer."""

import numpy as np

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.intrinsics import load_points, prefetch, store
from worldloom.kernels.raster.cull import (
    find_rows_in_frustum,
    is_eye_inside,
    is_hidden,
    model_view,
    pose_determinant,
    select_detail,
)
from worldloom.kernels.raster.scratch import (
    INVERSE,
    KEY,
    NORMAL_FLIPPED,
    PREPARED,
    ROW,
    TRIANGLE,
    Scratch,
    padded,
)
from worldloom.kernels.raster.translucent import ALL_ROWS, is_of_kind
from worldloom.kernels.raster.triangles import SUBPIXELS, clip_at_near_plane, fill
from worldloom.kernels.simd import (
    SIMD_WIDTH,
    ceil,
    doubles,
    lowest_set_bit,
    maximum,
    minimum,
    rint,
    to_ints,
    where_at_least,
)
from worldloom.kernels.tables import (
    CONTINUES_ALL,
    F32,
    F64,
    I32,
    I64,
    STANDS_FOR_SHADOW,
    U8,
    AssetTable,
    InstanceTable,
    ViewTable,
)

SAMPLE_X, SAMPLE_Y = (0.375, 0.875, 0.125, 0.625), (0.125, 0.375, 0.625, 0.875)


@inlined
def background_nearness(views: ViewTable, view: int) -> np.float32:
    """Return the nearness of background pixels; everything drawn is nearer."""
    return np.float32(0.0) if views.orthographic[view] == 1 else np.float32(1.0) / views.far[view]


@device_function
def clear(views: ViewTable, view: int, band: I64, nearness: F32, owner: I32) -> None:
    """Clear the visibility buffer of a band of a view."""
    farthest = background_nearness(views, view)
    for sample in range(np.uint64(views.samples[view])):
        first = sample * np.uint64(owner.size // 4)
        for pixel in range(first, first + padded(views.width[view]) * np.uint64(band[1] - band[0])):
            nearness[pixel] = farthest
            owner[pixel] = 0


@inlined
def rasterise(
    assets: AssetTable,
    instances: InstanceTable,
    first_row: int,
    last_row: int,
    rows_kind: int,
    count: np.uint64,
    views: ViewTable,
    view: int,
    scratch: Scratch,
) -> np.uint64:
    """Rasterise these instance rows, or those of a kind among them, into the visibility buffer of a view.

    Only the rows of `scratch.band` are drawn, each exactly as in the whole frame. Triangle records follow on `count`,
    the last one in use, where 0 is the background. Return the last one then.
    """
    top, bottom = scratch.band[0], scratch.band[1]
    width, height = np.int64(views.width[view]), np.int64(views.height[view])
    near, far = np.float64(views.near[view]), np.float64(views.far[view])
    orthographic = views.orthographic[view] == 1
    samples = np.uint64(views.samples[view])
    has_shadows = views.shadows[view] == 1
    nearness, owner, vertices, matrix = scratch.nearness, scratch.owner, scratch.vertices, scratch.matrix
    scratch.drawn_rows[0], scratch.drawn_rows[1] = bottom, top
    scale = 0.5 * height / np.float64(views.half_height[view])
    for first_of_eight in range(first_row, last_row, SIMD_WIDTH):
        shown = find_rows_in_frustum(
            assets,
            instances.mesh,
            instances.pose,
            np.uint64(first_of_eight),
            np.uint64(last_row - 1),
            views.camera,
            view,
            views.half_height[view],
            width / height,
            near,
            far,
            orthographic,
        )
        while shown != 0:
            row = first_of_eight + np.int64(lowest_set_bit(shown))
            shown &= shown - np.uint64(1)
            is_other = rows_kind != ALL_ROWS and not is_of_kind(instances.alpha, row, rows_kind)
            if is_other or (has_shadows and instances.shadow[row] == STANDS_FOR_SHADOW):
                continue
            mesh = instances.mesh[row]
            model_view(instances.pose, row, views.camera, view, matrix)
            if not orthographic and is_hidden(
                assets, mesh, matrix, scale, width, height, scratch.band, near, samples, nearness
            ):
                continue
            mesh = select_detail(assets, mesh, matrix, scale, orthographic)
            volume = pose_determinant(instances.pose, row)
            if not orthographic and volume != 0.0 and is_eye_inside(assets, mesh, matrix):
                continue
            first = assets.mesh_first_corner[mesh]
            last = first + assets.mesh_corner_count[mesh]
            transform_corners(
                assets.corners,
                first,
                last,
                matrix,
                scale,
                width,
                height,
                top,
                bottom,
                near,
                orthographic,
                1.0 if samples == 1 else 4.0,
                vertices,
                scratch.cells,
            )
            triangle = assets.mesh_first_triangle[mesh]
            selected_count = select_triangles(
                assets.triangle_corners,
                triangle,
                triangle + assets.mesh_triangle_count[mesh],
                0.0 if assets.mesh_is_two_sided[mesh] == 1 else -volume,
                vertices,
                scratch.cells,
                scratch.selected,
            )
            if selected_count == 0:
                continue
            # Shading reads these, long after this; rows of other lanes have displaced them from the cache.
            prefetch(instances.color, np.uint64(3 * row))
            prefetch(instances.texture, np.uint64(row))
            prefetch(instances.uv_scale, np.uint64(2 * row))
            count = _rasterise_triangles(
                assets.triangle_corners,
                assets.triangle_continues,
                selected_count,
                scratch.selected,
                row,
                width,
                top,
                bottom,
                near,
                far,
                orthographic,
                samples,
                count,
                vertices,
                scratch.polygon,
                scratch.spans,
                scratch.drawn_rows,
                scratch.record_ints,
                scratch.record_floats,
                nearness,
                owner,
            )
    return count


@device_function
def transform_corners(
    corners: F32,
    first: int,
    last: int,
    matrix: F64,
    scale: float,
    width: int,
    height: int,
    top: int,
    bottom: int,
    near: float,
    orthographic: bool,
    fineness: float,
    vertices: F64,
    cells: I32,
) -> None:
    """Transform a mesh's corners to pixel coordinates, homogeneous and divided, and find the cell that each lies in.

    Samples form an even grid of `fineness` columns and rows per pixel. A cell is the number of sample columns left of a
    corner, and of sample rows above it, clamped to the rows [top, bottom) that are drawn. All corners before the near
    plane share one cell of their own.
    """
    m00, m01, m02, m03 = matrix[0, 0], matrix[0, 1], matrix[0, 2], matrix[0, 3]
    m10, m11, m12, m13 = matrix[1, 0], matrix[1, 1], matrix[1, 2], matrix[1, 3]
    m20, m21, m22, m23 = matrix[2, 0], matrix[2, 1], matrix[2, 2], matrix[2, 3]
    column = np.uint64(vertices.shape[1])
    for i in range(np.uint64(0), np.uint64(last - first), np.uint64(SIMD_WIDTH)):
        px, py, pz = load_points(corners, np.uint64(first) + i)
        depth = 0.0 - (m20 * px + m21 * py + m22 * pz + m23)
        w = depth
        if orthographic:
            w = doubles(1.0)
        x = (m00 * px + m01 * py + m02 * pz + m03) * scale + w * (0.5 * width)
        y = w * (0.5 * height) - (m10 * px + m11 * py + m12 * pz + m13) * scale
        store(vertices, i, x)
        store(vertices, i + column, y)
        store(vertices, i + np.uint64(2) * column, w)
        store(vertices, i + np.uint64(3) * column, depth)
        over_w = 1.0 / w
        x = rint(x * over_w * SUBPIXELS) * (1.0 / SUBPIXELS)
        y = rint(y * over_w * SUBPIXELS) * (1.0 / SUBPIXELS)
        store(vertices, i + np.uint64(4) * column, x)
        store(vertices, i + np.uint64(5) * column, y)
        left = to_ints(minimum(maximum(ceil(x * fineness - 0.5), 0.0), fineness * width))
        above = to_ints(minimum(maximum(ceil(y * fineness - 0.5), fineness * top), fineness * bottom))
        store(cells, i, where_at_least(depth, near, left | (above << np.int32(16)), np.int32(-1)))


@inlined
def select_triangles(
    triangles: I32, first: int, last: int, facing: float, vertices: F64, cells: I32, selected: I32
) -> np.uint64:
    """Select the triangles whose bounding box contains samples and that face the camera; return their number.

    A triangle faces the camera where its determinant has the sign of `facing`; with 0, all do. Most triangles of small
    meshes are rejected here, without branches: those would be mispredicted half of the time.
    """
    count = np.uint64(0)
    for triangle in range(np.uint64(first), np.uint64(last)):
        a, b, c = (
            cells[np.uint64(triangles[triangle, 0])],
            cells[np.uint64(triangles[triangle, 1])],
            cells[np.uint64(triangles[triangle, 2])],
        )
        differing = np.uint32((a ^ b) | (a ^ c))
        selected[count] = triangle
        count += np.uint64(((differing & np.uint32(0xFFFF)) != 0) & ((differing >> np.uint32(16)) != 0))
    if facing == 0.0:
        return count
    sign = 1.0 if facing > 0.0 else -1.0
    facing_count = np.uint64(0)
    for k in range(count):
        triangle = np.uint64(selected[k])
        a = np.uint64(triangles[triangle, 0])
        b = np.uint64(triangles[triangle, 1])
        c = np.uint64(triangles[triangle, 2])
        ax, ay, aw = vertices[0, a], vertices[1, a], vertices[2, a]
        bx, by, bw = vertices[0, b], vertices[1, b], vertices[2, b]
        cx, cy, cw = vertices[0, c], vertices[1, c], vertices[2, c]
        det = ax * (by * cw - bw * cy) + ay * (bw * cx - bx * cw) + aw * (bx * cy - by * cx)
        selected[facing_count] = triangle
        facing_count += np.uint64(det * sign > 0.0)
    return facing_count


@inlined
def _rasterise_triangles(
    triangles: I32,
    continues: U8,
    selected_count: np.uint64,
    selected: I32,
    row: int,
    width: int,
    top: int,
    bottom: int,
    near: float,
    far: float,
    orthographic: bool,
    samples: int,
    count: int,
    vertices: F64,
    polygon: F64,
    spans: I32,
    drawn_rows: I64,
    record_ints: I32,
    record_floats: F64,
    nearness: F32,
    owner: I32,
) -> int:
    """Set up and rasterise the selected triangles of an instance; return the last record in use."""
    upper, lower = np.float64(drawn_rows[0]), np.float64(drawn_rows[1])
    last_triangle = ~np.uint64(0)
    key_x = key_y = key = 0.0
    for k in range(selected_count):
        triangle = np.uint64(selected[k])
        a = np.uint64(triangles[triangle, 0])
        b = np.uint64(triangles[triangle, 1])
        c = np.uint64(triangles[triangle, 2])
        ax, ay, aw, da = vertices[0, a], vertices[1, a], vertices[2, a], vertices[3, a]
        bx, by, bw, db = vertices[0, b], vertices[1, b], vertices[2, b], vertices[3, b]
        cx, cy, cw, dc = vertices[0, c], vertices[1, c], vertices[2, c], vertices[3, c]
        nearest, farthest = min(da, min(db, dc)), max(da, max(db, dc))
        if farthest < near or nearest >= far:
            continue
        # A triangle that continues the one before it has the same planes: both are one record, so that both are shaded
        # in the same runs.
        if continues[triangle] != CONTINUES_ALL or last_triangle + np.uint64(1) != triangle:
            # The three cross products are the columns of the inverse (times det) of the matrix with rows a, b, c.
            inv_ax, inv_ay, inv_aw = by * cw - bw * cy, bw * cx - bx * cw, bx * cy - by * cx
            inv_bx, inv_by, inv_bw = cy * aw - cw * ay, cw * ax - cx * aw, cx * ay - cy * ax
            inv_cx, inv_cy, inv_cw = ay * bw - aw * by, aw * bx - ax * bw, ax * by - ay * bx
            det = ax * inv_ax + ay * inv_ay + aw * inv_aw
            # Comparisons are written so that NaN fails them.
            if not (0.0 < abs(det) < np.inf):
                continue
            scale = 1.0 / det
            ka, kb, kc = 1.0, 1.0, 1.0
            if orthographic:
                ka, kb, kc = far - da, far - db, far - dc
            key_x = (inv_ax * ka + inv_bx * kb + inv_cx * kc) * scale
            key_y = (inv_ay * ka + inv_by * kb + inv_cy * kc) * scale
            key = (inv_aw * ka + inv_bw * kb + inv_cw * kc) * scale
            if not abs(key_x) + abs(key_y) + abs(key) < np.inf:
                continue
            count += np.uint64(1)
            last_triangle = triangle
            record_floats[count, INVERSE + 0], record_floats[count, INVERSE + 1], record_floats[count, INVERSE + 2] = (
                inv_ax * scale,
                inv_ay * scale,
                inv_aw * scale,
            )
            record_floats[count, INVERSE + 3], record_floats[count, INVERSE + 4], record_floats[count, INVERSE + 5] = (
                inv_bx * scale,
                inv_by * scale,
                inv_bw * scale,
            )
            record_floats[count, INVERSE + 6], record_floats[count, INVERSE + 7], record_floats[count, INVERSE + 8] = (
                inv_cx * scale,
                inv_cy * scale,
                inv_cw * scale,
            )
            record_floats[count, KEY], record_floats[count, KEY + 1], record_floats[count, KEY + 2] = key_x, key_y, key
            record_ints[count, ROW] = row
            record_ints[count, TRIANGLE] = triangle
            record_ints[count, NORMAL_FLIPPED] = det > 0.0  # seen from behind or mirrored, but not both
            record_ints[count, PREPARED] = 0
        corners = 3
        if nearest < near:
            corners = clip_at_near_plane(vertices, a, b, c, near, orthographic, polygon)
            x0, y0, x1, y1, x2, y2 = (
                polygon[0, 0],
                polygon[0, 1],
                polygon[1, 0],
                polygon[1, 1],
                polygon[2, 0],
                polygon[2, 1],
            )
        else:
            x0, y0 = vertices[4, a], vertices[5, a]
            x1, y1 = vertices[4, b], vertices[5, b]
            x2, y2 = vertices[4, c], vertices[5, c]
        for piece in range(corners - 2):
            if piece == 1:
                x1, y1, x2, y2 = x2, y2, polygon[3, 0], polygon[3, 1]
            upper, lower = min(upper, min(y0, min(y1, y2))), max(lower, max(y0, max(y1, y2)))
            for sample in range(samples):
                offset_x = 0.5 if samples == 1 else SAMPLE_X[sample]
                offset_y = 0.5 if samples == 1 else SAMPLE_Y[sample]
                fill(
                    x0,
                    y0,
                    x1,
                    y1,
                    x2,
                    y2,
                    width,
                    top,
                    bottom,
                    offset_x,
                    offset_y,
                    key_x,
                    key_y,
                    key,
                    count,
                    sample,
                    spans,
                    nearness,
                    owner,
                )
    drawn_rows[0] = np.int64(max(np.floor(upper), np.float64(top)))
    drawn_rows[1] = np.int64(min(np.ceil(lower), np.float64(bottom)))
    return count
