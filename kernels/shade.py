"""What colour a run of pixels has.

A run is a stretch of one row that belongs to one triangle, so everything that is the same for the triangle is found out
once, when its first pixel is shaded, and what is left is short loops over plain float rows that the compiler turns into
vector code. For that, positions are unsigned: a signed one might be negative, which numba would check at every pixel.
"""

import numpy as np

from worldloom.kernels.compiling import inlined
from worldloom.kernels.scratch import (
    AMBIENT_MEAN,
    AMBIENT_TILT,
    BLUE,
    COLOR,
    FOG,
    FOG_BEGIN,
    FOG_SCALE,
    GREEN,
    HORIZON,
    KEY,
    LIGHT,
    NORMAL,
    OVER_W,
    READY,
    RED,
    SAMPLE,
    SKY,
    SMOOTH,
    SPARE,
    TEXTURE,
    TO_LIGHT,
    Scratch,
    W,
    find_other_runs,
    find_runs,
    first_pixel,
    padded,
    plane_at,
)
from worldloom.kernels.surface import get_ready
from worldloom.kernels.tables import F32, F64, I32, NO_TEXTURE, U32, AssetTable, InstanceTable, ViewTable
from worldloom.kernels.texture import multiply_texture


@inlined
def shade_row(
    assets: AssetTable, instances: InstanceTable, views: ViewTable, view: int, y: int, scratch: Scratch
) -> None:
    """The finished colours of a row, into the first row of `scratch.colors`."""
    owner, runs, whole, colors, look = scratch.owner, scratch.runs, scratch.whole, scratch.colors, scratch.look
    width = np.uint64(views.width[view])
    orthographic = views.orthographic[view] == 1
    samples = np.uint64(views.samples[view])
    first_row = first_pixel(owner, 0, y, width)
    for sample in range(samples):
        target = np.uint64(0) if sample == 0 else SPARE
        row = first_pixel(owner, sample, y, width)
        if sample == 0:
            count = find_runs(owner, row, width, runs)
        else:
            count = find_other_runs(owner, row, first_row, width, runs)
            for x in range(width):
                colors[sample * SAMPLE + x] = colors[x]
        for run in range(count):
            x_from, x_to = np.uint64(runs[run]), np.uint64(runs[run + np.uint64(1)])
            number = np.uint64(owner[row + x_from])
            if sample > 0 and number == np.uint64(owner[first_row + x_from]):
                continue  # is there already
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
                    get_ready(
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
    if samples == 4:
        _blend_samples(width, colors)


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
            plane_at(real, number, NORMAL, center_y),
            plane_at(real, number, NORMAL + 3, center_y),
            plane_at(real, number, NORMAL + 6, center_y),
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
        start, step = plane_at(real, number, OVER_W, center_y), np.float32(real[number, OVER_W])
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
        start, step = plane_at(real, number, KEY, center_y), np.float32(real[number, KEY])
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
