"""Entering eight pixels into the visibility buffer: the rasteriser's innermost step, instruction by instruction.

From a triangle on the screen to the pixels it covers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from worldloom.kernels.compiling import called, inlined
from worldloom.kernels.raster.scratch import BLOCK, padded
from worldloom.kernels.simd import FLOAT_LANES, INT_LANES, LANES, all_lanes, choose
from worldloom.kernels.tables import F32, F64, I32


class _PlainStore(ir.instructions.StoreInstr):  # type: ignore[misc]
    """A store that stays one.

    A choice between old and new written back would be compiled to a masked store, which made filling triangles take two
    and a half times as long; volatile forbids that.
    """

    def descr(self, buf: list[str]) -> None:
        value, place = self.operands
        buf.append(
            f"store volatile {value.type} {value.get_reference()}, {place.type} {place.get_reference()}, align 4\n"
        )


def _store(builder: Any, value: Any, place: Any) -> None:
    builder._insert(_PlainStore(builder.block, value, place))


@intrinsic  # type: ignore[untyped-decorator]
def enter_block(
    typing_context: Any,
    nearness: Any,
    owner: Any,
    at: Any,
    x: Any,
    x_from: Any,
    x_to: Any,
    start: Any,
    step: Any,
    number: Any,
) -> tuple[Any, Callable[..., Any]]:
    """Enter eight pixels, that begin at `x` and in both buffers at `at`, for the triangle `number`.

    Where x_from <= x < x_to and start + step * x, which is finite, is greater than the nearness that is there, it takes
    its place, and the number that of the owner.
    """
    signature = types.void(
        nearness,
        owner,
        types.uint64,
        types.int32,
        types.int32,
        types.int32,
        types.float32,
        types.float32,
        types.int32,
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        nearness, owner, at, x, x_from, x_to, start, step, number = arguments

        def load(array_type: Any, array: Any, vector: Any) -> tuple[Any, Any]:
            data = context.make_array(array_type)(context, builder, array).data
            place = builder.bitcast(builder.gep(data, [at]), vector.as_pointer())
            loaded = builder.load(place)
            loaded.align = 4
            return place, loaded

        near_place, old = load(signature.args[0], nearness, FLOAT_LANES)
        owner_place, old_owner = load(signature.args[1], owner, INT_LANES)
        xs = builder.add(all_lanes(builder, x, INT_LANES), ir.Constant(INT_LANES, list(range(LANES))))
        new = builder.fadd(
            all_lanes(builder, start, FLOAT_LANES),
            builder.fmul(all_lanes(builder, step, FLOAT_LANES), builder.sitofp(xs, FLOAT_LANES)),
        )
        inside = builder.and_(
            builder.icmp_signed(">=", xs, all_lanes(builder, x_from, INT_LANES)),
            builder.icmp_signed("<", xs, all_lanes(builder, x_to, INT_LANES)),
        )
        wins = builder.and_(inside, builder.fcmp_ordered(">", new, old))
        _store(builder, builder.select(wins, new, old), near_place)
        _store(builder, builder.select(wins, all_lanes(builder, number, INT_LANES), old_owner), owner_place)
        return context.get_dummy_value()

    return signature, generate


SUBPIXELS = 256.0
"""Vertices are rounded to this many positions a pixel, so that both triangles at an edge see the same edge."""


@inlined
def snap(pixels: float) -> float:
    """Round to a position that both triangles at an edge agree on."""
    return np.rint(pixels * SUBPIXELS) * (1.0 / SUBPIXELS)


@called
def near_cut(vertices: F64, a: int, b: int, c: int, near: float, orthographic: bool, polygon: F64) -> int:
    """The part of a triangle beyond the near plane, as 3 or 4 corners in pixels; returns how many."""
    corners = 0
    for k in range(3):
        i = a if k == 0 else (b if k == 1 else c)
        j = b if k == 0 else (c if k == 1 else a)
        if vertices[3, i] >= near:
            polygon[corners, 0], polygon[corners, 1] = vertices[4, i], vertices[5, i]
            corners += 1
        if (vertices[3, i] >= near) != (vertices[3, j] >= near):
            # Always from the nearer end, so that both triangles at an edge cut it at the same point.
            low = i if vertices[3, i] < vertices[3, j] else j
            high = j if vertices[3, i] < vertices[3, j] else i
            t = (near - vertices[3, low]) / (vertices[3, high] - vertices[3, low])
            w = 1.0 if orthographic else near
            polygon[corners, 0] = snap((vertices[0, low] + t * (vertices[0, high] - vertices[0, low])) / w)
            polygon[corners, 1] = snap((vertices[1, low] + t * (vertices[1, high] - vertices[1, low])) / w)
            corners += 1
    return corners


@inlined
def _first_pixel(edge: float, size: int) -> int:
    """The first pixel at or after an edge, kept inside the picture."""
    return np.int64(min(max(np.ceil(edge), 0.0), np.float64(size)))


@inlined
def _sorted(ax: float, ay: float, bx: float, by: float) -> tuple[float, float, float, float]:
    """Two corners, the upper one first, or the left one of two at the same height."""
    swap = (by < ay) | ((by == ay) & (bx < ax))
    return choose(swap, bx, ax), choose(swap, by, ay), choose(swap, ax, bx), choose(swap, ay, by)


@called
def fill(
    ax: float,
    ay: float,
    bx: float,
    by: float,
    cx: float,
    cy: float,
    width: int,
    height: int,
    offset_x: float,
    offset_y: float,
    key_x: float,
    key_y: float,
    key: float,
    number: int,
    sample: int,
    nearness: F32,
    owner: I32,
) -> None:
    """Enter one triangle, in pixels, into one sample's visibility buffer."""
    # Sorted by y, then x: an edge is walked the same way whichever triangle it belongs to.
    ax, ay, bx, by = _sorted(ax, ay, bx, by)
    ax, ay, cx, cy = _sorted(ax, ay, cx, cy)
    bx, by, cx, cy = _sorted(bx, by, cx, cy)
    area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)
    first, middle, last = (
        _first_pixel(ay - offset_y, height),
        _first_pixel(by - offset_y, height),
        _first_pixel(cy - offset_y, height),
    )
    if area == 0.0 or first == last:
        return
    long_slope = (cx - ax) / (cy - ay)
    stride = padded(width)
    first_pixel_at = sample * np.uint64(owner.size // 4)
    step = np.float32(key_x)
    for half in range(2):
        y_from = first if half == 0 else middle
        y_to = middle if half == 0 else last
        if y_from == y_to:
            continue
        short_slope = (bx - ax) / (by - ay) if half == 0 else (cx - bx) / (cy - by)
        top_x, top_y = (ax, ay) if half == 0 else (bx, by)
        left_x, left_y, left_slope = (ax, ay, long_slope) if area > 0.0 else (top_x, top_y, short_slope)
        right_x, right_y, right_slope = (top_x, top_y, short_slope) if area > 0.0 else (ax, ay, long_slope)
        for y in range(y_from, y_to):
            center = y + offset_y
            # From the edge's upper end, so that at its height an edge is exactly there.
            x_from = _first_pixel(left_x + (center - left_y) * left_slope - offset_x, width)
            x_to = _first_pixel(right_x + (center - right_y) * right_slope - offset_x, width)
            if x_from >= x_to:
                continue
            start = np.float32(key_y * center + key + key_x * offset_x)
            base = first_pixel_at + np.uint64(y) * stride
            # Whole blocks: the pixels of a block outside the span keep what they have.
            block, end = np.uint64(x_from) & ~np.uint64(BLOCK - 1), np.uint64(x_to)
            while block < end:
                at, x = base + block, np.int32(block)
                enter_block(nearness, owner, at, x, np.int32(x_from), np.int32(x_to), start, step, np.int32(number))
                block += np.uint64(BLOCK)
