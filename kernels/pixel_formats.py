"""Pixel formats: finished pixels to the bytes of each output, for both renderers.

A finished pixel is one word: red in the lowest byte, then green, blue, and a label where alpha would be.
"""

import numpy as np

from worldloom.kernels.compiling import inlined
from worldloom.kernels.intrinsics import store_rgb
from worldloom.kernels.simd import SIMD_WIDTH
from worldloom.kernels.tables import U8, U32


@inlined
def write_rgb(words: U32, first: int, pixels: int, arena: U8, start: int) -> None:
    """Write red, green and blue of `pixels` words from `first` on to the arena from byte `start` on."""
    whole = pixels - pixels % SIMD_WIDTH
    for pixel in range(0, whole, SIMD_WIDTH):
        store_rgb(words, first + pixel, arena, start + 3 * pixel)
    for pixel in range(whole, pixels):
        word = words[first + pixel]
        arena[start + 3 * pixel] = word & 255
        arena[start + 3 * pixel + 1] = (word >> 8) & 255
        arena[start + 3 * pixel + 2] = (word >> 16) & 255


@inlined
def write_numbers(row: U8, size_bytes: np.uint64, arena: U8, start: np.uint64) -> None:
    """Write the first bytes of a row of numbers to the arena from byte `start` on."""
    for byte in range(size_bytes):
        arena[start + byte] = row[byte]


@inlined
def write_gray(words: U32, out: U8) -> None:
    """Write the brightness of finished pixels."""
    for pixel in range(out.size):
        word = words[pixel]
        red, green, blue = (
            word & np.uint32(255),
            (word >> np.uint32(8)) & np.uint32(255),
            (word >> np.uint32(16)) & np.uint32(255),
        )
        weighted = np.uint32(77) * red + np.uint32(150) * green + np.uint32(29) * blue + np.uint32(128)
        out[pixel] = np.uint8(np.uint32(weighted) >> np.uint32(8))


@inlined
def write_labels(words: U32, out: U8) -> None:
    """Write the labels of finished pixels."""
    for pixel in range(out.size):
        out[pixel] = np.uint8(words[pixel] >> np.uint32(24))
