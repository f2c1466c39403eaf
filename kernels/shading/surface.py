"""What all pixels of a lane share, and what all pixels of a triangle share: found out once, before any is shaded."""

import numpy as np

from worldloom.kernels.compiling import called, inlined
from worldloom.kernels.raster.scratch import (
    AMBIENT_MEAN,
    AMBIENT_TILT,
    COLOR,
    FOG,
    FOG_BEGIN,
    FOG_SCALE,
    HORIZON,
    INVERSE,
    KEY,
    LAMP_COUNT,
    LEVEL,
    LIGHT,
    NORMAL,
    OVER_U,
    OVER_V,
    OVER_W,
    READY,
    ROW,
    SHINE,
    SKY,
    SKY_FIRST,
    SMOOTH,
    TEXTURE,
    TO_LIGHT,
    TRIANGLE,
    TURNED,
)
from worldloom.kernels.shading.lamps import read_lamps
from worldloom.kernels.shading.sky import read_sky
from worldloom.kernels.tables import F32, F64, I32, NO_TEXTURE, U8, LaneTable, ViewTable


@called
def read_look(lanes: LaneTable, views: ViewTable, view: int, texture_size: int, look: F32) -> None:
    """Gather the light, fog and sky of a view's lane into `look`, and the rays of its pixels where they are needed."""
    lane = views.lane[view]
    look[LAMP_COUNT], look[SKY_FIRST] = lanes.lamp_count[lane], lanes.sky_textures[lane]
    if lanes.lamp_count[lane] > 0 or lanes.sky_textures[lane] != NO_TEXTURE:
        read_lamps(lanes, lane, views, view, look)
        read_sky(lanes, lane, views, view, texture_size, look)
    x, y, z = lanes.light_direction[lane, 0], lanes.light_direction[lane, 1], lanes.light_direction[lane, 2]
    length = np.sqrt(x * x + y * y + z * z)
    for k in range(3):
        look[AMBIENT_MEAN + k] = (lanes.ambient[lane, k] + lanes.ambient_ground[lane, k]) * np.float32(0.5)
        look[AMBIENT_TILT + k] = (lanes.ambient[lane, k] - lanes.ambient_ground[lane, k]) * np.float32(0.5)
        look[LIGHT + k] = lanes.light_color[lane, k]
        look[TO_LIGHT + k] = -lanes.light_direction[lane, k] / length if length > 0.0 else np.float32(0.0)
        look[FOG + k] = lanes.fog_color[lane, k]
        look[HORIZON + k] = lanes.sky_horizon[lane, k]
        look[SKY + k] = lanes.sky_zenith[lane, k] - lanes.sky_horizon[lane, k]
    begin, end = lanes.fog_range[lane, 0], lanes.fog_range[lane, 1]
    look[FOG_BEGIN] = begin
    look[FOG_SCALE] = np.float32(1.0) / (end - begin) if end > begin else np.float32(0.0)


@called
def get_ready(
    triangles: I32,
    triangle_is_flat: U8,
    normals: F32,
    uvs: F32,
    pose: F32,
    color: F32,
    texture: I32,
    uv_scale: F32,
    shine: F32,
    texture_size: int,
    smallest: int,
    number: int,
    orthographic: bool,
    whole: I32,
    real: F64,
    look: F32,
) -> None:
    """Work out what all pixels of a triangle share: the planes of its attributes and, if flat, its light."""
    row, triangle = np.uint64(whole[number, ROW]), np.uint64(whole[number, TRIANGLE])
    a, b, c = (
        np.uint64(triangles[triangle, 0]),
        np.uint64(triangles[triangle, 1]),
        np.uint64(triangles[triangle, 2]),
    )
    for k in range(3):
        real[number, OVER_W + k] = (0.0 if k < 2 else 1.0) if orthographic else real[number, KEY + k]
        real[number, COLOR + k] = color[row, k]
    if texture[row] != NO_TEXTURE:
        su, sv = np.float64(uv_scale[row, 0]), np.float64(uv_scale[row, 1])
        _plane(real, number, uvs[a, 0] * su, uvs[b, 0] * su, uvs[c, 0] * su, OVER_U)
        _plane(real, number, uvs[a, 1] * sv, uvs[b, 1] * sv, uvs[c, 1] * sv, OVER_V)
        if orthographic:
            whole[number, LEVEL] = _level(real, number, texture_size, smallest)
    flat = triangle_is_flat[triangle] == 1
    sign = -1.0 if whole[number, TURNED] == 1 else 1.0
    _normal(pose, row, 1, 2, sign, normals, a, b, c, flat, number, NORMAL, NORMAL, real)
    _normal(pose, row, 2, 0, sign, normals, a, b, c, flat, number, NORMAL + 1, NORMAL + 3, real)
    _normal(pose, row, 0, 1, sign, normals, a, b, c, flat, number, NORMAL + 2, NORMAL + 6, real)
    nx = ny = nz = 0.0
    if flat:
        nx, ny, nz = real[number, NORMAL], real[number, NORMAL + 1], real[number, NORMAL + 2]
        length = np.sqrt(nx * nx + ny * ny + nz * nz)
        scale = 1.0 / length if length > 0.0 else 0.0
        nx, ny, nz = nx * scale, ny * scale, nz * scale
    whole[number, SMOOTH] = 0 if flat else 1
    if look[LAMP_COUNT] > 0.0:
        if flat:
            for k in range(9):
                real[number, NORMAL + k] = 0.0
            real[number, NORMAL + 2], real[number, NORMAL + 5], real[number, NORMAL + 8] = nx, ny, nz
            whole[number, SMOOTH] = 1  # its light is another at each pixel
        for k in range(3):
            real[number, SHINE + k] = shine[row, k]
    elif flat:
        facing = max(0.0, nx * look[TO_LIGHT] + ny * look[TO_LIGHT + 1] + nz * look[TO_LIGHT + 2])
        for k in range(3):
            real[number, COLOR + k] *= look[AMBIENT_MEAN + k] + look[AMBIENT_TILT + k] * nz + look[LIGHT + k] * facing
    whole[number, TEXTURE] = texture[row]
    whole[number, READY] = 1


@inlined
def _plane(real: F64, number: int, a: float, b: float, c: float, start: int) -> None:
    """The plane over the picture of a quantity (divided by w) that is a, b, c at the corners."""
    for k in range(3):
        real[number, start + k] = (
            real[number, INVERSE + k] * a + real[number, INVERSE + 3 + k] * b + real[number, INVERSE + 6 + k] * c
        )


@inlined
def _level(real: F64, number: int, texture_size: int, smallest: int) -> np.int32:
    """The mip level of a triangle in an orthographic picture, see `texture.py`."""
    across = real[number, OVER_U] ** 2 + real[number, OVER_V] ** 2
    down = real[number, OVER_U + 1] ** 2 + real[number, OVER_V + 1] ** 2
    rho = np.float32(max(across, down) * (4.0 * texture_size * texture_size))
    return np.int32(min(max((rho.view(np.int32) >> 24) - 64, 0), smallest))


@inlined
def _normal(
    pose: F32,
    row: int,
    i: int,
    j: int,
    sign: float,
    normals: F32,
    a: int,
    b: int,
    c: int,
    flat: bool,
    number: int,
    at: int,
    plane: int,
    real: F64,
) -> None:
    """One coordinate of a triangle's normals: a number at `at` if it is flat, else a plane at `plane`.

    Normals go through the cofactor matrix, which is right under any scale and defined without volume. Its row is the
    cross product of the pose's two other rows, i and j.
    """
    x = sign * (np.float64(pose[row, i, 1]) * pose[row, j, 2] - np.float64(pose[row, i, 2]) * pose[row, j, 1])
    y = sign * (np.float64(pose[row, i, 2]) * pose[row, j, 0] - np.float64(pose[row, i, 0]) * pose[row, j, 2])
    z = sign * (np.float64(pose[row, i, 0]) * pose[row, j, 1] - np.float64(pose[row, i, 1]) * pose[row, j, 0])
    na = x * normals[a, 0] + y * normals[a, 1] + z * normals[a, 2]
    if flat:
        real[number, at] = na
    else:
        nb = x * normals[b, 0] + y * normals[b, 1] + z * normals[b, 2]
        nc = x * normals[c, 0] + y * normals[c, 1] + z * normals[c, 2]
        _plane(real, number, na, nb, nc, plane)
