"""Reading textures: which mip level, and four texels blended."""

import numpy as np

from worldloom.kernels.compiling import inlined
from worldloom.kernels.raster import OVER_U, OVER_V, OVER_W

W, RED, GREEN, BLUE, U, V = 0, 1, 2, 3, 4, 5


@inlined
def _spread(texel: np.uint32) -> np.uint64:
    """A texel's channels with 16 bits each to grow into: red, blue, then green."""
    wide = np.uint64(texel)
    return np.uint64((wide & np.uint64(0xFF00FF)) | ((wide & np.uint64(0xFF00)) << np.uint64(24)))


@inlined
def multiply_texture(  # type: ignore[no-untyped-def]
    texels, mip_first_texel, texture_size, texture, real, number, center_y, x_from, x_to, rows, texel_level
) -> None:
    """Multiply the colour rows of a run by its texture."""
    size = np.float32(texture_size)
    smallest = np.int32(mip_first_texel.size - 1)
    ux, uy = np.float32(real[number, OVER_U]), np.float32(real[number, OVER_U + 1])
    vx, vy = np.float32(real[number, OVER_V]), np.float32(real[number, OVER_V + 1])
    wx, wy = np.float32(real[number, OVER_W]), np.float32(real[number, OVER_W + 1])
    u_start = np.float32(real[number, OVER_U] * 0.5 + real[number, OVER_U + 1] * center_y + real[number, OVER_U + 2])
    v_start = np.float32(real[number, OVER_V] * 0.5 + real[number, OVER_V + 1] * center_y + real[number, OVER_V + 2])
    two = np.float32(2.0)
    for x in range(x_from, x_to):
        w = rows[W, x]
        u = (u_start + ux * np.float32(np.int32(x))) * w
        v = (v_start + vx * np.float32(np.int32(x))) * w
        u_x, v_x = ux - u * wx, vx - v * wx
        u_y, v_y = uy - u * wy, vy - v * wy
        rho = max(u_x * u_x + v_x * v_x, u_y * u_y + v_y * v_y) * (w * w) * (size * size)
        # The exponent of 2·rho² is twice the level, or one more: floor(log2(rho²)/2 + 1/2) without a logarithm.
        exponent = np.int32(np.int32(np.float32(rho * two).view(np.int32) >> np.int32(23)) - np.int32(127))
        texel_level[x] = min(max(np.int32(exponent >> np.int32(1)), np.int32(0)), smallest)
        rows[U, x] = u - np.floor(u)
        rows[V, x] = v - np.floor(v)
    scale = np.float32(1.0 / 65280.0)
    for x in range(x_from, x_to):
        level = texel_level[x]
        side = np.int32(texture_size >> level)
        first = mip_first_texel[level]
        fixed = np.float32(side) * np.float32(256.0)
        # 8 bits of fraction; texel centres are at halves.
        u = np.int32(rows[U, x] * fixed + np.float32(0.5)) - np.int32(128)
        v = np.int32(rows[V, x] * fixed + np.float32(0.5)) - np.int32(128)
        mask = side - 1
        left, right = (u >> 8) & mask, ((u >> 8) + 1) & mask
        top, bottom = ((v >> 8) & mask) * side + first, (((v >> 8) + 1) & mask) * side + first
        fu, fv = np.uint64(u & 255), np.uint64(v & 255)
        # Four weights that add up to 256 exactly, so a plain colour stays what it is.
        both = (fu * fv + np.uint64(128)) >> np.uint64(8)
        blend = (
            _spread(texels[texture, np.uint64(top + left)]) * (np.uint64(256) - fu - fv + both)
            + _spread(texels[texture, np.uint64(top + right)]) * (fu - both)
            + _spread(texels[texture, np.uint64(bottom + left)]) * (fv - both)
            + _spread(texels[texture, np.uint64(bottom + right)]) * both
        )
        rows[RED, x] *= np.float32(np.int32(blend & np.uint64(0xFFFF))) * scale
        rows[BLUE, x] *= np.float32(np.int32((blend >> np.uint64(16)) & np.uint64(0xFFFF))) * scale
        rows[GREEN, x] *= np.float32(np.int32((blend >> np.uint64(32)) & np.uint64(0xFFFF))) * scale
