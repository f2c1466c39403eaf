"""Sky boxes: six textures, sampled by the direction of a pixel's ray as OpenGL samples cube maps."""

import numpy as np

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.intrinsics import store
from worldloom.kernels.raster.scratch import (
    BACK,
    BLUE,
    DEPTH_ROW,
    FOG_BEGIN,
    GREEN,
    RED,
    RIGHT,
    SKY_FIRST,
    SKY_LEVEL,
    SKY_TINT,
    row_rays,
)
from worldloom.kernels.shading.texture import BLEND_SCALE, find_texels
from worldloom.kernels.simd import SIMD_WIDTH, Floats, count_from, floats, ints, maximum, minimum, where_at_least
from worldloom.kernels.tables import F32, I32, ONE_SKY, SCREEN_SKY, TINTED_SKY, LaneTable, ViewTable

_ZERO, _HALF = np.float32(0.0), np.float32(0.5)


@inlined
def fills_frame(sky: int, orthographic: bool) -> bool:
    """Return whether a picture is behind everything, whatever the direction of the camera; see `ONE_SKY`."""
    return sky <= SCREEN_SKY or (orthographic and sky <= ONE_SKY)


@inlined
def only_texture(sky: int) -> int:
    """Return the texture of a sky that has only one."""
    return SCREEN_SKY - sky if sky <= SCREEN_SKY else ONE_SKY - sky


@inlined
def read_sky(lanes: LaneTable, lane: int, views: ViewTable, view: int, texture_size: int, constants: F32) -> None:
    """Write the first texture of a view's sky box, its mip level and its tint into `constants`."""
    sky = lanes.sky_textures[lane]
    is_tinted = sky >= TINTED_SKY
    constants[SKY_FIRST] = sky - TINTED_SKY if is_tinted else sky
    for k in range(3):
        constants[SKY_TINT + k] = lanes.sky_zenith[lane, k] if is_tinted else np.float32(1.0)
    # Texels of level 0 that a pixel spans where it sees a face straight on.
    fills = fills_frame(sky, views.orthographic[view] != 0)
    half = np.float32(1.0) if fills else views.half_height[view]
    span = half / np.float32(views.height[view]) * np.float32(texture_size)
    level = np.int64(0)
    while span >= np.float32(1.4142135) and (texture_size >> (level + 1)) > 0:
        span *= _HALF
        level += 1
    constants[SKY_LEVEL] = level


@device_function
def shade_sky_box(
    texture_length: np.int32,
    texture_size: np.int32,
    y: int,
    x_from: int,
    x_to: int,
    width: int,
    height: int,
    orthographic: bool,
    constants: F32,
    rows: F32,
    buffers: I32,
) -> None:
    """Prepare a run of sky for `finish_run`, as a textured surface of its tint in front of all fog."""
    sky = np.int32(constants[SKY_FIRST])
    is_one, fills = sky <= ONE_SKY, fills_frame(sky, orthographic)
    row = np.float32(0.0 if orthographic else y)
    spread = np.float32(0.0 if orthographic else 1.0)
    start_x, start_y, start_z = row_rays(constants, row)
    start_x = start_x * spread - constants[BACK]
    start_y = start_y * spread - constants[BACK + 1]
    start_z = start_z * spread - constants[BACK + 2]
    right_x, right_y, right_z = constants[RIGHT], constants[RIGHT + 1], constants[RIGHT + 2]
    if fills:  # the frame is one side
        spread, right_x, right_y, right_z = np.float32(1.0), _ZERO, np.float32(2.0) / np.float32(width), _ZERO
        start_x, start_y = np.float32(1.0), right_y * _HALF - np.float32(1.0)
        start_z = np.float32(1.0) - (np.float32(y) + _HALF) * np.float32(2.0) / np.float32(height)
    level = np.int32(constants[SKY_LEVEL])
    edge = _HALF / np.float32(texture_size >> level)
    first = np.int32((only_texture(sky) if is_one else sky) * texture_length)
    face_length = np.int32(0) if is_one else texture_length
    red, green = BLEND_SCALE * constants[SKY_TINT], BLEND_SCALE * constants[SKY_TINT + 1]
    blue = BLEND_SCALE * constants[SKY_TINT + 2]
    for x in range(x_from, x_to, np.uint64(SIMD_WIDTH)):
        at = count_from(x) * spread
        face, u, v = _on_cube(
            start_x + right_x * at,
            start_z + right_z * at,
            _ZERO - (start_y + right_y * at),
            face_length,
        )
        u = minimum(maximum(u, edge), np.float32(1.0) - edge)
        v = minimum(maximum(v, edge), np.float32(1.0) - edge)
        find_texels(face + first, texture_size, ints(level), u, v, x, buffers)
        store(rows, RED + x, floats(red))
        store(rows, GREEN + x, floats(green))
        store(rows, BLUE + x, floats(blue))
        store(rows, DEPTH_ROW + x, floats(constants[FOG_BEGIN]))


@inlined
def _on_cube(s: Floats, t: Floats, r: Floats, texture_length: np.int32) -> tuple[Floats, Floats, Floats]:
    """Return the first texel of the cube face that a direction meets, and u and v there."""
    size_s, size_t, size_r = maximum(s, _ZERO - s), maximum(t, _ZERO - t), maximum(r, _ZERO - r)
    none, zero = ints(np.int32(0)), floats(_ZERO)
    second = ints(texture_length)
    # The third pair of faces, replaced by the second and then by the first where their axes are longer.
    size = size_r
    across, down = where_at_least(r, zero, s, _ZERO - s), _ZERO - t
    face = where_at_least(r, zero, none, second) + np.int32(4) * texture_length
    on_t = size_t - size_r
    across = where_at_least(on_t, zero, s, across)
    down = where_at_least(on_t, zero, where_at_least(t, zero, r, _ZERO - r), down)
    face = where_at_least(on_t, zero, where_at_least(t, zero, none, second) + np.int32(2) * texture_length, face)
    size = maximum(size, size_t)
    on_s = size_s - size
    across = where_at_least(on_s, zero, where_at_least(s, zero, _ZERO - r, r), across)
    down = where_at_least(on_s, zero, _ZERO - t, down)
    face = where_at_least(on_s, zero, where_at_least(s, zero, none, second), face)
    size = maximum(size, size_s)
    return face, across / size * _HALF + _HALF, down / size * _HALF + _HALF
