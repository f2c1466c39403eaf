"""Which triangle each pixel belongs to.

The visibility buffer holds one 64-bit word a sample: the high half is the bits of the depth key, a float32 that is linear
on the screen and grows towards the viewer (1/depth in perspective, far - depth in orthographic views); the low half is the
triangle record's number, complemented. Positive floats order as their bits do, so "nearest wins, and among equals the first"
is the plain maximum of two integers.
"""

from typing import NamedTuple

import numpy as np

from worldloom.kernels.compiling import called, inlined
from worldloom.kernels.cull import in_frustum, model_view
from worldloom.kernels.tables import F32, F64, I32, I64, NO_MESH, U32, AssetTable, InstanceTable, LaneTable, ViewTable
from worldloom.kernels.vector import LANES, enter_block

SUBPIXELS = 256.0
"""Vertices are rounded to this many positions a pixel, so that both triangles at an edge see the same edge."""

BLOCK = LANES
"""Pixels that are worked on together: a vector register of float32."""

MAX_WIDTH = 8192
"""Pixels, of the widest view."""
STRIDE = MAX_WIDTH + 264
"""Numbers from one row buffer to the next. A constant, so the compiler knows that the rows do not overlap; not a power of
two, so they do not compete for the same places in the cache."""

SAMPLE_X = (0.375, 0.875, 0.125, 0.625)
SAMPLE_Y = (0.125, 0.375, 0.625, 0.875)

# Columns of Scratch.whole: what was found out when the triangle was set up.
ROW, TRIANGLE, BACK, READY = 0, 1, 2, 3
TEXTURE, LABEL, SMOOTH = 4, 5, 6
WHOLE_COLUMNS = 8
# Columns of Scratch.real: planes a·x + b·y + c over the picture, three numbers each.
INVERSE, KEY, OVER_W, OVER_U, OVER_V, NORMAL, COLOR = 0, 9, 12, 15, 18, 21, 30
REAL_COLUMNS = 33


class Scratch(NamedTuple):
    """What one worker needs to draw a view; made once, large enough for the largest view."""

    matrix: F64  # [3, 4]
    vertices: F64  # [most vertices of a mesh, 6]: homogeneous x, y, w; depth; rounded pixel x, y
    polygon: F64  # [4, 2] a triangle cut by the near plane: pixel x, y
    whole: I32  # [capacity, WHOLE_COLUMNS] triangle records: one row is one triangle that may be seen
    real: F64  # [capacity, REAL_COLUMNS]
    visibility: I64  # [4 * pixels] one part a sample, rows padded to whole blocks
    rows: F32  # [ROW_BUFFERS * STRIDE] see shade.py
    texels: I32  # [TEXEL_BUFFERS * STRIDE] see texture.py
    colors: U32  # [COLOR_BUFFERS * STRIDE] finished pixels of a row, red in the lowest byte, see shade.py
    look: F32  # [LOOK_NUMBERS] see shade.py


@called
def rasterise(
    assets: AssetTable, instances: InstanceTable, lanes: LaneTable, views: ViewTable, view: int, scratch: Scratch
) -> None:
    """Fill the visibility buffer and the triangle records of a view."""
    width, height = np.int64(views.width[view]), np.int64(views.height[view])
    near, far = np.float64(views.near[view]), np.float64(views.far[view])
    orthographic = views.orthographic[view] == 1
    samples = np.uint64(views.samples[view])
    visibility, vertices, matrix = scratch.visibility, scratch.vertices, scratch.matrix
    farthest = np.float32(0.0) if orthographic else np.float32(1.0) / views.far[view]
    background = (np.int64(np.float32(farthest).view(np.int32)) << np.int64(32)) | np.int64(0xFFFFFFFF)
    for sample in range(samples):
        for i in range(padded(width) * np.uint64(height)):
            visibility[sample * np.uint64(visibility.size // 4) + i] = background
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
        first_vertex, last_vertex = (
            assets.mesh_first_vertex[mesh],
            assets.mesh_first_vertex[mesh] + assets.mesh_vertex_count[mesh],
        )
        scale = 0.5 * height / np.float64(views.half_height[view])
        _transform(assets.positions, first_vertex, last_vertex, matrix, scale, width, height, orthographic, vertices)
        volume = _volume(instances.pose, row)
        count = _enter_mesh(
            assets.triangles,
            assets.mesh_first_triangle[mesh],
            assets.mesh_first_triangle[mesh] + assets.mesh_triangle_count[mesh],
            first_vertex,
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
            visibility,
        )


@inlined
def _volume(pose: F32, row: int) -> float:
    """The determinant of a pose: negative if it mirrors, 0 if it flattens."""
    a, b, c = np.float64(pose[row, 0, 0]), np.float64(pose[row, 0, 1]), np.float64(pose[row, 0, 2])
    d, e, f = np.float64(pose[row, 1, 0]), np.float64(pose[row, 1, 1]), np.float64(pose[row, 1, 2])
    g, h, i = np.float64(pose[row, 2, 0]), np.float64(pose[row, 2, 1]), np.float64(pose[row, 2, 2])
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


@called
def _transform(
    positions: F32,
    first: int,
    last: int,
    matrix: F64,
    scale: float,
    width: int,
    height: int,
    orthographic: bool,
    vertices: F64,
) -> None:
    """A mesh's vertices in pixel coordinates, homogeneous and divided."""
    m00, m01, m02, m03 = matrix[0, 0], matrix[0, 1], matrix[0, 2], matrix[0, 3]
    m10, m11, m12, m13 = matrix[1, 0], matrix[1, 1], matrix[1, 2], matrix[1, 3]
    m20, m21, m22, m23 = matrix[2, 0], matrix[2, 1], matrix[2, 2], matrix[2, 3]
    for vertex in range(first, last):
        px, py, pz = (
            np.float64(positions[vertex, 0]),
            np.float64(positions[vertex, 1]),
            np.float64(positions[vertex, 2]),
        )
        depth = -(m20 * px + m21 * py + m22 * pz + m23)
        w = 1.0 if orthographic else depth
        x = (m00 * px + m01 * py + m02 * pz + m03) * scale + w * 0.5 * width
        y = w * 0.5 * height - (m10 * px + m11 * py + m12 * pz + m13) * scale
        i = vertex - first
        vertices[i, 0] = x
        vertices[i, 1] = y
        vertices[i, 2] = w
        vertices[i, 3] = depth
        vertices[i, 4] = _snap(x / w)
        vertices[i, 5] = _snap(y / w)


@inlined
def _snap(pixels: float) -> float:
    return np.rint(pixels * SUBPIXELS) * (1.0 / SUBPIXELS)


@called
def _enter_mesh(
    triangles: I32,
    first_triangle: int,
    last_triangle: int,
    first_vertex: int,
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
    visibility: I64,
) -> int:
    """Set up and enter every triangle of an instance whose vertices were transformed; returns the new record count."""
    for triangle in range(first_triangle, last_triangle):
        a = np.uint64(triangles[triangle, 0] - first_vertex)
        b = np.uint64(triangles[triangle, 1] - first_vertex)
        c = np.uint64(triangles[triangle, 2] - first_vertex)
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
            corners = _near_cut(vertices, a, b, c, near, orthographic, polygon)
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
        real[count, KEY], real[count, KEY + 1], real[count, KEY + 2] = key_x, key_y, key
        whole[count, ROW] = row
        whole[count, TRIANGLE] = triangle
        whole[count, BACK] = back
        whole[count, READY] = 0
        for piece in range(corners - 2):
            if piece == 1:
                x1, y1, x2, y2 = x2, y2, polygon[3, 0], polygon[3, 1]
            for sample in range(samples):
                offset_x = 0.5 if samples == 1 else SAMPLE_X[sample]
                offset_y = 0.5 if samples == 1 else SAMPLE_Y[sample]
                _fill(
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
                    visibility,
                )
        count += np.uint64(1)
    return count


@called
def _near_cut(vertices: F64, a: int, b: int, c: int, near: float, orthographic: bool, polygon: F64) -> int:
    """The part of a triangle beyond the near plane, as 3 or 4 corners in pixels; returns how many."""
    corners = 0
    for k in range(3):
        i = a if k == 0 else (b if k == 1 else c)
        j = b if k == 0 else (c if k == 1 else a)
        if vertices[i, 3] >= near:
            polygon[corners, 0], polygon[corners, 1] = vertices[i, 4], vertices[i, 5]
            corners += 1
        if (vertices[i, 3] >= near) != (vertices[j, 3] >= near):
            # Always from the nearer end, so that both triangles at an edge cut it at the same point.
            low = i if vertices[i, 3] < vertices[j, 3] else j
            high = j if vertices[i, 3] < vertices[j, 3] else i
            t = (near - vertices[low, 3]) / (vertices[high, 3] - vertices[low, 3])
            w = 1.0 if orthographic else near
            polygon[corners, 0] = _snap((vertices[low, 0] + t * (vertices[high, 0] - vertices[low, 0])) / w)
            polygon[corners, 1] = _snap((vertices[low, 1] + t * (vertices[high, 1] - vertices[low, 1])) / w)
            corners += 1
    return corners


@inlined
def _first_pixel(edge: float, size: int) -> int:
    """The first pixel at or after an edge, kept inside the picture."""
    return np.int64(min(max(np.ceil(edge), 0.0), np.float64(size)))


@called
def _fill(
    ax: float,
    ay: float,
    bx: float,
    by: float,
    cx: float,
    cy: float,
    width: int,
    height: int,
    offset_x: float,
    offset_y: float,
    key_x: float,
    key_y: float,
    key: float,
    number: int,
    sample: int,
    visibility: I64,
) -> None:
    """Enter one triangle, in pixels, into one sample's visibility buffer."""
    # Sorted by y, then x: an edge is walked the same way whichever triangle it belongs to.
    if by < ay or (by == ay and bx < ax):
        ax, ay, bx, by = bx, by, ax, ay
    if cy < ay or (cy == ay and cx < ax):
        ax, ay, cx, cy = cx, cy, ax, ay
    if cy < by or (cy == by and cx < bx):
        bx, by, cx, cy = cx, cy, bx, by
    area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)
    first, middle, last = (
        _first_pixel(ay - offset_y, height),
        _first_pixel(by - offset_y, height),
        _first_pixel(cy - offset_y, height),
    )
    if area == 0.0 or first == last:
        return
    long_slope = (cx - ax) / (cy - ay)
    stride = padded(width)
    first_word = sample * np.uint64(visibility.size // 4)
    step = np.float32(key_x)
    tag = ~np.int64(number) & np.int64(0xFFFFFFFF)
    for half in range(2):
        y_from = first if half == 0 else middle
        y_to = middle if half == 0 else last
        if y_from == y_to:
            continue
        short_slope = (bx - ax) / (by - ay) if half == 0 else (cx - bx) / (cy - by)
        short_x = (ax - ay * short_slope if half == 0 else bx - by * short_slope) - offset_x
        long_x = ax - ay * long_slope - offset_x
        left_x, left_slope = (long_x, long_slope) if area > 0.0 else (short_x, short_slope)
        right_x, right_slope = (short_x, short_slope) if area > 0.0 else (long_x, long_slope)
        for y in range(y_from, y_to):
            center = y + offset_y
            x_from = _first_pixel(left_x + center * left_slope, width)
            x_to = _first_pixel(right_x + center * right_slope, width)
            if x_from >= x_to:
                continue
            start = np.float32(key_y * center + key + key_x * offset_x)
            base = first_word + np.uint64(y) * stride
            # Whole blocks: the pixels of a block outside the span keep what they have.
            for block in range(np.uint64(x_from) & ~np.uint64(BLOCK - 1), np.uint64(x_to), np.uint64(BLOCK)):
                enter_block(
                    visibility, base + block, np.int32(block), np.int32(x_from), np.int32(x_to), start, step, tag
                )


@inlined
def padded(width: int) -> np.uint64:
    """A row's length in the visibility buffer: whole blocks."""
    return (np.uint64(width) + np.uint64(BLOCK - 1)) & ~np.uint64(BLOCK - 1)
