"""The colours of one run: what is there, how it is lit, textured, and seen through fog."""

import numpy as np

from worldloom.kernels.compiling import called, inlined
from worldloom.kernels.intrinsics import load_floats, store
from worldloom.kernels.raster.scratch import (
    AMBIENT_MEAN,
    AMBIENT_TILT,
    BLOCK,
    BLUE,
    COLOR,
    DEPTH_ROW,
    FOG,
    FOG_BEGIN,
    FOG_SCALE,
    GREEN,
    HORIZON,
    KEY,
    LAMP_COUNT,
    LEVEL,
    LIGHT,
    NORMAL,
    OVER_U,
    OVER_V,
    OVER_W,
    RED,
    SKY,
    SMOOTH,
    TEXTURE,
    TO_LIGHT,
    plane_at,
)
from worldloom.kernels.shading.lamps import light_run
from worldloom.kernels.shading.texture import BLEND_SCALE, level_of, locate, read_texels, slopes
from worldloom.kernels.simd import (
    Floats,
    Ints,
    count_from,
    floats,
    greatest,
    ints,
    least,
    root,
    to_ints,
)
from worldloom.kernels.tables import F32, F64, I32, NO_TEXTURE, U32


@inlined
def _byte(channel: Floats) -> Ints:
    """A channel, held to 0..1, as 0..255, rounded."""
    held = greatest(least(channel, np.float32(1.0)), np.float32(0.0))
    return to_ints(held * np.float32(255.0) + np.float32(0.5))


@inlined
def _pack(red: Floats, green: Floats, blue: Floats) -> Ints:
    """Three channels as one word."""
    return _byte(red) | (_byte(green) << np.int32(8)) | (_byte(blue) << np.int32(16))


@inlined
def _paint_run(colors: U32, target: int, x_from: int, x_to: int, color: Ints) -> None:
    """Give a run one colour."""
    for x in range(x_from, x_to, np.uint64(BLOCK)):
        store(colors, target + x, color)


@inlined
def shade_run(
    texture_length: np.int32,
    texture_size: np.int32,
    smallest: int,
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
    """Colour the pixels x_from..x_to of row y, which belong to triangle record `number`.

    Where they are textured, only prepare it: `finish_run` does the rest, for neighbouring runs together.
    """
    foggy = look[FOG_SCALE] > 0.0
    textured = whole[number, TEXTURE] != NO_TEXTURE
    smooth = whole[number, SMOOTH] == 1
    one, step = np.float32(1.0), np.uint64(BLOCK)
    red, green, blue = (
        np.float32(real[number, COLOR]),
        np.float32(real[number, COLOR + 1]),
        np.float32(real[number, COLOR + 2]),
    )
    if not (smooth or textured or foggy):
        _paint_run(colors, target, x_from, x_to, _pack(floats(red), floats(green), floats(blue)))
        return

    center_y = y + 0.5
    if textured:
        red, green, blue = red * BLEND_SCALE, green * BLEND_SCALE, blue * BLEND_SCALE
    if smooth and look[LAMP_COUNT] > 0.0:
        light_run(
            number,
            y,
            x_from,
            x_to,
            orthographic,
            far,
            BLEND_SCALE if textured else one,
            real,
            look,
            rows,
        )
    elif smooth:
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
        for x in range(x_from, x_to, step):
            at = count_from(x)
            nx, ny, nz = ax + bx * at, ay + by * at, az + bz * at
            scale = one / root(greatest(nx * nx + ny * ny + nz * nz, np.float32(1e-30)))
            up = nz * scale
            facing = greatest(
                (nx * look[TO_LIGHT] + ny * look[TO_LIGHT + 1]) * scale + up * look[TO_LIGHT + 2], np.float32(0.0)
            )
            for k in range(3):
                light = look[AMBIENT_MEAN + k] + look[AMBIENT_TILT + k] * up + look[LIGHT + k] * facing
                channel = red if k == 0 else (green if k == 1 else blue)
                store(rows, RED + np.uint64(k) * (GREEN - RED) + x, channel * light)
    else:
        for x in range(x_from, x_to, step):
            store(rows, RED + x, floats(red))
            store(rows, GREEN + x, floats(green))
            store(rows, BLUE + x, floats(blue))
    if textured:
        first_texel = np.int32(np.int32(whole[number, TEXTURE]) * texture_length)
        ux, vx = np.float32(real[number, OVER_U]), np.float32(real[number, OVER_V])
        u_start, v_start = plane_at(real, number, OVER_U, center_y), plane_at(real, number, OVER_V, center_y)
        if orthographic:
            level = ints(whole[number, LEVEL])
            for x in range(x_from, x_to, step):
                at = count_from(x)
                locate(first_texel, texture_size, level, u_start + ux * at, v_start + vx * at, x, buffers)
        else:
            w_start, wx = plane_at(real, number, OVER_W, center_y), np.float32(real[number, OVER_W])
            across, down_u, down_u_x, down_v, down_v_x = slopes(real, number, center_y)
            size = np.float32(texture_size)
            for x in range(x_from, x_to, step):
                at = count_from(x)
                w = one / (w_start + wx * at)
                u, v = (u_start + ux * at) * w, (v_start + vx * at) * w
                level = level_of(w, at, across, down_u, down_u_x, down_v, down_v_x, size, smallest)
                store(rows, DEPTH_ROW + x, w)
                locate(first_texel, texture_size, level, u, v, x, buffers)
    if foggy and (orthographic or not textured):
        start, slope = plane_at(real, number, KEY, center_y), np.float32(real[number, KEY])
        for x in range(x_from, x_to, step):
            key = start + slope * count_from(x)
            depth = far - key
            if not orthographic:
                depth = one / key
            store(rows, DEPTH_ROW + x, depth)
    if not textured:
        for x in range(x_from, x_to, step):
            r, g, b = load_floats(rows, RED + x), load_floats(rows, GREEN + x), load_floats(rows, BLUE + x)
            if foggy:
                store(colors, target + x, _fogged(r, g, b, load_floats(rows, DEPTH_ROW + x), look))
            else:
                store(colors, target + x, _pack(r, g, b))


@inlined
def _fogged(r: Floats, g: Floats, b: Floats, depth: Floats, look: F32) -> Ints:
    """The finished colour of what is lit so, at this depth in fog."""
    one = np.float32(1.0)
    fog = greatest(least((depth - look[FOG_BEGIN]) * look[FOG_SCALE], one), np.float32(0.0))
    r, g, b = least(r, one), least(g, one), least(b, one)
    return _pack(r + fog * (look[FOG] - r), g + fog * (look[FOG + 1] - g), b + fog * (look[FOG + 2] - b))


@called
def finish_run(
    texel_rows: U32, x_from: int, x_to: int, target: int, look: F32, rows: F32, buffers: I32, colors: U32
) -> None:
    """Colour textured pixels that `shade_run` prepared."""
    foggy = look[FOG_SCALE] > 0.0
    for x in range(x_from, x_to, np.uint64(BLOCK)):
        r, g, b = read_texels(texel_rows, x, buffers)
        r, g, b = (
            r * load_floats(rows, RED + x),
            g * load_floats(rows, GREEN + x),
            b * load_floats(rows, BLUE + x),
        )
        if foggy:
            store(colors, target + x, _fogged(r, g, b, load_floats(rows, DEPTH_ROW + x), look))
        else:
            store(colors, target + x, _pack(r, g, b))


@inlined
def shade_sky(
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
    if orthographic:
        _paint_run(colors, target, x_from, x_to, _sky(floats(np.float32(1.0 - (y + 0.5) / height)), look))
        return
    up = np.float32(0.5 * height - (y + 0.5)) * np.float32(2.0 / height) * half_height
    per_pixel = np.float32(2.0 / height) * half_height
    first = np.float32(0.5 - 0.5 * width) * per_pixel
    z_start, z_step = camera[view, 2, 1] * up - camera[view, 2, 2], camera[view, 2, 0]
    further = up * up + np.float32(1.0)
    for x in range(x_from, x_to, np.uint64(BLOCK)):
        right = first + per_pixel * count_from(x)
        t = greatest((z_start + z_step * right) / root(right * right + further), np.float32(0.0))
        store(colors, target + x, _sky(t, look))


@inlined
def _sky(t: Floats, look: F32) -> Ints:
    """The colour of the sky at a height of 0..1."""
    t = t * (np.float32(2.0) - t)
    return _pack(
        look[HORIZON] + look[SKY] * t, look[HORIZON + 1] + look[SKY + 1] * t, look[HORIZON + 2] + look[SKY + 2] * t
    )
