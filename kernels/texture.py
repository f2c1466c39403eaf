"""Reading textures: which mip level, which four texels, and their blend.

Three loops over a run, so that all arithmetic is vector code and only the fetching itself goes texel by texel.
"""

import numpy as np

from worldloom.kernels.compiling import called
from worldloom.kernels.scratch import (
    AT0,
    AT1,
    AT2,
    AT3,
    BLUE,
    DOWN,
    GREEN,
    OVER_U,
    OVER_V,
    OVER_W,
    RED,
    TO_RIGHT,
    W,
    plane_at,
)
from worldloom.kernels.tables import F32, F64, I32, U32


@called
def multiply_texture(
    texels: U32,
    texture_size: int,
    texture: int,
    real: F64,
    number: int,
    center_y: float,
    x_from: int,
    x_to: int,
    rows: F32,
    buffers: I32,
) -> None:
    """Multiply the colour rows of a run by its texture."""
    _locate(texture_size, real, number, center_y, x_from, x_to, rows, buffers)
    for x in range(x_from, x_to):
        buffers[AT0 + x] = np.int32(texels[texture, np.uint64(buffers[AT0 + x])])
        buffers[AT1 + x] = np.int32(texels[texture, np.uint64(buffers[AT1 + x])])
        buffers[AT2 + x] = np.int32(texels[texture, np.uint64(buffers[AT2 + x])])
        buffers[AT3 + x] = np.int32(texels[texture, np.uint64(buffers[AT3 + x])])
    _blend(x_from, x_to, rows, buffers)


@called
def _locate(
    texture_size: int, real: F64, number: int, center_y: float, x_from: int, x_to: int, rows: F32, buffers: I32
) -> None:
    """Pick a level for each pixel, and work out which of its texels lie around the point and where between them."""
    ux, uy = np.float32(real[number, OVER_U]), np.float32(real[number, OVER_U + 1])
    vx, vy = np.float32(real[number, OVER_V]), np.float32(real[number, OVER_V + 1])
    wx, wy = np.float32(real[number, OVER_W]), np.float32(real[number, OVER_W + 1])
    u_start = plane_at(real, number, OVER_U, center_y)
    v_start = plane_at(real, number, OVER_V, center_y)
    size = np.float32(texture_size)
    half, one, four, third = np.float32(0.5), np.float32(1.0), np.float32(4.0), np.float32(4.0 / 3.0)
    eight, step = np.int32(8), np.int32(1)
    for x in range(x_from, x_to):
        w = rows[W + x]
        u = (u_start + ux * np.float32(np.int32(x))) * w
        v = (v_start + vx * np.float32(np.int32(x))) * w
        u_x, v_x = ux - u * wx, vx - v * wx
        u_y, v_y = uy - u * wy, vy - v * wy
        rho = max(u_x * u_x + v_x * v_x, u_y * u_y + v_y * v_y) * (w * w) * (size * size)
        # Half the exponent of 4·rho² is floor(log2(rho²)/2 + 1/2) + 1, a level without a logarithm; and the side of
        # that level is the size times two to the power of minus the level, which is an exponent again.
        level = np.int32(np.int32(np.float32(rho * four).view(np.int32) >> np.int32(24)) - np.int32(64))
        level = min(max(level, np.int32(0)), np.int32(31))
        shrink = np.int32(np.int32(np.int32(127) - level) << np.int32(23))
        side = max(size * np.int32(shrink).view(np.float32), one)
        texels_wide = np.int32(side)
        mask = np.int32(texels_wide - step)
        # The larger levels before this one are a geometric series; every number here is exact in float32.
        first = np.int32((size * size - side * side) * third + half)
        # 8 bits of fraction; texel centres are at halves.
        fixed = side * np.float32(256.0)
        u_fixed = np.int32(np.int32((u - np.floor(u)) * fixed + half) - np.int32(128))
        v_fixed = np.int32(np.int32((v - np.floor(v)) * fixed + half) - np.int32(128))
        left, top = np.int32(u_fixed >> eight), np.int32(v_fixed >> eight)
        right, bottom = np.int32(np.int32(left + step) & mask), np.int32(np.int32(top + step) & mask)
        top = np.int32(np.int32(np.int32(top & mask) * texels_wide) + first)
        bottom = np.int32(np.int32(bottom * texels_wide) + first)
        left = np.int32(left & mask)
        buffers[AT0 + x] = top + left
        buffers[AT1 + x] = top + right
        buffers[AT2 + x] = bottom + left
        buffers[AT3 + x] = bottom + right
        buffers[TO_RIGHT + x] = u_fixed & np.int32(255)
        buffers[DOWN + x] = v_fixed & np.int32(255)


@called
def _blend(x_from: int, x_to: int, rows: F32, buffers: I32) -> None:
    """Blend the four texels of each pixel by weights that add up to 256 exactly, so a plain colour stays what it is."""
    scale = np.float32(1.0 / 65280.0)
    outer, byte = np.uint32(0xFF00FF), np.uint32(0xFF)
    for x in range(x_from, x_to):
        fu, fv = np.uint32(buffers[TO_RIGHT + x]), np.uint32(buffers[DOWN + x])
        both = np.uint32(np.uint32(np.uint32(fu * fv) + np.uint32(128)) >> np.uint32(8))
        w1, w2 = np.uint32(fu - both), np.uint32(fv - both)
        w0 = np.uint32(np.uint32(np.uint32(256) - fu) - w2)
        t0, t1, t2, t3 = (
            np.uint32(buffers[AT0 + x]),
            np.uint32(buffers[AT1 + x]),
            np.uint32(buffers[AT2 + x]),
            np.uint32(buffers[AT3 + x]),
        )
        # Red and blue side by side in one word, 16 bits each.
        red_blue = np.uint32(
            np.uint32(np.uint32(t0 & outer) * w0)
            + np.uint32(np.uint32(t1 & outer) * w1)
            + np.uint32(np.uint32(t2 & outer) * w2)
            + np.uint32(np.uint32(t3 & outer) * both)
        )
        green = np.uint32(
            np.uint32(np.uint32(np.uint32(t0 >> np.uint32(8)) & byte) * w0)
            + np.uint32(np.uint32(np.uint32(t1 >> np.uint32(8)) & byte) * w1)
            + np.uint32(np.uint32(np.uint32(t2 >> np.uint32(8)) & byte) * w2)
            + np.uint32(np.uint32(np.uint32(t3 >> np.uint32(8)) & byte) * both)
        )
        rows[RED + x] *= np.float32(np.int32(red_blue & np.uint32(0xFFFF))) * scale
        rows[GREEN + x] *= np.float32(np.int32(green)) * scale
        rows[BLUE + x] *= np.float32(np.int32(red_blue >> np.uint32(16))) * scale
