"""A view from tables to bytes: cull, rasterise, shade, and write each asked output at its place in the arena."""

import numpy as np

from worldloom.kernels.compiling import called, inlined, kernel
from worldloom.kernels.raster import SAMPLE_X, SAMPLE_Y, rasterise
from worldloom.kernels.scratch import KEY, Scratch, padded, record_at
from worldloom.kernels.shade import shade_row
from worldloom.kernels.surface import read_look
from worldloom.kernels.tables import (
    DEPTH,
    GRAY,
    I64,
    NO_MESH,
    RGB,
    SEGMENTATION,
    U8,
    AssetTable,
    InstanceTable,
    LaneTable,
    ViewTable,
)
from worldloom.kernels.unpack import write_gray, write_rgb


@kernel
def paint_views(
    assets: AssetTable,
    instances: InstanceTable,
    lanes: LaneTable,
    views: ViewTable,
    offsets: I64,
    first: int,
    step: int,
    scratch: Scratch,
    arena: U8,
) -> None:
    """Paint views first, first + step, first + 2 step, ...: one worker's share of a batch."""
    for view in range(first, views.lane.size, step):
        rasterise(assets, instances, lanes, views, view, scratch)
        read_look(lanes, views.lane[view], scratch.look)
        if views.outputs[view] & (RGB | GRAY) != 0:
            _paint_colors(assets, instances, views, view, scratch, offsets, arena)
        if views.outputs[view] & (DEPTH | SEGMENTATION) != 0:
            _paint_ids(instances, views, view, scratch, offsets, arena)


@kernel
def most_triangles(assets: AssetTable, instances: InstanceTable, lanes: LaneTable, views: ViewTable) -> int:
    """The most triangles any of the views can have before it: what the records need room for."""
    most = 0
    for view in range(views.lane.size):
        lane = views.lane[view]
        triangles = 0
        for row in range(lanes.first_row[lane], lanes.first_row[lane] + lanes.row_count[lane]):
            if instances.mesh[row] != NO_MESH:
                triangles += assets.mesh_triangle_count[instances.mesh[row]]
        most = max(most, triangles)
    return most


@called
def _paint_colors(
    assets: AssetTable, instances: InstanceTable, views: ViewTable, view: int, scratch: Scratch, offsets: I64, arena: U8
) -> None:
    for y in range(views.height[view]):
        shade_row(assets, instances, views, view, y, scratch)
        _write_colors(views, view, y, scratch, offsets, arena)


@called
def _paint_ids(
    instances: InstanceTable, views: ViewTable, view: int, scratch: Scratch, offsets: I64, arena: U8
) -> None:
    for y in range(views.height[view]):
        _write_ids(instances, views, view, y, scratch, offsets, arena)


@inlined
def _write_colors(views: ViewTable, view: int, y: int, scratch: Scratch, offsets: I64, arena: U8) -> None:
    """A finished row as rgb and gray bytes."""
    width = np.int64(views.width[view])
    if views.outputs[view] & RGB:
        write_rgb(scratch.colors, width, arena, offsets[view, 0] + 3 * y * width)
    if views.outputs[view] & GRAY:
        start = offsets[view, 1] + y * width
        write_gray(scratch.colors, arena[start : start + width])


@inlined
def _write_ids(
    instances: InstanceTable, views: ViewTable, view: int, y: int, scratch: Scratch, offsets: I64, arena: U8
) -> None:
    """A row of depth and labels, straight from the visibility buffer."""
    width = np.uint64(views.width[view])
    base = np.uint64(y) * width
    row = np.uint64(y) * padded(width)
    visibility, whole, real = scratch.visibility, scratch.whole, scratch.real
    far = views.far[view]
    orthographic = views.orthographic[view] == 1
    four = views.samples[view] == 4
    if views.outputs[view] & SEGMENTATION:
        at = np.uint64(offsets[view, 3]) + base
        for x in range(width):
            number = record_at(visibility, np.uint64(0), row + x)
            arena[at + x] = instances.label[whole[number, 0]] if number != 0 else np.uint8(0)
    if views.outputs[view] & DEPTH:
        at = np.uint64(offsets[view, 2]) + np.uint64(4) * base
        for x in range(width):
            number = record_at(visibility, np.uint64(0), row + x)
            depth = far
            if number != 0:
                key = np.int32(visibility[row + x] >> np.int64(32)).view(np.float32)
                if four:  # from the sample's point to the pixel's centre
                    key += np.float32(
                        real[number, KEY] * (0.5 - SAMPLE_X[0]) + real[number, KEY + 1] * (0.5 - SAMPLE_Y[0])
                    )
                depth = far - key if orthographic else np.float32(1.0) / key
                if four:
                    depth = min(max(depth, views.near[view]), far) if depth > 0.0 or orthographic else far
            bits = np.float32(depth).view(np.int32)
            for k in range(np.uint64(4)):
                arena[at + np.uint64(4) * x + k] = np.uint8(bits >> np.int32(np.uint64(8) * k))
