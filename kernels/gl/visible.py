"""Visible instance rows of a page of views, sorted into the indirect draw commands of the OpenGL renderer.

A page is a batch of views, one for each layer of the target. A command draws many instances of one mesh, so rows are
sorted by mesh; but among equal depths the first row drawn is shown, so only consecutive rows of a lane with the same
mesh and the same facing may share a command. Such a stretch is a *run*, and rows are sorted by (run, facing, mesh,
layer, row): within a layer that is the order of the rows.
"""

import numpy as np

from worldloom.kernels.compiling import inlined, kernel
from worldloom.kernels.raster.cull import is_in_frustum, model_view, pose_determinant, select_detail
from worldloom.kernels.raster.translucent import is_translucent
from worldloom.kernels.tables import (
    F64,
    I32,
    I64,
    OPAQUE_ALPHA,
    STANDS_FOR_SHADOW,
    U32,
    AssetTable,
    InstanceTable,
    LaneTable,
    ViewTable,
)

BOTH_SIDES, FRONT_ONLY, MIRRORED_FRONT_ONLY = 0, 1, 2
"""Facings: which triangles of a row are drawn: all, those counter-clockwise on the screen, those clockwise."""
FACINGS = 3
COMMAND_WORDS = 5
"""Words of an indirect command: indices, instances, first index, base vertex, first instance."""


@inlined
def facing_of(assets: AssetTable, instances: InstanceTable, row: int) -> int:
    """Return the facing of a row; BOTH_SIDES for a pose that is singular or not finite."""
    if assets.mesh_is_two_sided[instances.mesh[row]]:
        return BOTH_SIDES
    volume = pose_determinant(instances.pose, row)
    if volume > 0.0:
        return FRONT_ONLY
    if volume < 0.0:
        return MIRRORED_FRONT_ONLY
    return BOTH_SIDES


@kernel
def find_visible(
    assets: AssetTable,
    instances: InstanceTable,
    lanes: LaneTable,
    views: ViewTable,
    page: I64,
    opaque: bool,
    matrix: F64,
    layer_of: I32,
    row_of: I32,
    run_of: I32,
    kind_of: I32,
) -> tuple[int, int, int]:
    """Write the visible rows of each view in `page`, view after view: its opaque rows, or its translucent ones.

    Return their number, the most runs of a lane, and the number of translucent rows, visible or not. A kind is
    facing * meshes + mesh. `matrix` [3, 4] is scratch; the four outputs must be long enough for every row of every lane
    in the page.
    """
    meshes = assets.mesh_first_triangle.size
    count = 0
    most_runs = 0
    translucent = 0
    for layer in range(page.size):
        view = page[layer]
        lane = views.lane[view]
        first = lanes.first_row[lane]
        half_height = views.half_height[view]
        aspect = np.float64(views.width[view]) / views.height[view]
        orthographic = views.orthographic[view] != 0
        has_shadows = views.shadows[view] == 1
        pixels = 0.5 * views.height[view] / np.float64(half_height)
        run = -1
        last_kind = -1
        for row in range(first, first + lanes.row_count[lane]):
            mesh = instances.mesh[row]
            if mesh < 0 or (has_shadows and instances.shadow[row] == STANDS_FOR_SHADOW):
                continue
            translucent += is_translucent(instances.alpha, row)
            if not (instances.alpha[row] >= OPAQUE_ALPHA if opaque else is_translucent(instances.alpha, row)):
                continue
            model_view(instances.pose, row, views.camera, view, matrix)
            shown = select_detail(assets, mesh, matrix, pixels, orthographic)
            kind = facing_of(assets, instances, row) * meshes + shown
            if kind != last_kind:
                run += 1
                last_kind = kind
            if is_in_frustum(
                assets.mesh_center,
                assets.mesh_half_size,
                mesh,
                matrix,
                half_height,
                aspect,
                views.near[view],
                views.far[view],
                orthographic,
            ):
                layer_of[count] = layer
                row_of[count] = row
                run_of[count] = run
                kind_of[count] = kind
                count += 1
        most_runs = max(most_runs, run + 1)
    return count, most_runs, translucent


@kernel
def sort_visible(
    assets: AssetTable,
    count: int,
    runs: int,
    layer_of: I32,
    row_of: I32,
    run_of: I32,
    kind_of: I32,
    bucket_ends: I32,
    sorted_layer: I32,
    sorted_row: I32,
    commands: U32,
    segments: I32,
    first_instance: int,
) -> tuple[int, int]:
    """Sort the rows of `find_visible`, and write the commands [n, 5] that draw them; return the commands and segments.

    A segment [n, 4] is (facing, first command, commands, 0): commands issued with one face culling state. Their
    instances are counted from `first_instance`. `bucket_ends` is scratch of runs * kinds numbers; there are no more
    commands than buckets in use, and no more segments than commands.
    """
    meshes = assets.mesh_first_triangle.size
    kinds = FACINGS * meshes
    buckets = runs * kinds
    bucket_ends[:buckets] = 0
    for pair in range(count):
        bucket_ends[run_of[pair] * kinds + kind_of[pair]] += 1
    command_count = 0
    segment_count = 0
    total = 0
    for bucket in range(buckets):
        size = bucket_ends[bucket]
        bucket_ends[bucket] = total
        if size == 0:
            continue
        kind = bucket % kinds
        mesh = kind % meshes
        facing = kind // meshes
        commands[command_count, 0] = 3 * assets.mesh_triangle_count[mesh]
        commands[command_count, 1] = size
        commands[command_count, 2] = 3 * assets.mesh_first_triangle[mesh]
        commands[command_count, 3] = 0
        commands[command_count, 4] = first_instance + total
        if segment_count == 0 or segments[segment_count - 1, 0] != facing:
            segments[segment_count, 0] = facing
            segments[segment_count, 1] = command_count
            segments[segment_count, 2] = segments[segment_count, 3] = 0
            segment_count += 1
        segments[segment_count - 1, 2] += 1
        command_count += 1
        total += size
    for pair in range(count):
        bucket = run_of[pair] * kinds + kind_of[pair]
        index = bucket_ends[bucket]
        bucket_ends[bucket] = index + 1
        sorted_layer[index] = layer_of[pair]
        sorted_row[index] = row_of[pair]
    return command_count, segment_count
