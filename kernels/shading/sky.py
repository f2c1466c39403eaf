"""Sky boxes: six textures, sampled by the direction of a pixel's ray as OpenGL samples cube maps."""

import numpy as np

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.intrinsics import store
from worldloom.kernels.raster.scratch import (
    BACK,
    BLUE,
    CORNER,
    DEPTH_ROW,
    DOWN,
    FOG_BEGIN,
    GREEN,
    RED,
    RIGHT,
    SKY_FIRST,
    SKY_LEVEL,
)
from worldloom.kernels.shading.texture import BLEND_SCALE, find_texels
from worldloom.kernels.simd import SIMD_WIDTH, Floats, count_from, floats, ints, maximum, minimum, where_at_least
from worldloom.kernels.tables import F32, I32, LaneTable, ViewTable

_ZERO, _HALF = np.float32(0.0), np.float32(0.5)


@inlined
def read_sky(lanes: LaneTable, lane: int, views: ViewTable, view: int, texture_size: int, constants: F32) -> None:
    """Write the first texture of a view's sky box, and its mip level, into `constants`."""
    constants[SKY_FIRST] = lanes.sky_textures[lane]
    # Texels of level 0 that a pixel spans where it sees a face straight on.
    span = views.half_height[view] / np.float32(views.height[view]) * np.float32(texture_size)
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
    orthographic: bool,
    constants: F32,
    rows: F32,
    buffers: I32,
) -> None:
    """Prepare a run of sky for `finish_run`, as a white textured surface in front of all fog."""
    row = np.float32(0.0 if orthographic else y)
    spread = np.float32(0.0 if orthographic else 1.0)
    start_x = (constants[CORNER] + row * constants[DOWN]) * spread - constants[BACK]
    start_y = (constants[CORNER + 1] + row * constants[DOWN + 1]) * spread - constants[BACK + 1]
    start_z = (constants[CORNER + 2] + row * constants[DOWN + 2]) * spread - constants[BACK + 2]
    level = np.int32(constants[SKY_LEVEL])
    edge = _HALF / np.float32(texture_size >> level)
    first = np.int32(np.int32(constants[SKY_FIRST]) * texture_length)
    for x in range(x_from, x_to, np.uint64(SIMD_WIDTH)):
        at = count_from(x) * spread
        face, u, v = _on_cube(
            start_x + constants[RIGHT] * at,
            start_z + constants[RIGHT + 2] * at,
            _ZERO - (start_y + constants[RIGHT + 1] * at),
            texture_length,
        )
        u = minimum(maximum(u, edge), np.float32(1.0) - edge)
        v = minimum(maximum(v, edge), np.float32(1.0) - edge)
        find_texels(face + first, texture_size, ints(level), u, v, x, buffers)
        store(rows, RED + x, floats(BLEND_SCALE))
        store(rows, GREEN + x, floats(BLEND_SCALE))
        store(rows, BLUE + x, floats(BLEND_SCALE))
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
