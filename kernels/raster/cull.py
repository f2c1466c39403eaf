"""Culling: an instance's transform to camera space, whether it can be visible, and which level of detail to draw."""

import numpy as np

from worldloom.kernels.compiling import inlined
from worldloom.kernels.tables import F32, F64, NO_MESH, AssetTable


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
