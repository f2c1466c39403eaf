"""Drawing of one view: cull, rasterise, shade, and write each requested output to its offset in the arena."""

import numpy as np

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.light_maps import fit_light_maps
from worldloom.kernels.outputs import (
    DEPTH,
    DEPTH_COLUMN,
    FLOW,
    GRAY,
    GRAY_COLUMN,
    NORMALS,
    RGB,
    RGB_COLUMN,
    SEGMENTATION,
    SEGMENTATION_COLUMN,
)
from worldloom.kernels.pixel_formats import write_gray, write_numbers, write_rgb
from worldloom.kernels.raster.backdrop import (
    NEW,
    NONE,
    Backdrops,
    backdrop_offset,
    find_backdrop,
    restore_backdrop,
    store_backdrop_nearness,
    store_backdrop_row,
)
from worldloom.kernels.raster.casting import draw_light_maps
from worldloom.kernels.raster.flow import write_flow
from worldloom.kernels.raster.normals import write_normals
from worldloom.kernels.raster.scratch import (
    HAS_SHADOWS,
    KEY,
    MAP_COUNT,
    NO_BACKDROP,
    NO_BACKGROUND,
    ROW,
    Scratch,
    find_runs,
    first_pixel,
    padded,
    plane_at,
    run_at,
)
from worldloom.kernels.raster.seen_texels import find_seen_texels
from worldloom.kernels.raster.translucent import (
    ALL_ROWS,
    OPAQUE_ROWS,
    TRANSLUCENT_ROWS,
    blend_row,
    find_layers,
    finish_row,
    keep_opaque,
    keep_row,
    may_have_layers,
    remove_layer,
    restore_opaque,
)
from worldloom.kernels.raster.visibility import (
    background_nearness,
    clear,
    rasterise,
)
from worldloom.kernels.shading.rows import blend_samples, shade_row
from worldloom.kernels.shading.shadows import read_light_maps
from worldloom.kernels.shading.surface import read_constants
from worldloom.kernels.tables import I64, U8, U32, AssetTable, InstanceTable, LaneTable, PreviousTable, ViewTable

BACKDROP_PASS, FRAME_PASS, FIRST_LAYER = 0, 1, 2
"""Passes of a view: its new backdrop, if it gets one, and its frame.

With translucent rows these passes draw the opaque rows. They are followed by one for the colours of each translucent
row, if colours are asked for, and one for all else of them together, such as depth and labels, if that is.
"""


@inlined
def draw_view(
    assets: AssetTable,
    instances: InstanceTable,
    lanes: LaneTable,
    views: ViewTable,
    view: int,
    previous: PreviousTable,
    top: int,
    bottom: int,
    offsets: I64,
    scratch: Scratch,
    backdrops: Backdrops,
    arena: U8,
) -> None:
    """Draw the rows [top, bottom) of a view: write each output that it asks for to its offset in the arena."""
    scratch.band[0], scratch.band[1] = top, bottom
    read_constants(lanes, views, view, assets.texture_size, scratch.constants)
    found, entry = find_backdrop(instances, lanes, views, view, scratch.band, backdrops)
    backdrop_start = NO_BACKDROP if found == NONE else np.int64(backdrop_offset(backdrops, entry))
    wants_colors = views.outputs[view] & (RGB | GRAY) != 0
    translucent_rows, rows_kind = 0, ALL_ROWS
    if may_have_layers(instances, lanes, views.lane[view]):
        rows_kind = OPAQUE_ROWS
        translucent_rows = find_layers(assets, instances, lanes, views, view, scratch)
    layers = translucent_rows if wants_colors else 0
    passes = FIRST_LAYER + layers
    if translucent_rows > 0 and views.outputs[view] & (DEPTH | SEGMENTATION | NORMALS | FLOW) != 0:
        passes += 1
    opaque_records = np.uint64(0)
    for render_pass in range(BACKDROP_PASS if found == NEW else FRAME_PASS, passes):
        _clear(views, view, found, entry, render_pass, layers, scratch, backdrops)
        first_row, last_row = _rows_to_draw(lanes, views.lane[view], found, render_pass, layers, scratch)
        rows_kind = rows_kind if render_pass < FIRST_LAYER else TRANSLUCENT_ROWS
        records = rasterise(assets, instances, first_row, last_row, rows_kind, opaque_records, views, view, scratch)
        opaque_records = records if render_pass == FRAME_PASS else opaque_records
        if render_pass == FRAME_PASS and wants_colors and views.shadows[view] == 1:
            _draw_shadows(assets, instances, lanes, views, view, scratch)
        if render_pass == FIRST_LAYER:
            scratch.constants[HAS_SHADOWS] = scratch.constants[MAP_COUNT] = 0.0  # no shadows fall on translucent rows
        if render_pass == BACKDROP_PASS or (wants_colors and render_pass < FIRST_LAYER + layers):
            _write_color_outputs(
                assets, instances, views, view, scratch, backdrops, backdrop_start, render_pass, layers, offsets, arena
            )
        if render_pass == BACKDROP_PASS:
            store_backdrop_nearness(scratch.nearness, views.width[view], bottom - top, backdrops, entry)
    scratch.restored[1] = scratch.drawn_rows[0] - top
    scratch.restored[2] = max(scratch.drawn_rows[0], scratch.drawn_rows[1]) - top
    if translucent_rows > 0:
        scratch.restored[0] = NO_BACKDROP  # more was drawn over than those rows
    if views.outputs[view] & DEPTH:
        _write_depth(views, view, scratch, offsets, arena)
    if views.outputs[view] & SEGMENTATION:
        _write_segmentation(instances, views, view, scratch, backdrops, backdrop_start, offsets, arena)
    if views.outputs[view] & NORMALS:
        write_normals(assets, instances, views, view, scratch, offsets, arena)
    if views.outputs[view] & FLOW:
        write_flow(assets, instances, lanes, views, view, previous, scratch, offsets, arena)


@device_function
def _draw_shadows(
    assets: AssetTable,
    instances: InstanceTable,
    lanes: LaneTable,
    views: ViewTable,
    view: int,
    scratch: Scratch,
) -> None:
    """Draw the light maps of a view, as far as its pixels look them up, and prepare its constants for them."""
    count = fit_light_maps(assets, instances, lanes, views, view, scratch.maps)
    read_light_maps(lanes, views, view, count, scratch.maps, scratch.map_planes, scratch.constants)
    find_seen_texels(views, view, count, background_nearness(views, view), scratch)
    draw_light_maps(assets, instances, lanes, views, view, count, scratch)


@inlined
def _clear(
    views: ViewTable,
    view: int,
    found: int,
    entry: np.uint64,
    render_pass: int,
    layers: int,
    scratch: Scratch,
    backdrops: Backdrops,
) -> None:
    """Fill the visibility buffer with the background of this pass: a backdrop, nothing, or what is opaque."""
    width, height = views.width[view], scratch.band[1] - scratch.band[0]
    if render_pass >= FIRST_LAYER:
        if layers > 0 and render_pass == FIRST_LAYER:
            keep_opaque(views, view, scratch)
        elif render_pass < FIRST_LAYER + layers:
            remove_layer(views, view, scratch)
        elif layers > 0:
            restore_opaque(views, view, scratch)
    elif found == NONE or render_pass == BACKDROP_PASS:
        scratch.restored[0] = NO_BACKDROP
        clear(views, view, scratch.band, scratch.nearness, scratch.owner)
    else:
        restore_backdrop(backdrops, entry, width, height, scratch.restored, scratch.nearness, scratch.owner)


@inlined
def _rows_to_draw(
    lanes: LaneTable, lane: int, found: int, render_pass: int, layers: int, scratch: Scratch
) -> tuple[int, int]:
    """Return the range of instance rows of this pass: the still ones, the others, all, or the one of a layer."""
    first, last = lanes.first_row[lane], lanes.first_row[lane] + lanes.row_count[lane]
    still = first + lanes.static_rows[lane]
    if FIRST_LAYER <= render_pass < FIRST_LAYER + layers:
        row = np.int64(scratch.layer_rows[render_pass - FIRST_LAYER])
        return row, row + 1
    if found == NONE or render_pass >= FIRST_LAYER:
        return first, last
    return (first, still) if render_pass == BACKDROP_PASS else (still, last)


@inlined
def _write_color_outputs(
    assets: AssetTable,
    instances: InstanceTable,
    views: ViewTable,
    view: int,
    scratch: Scratch,
    backdrops: Backdrops,
    backdrop_start: int,
    render_pass: int,
    layers: int,
    offsets: I64,
    arena: U8,
) -> None:
    """Shade a view and write rgb and gray, after the last layer if there are any.

    In a backdrop pass, store colours and labels from `backdrop_start` on.
    """
    width, is_backdrop = np.uint64(views.width[view]), render_pass == BACKDROP_PASS
    is_layer = render_pass >= FIRST_LAYER
    has_backdrop = backdrop_start >= 0 and not is_backdrop
    height, half_height, far = views.height[view], views.half_height[view], views.far[view]
    orthographic, samples = views.orthographic[view] == 1, np.uint64(views.samples[view])
    top, bottom = scratch.band[0], scratch.band[1]
    if is_layer:
        top, bottom = scratch.drawn_rows[0], scratch.drawn_rows[1]
    background = NO_BACKGROUND if is_layer else NO_BACKDROP
    for y in range(top, bottom):
        backdrop_row = backdrop_start + (y - scratch.band[0]) * np.int64(padded(width))
        if has_backdrop and layers == 0 and not (scratch.drawn_rows[0] <= y < scratch.drawn_rows[1]):
            _write_color_row(views, view, y, backdrops.colors, backdrop_row, offsets, arena)
            continue
        shade_row(
            assets,
            instances,
            views,
            view,
            y,
            width,
            height,
            half_height,
            far,
            orthographic,
            samples,
            scratch,
            backdrops,
            backdrop_row if has_backdrop and not is_layer else background,
        )
        if samples == 4 and layers == 0:
            blend_samples(width, scratch.colors)
        if is_layer:
            alpha = instances.alpha[scratch.layer_rows[render_pass - FIRST_LAYER]]
            at = y - scratch.band[0]
            blend_row(at, width, samples, alpha, scratch.colors, scratch.owner, scratch.frame)
        elif is_backdrop:
            row = first_pixel(scratch.owner, 0, y - scratch.band[0], width)
            store_backdrop_row(
                instances,
                row,
                np.uint64(backdrop_row),
                width,
                scratch.record_ints,
                ROW,
                scratch.owner,
                scratch.colors,
                backdrops,
            )
        elif layers > 0:
            keep_row(y - scratch.band[0], width, samples, scratch.colors, scratch.owner, scratch.frame)
        else:
            _write_color_row(views, view, y, scratch.colors, 0, offsets, arena)
    if is_layer and render_pass == FIRST_LAYER + layers - 1:
        for y in range(scratch.band[0], scratch.band[1]):
            finish_row(y - scratch.band[0], width, samples, scratch.colors, scratch.owner, scratch.frame)
            _write_color_row(views, view, y, scratch.colors, 0, offsets, arena)


@device_function
def _write_segmentation(
    instances: InstanceTable,
    views: ViewTable,
    view: int,
    scratch: Scratch,
    backdrops: Backdrops,
    backdrop_start: int,
    offsets: I64,
    arena: U8,
) -> None:
    """Write the labels of a view, run by run from the visibility buffer."""
    owner, record_ints, runs = scratch.owner, scratch.record_ints, scratch.runs
    width = np.uint64(views.width[view])
    for y in range(scratch.band[0], scratch.band[1]):
        row = first_pixel(owner, 0, y - scratch.band[0], width)
        at = np.uint64(offsets[view, SEGMENTATION_COLUMN]) + np.uint64(y) * width
        for run in range(find_runs(owner, row, width, runs)):
            x_from, x_to, record = run_at(owner, row, runs, run)
            if record == 0 and backdrop_start >= 0:
                start = np.uint64(backdrop_start) + np.uint64(y - scratch.band[0]) * padded(width)
                for x in range(x_from, x_to):
                    arena[at + x] = np.uint8(backdrops.colors[start + x] >> np.uint32(24))
                continue
            label = instances.label[np.uint64(record_ints[record, ROW])] if record != 0 else np.uint8(0)
            for x in range(x_from, x_to):
                arena[at + x] = label


@device_function
def _write_depth(views: ViewTable, view: int, scratch: Scratch, offsets: I64, arena: U8) -> None:
    """Write the depth of a view, computed from nearness."""
    nearness, owner, record_floats, depths = scratch.nearness, scratch.owner, scratch.record_floats, scratch.rows
    depth_bytes = depths.view(np.uint8)
    width = np.uint64(views.width[view])
    near, far = views.near[view], views.far[view]
    farthest = background_nearness(views, view)
    orthographic = views.orthographic[view] == 1
    for y in range(scratch.band[0], scratch.band[1]):
        row = first_pixel(owner, 0, y - scratch.band[0], width)
        for x in range(padded(width)):
            near_key = nearness[row + x]
            depth = far - near_key if orthographic else np.float32(1.0) / near_key
            # A pixel of a nearly degenerate triangle may be rounded to before the near plane.
            depths[x] = min(max(depth, near), far) if near_key > farthest else far
        if views.samples[view] == 4:
            # From the position of the first sample to the pixel's centre, which may lie outside the triangle.
            for x in range(width):
                record = np.uint64(owner[row + x])
                if record != 0:
                    slope = np.float32(record_floats[record, KEY])
                    key = plane_at(record_floats, record, KEY, y + 0.5) + slope * np.float32(np.int32(x))
                    depth = far - key if orthographic else np.float32(1.0) / max(key, np.float32(0.0))
                    depths[x] = min(max(depth, near), far)
        row_bytes = np.uint64(4) * width
        write_numbers(depth_bytes, row_bytes, arena, np.uint64(offsets[view, DEPTH_COLUMN]) + np.uint64(y) * row_bytes)


@inlined
def _write_color_row(views: ViewTable, view: int, y: int, colors: U32, first: int, offsets: I64, arena: U8) -> None:
    """Write a finished row, whose colours begin at index `first`, as rgb and gray."""
    width = np.int64(views.width[view])
    if views.outputs[view] & RGB:
        write_rgb(colors, first, width, arena, offsets[view, RGB_COLUMN] + 3 * y * width)
    if views.outputs[view] & GRAY:
        start = offsets[view, GRAY_COLUMN] + y * width
        write_gray(colors[first : first + width], arena[start : start + width])
