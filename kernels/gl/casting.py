"""Light maps of a page of views: where they lie, which instances may cast onto them, and the records of both.

A layer here is one of the target that light maps are drawn into. Records have as many numbers as those of visible rows,
so that the same vertex array reads them; `render/shaders/casting.vert.glsl` and `shadows.glsl` have their layouts.
"""

import numpy as np

from worldloom.kernels.compiling import inlined, kernel
from worldloom.kernels.gl.packing import map_number
from worldloom.kernels.light_maps import (
    MAP_DEPTH,
    MAP_FARTHEST,
    MAP_HEIGHT,
    MAP_IS_SPOT,
    MAP_KEY,
    MAP_NEAREST,
    MAP_TEXEL,
    MAP_WIDTH,
    MAP_X,
    MAP_Y,
    SPOT_NEAR,
    fit_light_maps,
    map_side,
    row_casts,
)
from worldloom.kernels.raster.casting import map_handedness, select_casting_detail, write_map_matrix
from worldloom.kernels.raster.cull import is_in_frustum, pose_determinant
from worldloom.kernels.tables import (
    F32,
    F64,
    I32,
    I64,
    AssetTable,
    InstanceTable,
    LaneTable,
    ViewTable,
)

MAP_FLOATS = 20
"""Numbers of a light map's record."""
_UNLIMITED = 1e30


@kernel
def fit_page(
    assets: AssetTable,
    instances: InstanceTable,
    lanes: LaneTable,
    views: ViewTable,
    page: I64,
    maps: F64,
    first_map: I32,
    view_of: I32,
) -> int:
    """Fit the light maps of each view of a page; return their number.

    Those of layer k are from `first_map[k]` on, before `first_map[k + 1]`; `view_of` has the view of each.
    """
    count = 0
    for layer in range(page.size):
        view = page[layer]
        first_map[layer] = count
        after = count + fit_light_maps(assets, instances, lanes, views, view, maps[count:])
        view_of[count:after] = view
        count = after
    first_map[page.size] = count
    return count


@kernel
def find_casting(
    assets: AssetTable,
    instances: InstanceTable,
    lanes: LaneTable,
    views: ViewTable,
    maps: F64,
    view_of: I32,
    count: int,
    matrix: F64,
    layer_of: I32,
    row_of: I32,
    run_of: I32,
    kind_of: I32,
) -> int:
    """Write the rows that may cast onto each of `count` light maps, for `sort_visible`; return their number.

    `matrix` [3, 4] is scratch; the four outputs must be long enough for every row of every map's lane.
    """
    found = 0
    for layer in range(count):
        light_map, lane = maps[layer], views.lane[view_of[layer]]
        is_spot = light_map[MAP_IS_SPOT] == 1.0
        width, height = np.int64(light_map[MAP_WIDTH]), np.int64(light_map[MAP_HEIGHT])
        for row in range(lanes.first_row[lane], lanes.first_row[lane] + lanes.row_count[lane]):
            if not row_casts(instances, row):
                continue
            mesh = instances.mesh[row]
            write_map_matrix(instances.pose, row, light_map, width, height, is_spot, matrix)
            if is_in_frustum(
                assets.mesh_center,
                assets.mesh_half_size,
                mesh,
                matrix,
                0.5 * height,
                width / height,
                SPOT_NEAR if is_spot else -_UNLIMITED,
                _UNLIMITED,
                not is_spot,
            ):
                depth = -matrix[2, 3] if is_spot else 1.0
                layer_of[found], row_of[found], run_of[found] = layer, row, 0
                kind_of[found] = select_casting_detail(assets, mesh, instances.pose, row, depth, light_map[MAP_TEXEL])
                found += 1
    return found


@kernel
def pack_casting(
    assets: AssetTable,
    instances: InstanceTable,
    lanes: LaneTable,
    views: ViewTable,
    maps: F64,
    view_of: I32,
    sorted_layer: I32,
    sorted_row: I32,
    count: int,
    records: F32,
) -> None:
    """Write a record [n, 36] for each row that may cast, in drawing order.

    0 to 2: local position to x and y in texels, both times w, and to depth. 3: parallel light's least and greatest
    depth, 1 for a spot, layer. 4: width and height of the map, greatest side, side that casts: 0 for both. 5: the row's
    number.
    """
    for pair in range(count):
        layer, row = sorted_layer[pair], sorted_row[pair]
        light_map, view = maps[layer], view_of[layer]
        for j in range(4):
            for axis in range(3):
                first = MAP_X if axis == 0 else (MAP_Y if axis == 1 else MAP_DEPTH)
                records[pair, 4 * axis + j] = _local(instances.pose, row, light_map, first, j)
        # A little more, so that no rounding cuts something off.
        records[pair, 12] = light_map[MAP_NEAREST] - light_map[MAP_TEXEL]
        records[pair, 13] = light_map[MAP_FARTHEST] + light_map[MAP_TEXEL]
        records[pair, 14], records[pair, 15] = light_map[MAP_IS_SPOT], layer
        records[pair, 16], records[pair, 17] = light_map[MAP_WIDTH], light_map[MAP_HEIGHT]
        records[pair, 18] = map_side(np.int64(views.width[view]), np.int64(views.height[view]))
        volume = pose_determinant(instances.pose, row) * map_handedness(light_map)
        is_two_sided = assets.mesh_is_two_sided[instances.mesh[row]] == 1
        records[pair, 19] = 0.0 if is_two_sided else np.sign(volume)
        records[pair, 20] = map_number(lanes, views, view, row)
        records[pair, 21] = light_map[MAP_KEY]
        records[pair, 22:] = 0.0


@inlined
def _local(pose: F32, row: int, light_map: F64, first: int, j: int) -> float:
    """Return one number of the transform from an instance's local coordinates to one of a light map."""
    number = light_map[first + 3] if j == 3 else 0.0
    for k in range(3):
        number += light_map[first + k] * pose[row, k, j]
    return number


@kernel
def pack_maps(views: ViewTable, maps: F64, view_of: I32, count: int, records: F32) -> None:
    """Write a record [n, 20] for each light map, relative to the camera of its view; see `shadows.glsl`."""
    for number in range(count):
        light_map, view = maps[number], view_of[number]
        for axis in range(3):
            first = MAP_X if axis == 0 else (MAP_Y if axis == 1 else MAP_DEPTH)
            at_eye = light_map[first + 3]
            for k in range(3):
                records[number, 4 * axis + k] = light_map[first + k]
                at_eye += light_map[first + k] * views.camera[view, k, 3]
            records[number, 4 * axis + 3] = at_eye
        records[number, 12], records[number, 13] = light_map[MAP_WIDTH], light_map[MAP_HEIGHT]
        records[number, 14], records[number, 15] = light_map[MAP_KEY], light_map[MAP_TEXEL]
        records[number, 16] = light_map[MAP_IS_SPOT]
        records[number, 17:] = 0.0
