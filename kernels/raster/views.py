"""A view from tables to bytes: cull, rasterise, shade, and write each asked output at its place in the arena."""

import numpy as np

from worldloom.kernels.compiling import called, inlined, kernel
from worldloom.kernels.intrinsics import take_part
from worldloom.kernels.pixel_formats import write_gray, write_rgb
from worldloom.kernels.raster.backdrop import (
    NEW,
    NONE,
    Backdrops,
    find_backdrop,
    first_behind,
    keep_nearness,
    keep_row,
    lay_behind,
)
from worldloom.kernels.raster.scratch import KEY, NO_BACKDROP, ROW, Scratch, find_runs, first_pixel, padded, plane_at
from worldloom.kernels.raster.visibility import clear, farthest_of, rasterise
from worldloom.kernels.shading.rows import NOWHERE, shade_row
from worldloom.kernels.shading.surface import read_look
from worldloom.kernels.tables import (
    DEPTH,
    GRAY,
    I64,
    RGB,
    SEGMENTATION,
    U8,
    U32,
    AssetTable,
    InstanceTable,
    LaneTable,
    ViewTable,
)

BACKDROP, PICTURE = 0, 1
"""What is drawn now."""


@kernel
def paint_views(
    assets: AssetTable,
    instances: InstanceTable,
    lanes: LaneTable,
    views: ViewTable,
    offsets: I64,
    part: int,
    taken: I64,
    scratch: Scratch,
    backdrops: Backdrops,
    arena: U8,
) -> None:
    """Paint views, `part` at a time, until none is left. Threads that share `taken` [1], zero at first, share the work.

    They do not come back for each part: getting the GIL would take longer than painting it.
    """
    count = views.lane.size
    while True:
        first = take_part(taken, part)
        if first >= count:
            return
        for view in range(first, min(first + part, count)):
            if views.outputs[view] == 0:
                continue
            read_look(lanes, views, view, assets.texture_size, scratch.look)
            found, slot = find_backdrop(instances, lanes, views, view, backdrops)
            behind = NOWHERE if found == NONE else np.int64(first_behind(backdrops, slot))
            # A new backdrop is a picture of its own, before the one that it is for.
            for now in range(BACKDROP if found == NEW else PICTURE, PICTURE + 1):
                _begin(views, view, found, slot, now, scratch, backdrops)
                first_row, last_row = _rows_of(lanes, views.lane[view], found, now)
                rasterise(assets, instances, first_row, last_row, views, view, scratch)
                if now == BACKDROP or views.outputs[view] & (RGB | GRAY) != 0:
                    _paint_colors(assets, instances, views, view, scratch, backdrops, behind, now, offsets, arena)
                if now == BACKDROP:
                    keep_nearness(scratch.nearness, views.width[view], views.height[view], backdrops, slot)
            scratch.laid[1], scratch.laid[2] = scratch.touched[0], max(scratch.touched[0], scratch.touched[1])
            if views.outputs[view] & DEPTH:
                _paint_depth(views, view, scratch, offsets, arena)
            if views.outputs[view] & SEGMENTATION:
                _paint_labels(instances, views, view, scratch, backdrops, behind, offsets, arena)


@inlined
def _begin(
    views: ViewTable, view: int, found: int, slot: np.uint64, now: int, scratch: Scratch, backdrops: Backdrops
) -> None:
    """Have the visibility buffer show what is behind all that is drawn now: a backdrop, or nothing."""
    width, height = views.width[view], views.height[view]
    if found == NONE or now == BACKDROP:
        scratch.laid[0] = NO_BACKDROP
        clear(views, view, scratch.nearness, scratch.owner)
    else:
        lay_behind(backdrops, slot, width, height, scratch.laid, scratch.nearness, scratch.owner)


@inlined
def _rows_of(lanes: LaneTable, lane: int, found: int, now: int) -> tuple[int, int]:
    """Which instance rows are drawn now: those that stand still, the others, or all."""
    first, last = lanes.first_row[lane], lanes.first_row[lane] + lanes.row_count[lane]
    still = first + lanes.still_rows[lane]
    if found == NONE:
        return first, last
    return (first, still) if now == BACKDROP else (still, last)


@called
def _paint_colors(
    assets: AssetTable,
    instances: InstanceTable,
    views: ViewTable,
    view: int,
    scratch: Scratch,
    backdrops: Backdrops,
    behind: int,
    now: int,
    offsets: I64,
    arena: U8,
) -> None:
    """The colours of a view, to where they were asked for; those of a backdrop into what begins at `behind`."""
    width, as_backdrop = np.uint64(views.width[view]), now == BACKDROP
    untouched = behind >= 0 and not as_backdrop
    for y in range(views.height[view]):
        row_behind = behind + y * np.int64(padded(width))
        if untouched and not (scratch.touched[0] <= y < scratch.touched[1]):
            _write_colors(views, view, y, backdrops.colors, row_behind, offsets, arena)
            continue
        shade_row(
            assets, instances, views, view, y, scratch, backdrops, NOWHERE if behind < 0 or as_backdrop else row_behind
        )
        if as_backdrop:
            row = first_pixel(scratch.owner, 0, y, width)
            keep_row(
                instances,
                row,
                np.uint64(row_behind),
                width,
                scratch.whole,
                ROW,
                scratch.owner,
                scratch.colors,
                backdrops,
            )
        else:
            _write_colors(views, view, y, scratch.colors, 0, offsets, arena)


@called
def _paint_labels(
    instances: InstanceTable,
    views: ViewTable,
    view: int,
    scratch: Scratch,
    backdrops: Backdrops,
    behind: int,
    offsets: I64,
    arena: U8,
) -> None:
    """The labels of a view, run by run from the visibility buffer."""
    owner, whole, runs = scratch.owner, scratch.whole, scratch.runs
    width = np.uint64(views.width[view])
    for y in range(views.height[view]):
        row = first_pixel(owner, 0, y, width)
        at = np.uint64(offsets[view, 3]) + np.uint64(y) * width
        for run in range(find_runs(owner, row, width, runs)):
            x_from, x_to = np.uint64(runs[run]), np.uint64(runs[run + np.uint64(1)])
            number = np.uint64(owner[row + x_from])
            if number == 0 and behind >= 0:
                start = np.uint64(behind) + np.uint64(y) * padded(width)
                for x in range(x_from, x_to):
                    arena[at + x] = np.uint8(backdrops.colors[start + x] >> np.uint32(24))
                continue
            label = instances.label[np.uint64(whole[number, ROW])] if number != 0 else np.uint8(0)
            for x in range(x_from, x_to):
                arena[at + x] = label


@called
def _paint_depth(views: ViewTable, view: int, scratch: Scratch, offsets: I64, arena: U8) -> None:
    """The depth of a view: how near each pixel is, turned around."""
    nearness, owner, real, depths = scratch.nearness, scratch.owner, scratch.real, scratch.rows
    depth_bytes = depths.view(np.uint8)
    width = np.uint64(views.width[view])
    near, far = views.near[view], views.far[view]
    farthest = farthest_of(views, view)
    orthographic = views.orthographic[view] == 1
    for y in range(views.height[view]):
        row = first_pixel(owner, 0, y, width)
        for x in range(padded(width)):
            near_key = nearness[row + x]
            depth = far - near_key if orthographic else np.float32(1.0) / near_key
            # Of a triangle that is degenerate but for rounding, a pixel may come out before the near plane.
            depths[x] = min(max(depth, near), far) if near_key > farthest else far
        if views.samples[view] == 4:
            # From the first sample's point to the pixel's centre, which may lie outside what is drawn.
            for x in range(width):
                number = np.uint64(owner[row + x])
                if number != 0:
                    key = plane_at(real, number, KEY, y + 0.5) + np.float32(real[number, KEY]) * np.float32(np.int32(x))
                    depth = far - key if orthographic else np.float32(1.0) / max(key, np.float32(0.0))
                    depths[x] = min(max(depth, near), far)
        at = np.uint64(offsets[view, 2]) + np.uint64(4) * np.uint64(y) * width
        for byte in range(np.uint64(4) * width):
            arena[at + byte] = depth_bytes[byte]


@inlined
def _write_colors(views: ViewTable, view: int, y: int, colors: U32, first: int, offsets: I64, arena: U8) -> None:
    """A finished row, whose colours begin at `first`, as rgb and gray bytes."""
    width = np.int64(views.width[view])
    if views.outputs[view] & RGB:
        write_rgb(colors, first, width, arena, offsets[view, 0] + 3 * y * width)
    if views.outputs[view] & GRAY:
        start = offsets[view, 1] + y * width
        write_gray(colors[first : first + width], arena[start : start + width])
