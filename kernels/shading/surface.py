"""Shading constants of a view, and of a triangle: computed once, before any of its pixels is shaded."""

import numpy as np

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.raster.scratch import (
    AMBIENT_MEAN,
    AMBIENT_TILT,
    COLOR,
    FOG,
    FOG_BEGIN,
    FOG_SCALE,
    HAS_SHADOWS,
    HORIZON,
    INVERSE,
    KEY,
    LAMP_COUNT,
    LIGHT,
    LIT_BY_SUN,
    LIT_PER_PIXEL,
    MAP_COUNT,
    MIP_LEVEL,
    NORMAL,
    NORMAL_FLIPPED,
    OVER_U,
    OVER_V,
    OVER_W,
    PREPARED,
    ROW,
    SHINE,
    SKY,
    SKY_FIRST,
    SUNLIT,
    TEXTURE,
    TO_LIGHT,
    TRIANGLE,
)
from worldloom.kernels.shading.lamps import read_lamps, scale_direction
from worldloom.kernels.shading.sky import read_sky
from worldloom.kernels.tables import F32, F64, I32, NO_TEXTURE, U8, LaneTable, ViewTable


@device_function
def read_constants(lanes: LaneTable, views: ViewTable, view: int, texture_size: int, constants: F32) -> None:
    """Write light, fog and sky of a view's lane into `constants`, and its camera rays where they are needed."""
    lane = views.lane[view]
    constants[LAMP_COUNT], constants[SKY_FIRST] = lanes.lamp_count[lane], lanes.sky_textures[lane]
    constants[HAS_SHADOWS] = constants[MAP_COUNT] = 0.0
    if lanes.lamp_count[lane] > 0 or lanes.sky_textures[lane] != NO_TEXTURE:
        read_lamps(lanes, lane, views, view, constants)
        read_sky(lanes, lane, views, view, texture_size, constants)
    for k in range(3):
        constants[TO_LIGHT + k] = -lanes.light_direction[lane, k]
    scale_direction(constants[TO_LIGHT : TO_LIGHT + 3])
    x, y, z = constants[TO_LIGHT], constants[TO_LIGHT + 1], constants[TO_LIGHT + 2]
    length = np.sqrt(x * x + y * y + z * z)
    for k in range(3):
        constants[AMBIENT_MEAN + k] = (lanes.ambient[lane, k] + lanes.ambient_ground[lane, k]) * np.float32(0.5)
        constants[AMBIENT_TILT + k] = (lanes.ambient[lane, k] - lanes.ambient_ground[lane, k]) * np.float32(0.5)
        constants[LIGHT + k] = lanes.light_color[lane, k]
        constants[TO_LIGHT + k] = constants[TO_LIGHT + k] / length if length > 0.0 else np.float32(0.0)
        constants[FOG + k] = lanes.fog_color[lane, k]
        constants[HORIZON + k] = lanes.sky_horizon[lane, k]
        constants[SKY + k] = lanes.sky_zenith[lane, k] - lanes.sky_horizon[lane, k]
    begin, end = lanes.fog_range[lane, 0], lanes.fog_range[lane, 1]
    constants[FOG_BEGIN] = begin
    constants[FOG_SCALE] = np.float32(1.0) / (end - begin) if end > begin else np.float32(0.0)


@device_function
def prepare_triangle(
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
    record: int,
    orthographic: bool,
    record_ints: I32,
    record_floats: F64,
    constants: F32,
) -> None:
    """Compute what is the same for all pixels of a triangle: the planes of its attributes and, if flat, its light."""
    row, triangle = np.uint64(record_ints[record, ROW]), np.uint64(record_ints[record, TRIANGLE])
    a, b, c = (
        np.uint64(triangles[triangle, 0]),
        np.uint64(triangles[triangle, 1]),
        np.uint64(triangles[triangle, 2]),
    )
    for k in range(3):
        record_floats[record, OVER_W + k] = (0.0 if k < 2 else 1.0) if orthographic else record_floats[record, KEY + k]
        record_floats[record, COLOR + k] = color[row, k]
    if texture[row] != NO_TEXTURE:
        su, sv = np.float64(uv_scale[row, 0]), np.float64(uv_scale[row, 1])
        _plane(record_floats, record, uvs[a, 0] * su, uvs[b, 0] * su, uvs[c, 0] * su, OVER_U)
        _plane(record_floats, record, uvs[a, 1] * sv, uvs[b, 1] * sv, uvs[c, 1] * sv, OVER_V)
        if orthographic:
            record_ints[record, MIP_LEVEL] = _level(record_floats, record, texture_size, smallest)
    flat = triangle_is_flat[triangle] == 1
    sign = -1.0 if record_ints[record, NORMAL_FLIPPED] == 1 else 1.0
    _normal(pose, row, 1, 2, sign, normals, a, b, c, flat, record, NORMAL, NORMAL, record_floats)
    _normal(pose, row, 2, 0, sign, normals, a, b, c, flat, record, NORMAL + 1, NORMAL + 3, record_floats)
    _normal(pose, row, 0, 1, sign, normals, a, b, c, flat, record, NORMAL + 2, NORMAL + 6, record_floats)
    nx = ny = nz = 0.0
    if flat:
        nx, ny, nz = record_floats[record, NORMAL], record_floats[record, NORMAL + 1], record_floats[record, NORMAL + 2]
        length = np.sqrt(nx * nx + ny * ny + nz * nz)
        scale = 1.0 / length if length > 0.0 else 0.0
        nx, ny, nz = nx * scale, ny * scale, nz * scale
    record_ints[record, LIT_PER_PIXEL] = 0 if flat else 1
    if constants[LAMP_COUNT] > 0.0:
        if flat:
            for k in range(9):
                record_floats[record, NORMAL + k] = 0.0
            record_floats[record, NORMAL + 2], record_floats[record, NORMAL + 5], record_floats[record, NORMAL + 8] = (
                nx,
                ny,
                nz,
            )
            record_ints[record, LIT_PER_PIXEL] = 1  # lamps light each pixel differently
        for k in range(3):
            record_floats[record, SHINE + k] = shine[row, k]
    elif flat:
        facing = max(0.0, nx * constants[TO_LIGHT] + ny * constants[TO_LIGHT + 1] + nz * constants[TO_LIGHT + 2])
        if constants[MAP_COUNT] > 0.0 and facing > 0.0:
            # One colour in the shadow, and what the sun adds to it.
            record_ints[record, LIT_PER_PIXEL] = LIT_BY_SUN
            for k in range(3):
                color = record_floats[record, COLOR + k]
                record_floats[record, COLOR + k] *= constants[AMBIENT_MEAN + k] + constants[AMBIENT_TILT + k] * nz
                record_floats[record, SUNLIT + k] = color * constants[LIGHT + k] * facing
        else:
            for k in range(3):
                record_floats[record, COLOR + k] *= (
                    constants[AMBIENT_MEAN + k] + constants[AMBIENT_TILT + k] * nz + constants[LIGHT + k] * facing
                )
    record_ints[record, TEXTURE] = texture[row]
    record_ints[record, PREPARED] = 1


@inlined
def _plane(record_floats: F64, record: int, a: float, b: float, c: float, start: int) -> None:
    """Write the plane, in pixel coordinates, of a quantity (divided by w) that is a, b, c at the corners."""
    for k in range(3):
        record_floats[record, start + k] = (
            record_floats[record, INVERSE + k] * a
            + record_floats[record, INVERSE + 3 + k] * b
            + record_floats[record, INVERSE + 6 + k] * c
        )


@inlined
def _level(record_floats: F64, record: int, texture_size: int, smallest: int) -> np.int32:
    """Return the mip level of a triangle in an orthographic view, see `texture.py`."""
    across = record_floats[record, OVER_U] ** 2 + record_floats[record, OVER_V] ** 2
    down = record_floats[record, OVER_U + 1] ** 2 + record_floats[record, OVER_V + 1] ** 2
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
    record: int,
    at: int,
    plane: int,
    record_floats: F64,
) -> None:
    """Write one coordinate of a triangle's normals: a number at column `at` if it is flat, else a plane at `plane`.

    Normals are transformed by the cofactor matrix, which is right under any scale and defined for singular poses. Its
    row is the cross product of the pose's two other rows, i and j.
    """
    x = sign * (np.float64(pose[row, i, 1]) * pose[row, j, 2] - np.float64(pose[row, i, 2]) * pose[row, j, 1])
    y = sign * (np.float64(pose[row, i, 2]) * pose[row, j, 0] - np.float64(pose[row, i, 0]) * pose[row, j, 2])
    z = sign * (np.float64(pose[row, i, 0]) * pose[row, j, 1] - np.float64(pose[row, i, 1]) * pose[row, j, 0])
    na = x * normals[a, 0] + y * normals[a, 1] + z * normals[a, 2]
    if flat:
        record_floats[record, at] = na
    else:
        nb = x * normals[b, 0] + y * normals[b, 1] + z * normals[b, 2]
        nc = x * normals[c, 0] + y * normals[c, 1] + z * normals[c, 2]
        _plane(record_floats, record, na, nb, nc, plane)
