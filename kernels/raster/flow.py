"""Flow of what a view shows: how far it has moved on the screen since the step before, run by run.

Where a corner of a triangle was one step before follows from the pose and the camera of that time. Its homogeneous
pixel coordinates are planes of the triangle record, as texture coordinates are, and take the columns of those: shading
has used them before.
"""

import numpy as np

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.outputs import FLOW_COLUMN
from worldloom.kernels.pixel_formats import write_numbers
from worldloom.kernels.raster.cull import model_view
from worldloom.kernels.raster.scratch import (
    INVERSE,
    KEY,
    OVER_U,
    OVER_V,
    OVER_W,
    PREPARED,
    ROW,
    TRIANGLE,
    Scratch,
    find_runs,
    first_pixel,
    row_start,
    run_at,
)
from worldloom.kernels.tables import (
    F32,
    F64,
    I64,
    U8,
    AssetTable,
    InstanceTable,
    LaneTable,
    PreviousTable,
    ViewTable,
)

_BEFORE = 3
"""Value of PREPARED of a record whose columns of texture coordinates are those of pixels one step before."""
_LARGEST = 3.0e38
"""Largest flow; float32 has little more."""


@device_function
def write_flow(
    assets: AssetTable,
    instances: InstanceTable,
    lanes: LaneTable,
    views: ViewTable,
    view: int,
    previous: PreviousTable,
    scratch: Scratch,
    offsets: I64,
    arena: U8,
) -> None:
    """Write the flow of a view, after all other outputs."""
    owner, record_ints, record_floats, runs = scratch.owner, scratch.record_ints, scratch.record_floats, scratch.runs
    flow = scratch.rows
    flow_bytes = flow.view(np.uint8)
    two, row_bytes = np.uint64(2), np.uint64(8) * np.uint64(views.width[view])
    width = np.uint64(views.width[view])
    orthographic, near = views.orthographic[view] == 1, np.float64(views.near[view])
    is_known = previous.first_row.size > 0 and previous.first_row[view] >= 0
    for y in range(scratch.band[0], scratch.band[1]):
        row = first_pixel(owner, 0, y - scratch.band[0], width)
        for run in range(find_runs(owner, row, width, runs) if is_known else np.uint64(0)):
            x_from, x_to, record = run_at(owner, row, runs, run)
            if record == 0:
                _write_background(views, view, previous, y, x_from, x_to, flow)
                continue
            if record_ints[record, PREPARED] != _BEFORE:
                _prepare(assets, instances, lanes, views, view, previous, record, scratch)
            _write_run(record, y + 0.5, x_from, x_to, orthographic, near, record_floats, flow)
        if not is_known:
            for k in range(two * width):
                flow[k] = 0.0
        write_numbers(flow_bytes, row_bytes, arena, np.uint64(offsets[view, FLOW_COLUMN]) + np.uint64(y) * row_bytes)


@device_function
def _prepare(
    assets: AssetTable,
    instances: InstanceTable,
    lanes: LaneTable,
    views: ViewTable,
    view: int,
    previous: PreviousTable,
    record: np.uint64,
    scratch: Scratch,
) -> None:
    """Write the planes of the homogeneous pixel coordinates that a triangle had one step before."""
    record_ints, record_floats, matrix = scratch.record_ints, scratch.record_floats, scratch.matrix
    row, triangle = np.int64(record_ints[record, ROW]), np.uint64(record_ints[record, TRIANGLE])
    row_before = previous.first_row[view] + row - lanes.first_row[views.lane[view]]
    if was_there_before(instances, row, previous, row_before):
        model_view(previous.pose, row_before, previous.camera, view, matrix)
    else:
        model_view(instances.pose, row, previous.camera, view, matrix)
    width, height = np.float64(views.width[view]), np.float64(views.height[view])
    scale = 0.5 * height / np.float64(previous.half_height[view])
    orthographic = views.orthographic[view] == 1
    for k in range(3):
        for plane in (OVER_U, OVER_V, OVER_W):
            record_floats[record, plane + k] = 0.0
    for corner in range(3):
        vertex = np.uint64(assets.triangles[triangle, corner])
        px, py, pz = assets.positions[vertex, 0], assets.positions[vertex, 1], assets.positions[vertex, 2]
        x = matrix[0, 0] * px + matrix[0, 1] * py + matrix[0, 2] * pz + matrix[0, 3]
        y = matrix[1, 0] * px + matrix[1, 1] * py + matrix[1, 2] * pz + matrix[1, 3]
        depth = -(matrix[2, 0] * px + matrix[2, 1] * py + matrix[2, 2] * pz + matrix[2, 3])
        w = 1.0 if orthographic else depth
        across, down = x * scale + w * (0.5 * width), w * (0.5 * height) - y * scale
        for k in range(3):
            weight = record_floats[record, INVERSE + 3 * corner + k]
            record_floats[record, OVER_U + k] += weight * across
            record_floats[record, OVER_V + k] += weight * down
            record_floats[record, OVER_W + k] += weight * w
    record_ints[record, PREPARED] = _BEFORE


@inlined
def was_there_before(instances: InstanceTable, row: int, previous: PreviousTable, row_before: int) -> bool:
    """Return whether an instance row was the same thing one step before, and somewhere; else it counts as not moved."""
    total = np.float32(0.0)
    for i in range(3):
        for j in range(4):
            total += previous.pose[row_before, i, j] * np.float32(0.0)
    return previous.mesh[row_before] == instances.mesh[row] and total == 0.0


@inlined
def _write_run(
    record: np.uint64,
    center_y: float,
    x_from: np.uint64,
    x_to: np.uint64,
    orthographic: bool,
    near: float,
    record_floats: F64,
    flow: F32,
) -> None:
    """Write the flow of the pixels x_from..x_to of a triangle; 0 where it was before the near plane."""
    across, across_x = row_start(record_floats, record, OVER_U, center_y), record_floats[record, OVER_U]
    down, down_x = row_start(record_floats, record, OVER_V, center_y), record_floats[record, OVER_V]
    before, before_x = row_start(record_floats, record, OVER_W, center_y), record_floats[record, OVER_W]
    key, key_x = row_start(record_floats, record, KEY, center_y), record_floats[record, KEY]
    for pixel in range(x_from, x_to):
        at = np.float64(np.int64(pixel))
        # Depth then, and 1, over the depth now.
        w, one = before + before_x * at, key + key_x * at
        is_seen = orthographic or (one > 0.0 and w >= near * one)
        _write_pixel(is_seen, at + 0.5, center_y, across + across_x * at, down + down_x * at, w, pixel, flow)


@device_function
def _write_background(
    views: ViewTable, view: int, previous: PreviousTable, y: int, x_from: np.uint64, x_to: np.uint64, flow: F32
) -> None:
    """Write the flow of points at infinity, which the camera alone moves; in an orthographic view it is 0."""
    orthographic = views.orthographic[view] == 1
    width, height = np.float64(views.width[view]), np.float64(views.height[view])
    half_height, scale = np.float64(views.half_height[view]), 0.5 * height / np.float64(previous.half_height[view])
    up = (1.0 - 2.0 * (y + 0.5) / height) * half_height
    for pixel in range(x_from, x_to):
        center_x = np.float64(np.int64(pixel)) + 0.5
        right = (2.0 * center_x / width - 1.0) * half_height * width / height
        x = z = above = 0.0
        for i in range(3):
            ray = (
                np.float64(views.camera[view, i, 0]) * right
                + np.float64(views.camera[view, i, 1]) * up
                - np.float64(views.camera[view, i, 2])
            )
            x += previous.camera[view, i, 0] * ray
            above += previous.camera[view, i, 1] * ray
            z += previous.camera[view, i, 2] * ray
        across, down = x * scale - z * (0.5 * width), -z * (0.5 * height) - above * scale
        _write_pixel(not orthographic and z < 0.0, center_x, y + 0.5, across, down, -z, pixel, flow)


@inlined
def _write_pixel(
    is_seen: bool, center_x: float, center_y: float, across: float, down: float, w: float, pixel: np.uint64, flow: F32
) -> None:
    """Write the flow of a pixel from the homogeneous coordinates of the one where its surface was; 0 unless seen."""
    x = y = 0.0
    if is_seen and w != 0.0:
        x, y = center_x - across / w, center_y - down / w
        # Written so that NaN fails it.
        if not (abs(x) < _LARGEST and abs(y) < _LARGEST):
            x = y = 0.0
    flow[np.uint64(2) * pixel] = np.float32(x)
    flow[np.uint64(2) * pixel + np.uint64(1)] = np.float32(y)
