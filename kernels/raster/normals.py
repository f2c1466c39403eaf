"""Normals of what a view shows, in camera space, run by run from the visibility buffer.

They are computed from the triangle records, in columns that shading has used before and needs no more: so a view that
asks for them has no backdrop, whose pixels have no records.
"""

import numpy as np

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.outputs import NORMALS_COLUMN
from worldloom.kernels.pixel_formats import write_numbers
from worldloom.kernels.raster.scratch import (
    INVERSE,
    NORMAL,
    NORMAL_FLIPPED,
    PREPARED,
    ROW,
    TRIANGLE,
    Scratch,
    find_runs,
    first_pixel,
    row_start,
    run_at,
)
from worldloom.kernels.tables import F32, F64, I32, I64, U8, AssetTable, InstanceTable, ViewTable

_IN_CAMERA_SPACE = 2
"""Value of PREPARED of a record whose NORMAL columns are planes in camera space."""


@device_function
def write_normals(
    assets: AssetTable,
    instances: InstanceTable,
    views: ViewTable,
    view: int,
    scratch: Scratch,
    offsets: I64,
    arena: U8,
) -> None:
    """Write the normals of a view, after its colours."""
    owner, record_ints, record_floats, runs = scratch.owner, scratch.record_ints, scratch.record_floats, scratch.runs
    normals = scratch.rows
    normal_bytes = normals.view(np.uint8)
    three, row_bytes = np.uint64(3), np.uint64(12) * np.uint64(views.width[view])
    width = np.uint64(views.width[view])
    for y in range(scratch.band[0], scratch.band[1]):
        row = first_pixel(owner, 0, y - scratch.band[0], width)
        for run in range(find_runs(owner, row, width, runs)):
            x_from, x_to, record = run_at(owner, row, runs, run)
            if record == 0:
                for k in range(three * x_from, three * x_to):
                    normals[k] = 0.0
                continue
            if record_ints[record, PREPARED] != _IN_CAMERA_SPACE:
                _prepare(
                    assets.triangles,
                    assets.triangle_is_flat,
                    assets.normals,
                    instances.pose,
                    views.camera,
                    view,
                    record,
                    record_ints,
                    record_floats,
                )
            _write_run(record, y + 0.5, x_from, x_to, record_floats, normals)
        at = np.uint64(offsets[view, NORMALS_COLUMN]) + np.uint64(y) * row_bytes
        write_numbers(normal_bytes, row_bytes, arena, at)


@device_function
def _prepare(
    triangles: I32,
    triangle_is_flat: U8,
    normals: F32,
    pose: F32,
    camera: F32,
    view: int,
    record: int,
    record_ints: I32,
    record_floats: F64,
) -> None:
    """Write the planes of a triangle's normals in camera space, turned to the viewer."""
    row, triangle = np.uint64(record_ints[record, ROW]), np.uint64(record_ints[record, TRIANGLE])
    a, b, c = (
        np.uint64(triangles[triangle, 0]),
        np.uint64(triangles[triangle, 1]),
        np.uint64(triangles[triangle, 2]),
    )
    sign = -1.0 if record_ints[record, NORMAL_FLIPPED] == 1 else 1.0
    for axis in range(3):
        # The row of the matrix that takes the mesh's normals to this axis: the camera's axis times the cofactors.
        x = y = z = 0.0
        for i in range(3):
            along = sign * np.float64(camera[view, i, axis])
            j, k = (i + 1) % 3, (i + 2) % 3
            x += along * (np.float64(pose[row, j, 1]) * pose[row, k, 2] - np.float64(pose[row, j, 2]) * pose[row, k, 1])
            y += along * (np.float64(pose[row, j, 2]) * pose[row, k, 0] - np.float64(pose[row, j, 0]) * pose[row, k, 2])
            z += along * (np.float64(pose[row, j, 0]) * pose[row, k, 1] - np.float64(pose[row, j, 1]) * pose[row, k, 0])
        na = x * normals[a, 0] + y * normals[a, 1] + z * normals[a, 2]
        nb = x * normals[b, 0] + y * normals[b, 1] + z * normals[b, 2]
        nc = x * normals[c, 0] + y * normals[c, 1] + z * normals[c, 2]
        plane = NORMAL + 3 * axis
        for k in range(3):
            record_floats[record, plane + k] = (
                record_floats[record, INVERSE + k] * na
                + record_floats[record, INVERSE + 3 + k] * nb
                + record_floats[record, INVERSE + 6 + k] * nc
            )
        if triangle_is_flat[triangle] == 1:
            record_floats[record, plane], record_floats[record, plane + 1] = 0.0, 0.0
            record_floats[record, plane + 2] = na
    record_ints[record, PREPARED] = _IN_CAMERA_SPACE


@inlined
def _write_run(
    record: np.uint64, center_y: float, x_from: np.uint64, x_to: np.uint64, record_floats: F64, normals: F32
) -> None:
    """Write unit normals of the pixels x_from..x_to; 0 where the mesh's normal has no direction.

    In float64: the planes of a small triangle are steep, and float32 would lose digits far from the left edge.
    """
    ax, bx = row_start(record_floats, record, NORMAL, center_y), record_floats[record, NORMAL]
    ay, by = row_start(record_floats, record, NORMAL + 3, center_y), record_floats[record, NORMAL + 3]
    az, bz = row_start(record_floats, record, NORMAL + 6, center_y), record_floats[record, NORMAL + 6]
    for pixel in range(x_from, x_to):
        at = np.float64(np.int64(pixel))
        x, y, z = ax + bx * at, ay + by * at, az + bz * at
        length = np.sqrt(x * x + y * y + z * z)
        # Written so that NaN fails it.
        if 0.0 < length < np.inf:
            scale = 1.0 / length
            x, y, z = x * scale, y * scale, z * scale
        else:
            x = y = z = 0.0
        first = np.uint64(3) * pixel
        normals[first] = np.float32(x)
        normals[first + np.uint64(1)] = np.float32(y)
        normals[first + np.uint64(2)] = np.float32(z)
