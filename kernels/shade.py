"""What colour a run of pixels has.

A run is a stretch of one row that belongs to one triangle, so everything that is the same for the triangle is found out once,
when its first pixel is shaded, and what is left is short loops over plain float rows that the compiler turns into vector code.
For that, positions are unsigned: a signed one might be negative, which numba would check at every pixel.
"""

import numpy as np

from worldloom.kernels.compiling import called, inlined
from worldloom.kernels.raster import (
    BACK,
    COLOR,
    INVERSE,
    KEY,
    NORMAL,
    OVER_U,
    OVER_V,
    OVER_W,
    READY,
    ROW,
    SMOOTH,
    STRIDE,
    TEXTURE,
    TRIANGLE,
    Scratch,
    padded,
)
from worldloom.kernels.tables import (
    F32,
    F64,
    I32,
    I64,
    NO_TEXTURE,
    U8,
    U32,
    AssetTable,
    InstanceTable,
    LaneTable,
    ViewTable,
)
from worldloom.kernels.texture import BLUE, GREEN, RED, W, multiply_texture

# Positions in Scratch.look: the lane's light, fog and sky, ready for use.
AMBIENT_MEAN, AMBIENT_TILT, LIGHT, TO_LIGHT, FOG, FOG_BEGIN, FOG_SCALE, HORIZON, SKY = 0, 3, 6, 9, 12, 15, 16, 17, 20
LOOK_NUMBERS = 23

# Where the rows of Scratch.colors begin: one a sample, and one to shade the other three into.
SAMPLE = np.uint64(STRIDE)
SPARE = np.uint64(4 * STRIDE)
COLOR_BUFFERS = 5


@inlined
def shade_row(
    assets: AssetTable, instances: InstanceTable, views: ViewTable, view: int, y: int, scratch: Scratch
) -> None:
    """The finished colours of a row, into the first row of `scratch.colors`."""
    visibility, whole, colors, look = scratch.visibility, scratch.whole, scratch.colors, scratch.look
    one = np.uint64(1)
    width = np.uint64(views.width[view])
    orthographic = views.orthographic[view] == 1
    samples = np.uint64(views.samples[view])
    base = np.uint64(y) * padded(width)
    for sample in range(samples):
        target = np.uint64(0) if sample == 0 else SPARE
        if sample > 0:
            for x in range(width):
                colors[sample * SAMPLE + x] = colors[x]
        x_from = np.uint64(0)
        while x_from < width:
            number = record_at(visibility, sample, base + x_from)
            x_to = x_from + one
            while x_to < width and record_at(visibility, sample, base + x_to) == number:
                x_to += one
            if sample > 0:
                # What the first sample shows too is there already.
                while x_from < x_to and record_at(visibility, np.uint64(0), base + x_from) == number:
                    x_from += one
                stop = x_from
                while stop < x_to and record_at(visibility, np.uint64(0), base + stop) != number:
                    stop += one
                x_to = stop
            if x_from < x_to:
                # To whole blocks: what is too much is overwritten by the next run, or lies in the padding.
                x_end = x_from + padded(x_to - x_from)
                if number == 0:
                    _shade_sky(
                        views.camera,
                        view,
                        y,
                        x_from,
                        x_end,
                        width,
                        views.height[view],
                        views.half_height[view],
                        orthographic,
                        target,
                        look,
                        colors,
                    )
                else:
                    if whole[number, READY] == 0:
                        _get_ready(
                            assets.triangles,
                            assets.triangle_is_flat,
                            assets.normals,
                            assets.uvs,
                            instances.pose,
                            instances.color,
                            instances.texture,
                            instances.uv_scale,
                            number,
                            orthographic,
                            whole,
                            scratch.real,
                            look,
                        )
                    _shade_run(
                        assets.texels,
                        assets.texture_size,
                        number,
                        y,
                        x_from,
                        x_end,
                        orthographic,
                        views.far[view],
                        target,
                        whole,
                        scratch.real,
                        look,
                        scratch.rows,
                        scratch.texels,
                        colors,
                    )
                if sample > 0:
                    for x in range(x_from, x_to):
                        colors[sample * SAMPLE + x] = colors[SPARE + x]
            x_from = x_to
    if samples == 4:
        _blend_samples(width, colors)


@inlined
def record_at(visibility: I64, sample: int, pixel: int) -> int:
    """The number of the triangle record a pixel shows, 0 for none."""
    return np.uint64(~visibility[sample * np.uint64(visibility.size // 4) + pixel] & np.int64(0xFFFFFFFF))


@inlined
def _blend_samples(width: int, colors: U32) -> None:
    """The mean of the four samples' colours, rounded."""
    two, three = np.uint64(2), np.uint64(3)
    outer, inner, half = np.uint32(0xFF00FF), np.uint32(0x00FF00), np.uint32(0x020002)
    for x in range(width):
        a, b, c, d = colors[x], colors[SAMPLE + x], colors[two * SAMPLE + x], colors[three * SAMPLE + x]
        red_blue = np.uint32((a & outer) + (b & outer) + (c & outer) + (d & outer) + half)
        green = np.uint32((a & inner) + (b & inner) + (c & inner) + (d & inner) + np.uint32(0x200))
        colors[x] = np.uint32((red_blue >> np.uint32(2)) & outer) | np.uint32((green >> np.uint32(2)) & inner)


@called
def read_look(lanes: LaneTable, lane: int, look: F32) -> None:
    """Gather a lane's light, fog and sky into `look`."""
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


@inlined
def _plane(real: F64, number: int, a: float, b: float, c: float, start: int) -> None:
    """The plane over the picture of a quantity (divided by w) that is a, b, c at the corners."""
    for k in range(3):
        real[number, start + k] = (
            real[number, INVERSE + k] * a + real[number, INVERSE + 3 + k] * b + real[number, INVERSE + 6 + k] * c
        )


@inlined
def _row(real: F64, number: int, plane: int, center_y: float) -> np.float32:
    """A plane's value at the centre of pixel 0 of a row."""
    return np.float32(real[number, plane] * 0.5 + real[number, plane + 1] * center_y + real[number, plane + 2])


@called
def _get_ready(
    triangles: I32,
    triangle_is_flat: U8,
    normals: F32,
    uvs: F32,
    pose: F32,
    color: F32,
    texture: I32,
    uv_scale: F32,
    number: int,
    orthographic: bool,
    whole: I32,
    real: F64,
    look: F32,
) -> None:
    """Work out what all pixels of a triangle share: the planes of its attributes and, if flat, its light."""
    row, triangle = whole[number, ROW], whole[number, TRIANGLE]
    a, b, c = triangles[triangle, 0], triangles[triangle, 1], triangles[triangle, 2]
    for k in range(3):
        real[number, OVER_W + k] = (0.0 if k < 2 else 1.0) if orthographic else real[number, KEY + k]
        real[number, COLOR + k] = color[row, k]
    if texture[row] != NO_TEXTURE:
        su, sv = np.float64(uv_scale[row, 0]), np.float64(uv_scale[row, 1])
        _plane(real, number, uvs[a, 0] * su, uvs[b, 0] * su, uvs[c, 0] * su, OVER_U)
        _plane(real, number, uvs[a, 1] * sv, uvs[b, 1] * sv, uvs[c, 1] * sv, OVER_V)

    # Normals go through the cofactor matrix, which is right under any scale and defined without volume. Its row k is the
    # cross product of the pose's two other rows.
    flat = triangle_is_flat[triangle] == 1
    c00 = np.float64(pose[row, 1, 1]) * pose[row, 2, 2] - np.float64(pose[row, 1, 2]) * pose[row, 2, 1]
    c01 = np.float64(pose[row, 1, 2]) * pose[row, 2, 0] - np.float64(pose[row, 1, 0]) * pose[row, 2, 2]
    c02 = np.float64(pose[row, 1, 0]) * pose[row, 2, 1] - np.float64(pose[row, 1, 1]) * pose[row, 2, 0]
    mirrored = pose[row, 0, 0] * c00 + pose[row, 0, 1] * c01 + pose[row, 0, 2] * c02 < 0.0
    sign = -1.0 if mirrored != (whole[number, BACK] == 1) else 1.0
    for k in range(3):
        i, j = (k + 1) % 3, (k + 2) % 3
        x = sign * (np.float64(pose[row, i, 1]) * pose[row, j, 2] - np.float64(pose[row, i, 2]) * pose[row, j, 1])
        y = sign * (np.float64(pose[row, i, 2]) * pose[row, j, 0] - np.float64(pose[row, i, 0]) * pose[row, j, 2])
        z = sign * (np.float64(pose[row, i, 0]) * pose[row, j, 1] - np.float64(pose[row, i, 1]) * pose[row, j, 0])
        na = x * normals[a, 0] + y * normals[a, 1] + z * normals[a, 2]
        if flat:
            real[number, NORMAL + k] = na
        else:
            nb = x * normals[b, 0] + y * normals[b, 1] + z * normals[b, 2]
            nc = x * normals[c, 0] + y * normals[c, 1] + z * normals[c, 2]
            _plane(real, number, na, nb, nc, NORMAL + 3 * k)
    if flat:
        nx, ny, nz = real[number, NORMAL], real[number, NORMAL + 1], real[number, NORMAL + 2]
        length = np.sqrt(nx * nx + ny * ny + nz * nz)
        scale = 1.0 / length if length > 0.0 else 0.0
        nx, ny, nz = nx * scale, ny * scale, nz * scale
        facing = max(0.0, nx * look[TO_LIGHT] + ny * look[TO_LIGHT + 1] + nz * look[TO_LIGHT + 2])
        for k in range(3):
            real[number, COLOR + k] *= look[AMBIENT_MEAN + k] + look[AMBIENT_TILT + k] * nz + look[LIGHT + k] * facing
    whole[number, TEXTURE] = texture[row]
    whole[number, SMOOTH] = 0 if flat else 1
    whole[number, READY] = 1


@inlined
def _byte(channel: np.float32) -> np.uint32:
    """A channel, held to 0..1, as 0..255, rounded."""
    held = max(np.float32(0.0), min(channel, np.float32(1.0)))
    return np.uint32(np.int32(held * np.float32(255.0) + np.float32(0.5)))


@inlined
def _pack(red: np.float32, green: np.float32, blue: np.float32) -> np.uint32:
    """Three channels as one word."""
    return np.uint32(_byte(red) | np.uint32(_byte(green) << np.uint32(8)) | np.uint32(_byte(blue) << np.uint32(16)))


@inlined
def _shade_run(
    texels: U32,
    texture_size: int,
    number: int,
    y: int,
    x_from: int,
    x_to: int,
    orthographic: bool,
    far: float,
    target: int,
    whole: I32,
    real: F64,
    look: F32,
    rows: F32,
    buffers: I32,
    colors: U32,
) -> None:
    """Colour the pixels x_from..x_to of row y, which belong to triangle record `number`."""
    foggy = look[FOG_SCALE] > 0.0
    textured = whole[number, TEXTURE] != NO_TEXTURE
    smooth = whole[number, SMOOTH] == 1
    one, zero = np.float32(1.0), np.float32(0.0)
    red, green, blue = (
        np.float32(real[number, COLOR]),
        np.float32(real[number, COLOR + 1]),
        np.float32(real[number, COLOR + 2]),
    )
    if not (smooth or textured or foggy):
        plain = _pack(red, green, blue)
        for x in range(x_from, x_to):
            colors[target + x] = plain
        return

    center_y = y + 0.5
    if smooth:
        ax, ay, az = (
            _row(real, number, NORMAL, center_y),
            _row(real, number, NORMAL + 3, center_y),
            _row(real, number, NORMAL + 6, center_y),
        )
        bx, by, bz = (
            np.float32(real[number, NORMAL]),
            np.float32(real[number, NORMAL + 3]),
            np.float32(real[number, NORMAL + 6]),
        )
        lx, ly, lz = look[TO_LIGHT], look[TO_LIGHT + 1], look[TO_LIGHT + 2]
        mean_r, mean_g, mean_b = look[AMBIENT_MEAN] * red, look[AMBIENT_MEAN + 1] * green, look[AMBIENT_MEAN + 2] * blue
        tilt_r, tilt_g, tilt_b = look[AMBIENT_TILT] * red, look[AMBIENT_TILT + 1] * green, look[AMBIENT_TILT + 2] * blue
        light_r, light_g, light_b = look[LIGHT] * red, look[LIGHT + 1] * green, look[LIGHT + 2] * blue
        for x in range(x_from, x_to):
            at = np.float32(np.int32(x))
            nx, ny, nz = ax + bx * at, ay + by * at, az + bz * at
            scale = one / np.sqrt(max(nx * nx + ny * ny + nz * nz, np.float32(1e-30)))
            nz *= scale
            facing = max(zero, (nx * lx + ny * ly) * scale + nz * lz)
            rows[RED + x] = mean_r + tilt_r * nz + light_r * facing
            rows[GREEN + x] = mean_g + tilt_g * nz + light_g * facing
            rows[BLUE + x] = mean_b + tilt_b * nz + light_b * facing
    else:
        for x in range(x_from, x_to):
            rows[RED + x] = red
            rows[GREEN + x] = green
            rows[BLUE + x] = blue
    if textured or foggy:
        start, step = _row(real, number, OVER_W, center_y), np.float32(real[number, OVER_W])
        for x in range(x_from, x_to):
            rows[W + x] = one / (start + step * np.float32(np.int32(x)))
    if textured:
        multiply_texture(
            texels, texture_size, whole[number, TEXTURE], real, number, center_y, x_from, x_to, rows, buffers
        )
    if not foggy:
        for x in range(x_from, x_to):
            colors[target + x] = _pack(rows[RED + x], rows[GREEN + x], rows[BLUE + x])
        return
    if orthographic:
        start, step = _row(real, number, KEY, center_y), np.float32(real[number, KEY])
        for x in range(x_from, x_to):
            rows[W + x] = far - (start + step * np.float32(np.int32(x)))
    begin, fog_scale = look[FOG_BEGIN], look[FOG_SCALE]
    fog_red, fog_green, fog_blue = look[FOG], look[FOG + 1], look[FOG + 2]
    for x in range(x_from, x_to):
        fog = max(zero, min((rows[W + x] - begin) * fog_scale, one))
        r, g, b = min(rows[RED + x], one), min(rows[GREEN + x], one), min(rows[BLUE + x], one)
        colors[target + x] = _pack(r + fog * (fog_red - r), g + fog * (fog_green - g), b + fog * (fog_blue - b))


@inlined
def _shade_sky(
    camera: F32,
    view: int,
    y: int,
    x_from: int,
    x_to: int,
    width: int,
    height: int,
    half_height: float,
    orthographic: bool,
    target: int,
    look: F32,
    colors: U32,
) -> None:
    """Colour a run of pixels where nothing is."""
    zero, one = np.float32(0.0), np.float32(1.0)
    up = np.float32(0.5 * height - (y + 0.5)) * np.float32(2.0 / height) * half_height
    per_pixel = np.float32(2.0 / height) * half_height
    first = np.float32(0.5 - 0.5 * width) * per_pixel
    z_start, z_step = camera[view, 2, 1] * up - camera[view, 2, 2], camera[view, 2, 0]
    level = np.float32(1.0 - (y + 0.5) / height)
    for x in range(x_from, x_to):
        right = first + per_pixel * np.float32(np.int32(x))
        t = max(zero, (z_start + z_step * right) / np.sqrt(right * right + up * up + one))
        t = level if orthographic else t
        t = t * (np.float32(2.0) - t)
        colors[target + x] = _pack(
            look[HORIZON] + look[SKY] * t, look[HORIZON + 1] + look[SKY + 1] * t, look[HORIZON + 2] + look[SKY + 2] * t
        )
