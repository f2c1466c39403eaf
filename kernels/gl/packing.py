"""Packing for the graphics card: records that shaders read, and frames from the pixels read back.

Everything a shader needs of one visible row, or of one layer, lies side by side in a record. What is the same for all
vertices of a row is computed here once, in float64: the card gets the transform from local to clip space and nothing of
the scene that the page does not show. The layouts are those of `render/shaders/geometry.vert.glsl`,
`render/shaders/layers.glsl` and `render/shaders/lamps.glsl`.

The card returns one word a pixel (see `kernels/pixel_formats.py`) and one float32 where depth was asked for. Both come
layer after layer, row 0 at the top.
"""

import numpy as np

from worldloom.kernels.compiling import inlined, kernel
from worldloom.kernels.outputs import (
    DEPTH,
    DEPTH_COLUMN,
    GRAY,
    GRAY_COLUMN,
    RGB,
    RGB_COLUMN,
    SEGMENTATION,
    SEGMENTATION_COLUMN,
)
from worldloom.kernels.pixel_formats import write_gray, write_labels, write_rgb
from worldloom.kernels.raster.cull import model_view
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
    InstanceTable,
    LaneTable,
    ViewTable,
)

INSTANCE_FLOATS, LAYER_FLOATS, LAMP_FLOATS = 36, 40, 24
"""Numbers of a record."""


@kernel
def pack_instances(
    instances: InstanceTable,
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
    8: shine. `matrix` [3, 4] is scratch.
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
        records[pair, 35] = 0.0


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
def pack_layers(lanes: LaneTable, views: ViewTable, page: I64, texture_size: int, records: F32) -> None:
    """Write a record [n, 40] for each layer: light, fog, sky and camera rays; see `layers.glsl`."""
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
        records[layer, 23] = lanes.sky_textures[lane]
        records[layer, 27] = min(max(np.floor(np.log2(0.5 * pixel * texture_size) + 0.5), 0.0), smallest)
        records[layer, 31] = first_lamp
        records[layer, 35] = lanes.lamp_count[lane]
        records[layer, 39] = 0.0
        first_lamp += lanes.lamp_count[lane]


@kernel
def pack_lamps(lanes: LaneTable, views: ViewTable, page: I64, records: F32) -> None:
    """Write a record [n, 24] for each lamp of each layer, relative to the layer's camera; see `lamps.glsl`."""
    number = 0
    for layer in range(page.size):
        view = page[layer]
        lane = views.lane[view]
        for lamp in lanes.lamps[lane, : lanes.lamp_count[lane]]:
            _pack_lamp(lamp, views.camera[view], records[number])
            number += 1


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
    record[15], record[19], record[23] = 0.0, 0.0, 0.0


@inlined
def _copy(source: U8, out: U8) -> None:
    for byte in range(out.size):
        out[byte] = source[byte]


@kernel
def unpack_frames(words: U32, depth_bytes: U8, views: ViewTable, page: I64, offsets: I64, arena: U8) -> None:
    """Write the frames of a page of views of one size to their offsets in the arena.

    `words` [layers, pixels]; `depth_bytes` [layers, 4 * pixels], or [0, 0] where no view of the page asks for depth.
    """
    for layer in range(page.size):
        view = page[layer]
        pixels = np.int64(views.width[view]) * views.height[view]
        asked = views.outputs[view]
        if asked & RGB:
            write_rgb(words[layer], 0, pixels, arena, offsets[view, RGB_COLUMN])
        if asked & GRAY:
            start = offsets[view, GRAY_COLUMN]
            write_gray(words[layer], arena[start : start + pixels])
        if asked & DEPTH:
            start = offsets[view, DEPTH_COLUMN]
            _copy(depth_bytes[layer], arena[start : start + 4 * pixels])
        if asked & SEGMENTATION:
            start = offsets[view, SEGMENTATION_COLUMN]
            write_labels(words[layer], arena[start : start + pixels])
