"""Reading textures: which mip level, which four texels, and their blend.

In two steps, with the places of the texels in memory between them: the processor waits less if it can read for several
blocks at once.
"""

import numpy as np

from worldloom.kernels.compiling import inlined
from worldloom.kernels.intrinsics import load_ints, load_pairs, store
from worldloom.kernels.raster.scratch import BETWEEN, LOWER, OVER_U, OVER_V, OVER_W, UPPER, row_start
from worldloom.kernels.simd import (
    Floats,
    Ints,
    bits_of,
    floats,
    floor,
    from_bits,
    greatest,
    ints,
    least,
    times_halves,
    to_floats,
    to_ints,
)
from worldloom.kernels.tables import F64, I32, U32

BLEND_SCALE = np.float32(1.0 / 65280.0)
"""What `read_texels` gives, times this, is a colour in 0..1."""

_FOUR_THIRDS = np.int32(-1431655764)
"""Times this, in 32 bits, is times four and through three, for what three divides."""


@inlined
def level_of(
    w: Floats,
    at: Floats,
    across: np.float32,
    down_u: np.float32,
    down_u_x: np.float32,
    down_v: np.float32,
    down_v_x: np.float32,
    size: np.float32,
    smallest: int,
) -> Ints:
    """The level for each pixel of a run, see `slopes`."""
    scale = w * w * (np.float32(2.0) * size)
    sideways = scale * across
    u_y, v_y = (down_u + down_u_x * at) * scale, (down_v + down_v_x * at) * scale
    rho = greatest(sideways * sideways, u_y * u_y + v_y * v_y)
    # Half the exponent of 4·rho² is floor(log2(rho²)/2 + 1/2) + 1: a level without a logarithm.
    level = (bits_of(rho) >> np.int32(24)) - np.int32(64)
    return least(greatest(level, np.int32(0)), smallest)


@inlined
def slopes(
    real: F64, number: int, center_y: float
) -> tuple[np.float32, np.float32, np.float32, np.float32, np.float32]:
    """How fast u and v change along a row of a triangle in perspective, all divided by w².

    With U = u/w, V = v/w and Q = 1/w, which are planes, u_x = (U_x·Q - U·Q_x)·w². The bracket is the same all along the
    row, and that of u_y grows evenly. So: the length of the bracket for (u_x, v_x); then the bracket for u_y before the
    first pixel and what it grows by, and the same for v_y.
    """
    ux, uy, u = real[number, OVER_U], real[number, OVER_U + 1], row_start(real, number, OVER_U, center_y)
    vx, vy, v = real[number, OVER_V], real[number, OVER_V + 1], row_start(real, number, OVER_V, center_y)
    wx, wy, w = real[number, OVER_W], real[number, OVER_W + 1], row_start(real, number, OVER_W, center_y)
    u_x, v_x = ux * w - u * wx, vx * w - v * wx
    return (
        np.float32(np.sqrt(u_x * u_x + v_x * v_x)),
        np.float32(uy * w - u * wy),
        np.float32(uy * wx - ux * wy),
        np.float32(vy * w - v * wy),
        np.float32(vy * wx - vx * wy),
    )


@inlined
def locate(first: np.int32, size: np.int32, level: Ints, u: Floats, v: Floats, x: np.uint64, buffers: I32) -> None:
    """Which texels of these levels lie around u, v, and where between them; the texture begins at `first`."""
    half, one, eight = np.float32(0.5), np.int32(1), np.int32(8)
    side = ints(size) >> level
    mask, length = side - one, side + one
    # The larger levels before this one are a geometric series, and a texel more for each of their rows.
    start = (size * size - side * side) * _FOUR_THIRDS + ((size - side) << one) + first
    # 8 bits of fraction; texel centres are at halves.
    fixed = from_bits(bits_of(floats(np.float32(256.0) * np.float32(size))) - (level << np.int32(23)))
    u_fixed = to_ints((u - floor(u)) * fixed + half) - np.int32(128)
    v_fixed = to_ints((v - floor(v)) * fixed + half) - np.int32(128)
    left, upper = ((u_fixed >> eight) & mask) + start, (v_fixed >> eight) & mask
    lower = (upper + one) & mask
    store(buffers, UPPER + x, upper * length + left)
    store(buffers, LOWER + x, lower * length + left)
    store(buffers, BETWEEN + x, (u_fixed & np.int32(255)) | ((v_fixed & np.int32(255)) << np.int32(16)))


@inlined
def read_texels(texel_rows: U32, x: np.uint64, buffers: I32) -> tuple[Floats, Floats, Floats]:
    """Red, green and blue, each 0..65280, of what was located.

    The four texels of a pixel are blended by weights that add up to 256 exactly, so a plain colour stays what it is.
    """
    t0, t1 = load_pairs(texel_rows, buffers, UPPER + x)
    t2, t3 = load_pairs(texel_rows, buffers, LOWER + x)
    # Two numbers of 16 bits in each of 32: every weight twice, red beside blue, green beside nothing of use.
    eight, sixteen, low = np.int32(8), np.int32(16), np.int32(0xFF00FF)
    between = load_ints(buffers, BETWEEN + x)
    fu, fv = between & np.int32(255), between >> sixteen
    fu, fv = fu | (fu << sixteen), fv | (fv << sixteen)
    w3 = ((times_halves(fu, fv) + np.int32(0x800080)) >> eight) & low
    w1, w2 = fu - w3, fv - w3
    w0 = np.int32(0x1000100) - fu - w2
    red_blue = (
        times_halves(t0 & low, w0)
        + times_halves(t1 & low, w1)
        + times_halves(t2 & low, w2)
        + times_halves(t3 & low, w3)
    )
    green = (
        times_halves((t0 >> eight) & low, w0)
        + times_halves((t1 >> eight) & low, w1)
        + times_halves((t2 >> eight) & low, w2)
        + times_halves((t3 >> eight) & low, w3)
    )
    return (
        to_floats(red_blue & np.int32(0xFFFF)),
        to_floats(green & np.int32(0xFFFF)),
        to_floats(red_blue >> sixteen),
    )
