"""Packing for the graphics card: records that shaders read, and frames from the pixels read back.

Everything a shader needs of one visible row, or of one layer, lies side by side in a record. What is the same for all
vertices of a row is computed here once, in float64: the card gets the transform from local to clip space and nothing of
the scene that the page does not show. The layouts are those of `render/shaders/geometry.vert.glsl`,
`render/shaders/layers.glsl` and `render/shaders/lamps.glsl`.

The card returns one word a pixel (see `kernels/pixel_formats.py`), and the floats of each output of floats that was
asked for. Each comes layer after layer, row 0 at the top.
"""

import numpy as np

from worldloom.kernels.compiling import inlined, kernel
from worldloom.kernels.light_maps import MAP_LAMP, lamp_casts
from worldloom.kernels.outputs import (
    GRAY,
    GRAY_COLUMN,
    RGB,
    RGB_COLUMN,
    SEGMENTATION,
    SEGMENTATION_COLUMN,
)
from worldloom.kernels.pixel_formats import write_gray, write_labels, write_rgb
from worldloom.kernels.raster.cull import model_view
from worldloom.kernels.raster.flow import was_there_before
from worldloom.kernels.shading.sky import fills_frame
from worldloom.kernels.tables import (
    F32,
    F64,
    HEADLIGHT,
    I32,
    I64,
    LAMP_AMBIENT,
    LAMP_ATTENUATION,
    LAMP_CONE,
    LAMP_DIFFUSE,
    LAMP_DIRECTION,
    LAMP_EXPONENT,
    LAMP_KIND,
    LAMP_POSITION,
    LAMP_SPECULAR,
    SPOT,
    U8,
    U32,
    AssetTable,
    InstanceTable,
    LaneTable,
    PreviousTable,
    ViewTable,
)

INSTANCE_FLOATS, LAYER_FLOATS, LAMP_FLOATS = 36, 40, 24
PREVIOUS_FLOATS, PREVIOUS_LAYER_FLOATS = 12, 16
"""Numbers of a record."""
_LOWEST = np.float32(-3.0e38)
_MAPS_BASE = 16
"""Factor of the index of a layer's first light map, beside their number; MAX_LAMPS is smaller."""
LABEL_FLOAT, COVERED = 31, 255.0
"""Number of an instance record that is the label, and its value where it marks the pixels that the row covers."""


@kernel
def pack_instances(
    assets: AssetTable,
    instances: InstanceTable,
    lanes: LaneTable,
    views: ViewTable,
    page: I64,
    sorted_layer: I32,
    sorted_row: I32,
    count: int,
    matrix: F64,
    records: F32,
) -> None:
    """Write a record [n, 36] for each visible row, in drawing order: nine vectors of four numbers.

    0 to 2: local position to clip x, clip y and depth. 3: depth to clip z (scale, offset), orthographic, layer.
    4 to 6: the pose's cofactors in x, y, z (at most 1 in size), colour in w. 7: uv scale, texture, label.
    8: shine; in views with shadows, the row's number on light maps if it does not shadow itself. `matrix` [3, 4] is
    scratch.
    """
    for pair in range(count):
        layer = sorted_layer[pair]
        row = sorted_row[pair]
        view = page[layer]
        model_view(instances.pose, row, views.camera, view, matrix)
        half_height = np.float64(views.half_height[view])
        half_width = half_height * views.width[view] / views.height[view]
        for j in range(4):
            records[pair, j] = matrix[0, j] / half_width
            records[pair, 4 + j] = matrix[1, j] / half_height
            records[pair, 8 + j] = -matrix[2, j]
        near = np.float64(views.near[view])
        far = np.float64(views.far[view])
        # Clip z is 1 at the near plane and 0 at the far plane: floats are dense near 0, where depths are large.
        if views.orthographic[view]:
            records[pair, 12] = -1.0 / (far - near)
            records[pair, 13] = far / (far - near)
            records[pair, 14] = 1.0
        else:
            scale = 1.0 / (1.0 / near - 1.0 / far)
            records[pair, 12] = -scale / far
            records[pair, 13] = scale
            records[pair, 14] = 0.0
        records[pair, 15] = layer
        _pack_cofactors(instances, row, pair, records)
        for axis in range(3):
            records[pair, 19 + 4 * axis] = instances.color[row, axis]
            records[pair, 32 + axis] = instances.shine[row, axis]
        records[pair, 28] = instances.uv_scale[row, 0]
        records[pair, 29] = instances.uv_scale[row, 1]
        records[pair, 30] = instances.texture[row]
        records[pair, 31] = instances.label[row]
        skips_own = views.shadows[view] == 1 and assets.mesh_is_convex[instances.mesh[row]] == 1
        records[pair, 35] = map_number(lanes, views, view, row) if skips_own else 0


@inlined
def map_number(lanes: LaneTable, views: ViewTable, view: int, row: int) -> int:
    """Return the number of an instance row on light maps; 0 stands for none."""
    return 1 + row - lanes.first_row[views.lane[view]]


@inlined
def _pack_cofactors(instances: InstanceTable, row: int, pair: int, records: F32) -> None:
    """Write the cofactor matrix, which transforms normals, scaled to at most 1: shaders normalise the result."""
    pose = instances.pose
    a, b, c = np.float64(pose[row, 0, 0]), np.float64(pose[row, 0, 1]), np.float64(pose[row, 0, 2])
    d, e, f = np.float64(pose[row, 1, 0]), np.float64(pose[row, 1, 1]), np.float64(pose[row, 1, 2])
    g, h, i = np.float64(pose[row, 2, 0]), np.float64(pose[row, 2, 1]), np.float64(pose[row, 2, 2])
    m00, m01, m02 = e * i - f * h, f * g - d * i, d * h - e * g
    m10, m11, m12 = c * h - b * i, a * i - c * g, b * g - a * h
    m20, m21, m22 = b * f - c * e, c * d - a * f, a * e - b * d
    largest = max(
        max(max(abs(m00), abs(m01)), max(abs(m02), abs(m10))),
        max(max(abs(m11), abs(m12)), max(max(abs(m20), abs(m21)), abs(m22))),
    )
    scale = 1.0 / largest if largest > 0.0 else 0.0
    records[pair, 16], records[pair, 17], records[pair, 18] = m00 * scale, m01 * scale, m02 * scale
    records[pair, 20], records[pair, 21], records[pair, 22] = m10 * scale, m11 * scale, m12 * scale
    records[pair, 24], records[pair, 25], records[pair, 26] = m20 * scale, m21 * scale, m22 * scale


@kernel
def pack_layers(lanes: LaneTable, views: ViewTable, page: I64, texture_size: int, first_map: I32, records: F32) -> None:
    """Write a record [n, 40] for each layer: light, fog, sky and camera rays; see `layers.glsl`.

    The light maps of layer k are those from `first_map[k]` on, before `first_map[k + 1]`.
    """
    first_lamp = 0
    smallest = np.log2(np.float64(texture_size))
    for layer in range(page.size):
        view = page[layer]
        lane = views.lane[view]
        camera = views.camera
        length = 0.0
        for axis in range(3):
            length += np.float64(lanes.light_direction[lane, axis]) ** 2
        to_light = -1.0 / np.sqrt(length) if length > 0.0 else 0.0
        up = np.float64(views.half_height[view])
        right = up * views.width[view] / views.height[view]
        for axis in range(3):
            records[layer, axis] = lanes.light_direction[lane, axis] * to_light
            records[layer, 4 + axis] = lanes.light_color[lane, axis]
            records[layer, 8 + axis] = lanes.ambient[lane, axis]
            records[layer, 12 + axis] = lanes.ambient_ground[lane, axis]
            records[layer, 16 + axis] = lanes.fog_color[lane, axis]
            records[layer, 20 + axis] = lanes.sky_horizon[lane, axis]
            records[layer, 24 + axis] = lanes.sky_zenith[lane, axis]
            records[layer, 28 + axis] = camera[view, axis, 0] * right
            records[layer, 32 + axis] = camera[view, axis, 1] * up
            records[layer, 36 + axis] = -camera[view, axis, 2]
        begin = np.float64(lanes.fog_range[lane, 0])
        end = np.float64(lanes.fog_range[lane, 1])
        records[layer, 3] = begin
        records[layer, 7] = 1.0 / (end - begin) if end > begin else 0.0
        records[layer, 11] = views.near[view]
        records[layer, 15] = views.far[view]
        records[layer, 19] = views.orthographic[view]
        pixel = 2.0 * np.float64(views.half_height[view]) / views.height[view]
        if fills_frame(lanes.sky_textures[lane], views.orthographic[view] != 0):  # the frame is one side
            pixel = 2.0 / views.height[view]
        records[layer, 23] = lanes.sky_textures[lane]
        records[layer, 27] = min(max(np.floor(np.log2(0.5 * pixel * texture_size) + 0.5), 0.0), smallest)
        records[layer, 31] = first_lamp
        records[layer, 35] = lanes.lamp_count[lane]
        records[layer, 39] = first_map[layer + 1] - first_map[layer] + _MAPS_BASE * first_map[layer]
        first_lamp += lanes.lamp_count[lane]


@kernel
def pack_lamps(lanes: LaneTable, views: ViewTable, page: I64, maps: F64, first_map: I32, records: F32) -> None:
    """Write a record [n, 24] for each lamp of each layer, relative to the layer's camera; see `lamps.glsl`."""
    number = 0
    for layer in range(page.size):
        view = page[layer]
        lane = views.lane[view]
        first = number
        for lamp in range(lanes.lamp_count[lane]):
            _pack_lamp(lanes.lamps[lane, lamp], views.camera[view], records[number])
            casts = views.shadows[view] == 1 and lamp_casts(lanes.lamps, lane, lamp)
            records[number, 15] = 1.0 if casts else 0.0
            number += 1
        for k in range(first_map[layer], first_map[layer + 1]):
            records[first + np.int64(maps[k, MAP_LAMP]), 15] = 2.0 + k


@inlined
def _pack_lamp(lamp: F32, camera: F32, record: F32) -> None:
    kind = lamp[LAMP_KIND]
    length = 0.0
    for axis in range(3):
        along = -np.float64(camera[axis, 2]) if kind == HEADLIGHT else np.float64(lamp[LAMP_DIRECTION + axis])
        length += along * along
    scale = 1.0 / np.sqrt(length) if length > 0.0 else 0.0
    for axis in range(3):
        along = -np.float64(camera[axis, 2]) if kind == HEADLIGHT else np.float64(lamp[LAMP_DIRECTION + axis])
        record[16 + axis] = along * scale
        from_eye = np.float64(lamp[LAMP_POSITION + axis]) - np.float64(camera[axis, 3])
        record[axis] = from_eye if kind == SPOT else -along * scale
        record[4 + axis] = lamp[LAMP_AMBIENT + axis]
        record[8 + axis] = lamp[LAMP_DIFFUSE + axis]
        record[12 + axis] = lamp[LAMP_SPECULAR + axis]
        record[20 + axis] = lamp[LAMP_ATTENUATION + axis]
    record[3] = 1.0 if kind == SPOT else 0.0
    record[7] = lamp[LAMP_CONE]
    record[11] = lamp[LAMP_EXPONENT]
    record[19], record[23] = 0.0, 0.0


@kernel
def pack_previous(
    instances: InstanceTable,
    lanes: LaneTable,
    views: ViewTable,
    previous: PreviousTable,
    page: I64,
    sorted_layer: I32,
    sorted_row: I32,
    count: int,
    matrix: F64,
    records: F32,
    layers: F32,
) -> None:
    """Write a record [n, 12] of each visible row one step before, in drawing order, and a record [n, 16] of each layer.

    A row: local position to clip x, clip y and depth. A layer: see `before.glsl`. Without a step before they are 0.
    """
    for layer in range(page.size):
        view = page[layer]
        for k in range(PREVIOUS_LAYER_FLOATS):
            layers[layer, k] = 0.0
        if previous.first_row.size == 0 or previous.first_row[view] < 0:
            continue
        up = np.float64(previous.half_height[view])
        right = up * views.width[view] / views.height[view]
        for axis in range(3):
            layers[layer, axis] = previous.camera[view, axis, 0] / right
            layers[layer, 4 + axis] = previous.camera[view, axis, 1] / up
            layers[layer, 8 + axis] = -previous.camera[view, axis, 2]
        layers[layer, 3], layers[layer, 7] = 0.5 * views.width[view], 0.5 * views.height[view]
        layers[layer, 11] = _LOWEST if views.orthographic[view] else views.near[view]
        layers[layer, 12] = 1.0
    for pair in range(count):
        row = np.int64(sorted_row[pair])
        view = page[sorted_layer[pair]]
        for k in range(PREVIOUS_FLOATS):
            records[pair, k] = 0.0
        if previous.first_row.size == 0 or previous.first_row[view] < 0:
            continue
        row_before = previous.first_row[view] + row - lanes.first_row[views.lane[view]]
        if was_there_before(instances, row, previous, row_before):
            model_view(previous.pose, row_before, previous.camera, view, matrix)
        else:
            model_view(instances.pose, row, previous.camera, view, matrix)
        up = np.float64(previous.half_height[view])
        right = up * views.width[view] / views.height[view]
        for j in range(4):
            records[pair, j] = matrix[0, j] / right
            records[pair, 4 + j] = matrix[1, j] / up
            records[pair, 8 + j] = -matrix[2, j]


@kernel
def unpack_floats(frames: U8, column: int, page: I64, offsets: I64, arena: U8) -> None:
    """Write the frames [layers, bytes] of one output of a page's views to their offsets in the arena."""
    for layer in range(page.size):
        start = offsets[page[layer], column]
        for byte in range(frames.shape[1]):
            arena[start + byte] = frames[layer, byte]


@kernel
def unpack_frames(words: U32, views: ViewTable, page: I64, offsets: I64, arena: U8) -> None:
    """Write the colours and labels [layers, pixels] of a page of views of one size to their offsets in the arena."""
    for layer in range(page.size):
        view = page[layer]
        pixels = np.int64(views.width[view]) * views.height[view]
        asked = views.outputs[view]
        if asked & RGB:
            write_rgb(words[layer], 0, pixels, arena, offsets[view, RGB_COLUMN])
        if asked & GRAY:
            start = offsets[view, GRAY_COLUMN]
            write_gray(words[layer], arena[start : start + pixels])
        if asked & SEGMENTATION:
            start = offsets[view, SEGMENTATION_COLUMN]
            write_labels(words[layer], arena[start : start + pixels])
