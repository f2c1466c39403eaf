"""Texture sampling: mip level, the four nearest texels, and their bilinear blend.

In two steps, with the indices of the texels stored between them: the processor stalls less if loads of several vectors
are in flight.
"""

import numpy as np

from worldloom.kernels.compiling import inlined
from worldloom.kernels.intrinsics import gather_pairs, load_ints, store
from worldloom.kernels.raster.scratch import LOWER_TEXEL, OVER_U, OVER_V, OVER_W, TEXEL_FRACTION, UPPER_TEXEL, row_start
from worldloom.kernels.simd import (
    Floats,
    Ints,
    bits_of,
    floats,
    floor,
    from_bits,
    ints,
    maximum,
    minimum,
    multiply_halves,
    to_floats,
    to_ints,
)
from worldloom.kernels.tables import F64, I32, U32

BLEND_SCALE = np.float32(1.0 / 65280.0)
"""Factor from the result of `read_texels` to a colour in 0..1."""


@inlined
def mip_level(
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
    """Return the mip level of each pixel of a run, see `uv_gradients`."""
    scale = w * w * (np.float32(2.0) * size)
    sideways = scale * across
    u_y, v_y = (down_u + down_u_x * at) * scale, (down_v + down_v_x * at) * scale
    rho = maximum(sideways * sideways, u_y * u_y + v_y * v_y)
    # Half the exponent of 4·rho² is floor(log2(rho²)/2 + 1/2) + 1: a level without a logarithm.
    level = (bits_of(rho) >> np.int32(24)) - np.int32(64)
    return minimum(maximum(level, np.int32(0)), smallest)


@inlined
def uv_gradients(
    record_floats: F64, record: int, center_y: float
) -> tuple[np.float32, np.float32, np.float32, np.float32, np.float32]:
    """Return the derivatives of u and v along a row of a triangle in perspective, all divided by w².

    With U = u/w, V = v/w and Q = 1/w, which are planes, u_x = (U_x·Q - U·Q_x)·w². The bracket is constant along a row,
    and that of u_y is linear. Returned are: the length of the bracket for (u_x, v_x); the bracket for u_y at the first
    pixel and its step; and the same for v_y.
    """
    ux, uy, u = (
        record_floats[record, OVER_U],
        record_floats[record, OVER_U + 1],
        row_start(record_floats, record, OVER_U, center_y),
    )
    vx, vy, v = (
        record_floats[record, OVER_V],
        record_floats[record, OVER_V + 1],
        row_start(record_floats, record, OVER_V, center_y),
    )
    wx, wy, w = (
        record_floats[record, OVER_W],
        record_floats[record, OVER_W + 1],
        row_start(record_floats, record, OVER_W, center_y),
    )
    u_x, v_x = ux * w - u * wx, vx * w - v * wx
    return (
        np.float32(np.sqrt(u_x * u_x + v_x * v_x)),
        np.float32(uy * w - u * wy),
        np.float32(uy * wx - ux * wy),
        np.float32(vy * w - v * wy),
        np.float32(vy * wx - vx * wy),
    )


@inlined
def find_texels(first: np.int32, size: np.int32, level: Ints, u: Floats, v: Floats, x: np.uint64, buffers: I32) -> None:
    """Store the indices of the texels around u, v at these levels, and the fraction; the texture begins at `first`."""
    half, one, eight = np.float32(0.5), np.int32(1), np.int32(8)
    side = ints(size) >> level
    mask, length = side - one, side + one
    # See AssetTable.texel_rows.
    twice = np.int32(2) * size * size
    start = (first + twice) - (ints(twice) >> (level << one))
    # 8 bits of fraction; texel centres are at halves.
    fixed = from_bits(bits_of(floats(np.float32(256.0) * np.float32(size))) - (level << np.int32(23)))
    u_fixed = to_ints((u - floor(u)) * fixed + half) - np.int32(128)
    v_fixed = to_ints((v - floor(v)) * fixed + half) - np.int32(128)
    left, upper = ((u_fixed >> eight) & mask) + start, (v_fixed >> eight) & mask
    lower = (upper + one) & mask
    store(buffers, UPPER_TEXEL + x, upper * length + left)
    store(buffers, LOWER_TEXEL + x, lower * length + left)
    store(buffers, TEXEL_FRACTION + x, (u_fixed & np.int32(255)) | ((v_fixed & np.int32(255)) << np.int32(16)))


@inlined
def read_texels(texel_rows: U32, x: np.uint64, buffers: I32) -> tuple[Floats, Floats, Floats]:
    """Return red, green and blue, each 0..65280, of the texels that `find_texels` stored.

    The four texels of a pixel are blended by weights that add up to 256 exactly, so a uniform colour is unchanged.
    """
    t0, t1 = gather_pairs(texel_rows, buffers, UPPER_TEXEL + x)
    t2, t3 = gather_pairs(texel_rows, buffers, LOWER_TEXEL + x)
    # Two 16-bit numbers in each 32-bit element: every weight twice, red beside blue, green beside an unused byte.
    eight, sixteen, low = np.int32(8), np.int32(16), np.int32(0xFF00FF)
    between = load_ints(buffers, TEXEL_FRACTION + x)
    fu, fv = between & np.int32(255), between >> sixteen
    fu, fv = fu | (fu << sixteen), fv | (fv << sixteen)
    w3 = ((multiply_halves(fu, fv) + np.int32(0x800080)) >> eight) & low
    w1, w2 = fu - w3, fv - w3
    w0 = np.int32(0x1000100) - fu - w2
    red_blue = (
        multiply_halves(t0 & low, w0)
        + multiply_halves(t1 & low, w1)
        + multiply_halves(t2 & low, w2)
        + multiply_halves(t3 & low, w3)
    )
    green = (
        multiply_halves((t0 >> eight) & low, w0)
        + multiply_halves((t1 >> eight) & low, w1)
        + multiply_halves((t2 >> eight) & low, w2)
        + multiply_halves((t3 >> eight) & low, w3)
    )
    return (
        to_floats(red_blue & np.int32(0xFFFF)),
        to_floats(green & np.int32(0xFFFF)),
        to_floats(red_blue >> sixteen),
    )
