"""Which triangle each pixel of a view belongs to: instances to triangles, triangles to the visibility buffer."""

import numpy as np

from worldloom.kernels.compiling import called
from worldloom.kernels.cull import in_frustum, model_view, volume_of
from worldloom.kernels.fill import fill, near_cut, snap
from worldloom.kernels.scratch import INVERSE, KEY, READY, ROW, TRIANGLE, TURNED, Scratch, padded
from worldloom.kernels.tables import F32, F64, I32, NO_MESH, AssetTable, InstanceTable, LaneTable, ViewTable

SAMPLE_X = (0.375, 0.875, 0.125, 0.625)
SAMPLE_Y = (0.125, 0.375, 0.625, 0.875)


@called
def rasterise(
    assets: AssetTable, instances: InstanceTable, lanes: LaneTable, views: ViewTable, view: int, scratch: Scratch
) -> None:
    """Fill the visibility buffer and the triangle records of a view."""
    width, height = np.int64(views.width[view]), np.int64(views.height[view])
    near, far = np.float64(views.near[view]), np.float64(views.far[view])
    orthographic = views.orthographic[view] == 1
    samples = np.uint64(views.samples[view])
    nearness, owner, vertices, matrix = scratch.nearness, scratch.owner, scratch.vertices, scratch.matrix
    farthest = np.float32(0.0) if orthographic else np.float32(1.0) / views.far[view]
    for sample in range(samples):
        first = sample * np.uint64(owner.size // 4)
        for pixel in range(first, first + padded(width) * np.uint64(height)):
            nearness[pixel] = farthest
            owner[pixel] = 0
    count = np.uint64(1)  # record 0 stands for the background
    lane = views.lane[view]
    for row in range(lanes.first_row[lane], lanes.first_row[lane] + lanes.row_count[lane]):
        mesh = instances.mesh[row]
        model_view(instances.pose, row, views.camera, view, matrix)
        if mesh == NO_MESH or not in_frustum(
            assets.mesh_center,
            assets.mesh_half_size,
            mesh,
            matrix,
            views.half_height[view],
            width / height,
            near,
            far,
            orthographic,
        ):
            continue
        first = assets.mesh_first_corner[mesh]
        last = first + assets.mesh_corner_count[mesh]
        scale = 0.5 * height / np.float64(views.half_height[view])
        _transform(assets.corners, first, last, matrix, scale, width, height, orthographic, vertices)
        volume = volume_of(instances.pose, row)
        count = _enter_mesh(
            assets.triangle_corners,
            assets.mesh_first_triangle[mesh],
            assets.mesh_first_triangle[mesh] + assets.mesh_triangle_count[mesh],
            row,
            volume < 0.0,
            assets.mesh_is_two_sided[mesh] == 1 or volume == 0.0,
            width,
            height,
            near,
            far,
            orthographic,
            samples,
            count,
            vertices,
            scratch.polygon,
            scratch.whole,
            scratch.real,
            nearness,
            owner,
        )


@called
def _transform(
    corners: F32,
    first: int,
    last: int,
    matrix: F64,
    scale: float,
    width: int,
    height: int,
    orthographic: bool,
    vertices: F64,
) -> None:
    """A mesh's corners in pixel coordinates, homogeneous and divided."""
    m00, m01, m02, m03 = matrix[0, 0], matrix[0, 1], matrix[0, 2], matrix[0, 3]
    m10, m11, m12, m13 = matrix[1, 0], matrix[1, 1], matrix[1, 2], matrix[1, 3]
    m20, m21, m22, m23 = matrix[2, 0], matrix[2, 1], matrix[2, 2], matrix[2, 3]
    for corner in range(first, last):
        px, py, pz = (
            np.float64(corners[corner, 0]),
            np.float64(corners[corner, 1]),
            np.float64(corners[corner, 2]),
        )
        depth = -(m20 * px + m21 * py + m22 * pz + m23)
        w = 1.0 if orthographic else depth
        x = (m00 * px + m01 * py + m02 * pz + m03) * scale + w * 0.5 * width
        y = w * 0.5 * height - (m10 * px + m11 * py + m12 * pz + m13) * scale
        i = corner - first
        vertices[i, 0] = x
        vertices[i, 1] = y
        vertices[i, 2] = w
        vertices[i, 3] = depth
        over_w = 1.0 / w
        vertices[i, 4] = snap(x * over_w)
        vertices[i, 5] = snap(y * over_w)


@called
def _enter_mesh(
    triangles: I32,
    first_triangle: int,
    last_triangle: int,
    row: int,
    mirrored: bool,
    both_sides: bool,
    width: int,
    height: int,
    near: float,
    far: float,
    orthographic: bool,
    samples: int,
    count: int,
    vertices: F64,
    polygon: F64,
    whole: I32,
    real: F64,
    nearness: F32,
    owner: I32,
) -> int:
    """Set up and enter every triangle of an instance whose vertices were transformed; returns the new record count."""
    for triangle in range(first_triangle, last_triangle):
        a = np.uint64(triangles[triangle, 0])
        b = np.uint64(triangles[triangle, 1])
        c = np.uint64(triangles[triangle, 2])
        ax, ay, aw, da = vertices[a, 0], vertices[a, 1], vertices[a, 2], vertices[a, 3]
        bx, by, bw, db = vertices[b, 0], vertices[b, 1], vertices[b, 2], vertices[b, 3]
        cx, cy, cw, dc = vertices[c, 0], vertices[c, 1], vertices[c, 2], vertices[c, 3]
        # The three cross products are the columns of the inverse (times det) of the matrix with rows a, b, c.
        inv_ax, inv_ay, inv_aw = by * cw - bw * cy, bw * cx - bx * cw, bx * cy - by * cx
        det = ax * inv_ax + ay * inv_ay + aw * inv_aw
        back = (det > 0.0) != mirrored  # y points down, so a front face runs clockwise
        # Tests are phrased so that NaN fails them.
        if (back and not both_sides) or not (0.0 < abs(det) < np.inf):
            continue
        nearest, farthest = min(da, min(db, dc)), max(da, max(db, dc))
        if farthest < near or nearest >= far:
            continue
        corners = 3
        if nearest < near:
            corners = near_cut(vertices, a, b, c, near, orthographic, polygon)
            x0, y0, x1, y1, x2, y2 = (
                polygon[0, 0],
                polygon[0, 1],
                polygon[1, 0],
                polygon[1, 1],
                polygon[2, 0],
                polygon[2, 1],
            )
        else:
            x0, y0 = vertices[a, 4], vertices[a, 5]
            x1, y1 = vertices[b, 4], vertices[b, 5]
            x2, y2 = vertices[c, 4], vertices[c, 5]
        lowest_x, highest_x = min(x0, min(x1, x2)), max(x0, max(x1, x2))
        lowest_y, highest_y = min(y0, min(y1, y2)), max(y0, max(y1, y2))
        if corners == 4:
            lowest_x, highest_x = min(lowest_x, polygon[3, 0]), max(highest_x, polygon[3, 0])
            lowest_y, highest_y = min(lowest_y, polygon[3, 1]), max(highest_y, polygon[3, 1])
        if not (highest_x > 0.0 and lowest_x < width and highest_y > 0.0 and lowest_y < height):
            continue
        if samples == 1 and (
            np.ceil(lowest_x - 0.5) == np.ceil(highest_x - 0.5) or np.ceil(lowest_y - 0.5) == np.ceil(highest_y - 0.5)
        ):
            continue  # slips between the pixel centres
        inv_bx, inv_by, inv_bw = cy * aw - cw * ay, cw * ax - cx * aw, cx * ay - cy * ax
        inv_cx, inv_cy, inv_cw = ay * bw - aw * by, aw * bx - ax * bw, ax * by - ay * bx
        scale = 1.0 / det
        real[count, INVERSE + 0], real[count, INVERSE + 1], real[count, INVERSE + 2] = (
            inv_ax * scale,
            inv_ay * scale,
            inv_aw * scale,
        )
        real[count, INVERSE + 3], real[count, INVERSE + 4], real[count, INVERSE + 5] = (
            inv_bx * scale,
            inv_by * scale,
            inv_bw * scale,
        )
        real[count, INVERSE + 6], real[count, INVERSE + 7], real[count, INVERSE + 8] = (
            inv_cx * scale,
            inv_cy * scale,
            inv_cw * scale,
        )
        ka, kb, kc = 1.0, 1.0, 1.0
        if orthographic:
            ka, kb, kc = far - da, far - db, far - dc
        key_x = (inv_ax * ka + inv_bx * kb + inv_cx * kc) * scale
        key_y = (inv_ay * ka + inv_by * kb + inv_cy * kc) * scale
        key = (inv_aw * ka + inv_bw * kb + inv_cw * kc) * scale
        if not abs(key_x) + abs(key_y) + abs(key) < np.inf:
            continue
        real[count, KEY], real[count, KEY + 1], real[count, KEY + 2] = key_x, key_y, key
        whole[count, ROW] = row
        whole[count, TRIANGLE] = triangle
        whole[count, TURNED] = det > 0.0  # seen from behind or mirrored, but not both
        whole[count, READY] = 0
        for piece in range(corners - 2):
            if piece == 1:
                x1, y1, x2, y2 = x2, y2, polygon[3, 0], polygon[3, 1]
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
                    height,
                    offset_x,
                    offset_y,
                    key_x,
                    key_y,
                    key,
                    count,
                    sample,
                    nearness,
                    owner,
                )
        count += np.uint64(1)
    return count
