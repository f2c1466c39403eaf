"""Shading of a row of pixels, run by run.

A run is a stretch of one row that belongs to one triangle. What is the same for the triangle is computed once, when its
first pixel is shaded; the rest is done for eight pixels at a time. Indices are unsigned: for signed ones numba would
check at every access whether they are negative.
"""

import numpy as np

from worldloom.kernels.compiling import inlined
from worldloom.kernels.raster.backdrop import Backdrops, copy_backdrop_colors
from worldloom.kernels.raster.scratch import (
    LIT_PER_PIXEL,
    MAP_COUNT,
    NO_BACKDROP,
    PREPARED,
    SAMPLE,
    SKY_FIRST,
    SPARE,
    TEXTURE,
    Scratch,
    find_other_runs,
    find_runs,
    first_pixel,
    padded,
)
from worldloom.kernels.shading.runs import finish_run, shade_run, shade_sky
from worldloom.kernels.shading.shadows import find_lit, prepare_slopes
from worldloom.kernels.shading.sky import shade_sky_box
from worldloom.kernels.shading.surface import prepare_triangle
from worldloom.kernels.tables import NO_TEXTURE, U32, AssetTable, InstanceTable, ViewTable


@inlined
def shade_row(
    assets: AssetTable,
    instances: InstanceTable,
    views: ViewTable,
    view: int,
    y: int,
    width: np.uint64,
    height: int,
    half_height: float,
    far: float,
    orthographic: bool,
    samples: np.uint64,
    scratch: Scratch,
    backdrops: Backdrops,
    backdrop_start: int,
) -> None:
    """Write the finished colours of a row into `scratch.colors`: those of each sample into a row of their own.

    The background is the backdrop row that begins at `backdrop_start`; the sky if that is NO_BACKDROP; and not written
    if it is NO_BACKGROUND. What the view's table says is passed by value: the compiler would load it again for every
    row, as rows are stored in between.
    """
    owner, runs, record_ints, colors, constants = (
        scratch.owner,
        scratch.runs,
        scratch.record_ints,
        scratch.colors,
        scratch.constants,
    )
    box_sky = constants[SKY_FIRST] != NO_TEXTURE
    first_row = first_pixel(owner, 0, y - scratch.band[0], width)
    for sample in range(samples):
        target = np.uint64(0) if sample == 0 else SPARE
        row = first_pixel(owner, sample, y - scratch.band[0], width)
        if sample == 0:
            count = find_runs(owner, row, width, runs)
        else:
            count = find_other_runs(owner, row, first_row, width, runs)
            for x in range(width):
                colors[sample * SAMPLE + x] = colors[x]
        textured_from = textured_to = np.uint64(0)  # the textured pixels that are not finished yet
        for run in range(count):
            x_from, x_to = np.uint64(runs[run]), np.uint64(runs[run + np.uint64(1)])
            record = np.uint64(owner[row + x_from])
            if sample > 0 and record == np.uint64(owner[first_row + x_from]):
                continue  # the same as in the first sample
            if record != 0 and record_ints[record, PREPARED] == 0:
                prepare_triangle(
                    assets.triangles,
                    assets.triangle_is_flat,
                    assets.normals,
                    assets.uvs,
                    instances.pose,
                    instances.color,
                    instances.texture,
                    instances.uv_scale,
                    instances.shine,
                    assets.texture_size,
                    len(assets.mip_first_texel) - 1,
                    record,
                    orthographic,
                    record_ints,
                    scratch.record_floats,
                    constants,
                )
                if constants[MAP_COUNT] > 0.0 and record_ints[record, LIT_PER_PIXEL] != 0:
                    prepare_slopes(
                        record,
                        np.int64(constants[MAP_COUNT]),
                        scratch.record_floats,
                        scratch.map_planes,
                        scratch.record_slopes,
                    )
            is_sky = record == 0 and backdrop_start == NO_BACKDROP
            textured = (record != 0 and record_ints[record, TEXTURE] != NO_TEXTURE) or (is_sky and box_sky)
            if textured_to != 0 and not textured:
                finish_run(
                    assets.texel_rows,
                    textured_from,
                    textured_to,
                    target,
                    constants,
                    scratch.rows,
                    scratch.texels,
                    colors,
                )
                textured_to = np.uint64(0)
            # Whole vectors: the excess is overwritten by the next run, or lies in the padding.
            x_end = x_from + padded(x_to - x_from)
            if record == 0 and backdrop_start >= 0:
                copy_backdrop_colors(backdrops, np.uint64(backdrop_start), x_from, x_end, colors)
            elif is_sky and box_sky:
                shade_sky_box(
                    np.int32(assets.texel_rows.shape[1]),
                    np.int32(assets.texture_size),
                    y,
                    x_from,
                    x_end,
                    width,
                    height,
                    orthographic,
                    constants,
                    scratch.rows,
                    scratch.texels,
                )
            elif is_sky:
                shade_sky(
                    views.camera,
                    view,
                    y,
                    x_from,
                    x_end,
                    width,
                    height,
                    half_height,
                    orthographic,
                    target,
                    constants,
                    colors,
                )
            elif record != 0:
                is_touched = False
                if constants[MAP_COUNT] > 0.0 and record_ints[record, LIT_PER_PIXEL] != 0:
                    is_touched = find_lit(assets, instances, views, view, record, y, x_from, x_to, scratch)
                shade_run(
                    np.int32(assets.texel_rows.shape[1]),
                    np.int32(assets.texture_size),
                    len(assets.mip_first_texel) - 1,
                    record,
                    y,
                    x_from,
                    x_end,
                    orthographic,
                    far,
                    target,
                    record_ints,
                    scratch.record_floats,
                    constants,
                    scratch.rows,
                    scratch.lit,
                    is_touched,
                    scratch.texels,
                    colors,
                )
            if textured:
                textured_from = textured_from if textured_to != 0 else x_from
                textured_to = x_to
            if sample > 0:
                if textured:
                    finish_run(assets.texel_rows, x_from, x_to, target, constants, scratch.rows, scratch.texels, colors)
                    textured_to = np.uint64(0)
                for x in range(x_from, x_to):
                    colors[sample * SAMPLE + x] = colors[SPARE + x]
        if textured_to != 0:
            finish_run(
                assets.texel_rows, textured_from, textured_to, target, constants, scratch.rows, scratch.texels, colors
            )


@inlined
def blend_samples(width: int, colors: U32) -> None:
    """Replace the first sample's colours by the rounded mean of all four."""
    two, three = np.uint64(2), np.uint64(3)
    outer, inner, half = np.uint32(0xFF00FF), np.uint32(0x00FF00), np.uint32(0x020002)
    for x in range(width):
        a, b, c, d = colors[x], colors[SAMPLE + x], colors[two * SAMPLE + x], colors[three * SAMPLE + x]
        red_blue = np.uint32((a & outer) + (b & outer) + (c & outer) + (d & outer) + half)
        green = np.uint32((a & inner) + (b & inner) + (c & inner) + (d & inner) + np.uint32(0x200))
        colors[x] = np.uint32((red_blue >> np.uint32(2)) & outer) | np.uint32((green >> np.uint32(2)) & inner)
