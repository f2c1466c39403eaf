"""Where an instance stands before a camera, and whether any of it can be in the picture."""

import numpy as np

from worldloom.kernels.compiling import inlined
from worldloom.kernels.tables import F32, F64, NO_MESH, AssetTable


@inlined
def model_view(pose: F32, row: int, camera: F32, view: int, out: F64) -> None:
    """Local to camera coordinates, into `out` [3, 4] (float64).

    A camera's axes are square and of unit length, so the transpose undoes its rotation.
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
def in_frustum(
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
    """Whether the box around a mesh, under `matrix` (see `model_view`), reaches into a view's frustum.

    Says no to poses that are not finite: every test is phrased so that NaN fails it.
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
def detail_of(assets: AssetTable, mesh: int, matrix: F64, pixels: float, orthographic: bool) -> int:
    """The lightest version of a mesh, under `matrix`, whose outline is as good: see `worldloom.render.meshes.Lighter`.

    A metre is `pixels` wide at depth 1, or, orthographic, anywhere.
    """
    depth = 1.0 if orthographic else -matrix[2, 3]
    while assets.mesh_lighter[mesh] != NO_MESH:
        largest = 0.0
        for axis in range(3):
            size = np.float64(assets.mesh_lighter_size[mesh, axis])
            stretch = matrix[0, axis] ** 2 + matrix[1, axis] ** 2 + matrix[2, axis] ** 2
            largest = max(largest, stretch * size * size)
        if not (depth > 0.0 and largest * pixels * pixels < depth * depth):
            break
        mesh = assets.mesh_lighter[mesh]
    return mesh


@inlined
def volume_of(pose: F32, row: int) -> float:
    """The determinant of a pose: negative if it mirrors, 0 if it flattens."""
    a, b, c = np.float64(pose[row, 0, 0]), np.float64(pose[row, 0, 1]), np.float64(pose[row, 0, 2])
    d, e, f = np.float64(pose[row, 1, 0]), np.float64(pose[row, 1, 1]), np.float64(pose[row, 1, 2])
    g, h, i = np.float64(pose[row, 2, 0]), np.float64(pose[row, 2, 1]), np.float64(pose[row, 2, 2])
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
