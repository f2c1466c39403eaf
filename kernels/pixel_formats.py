"""From what a graphics card gives back to what was asked for: pictures at any byte of the arena.

The card gives one word a pixel (red in the lowest byte, then green, blue, and the label where alpha would be) and one
float where depth was asked for. Both come layer after layer, row 0 at the top.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from worldloom.kernels.compiling import inlined, kernel
from worldloom.kernels.tables import DEPTH, GRAY, I64, RGB, SEGMENTATION, U8, U32, ViewTable

_AT_ONCE = 8
"""Pixels moved by one shuffle: 32 bytes in, 24 out."""


@intrinsic  # type: ignore[untyped-decorator]
def _store_eight_rgb(
    typing_context: Any, words: Any, first: Any, arena: Any, start: Any
) -> tuple[Any, Callable[..., Any]]:
    """Write the three low bytes of eight words one after another, at any byte: NumPy arrays know aligned words only.

    Byte by byte the same takes five times as long; this runs at the speed of memory.
    """
    signature = types.void(words, types.int64, arena, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, arguments[0])
        target = context.make_array(signature.args[2])(context, builder, arguments[2])
        four_each = ir.VectorType(ir.IntType(8), 4 * _AT_ONCE)
        three_each = ir.VectorType(ir.IntType(8), 3 * _AT_ONCE)
        kept = [4 * pixel + channel for pixel in range(_AT_ONCE) for channel in range(3)]
        loaded = builder.load(builder.bitcast(builder.gep(source.data, [arguments[1]]), four_each.as_pointer()))
        loaded.align = 4
        mask = ir.Constant(ir.VectorType(ir.IntType(32), 3 * _AT_ONCE), kept)
        shuffled = builder.shuffle_vector(loaded, ir.Constant(four_each, ir.Undefined), mask)
        place = builder.bitcast(builder.gep(target.data, [arguments[3]]), three_each.as_pointer())
        builder.store(shuffled, place).align = 1
        return context.get_dummy_value()

    return signature, generate


@inlined
def write_rgb(words: U32, first: int, pixels: int, arena: U8, start: int) -> None:
    """Colours of pixels from `first` on, red first, without the fourth byte."""
    whole = pixels - pixels % _AT_ONCE
    for pixel in range(0, whole, _AT_ONCE):
        _store_eight_rgb(words, first + pixel, arena, start + 3 * pixel)
    for pixel in range(whole, pixels):
        word = words[first + pixel]
        arena[start + 3 * pixel] = word & 255
        arena[start + 3 * pixel + 1] = (word >> 8) & 255
        arena[start + 3 * pixel + 2] = (word >> 16) & 255


@inlined
def write_gray(words: U32, out: U8) -> None:
    """The brightness of finished pixels."""
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
def _unpack_label(words: U32, out: U8) -> None:
    for pixel in range(out.size):
        out[pixel] = np.uint8(words[pixel] >> np.uint32(24))


@inlined
def _copy(source: U8, out: U8) -> None:
    for byte in range(out.size):
        out[byte] = source[byte]


@kernel
def unpack(words: U32, depth_bytes: U8, views: ViewTable, page: I64, offsets: I64, arena: U8) -> None:
    """Move the pictures of a page of equally large views to where they belong.

    `words` [layers, pixels]; `depth_bytes` [layers, 4 * pixels], or [0, 0] where no view of the page asks for depth.
    """
    for layer in range(page.size):
        view = page[layer]
        pixels = np.int64(views.width[view]) * views.height[view]
        asked = views.outputs[view]
        if asked & RGB:
            write_rgb(words[layer], 0, pixels, arena, offsets[view, 0])
        if asked & GRAY:
            start = offsets[view, 1]
            write_gray(words[layer], arena[start : start + pixels])
        if asked & DEPTH:
            start = offsets[view, 2]
            _copy(depth_bytes[layer], arena[start : start + 4 * pixels])
        if asked & SEGMENTATION:
            start = offsets[view, 3]
            _unpack_label(words[layer], arena[start : start + pixels])
