"""A sky of six textures, looked up by the direction of a pixel's ray as OpenGL looks up cube maps."""

import numpy as np

from worldloom.kernels.compiling import called, inlined
from worldloom.kernels.intrinsics import store
from worldloom.kernels.raster.scratch import (
    BACK,
    BLOCK,
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
from worldloom.kernels.shading.texture import BLEND_SCALE, locate
from worldloom.kernels.simd import Floats, count_from, floats, greatest, ints, least, where
from worldloom.kernels.tables import F32, I32, LaneTable, ViewTable

_ZERO, _HALF = np.float32(0.0), np.float32(0.5)


@inlined
def read_sky(lanes: LaneTable, lane: int, views: ViewTable, view: int, texture_size: int, look: F32) -> None:
    """Which textures a view's sky has, and at which level they are read."""
    look[SKY_FIRST] = lanes.sky_textures[lane]
    # Texels of the full size that a pixel spans where it looks at a face straight.
    span = views.half_height[view] / np.float32(views.height[view]) * np.float32(texture_size)
    level = np.int64(0)
    while span >= np.float32(1.4142135) and (texture_size >> (level + 1)) > 0:
        span *= _HALF
        level += 1
    look[SKY_LEVEL] = level


@called
def shade_sky_box(
    texture_length: np.int32,
    texture_size: np.int32,
    y: int,
    x_from: int,
    x_to: int,
    orthographic: bool,
    look: F32,
    rows: F32,
    buffers: I32,
) -> None:
    """Prepare a run of sky for `finish_run`, as a textured surface would be: white, and before all fog."""
    row = np.float32(0.0 if orthographic else y)
    spread = np.float32(0.0 if orthographic else 1.0)
    start_x = (look[CORNER] + row * look[DOWN]) * spread - look[BACK]
    start_y = (look[CORNER + 1] + row * look[DOWN + 1]) * spread - look[BACK + 1]
    start_z = (look[CORNER + 2] + row * look[DOWN + 2]) * spread - look[BACK + 2]
    level = np.int32(look[SKY_LEVEL])
    edge = _HALF / np.float32(texture_size >> level)
    first = np.int32(np.int32(look[SKY_FIRST]) * texture_length)
    for x in range(x_from, x_to, np.uint64(BLOCK)):
        at = count_from(x) * spread
        face, u, v = _on_cube(
            start_x + look[RIGHT] * at,
            start_z + look[RIGHT + 2] * at,
            _ZERO - (start_y + look[RIGHT + 1] * at),
            texture_length,
        )
        u = least(greatest(u, edge), np.float32(1.0) - edge)
        v = least(greatest(v, edge), np.float32(1.0) - edge)
        locate(face + first, texture_size, ints(level), u, v, x, buffers)
        store(rows, RED + x, floats(BLEND_SCALE))
        store(rows, GREEN + x, floats(BLEND_SCALE))
        store(rows, BLUE + x, floats(BLEND_SCALE))
        store(rows, DEPTH_ROW + x, floats(look[FOG_BEGIN]))


@inlined
def _on_cube(s: Floats, t: Floats, r: Floats, texture_length: np.int32) -> tuple[Floats, Floats, Floats]:
    """Where a direction meets the cube: the beginning of its face's texels, and u and v there."""
    size_s, size_t, size_r = greatest(s, _ZERO - s), greatest(t, _ZERO - t), greatest(r, _ZERO - r)
    none, zero = ints(np.int32(0)), floats(_ZERO)
    second = ints(texture_length)
    # On the third pair of faces, then on the second, then on the first, where those are nearer.
    size = size_r
    across, down = where(r, zero, s, _ZERO - s), _ZERO - t
    face = where(r, zero, none, second) + np.int32(4) * texture_length
    on_t = size_t - size_r
    across = where(on_t, zero, s, across)
    down = where(on_t, zero, where(t, zero, r, _ZERO - r), down)
    face = where(on_t, zero, where(t, zero, none, second) + np.int32(2) * texture_length, face)
    size = greatest(size, size_t)
    on_s = size_s - size
    across = where(on_s, zero, where(s, zero, _ZERO - r, r), across)
    down = where(on_s, zero, _ZERO - t, down)
    face = where(on_s, zero, where(s, zero, none, second), face)
    size = greatest(size, size_s)
    return face, across / size * _HALF + _HALF, down / size * _HALF + _HALF
