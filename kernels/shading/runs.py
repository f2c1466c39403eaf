"""Shading of one run of pixels: light, texture, fog; or the gradient of the sky."""

import numpy as np

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.intrinsics import load_floats, store
from worldloom.kernels.raster.scratch import (
    AMBIENT_MEAN,
    AMBIENT_TILT,
    BLUE,
    COLOR,
    DEPTH_ROW,
    FOG,
    FOG_BEGIN,
    FOG_SCALE,
    GREEN,
    HAS_SHADOWS,
    HORIZON,
    KEY,
    LAMP_COUNT,
    LIGHT,
    LIT_BY_SUN,
    LIT_PER_PIXEL,
    MIP_LEVEL,
    NORMAL,
    OVER_U,
    OVER_V,
    OVER_W,
    RED,
    SKY,
    SUNLIT,
    TEXTURE,
    TO_LIGHT,
    plane_at,
)
from worldloom.kernels.shading.lamps import light_run, light_run_with_shadows
from worldloom.kernels.shading.texture import BLEND_SCALE, find_texels, mip_level, read_texels, uv_gradients
from worldloom.kernels.simd import (
    SIMD_WIDTH,
    Floats,
    Ints,
    count_from,
    floats,
    ints,
    is_any_above,
    maximum,
    minimum,
    sqrt,
    to_ints,
)
from worldloom.kernels.tables import F32, F64, I32, NO_TEXTURE, U32


@inlined
def _byte(channel: Floats) -> Ints:
    """Convert a channel to 0..255, clamped and rounded."""
    clamped = maximum(minimum(channel, np.float32(1.0)), np.float32(0.0))
    return to_ints(clamped * np.float32(255.0) + np.float32(0.5))


@inlined
def _pack(red: Floats, green: Floats, blue: Floats) -> Ints:
    """Pack three channels into one word."""
    return _byte(red) | (_byte(green) << np.int32(8)) | (_byte(blue) << np.int32(16))


@inlined
def _fill_run(colors: U32, target: int, x_from: int, x_to: int, color: Ints) -> None:
    """Write one colour to a run."""
    for x in range(x_from, x_to, np.uint64(SIMD_WIDTH)):
        store(colors, target + x, color)


@inlined
def shade_run(
    texture_length: np.int32,
    texture_size: np.int32,
    smallest: int,
    record: int,
    y: int,
    x_from: int,
    x_to: int,
    orthographic: bool,
    far: float,
    target: int,
    record_ints: I32,
    record_floats: F64,
    constants: F32,
    rows: F32,
    lit: F32,
    is_touched: bool,
    buffers: I32,
    colors: U32,
) -> None:
    """Shade the pixels x_from..x_to of row y, which belong to triangle record `record`.

    `lit` [maps * STRIDE] is the part of each light that reaches them, where shadows take some (`is_touched`).
    Textured runs are only prepared: `finish_run` does the rest, for neighbouring runs together.
    """
    foggy = constants[FOG_SCALE] > 0.0
    textured = record_ints[record, TEXTURE] != NO_TEXTURE
    smooth = record_ints[record, LIT_PER_PIXEL] == 1
    one, step = np.float32(1.0), np.uint64(SIMD_WIDTH)
    red, green, blue = (
        np.float32(record_floats[record, COLOR]),
        np.float32(record_floats[record, COLOR + 1]),
        np.float32(record_floats[record, COLOR + 2]),
    )
    by_sun = record_ints[record, LIT_PER_PIXEL] == LIT_BY_SUN
    if by_sun and not is_touched:
        red, green, blue = (
            red + np.float32(record_floats[record, SUNLIT]),
            green + np.float32(record_floats[record, SUNLIT + 1]),
            blue + np.float32(record_floats[record, SUNLIT + 2]),
        )
    by_sun = by_sun and is_touched
    if not (smooth or textured or foggy or by_sun):
        _fill_run(colors, target, x_from, x_to, _pack(floats(red), floats(green), floats(blue)))
        return

    center_y = y + 0.5
    if textured:
        red, green, blue = red * BLEND_SCALE, green * BLEND_SCALE, blue * BLEND_SCALE
    if smooth and constants[LAMP_COUNT] > 0.0 and constants[HAS_SHADOWS] > 0.0:
        light_run_with_shadows(
            record,
            y,
            x_from,
            x_to,
            orthographic,
            far,
            BLEND_SCALE if textured else one,
            record_floats,
            constants,
            rows,
            lit,
        )
    elif smooth and constants[LAMP_COUNT] > 0.0:
        light_run(
            record,
            y,
            x_from,
            x_to,
            orthographic,
            far,
            BLEND_SCALE if textured else one,
            record_floats,
            constants,
            rows,
        )
    elif smooth:
        ax, ay, az = (
            plane_at(record_floats, record, NORMAL, center_y),
            plane_at(record_floats, record, NORMAL + 3, center_y),
            plane_at(record_floats, record, NORMAL + 6, center_y),
        )
        bx, by, bz = (
            np.float32(record_floats[record, NORMAL]),
            np.float32(record_floats[record, NORMAL + 3]),
            np.float32(record_floats[record, NORMAL + 6]),
        )
        for x in range(x_from, x_to, step):
            at = count_from(x)
            nx, ny, nz = ax + bx * at, ay + by * at, az + bz * at
            scale = one / sqrt(maximum(nx * nx + ny * ny + nz * nz, np.float32(1e-30)))
            up = nz * scale
            facing = maximum(
                (nx * constants[TO_LIGHT] + ny * constants[TO_LIGHT + 1]) * scale + up * constants[TO_LIGHT + 2],
                np.float32(0.0),
            )
            if is_touched:
                facing = facing * load_floats(lit, x)
            for k in range(3):
                light = constants[AMBIENT_MEAN + k] + constants[AMBIENT_TILT + k] * up + constants[LIGHT + k] * facing
                channel = red if k == 0 else (green if k == 1 else blue)
                store(rows, RED + np.uint64(k) * (GREEN - RED) + x, channel * light)
    elif by_sun:
        scale = BLEND_SCALE if textured else one
        sun_red, sun_green, sun_blue = (
            np.float32(record_floats[record, SUNLIT]) * scale,
            np.float32(record_floats[record, SUNLIT + 1]) * scale,
            np.float32(record_floats[record, SUNLIT + 2]) * scale,
        )
        for x in range(x_from, x_to, step):
            reaching = load_floats(lit, x)
            store(rows, RED + x, reaching * sun_red + red)
            store(rows, GREEN + x, reaching * sun_green + green)
            store(rows, BLUE + x, reaching * sun_blue + blue)
    elif orthographic or not textured:
        for x in range(x_from, x_to, step):
            _store_flat(rows, x, red, green, blue)
    if textured:
        first_texel = np.int32(np.int32(record_ints[record, TEXTURE]) * texture_length)
        ux, vx = np.float32(record_floats[record, OVER_U]), np.float32(record_floats[record, OVER_V])
        u_start, v_start = (
            plane_at(record_floats, record, OVER_U, center_y),
            plane_at(record_floats, record, OVER_V, center_y),
        )
        if orthographic:
            level = ints(record_ints[record, MIP_LEVEL])
            for x in range(x_from, x_to, step):
                at = count_from(x)
                find_texels(first_texel, texture_size, level, u_start + ux * at, v_start + vx * at, x, buffers)
        else:
            w_start, wx = plane_at(record_floats, record, OVER_W, center_y), np.float32(record_floats[record, OVER_W])
            across, down_u, down_u_x, down_v, down_v_x = uv_gradients(record_floats, record, center_y)
            size = np.float32(texture_size)
            for x in range(x_from, x_to, step):
                at = count_from(x)
                w = one / (w_start + wx * at)
                u, v = (u_start + ux * at) * w, (v_start + vx * at) * w
                level = mip_level(w, at, across, down_u, down_u_x, down_v, down_v_x, size, smallest)
                store(rows, DEPTH_ROW + x, w)
                if not (smooth or by_sun):
                    _store_flat(rows, x, red, green, blue)
                find_texels(first_texel, texture_size, level, u, v, x, buffers)
    if foggy and (orthographic or not textured):
        start, slope = plane_at(record_floats, record, KEY, center_y), np.float32(record_floats[record, KEY])
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
                store(colors, target + x, _fogged(r, g, b, load_floats(rows, DEPTH_ROW + x), constants))
            else:
                store(colors, target + x, _pack(r, g, b))


@inlined
def _store_flat(rows: F32, x: np.uint64, red: np.float32, green: np.float32, blue: np.float32) -> None:
    """Write one colour for eight pixels."""
    store(rows, RED + x, floats(red))
    store(rows, GREEN + x, floats(green))
    store(rows, BLUE + x, floats(blue))


@inlined
def _fogged(r: Floats, g: Floats, b: Floats, depth: Floats, constants: F32) -> Ints:
    """Return the finished colour of lit pixels at this depth in fog."""
    one = np.float32(1.0)
    fog = maximum(minimum((depth - constants[FOG_BEGIN]) * constants[FOG_SCALE], one), np.float32(0.0))
    r, g, b = minimum(r, one), minimum(g, one), minimum(b, one)
    return _pack(r + fog * (constants[FOG] - r), g + fog * (constants[FOG + 1] - g), b + fog * (constants[FOG + 2] - b))


@device_function
def finish_run(
    texel_rows: U32, x_from: int, x_to: int, target: int, constants: F32, rows: F32, buffers: I32, colors: U32
) -> None:
    """Shade textured pixels that `shade_run` or `shade_sky_box` prepared."""
    foggy = constants[FOG_SCALE] > 0.0
    for x in range(x_from, x_to, np.uint64(SIMD_WIDTH)):
        r, g, b = read_texels(texel_rows, x, buffers)
        r, g, b = (
            r * load_floats(rows, RED + x),
            g * load_floats(rows, GREEN + x),
            b * load_floats(rows, BLUE + x),
        )
        # Most pixels of a foggy lane are before the fog.
        if foggy and is_any_above(load_floats(rows, DEPTH_ROW + x), constants[FOG_BEGIN]):
            store(colors, target + x, _fogged(r, g, b, load_floats(rows, DEPTH_ROW + x), constants))
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
    constants: F32,
    colors: U32,
) -> None:
    """Shade a run of background pixels with the gradient of the sky."""
    if orthographic:
        _fill_run(colors, target, x_from, x_to, _sky(floats(np.float32(1.0 - (y + 0.5) / height)), constants))
        return
    up = np.float32(0.5 * height - (y + 0.5)) * np.float32(2.0 / height) * half_height
    per_pixel = np.float32(2.0 / height) * half_height
    first = np.float32(0.5 - 0.5 * width) * per_pixel
    z_start, z_step = camera[view, 2, 1] * up - camera[view, 2, 2], camera[view, 2, 0]
    further = up * up + np.float32(1.0)
    for x in range(x_from, x_to, np.uint64(SIMD_WIDTH)):
        right = first + per_pixel * count_from(x)
        t = maximum((z_start + z_step * right) / sqrt(right * right + further), np.float32(0.0))
        store(colors, target + x, _sky(t, constants))


@inlined
def _sky(t: Floats, constants: F32) -> Ints:
    """Return the colour of the sky at a height of 0..1."""
    t = t * (np.float32(2.0) - t)
    return _pack(
        constants[HORIZON] + constants[SKY] * t,
        constants[HORIZON + 1] + constants[SKY + 1] * t,
        constants[HORIZON + 2] + constants[SKY + 2] * t,
    )
