"""Translucent rows of a page, sorted for the OpenGL renderer: the farthest of every view first, then the next of each.

The k-th translucent row of each view, from far to near, has rank k. Rows of one rank are in different layers of the
target, so they are drawn together.
"""

import numpy as np

from worldloom.kernels.compiling import inlined, kernel
from worldloom.kernels.gl.visible import FACINGS, facing_of
from worldloom.kernels.raster.cull import model_view, select_detail
from worldloom.kernels.raster.translucent import insert_layer, layer_key
from worldloom.kernels.tables import F32, F64, I32, I64, U32, AssetTable, InstanceTable, ViewTable


@kernel
def rank_layers(
    assets: AssetTable,
    instances: InstanceTable,
    views: ViewTable,
    page: I64,
    layer_of: I32,
    row_of: I32,
    count: int,
    first_instance: int,
    matrix: F64,
    keys: F64,
    rows: I32,
    sorted_layer: I32,
    sorted_row: I32,
    commands: U32,
    segments: I32,
    alphas: F32,
) -> tuple[int, int]:
    """Sort the translucent rows of `find_visible` by rank; return the number of segments, and of ranks.

    A segment [n, 4] is (facing, first command, commands, rank). `commands` [count, 5] draw one row each; their
    instances are counted from `first_instance`. `alphas` [ranks, page.size] gets the alpha of each rank and layer.
    `matrix` [3, 4], `keys` and `rows` [count] are scratch.
    """
    ranks = 0
    first = 0
    while first < count:
        end = _sort_layer(assets, instances, views, page, layer_of, row_of, first, count, matrix, keys, rows)
        ranks = max(ranks, end - first)
        first = end
    command = 0
    segment_count = 0
    for rank in range(ranks):
        for facing in range(FACINGS):
            first = 0
            segments[segment_count, 0], segments[segment_count, 1] = facing, command
            while first < count:
                end = first
                while end < count and layer_of[end] == layer_of[first]:
                    end += 1
                at = first + rank
                if at < end and facing_of(assets, instances, rows[at]) == facing:
                    layer, row = layer_of[first], rows[at]
                    instance = first_instance + command
                    _write_command(assets, instances, views, page[layer], row, instance, matrix, commands[command])
                    sorted_layer[command], sorted_row[command] = layer, row
                    alphas[rank, layer] = instances.alpha[row]
                    command += 1
                first = end
            segments[segment_count, 2], segments[segment_count, 3] = command - segments[segment_count, 1], rank
            segment_count += segments[segment_count, 2] > 0
    return segment_count, ranks


@inlined
def _sort_layer(
    assets: AssetTable,
    instances: InstanceTable,
    views: ViewTable,
    page: I64,
    layer_of: I32,
    row_of: I32,
    first: int,
    count: int,
    matrix: F64,
    keys: F64,
    rows: I32,
) -> int:
    """Sort the rows of the layer that begins at index `first` into `rows`; return the index where it ends."""
    view = page[layer_of[first]]
    end = first
    while end < count and layer_of[end] == layer_of[first]:
        row = row_of[end]
        model_view(instances.pose, row, views.camera, view, matrix)
        key = layer_key(assets, instances.mesh[row], matrix, views.orthographic[view] != 0)
        insert_layer(keys, rows, first, end - first, key, row)
        end += 1
    return end


@inlined
def _write_command(
    assets: AssetTable,
    instances: InstanceTable,
    views: ViewTable,
    view: int,
    row: int,
    instance: int,
    matrix: F64,
    command: U32,
) -> None:
    """Write the command that draws a row of a view alone."""
    model_view(instances.pose, row, views.camera, view, matrix)
    pixels = 0.5 * views.height[view] / np.float64(views.half_height[view])
    mesh = select_detail(assets, instances.mesh[row], matrix, pixels, views.orthographic[view] != 0)
    command[0], command[1] = 3 * assets.mesh_triangle_count[mesh], 1
    command[2], command[3], command[4] = 3 * assets.mesh_first_triangle[mesh], 0, instance
