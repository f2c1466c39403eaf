"""Culling: an instance's transform to camera space, whether it can be visible, and which level of detail to draw."""

import numpy as np

from worldloom.kernels.compiling import inlined
from worldloom.kernels.intrinsics import gather_points, load_floats, load_poses, load_some_ints
from worldloom.kernels.raster.scratch import first_pixel
from worldloom.kernels.simd import SIMD_WIDTH, absolute, at_least_mask, doubles, is_any_below
from worldloom.kernels.tables import F32, F64, I32, I64, NO_MESH, AssetTable


@inlined
def model_view(pose: F32, row: int, camera: F32, view: int, out: F64) -> None:
    """Write the transform from local to camera coordinates into `out` [3, 4] (float64).

    A camera's axes are orthonormal, so the transpose inverts its rotation.
    """
    for i in range(3):
        cx, cy, cz = np.float64(camera[view, 0, i]), np.float64(camera[view, 1, i]), np.float64(camera[view, 2, i])
        for j in range(3):
            out[i, j] = cx * pose[row, 0, j] + cy * pose[row, 1, j] + cz * pose[row, 2, j]
        out[i, 3] = (
            cx * (np.float64(pose[row, 0, 3]) - camera[view, 0, 3])
            + cy * (np.float64(pose[row, 1, 3]) - camera[view, 1, 3])
            + cz * (np.float64(pose[row, 2, 3]) - camera[view, 2, 3])
        )


@inlined
def is_in_frustum(
    center: F32,
    half_size: F32,
    mesh: int,
    matrix: F64,
    half_height: float,
    aspect: float,
    near: float,
    far: float,
    orthographic: bool,
) -> bool:
    """Return whether a mesh's bounding box, transformed by `matrix` (see `model_view`), intersects a view's frustum.

    False for poses that are not finite: every comparison is written so that NaN fails it.
    """
    x, y, z = center[mesh, 0], center[mesh, 1], center[mesh, 2]
    hx, hy, hz = half_size[mesh, 0], half_size[mesh, 1], half_size[mesh, 2]
    cx = matrix[0, 0] * x + matrix[0, 1] * y + matrix[0, 2] * z + matrix[0, 3]
    cy = matrix[1, 0] * x + matrix[1, 1] * y + matrix[1, 2] * z + matrix[1, 3]
    depth = -(matrix[2, 0] * x + matrix[2, 1] * y + matrix[2, 2] * z + matrix[2, 3])
    reach = abs(matrix[2, 0]) * hx + abs(matrix[2, 1]) * hy + abs(matrix[2, 2]) * hz
    if not (depth + reach >= near and depth - reach < far and abs(cx) + abs(cy) + abs(depth) + reach < np.inf):
        return False
    for axis in range(2):
        half = half_height * aspect if axis == 0 else np.float64(half_height)
        middle = cx if axis == 0 else cy
        # The planes left and right (below and above) have the outward normal (+-1, slope) over (this axis, depth).
        slope = 0.0 if orthographic else half
        limit = half if orthographic else 0.0
        right_reach = (
            abs(matrix[axis, 0] + slope * matrix[2, 0]) * hx
            + abs(matrix[axis, 1] + slope * matrix[2, 1]) * hy
            + abs(matrix[axis, 2] + slope * matrix[2, 2]) * hz
        )
        left_reach = (
            abs(matrix[axis, 0] - slope * matrix[2, 0]) * hx
            + abs(matrix[axis, 1] - slope * matrix[2, 1]) * hy
            + abs(matrix[axis, 2] - slope * matrix[2, 2]) * hz
        )
        if not (middle - slope * depth - limit <= right_reach and -middle - slope * depth - limit <= left_reach):
            return False
    return True


@inlined
def find_rows_in_frustum(
    assets: AssetTable,
    mesh: I32,
    pose: F32,
    first: np.uint64,
    last: np.uint64,
    camera: F32,
    view: int,
    half_height: float,
    aspect: float,
    near: float,
    far: float,
    orthographic: bool,
) -> np.uint64:
    """Return a mask of the rows first..first + 7, none beyond `last`, that have a mesh and pass `is_in_frustum`.

    Flat one-sided meshes that a perspective view sees from behind are not among them.
    Most rows of a lane fail, in no order that could be predicted; so all are tested, eight at a time, without branches.
    """
    shown = at_least_mask(load_some_ints(mesh, first, last - first + np.uint64(1), NO_MESH), np.int32(0))
    if shown == 0:
        return shown
    p00, p01, p02, p03, p10, p11, p12, p13, p20, p21, p22, p23 = load_poses(pose, first, last)
    p03, p13, p23 = (
        p03 - np.float64(camera[view, 0, 3]),
        p13 - np.float64(camera[view, 1, 3]),
        p23 - np.float64(camera[view, 2, 3]),
    )
    x, y, z = gather_points(assets.mesh_center, mesh, first, last)
    hx, hy, hz = gather_points(assets.mesh_half_size, mesh, first, last)
    # The third row of `model_view`; then the box's depth and how far it reaches from there.
    cx, cy, cz = np.float64(camera[view, 0, 2]), np.float64(camera[view, 1, 2]), np.float64(camera[view, 2, 2])
    b0, b1, b2 = cx * p00 + cy * p10 + cz * p20, cx * p01 + cy * p11 + cz * p21, cx * p02 + cy * p12 + cz * p22
    depth = 0.0 - (b0 * x + b1 * y + b2 * z + (cx * p03 + cy * p13 + cz * p23))
    reach = absolute(b0) * hx + absolute(b1) * hy + absolute(b2) * hz
    shown &= at_least_mask(depth + reach, near) & ~at_least_mask(depth - reach, far)
    extent = absolute(depth) + reach
    for axis in range(2):
        cx, cy, cz = (
            np.float64(camera[view, 0, axis]),
            np.float64(camera[view, 1, axis]),
            np.float64(camera[view, 2, axis]),
        )
        a0, a1, a2 = cx * p00 + cy * p10 + cz * p20, cx * p01 + cy * p11 + cz * p21, cx * p02 + cy * p12 + cz * p22
        middle = a0 * x + a1 * y + a2 * z + (cx * p03 + cy * p13 + cz * p23)
        half = half_height * aspect if axis == 0 else np.float64(half_height)
        slope = 0.0 if orthographic else half
        limit = half if orthographic else 0.0
        aside = depth * slope + limit
        right_reach = absolute(a0 + b0 * slope) * hx + absolute(a1 + b1 * slope) * hy + absolute(a2 + b2 * slope) * hz
        left_reach = absolute(a0 - b0 * slope) * hx + absolute(a1 - b1 * slope) * hy + absolute(a2 - b2 * slope) * hz
        shown &= at_least_mask(right_reach, middle - aside) & at_least_mask(left_reach, 0.0 - middle - aside)
        extent = extent + absolute(middle)
    if not orthographic:
        # The eye is behind a flat mesh where the mesh's centre, seen from the eye, lies along the mesh's normal.
        nx, ny, nz = gather_points(assets.mesh_front, mesh, first, last)
        c00, c10, c20 = p11 * p22 - p12 * p21, p21 * p02 - p22 * p01, p01 * p12 - p02 * p11
        c01, c11, c21 = p12 * p20 - p10 * p22, p22 * p00 - p20 * p02, p02 * p10 - p00 * p12
        c02, c12, c22 = p10 * p21 - p11 * p20, p20 * p01 - p21 * p00, p00 * p11 - p01 * p10
        volume = p00 * c00 + p10 * c10 + p20 * c20
        from_x = (nx * c00 + ny * c01 + nz * c02) * p03
        from_y = (nx * c10 + ny * c11 + nz * c12) * p13
        from_z = (nx * c20 + ny * c21 + nz * c22) * p23
        ahead = (nx * x + ny * y + nz * z) * volume
        # Not where rounding could decide, or where the pose may be singular.
        error = (absolute(from_x) + absolute(from_y) + absolute(from_z) + absolute(ahead)) * _ROUNDING
        most = (absolute(p00) + absolute(p10) + absolute(p20)) * (absolute(p01) + absolute(p11) + absolute(p21))
        most = most * (absolute(p02) + absolute(p12) + absolute(p22))
        is_regular = at_least_mask(absolute(volume), most * _ROUNDING)
        behind = (from_x + from_y + from_z + ahead) * volume
        shown &= at_least_mask(error * absolute(volume), behind) | ~is_regular
    return shown & at_least_mask(doubles(_LARGEST), extent)


_ROUNDING = 1e-6
"""Part of a sum's terms that is more than its error."""
_LARGEST = np.finfo(np.float64).max
"""The largest finite number."""


@inlined
def is_eye_inside(assets: AssetTable, mesh: int, matrix: F64) -> bool:
    """Return whether the camera of a perspective view is so far inside a mesh that all of it is seen from behind."""
    hollow = np.float64(assets.mesh_hollow[mesh])
    if hollow == 0.0:
        return False
    # The camera's position in local coordinates, times the determinant.
    a, b, c, x = matrix[0, 0], matrix[0, 1], matrix[0, 2], -matrix[0, 3]
    d, e, f, y = matrix[1, 0], matrix[1, 1], matrix[1, 2], -matrix[1, 3]
    g, h, i, z = matrix[2, 0], matrix[2, 1], matrix[2, 2], -matrix[2, 3]
    det = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
    at_x = x * (e * i - f * h) - b * (y * i - f * z) + c * (y * h - e * z)
    at_y = a * (y * i - f * z) - x * (d * i - f * g) + c * (d * z - y * g)
    at_z = a * (e * z - y * h) - b * (d * z - y * g) + x * (d * h - e * g)
    # Written so that NaN fails it.
    limit = hollow * abs(det)
    center, half = assets.mesh_center, assets.mesh_half_size
    return (
        abs(at_x - det * center[mesh, 0]) < limit * half[mesh, 0]
        and abs(at_y - det * center[mesh, 1]) < limit * half[mesh, 1]
        and abs(at_z - det * center[mesh, 2]) < limit * half[mesh, 2]
    )


_NEARER = 1.001
"""Factor from the nearness of a bounding box to one that no pixel inside it has, however it was rounded."""


@inlined
def is_hidden(
    assets: AssetTable,
    mesh: int,
    matrix: F64,
    scale: float,
    width: int,
    height: int,
    band: I64,
    near: float,
    samples: np.uint64,
    nearness: F32,
) -> bool:
    """Return whether all of a mesh, in a perspective view, is behind what has been drawn or outside the drawn rows.

    The nearest point of its bounding box is compared with all samples of the rectangle that it can cover.
    """
    x, y, z = assets.mesh_center[mesh, 0], assets.mesh_center[mesh, 1], assets.mesh_center[mesh, 2]
    hx, hy, hz = assets.mesh_half_size[mesh, 0], assets.mesh_half_size[mesh, 1], assets.mesh_half_size[mesh, 2]
    depth = -(matrix[2, 0] * x + matrix[2, 1] * y + matrix[2, 2] * z + matrix[2, 3])
    ahead = abs(matrix[2, 0]) * hx + abs(matrix[2, 1]) * hy + abs(matrix[2, 2]) * hz
    if not depth - ahead > near:
        return False
    cx = matrix[0, 0] * x + matrix[0, 1] * y + matrix[0, 2] * z + matrix[0, 3]
    cy = matrix[1, 0] * x + matrix[1, 1] * y + matrix[1, 2] * z + matrix[1, 3]
    aside = abs(matrix[0, 0]) * hx + abs(matrix[0, 1]) * hy + abs(matrix[0, 2]) * hz
    above = abs(matrix[1, 0]) * hx + abs(matrix[1, 1]) * hy + abs(matrix[1, 2]) * hz
    largest, smallest = scale / (depth - ahead), scale / (depth + ahead)
    left = 0.5 * width + min((cx - aside) * largest, (cx - aside) * smallest)
    right = 0.5 * width + max((cx + aside) * largest, (cx + aside) * smallest)
    upper = 0.5 * height - max((cy + above) * largest, (cy + above) * smallest)
    lower = 0.5 * height - min((cy - above) * largest, (cy - above) * smallest)
    # One pixel more on each side: corners are rounded.
    x_from = np.uint64(min(max(left - 1.0, 0.0), np.float64(width))) & ~np.uint64(SIMD_WIDTH - 1)
    x_to = np.uint64(min(max(right + 2.0, 0.0), np.float64(width)))
    y_from = np.int64(max(upper - 1.0, np.float64(band[0])))
    y_to = np.int64(min(lower + 2.0, np.float64(band[1])))
    limit = np.float32(_NEARER / (depth - ahead))
    for sample in range(samples):
        for y_drawn in range(y_from, y_to):
            row = first_pixel(nearness, sample, y_drawn - band[0], width)
            for pixel in range(x_from, x_to, np.uint64(SIMD_WIDTH)):
                if is_any_below(load_floats(nearness, row + pixel), limit):
                    return False
    return True


@inlined
def select_detail(assets: AssetTable, mesh: int, matrix: F64, pixels: float, orthographic: bool) -> int:
    """Return the coarsest level of detail of a mesh whose outline is still exact enough on the screen.

    See `worldloom.render.meshes.CoarserMesh`. A metre is `pixels` wide at depth 1, in orthographic views at any depth.
    """
    depth = 1.0 if orthographic else -matrix[2, 3]
    while assets.mesh_coarser[mesh] != NO_MESH:
        largest = 0.0
        for axis in range(3):
            size = np.float64(assets.mesh_coarser_size[mesh, axis])
            stretch = matrix[0, axis] ** 2 + matrix[1, axis] ** 2 + matrix[2, axis] ** 2
            largest = max(largest, stretch * size * size)
        if not (depth > 0.0 and largest * pixels * pixels < depth * depth):
            break
        mesh = assets.mesh_coarser[mesh]
    return mesh


@inlined
def pose_determinant(pose: F32, row: int) -> float:
    """Return the determinant of a pose: negative if it mirrors, 0 if it is singular."""
    a, b, c = np.float64(pose[row, 0, 0]), np.float64(pose[row, 0, 1]), np.float64(pose[row, 0, 2])
    d, e, f = np.float64(pose[row, 1, 0]), np.float64(pose[row, 1, 1]), np.float64(pose[row, 1, 2])
    g, h, i = np.float64(pose[row, 2, 0]), np.float64(pose[row, 2, 1]), np.float64(pose[row, 2, 2])
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
