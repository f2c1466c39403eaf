"""Scan conversion: a triangle in pixel coordinates to the samples of the visibility buffer that it covers.

The innermost step, a depth test of eight pixels, is written as LLVM instructions to control its stores.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from worldloom.kernels.compiling import device_function, inlined
from worldloom.kernels.intrinsics import store
from worldloom.kernels.raster.scratch import padded
from worldloom.kernels.simd import (
    LLVM_FLOATS,
    LLVM_INTS,
    SIMD_WIDTH,
    broadcast,
    ceil,
    maximum,
    minimum,
    rows_from,
    select,
    to_ints,
)
from worldloom.kernels.tables import F32, F64, I32


class _PlainStore(ir.instructions.StoreInstr):  # type: ignore[misc]
    """A store that LLVM may not turn into a masked store.

    Writing back a selection of old and new values would be compiled to a masked store, which made filling triangles 2.5
    times slower; volatile prevents it.
    """

    def descr(self, buf: list[str]) -> None:
        value, pointer = self.operands
        buf.append(
            f"store volatile {value.type} {value.get_reference()}, {pointer.type} {pointer.get_reference()}, align 4\n"
        )


def _store(builder: Any, value: Any, pointer: Any) -> None:
    builder._insert(_PlainStore(builder.block, value, pointer))


@intrinsic  # type: ignore[untyped-decorator]
def depth_test(
    typing_context: Any,
    nearness: Any,
    owner: Any,
    at: Any,
    x: Any,
    x_from: Any,
    x_to: Any,
    start: Any,
    step: Any,
    record: Any,
) -> tuple[Any, Callable[..., Any]]:
    """Depth-test eight pixels of a triangle: from column `x` on, at index `at` of both buffers.

    Where x_from <= x < x_to and start + step * x, which is finite, is greater than the nearness in the buffer, it
    replaces that, and `record` replaces the owner.
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
        nearness, owner, at, x, x_from, x_to, start, step, record = arguments

        def load(array_type: Any, array: Any, vector: Any) -> tuple[Any, Any]:
            data = context.make_array(array_type)(context, builder, array).data
            pointer = builder.bitcast(builder.gep(data, [at]), vector.as_pointer())
            loaded = builder.load(pointer)
            loaded.align = 4
            return pointer, loaded

        nearness_pointer, old = load(signature.args[0], nearness, LLVM_FLOATS)
        owner_pointer, old_owner = load(signature.args[1], owner, LLVM_INTS)
        xs = builder.add(broadcast(builder, x, LLVM_INTS), ir.Constant(LLVM_INTS, list(range(SIMD_WIDTH))))
        new = builder.fadd(
            broadcast(builder, start, LLVM_FLOATS),
            builder.fmul(broadcast(builder, step, LLVM_FLOATS), builder.sitofp(xs, LLVM_FLOATS)),
        )
        inside = builder.and_(
            builder.icmp_signed(">=", xs, broadcast(builder, x_from, LLVM_INTS)),
            builder.icmp_signed("<", xs, broadcast(builder, x_to, LLVM_INTS)),
        )
        wins = builder.and_(inside, builder.fcmp_ordered(">", new, old))
        _store(builder, builder.select(wins, new, old), nearness_pointer)
        _store(builder, builder.select(wins, broadcast(builder, record, LLVM_INTS), old_owner), owner_pointer)
        return context.get_dummy_value()

    return signature, generate


SUBPIXELS = 256.0
"""Positions per pixel that vertices are rounded to, so that both triangles at an edge have the same edge."""


@inlined
def snap(pixels: float) -> float:
    """Round a pixel coordinate to a subpixel position."""
    return np.rint(pixels * SUBPIXELS) * (1.0 / SUBPIXELS)


@device_function
def clip_at_near_plane(vertices: F64, a: int, b: int, c: int, near: float, orthographic: bool, polygon: F64) -> int:
    """Clip a triangle at the near plane: write 3 or 4 corners in pixels to `polygon`, return their number."""
    corners = 0
    for k in range(3):
        i = a if k == 0 else (b if k == 1 else c)
        j = b if k == 0 else (c if k == 1 else a)
        if vertices[3, i] >= near:
            polygon[corners, 0], polygon[corners, 1] = vertices[4, i], vertices[5, i]
            corners += 1
        if (vertices[3, i] >= near) != (vertices[3, j] >= near):
            # Always from the nearer end, so that both triangles at an edge are clipped at the same point.
            low = i if vertices[3, i] < vertices[3, j] else j
            high = j if vertices[3, i] < vertices[3, j] else i
            t = (near - vertices[3, low]) / (vertices[3, high] - vertices[3, low])
            w = 1.0 if orthographic else near
            polygon[corners, 0] = snap((vertices[0, low] + t * (vertices[0, high] - vertices[0, low])) / w)
            polygon[corners, 1] = snap((vertices[1, low] + t * (vertices[1, high] - vertices[1, low])) / w)
            corners += 1
    return corners


@inlined
def _first_row(edge: float, top: int, bottom: int) -> int:
    """Return the first row at or below an edge, clamped to top..bottom."""
    return np.int64(min(max(np.ceil(edge), np.float64(top)), np.float64(bottom)))


@inlined
def _sorted(ax: float, ay: float, bx: float, by: float) -> tuple[float, float, float, float]:
    """Return two corners sorted by y, then x."""
    swap = (by < ay) | ((by == ay) & (bx < ax))
    return select(swap, bx, ax), select(swap, by, ay), select(swap, ax, bx), select(swap, ay, by)


@inlined
def fill(
    ax: float,
    ay: float,
    bx: float,
    by: float,
    cx: float,
    cy: float,
    width: int,
    top: int,
    bottom: int,
    offset_x: float,
    offset_y: float,
    key_x: float,
    key_y: float,
    key: float,
    record: int,
    sample: int,
    spans: I32,
    nearness: F32,
    owner: I32,
) -> None:
    """Rasterise one triangle, in pixel coordinates, into the visibility buffer of one sample: rows [top, bottom)."""
    # Sorted by y, then x: an edge is evaluated in the same direction for both of its triangles.
    ax, ay, bx, by = _sorted(ax, ay, bx, by)
    ax, ay, cx, cy = _sorted(ax, ay, cx, cy)
    bx, by, cx, cy = _sorted(bx, by, cx, cy)
    area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)
    first, middle, last = (
        _first_row(ay - offset_y, top, bottom),
        _first_row(by - offset_y, top, bottom),
        _first_row(cy - offset_y, top, bottom),
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
        for first_y in range(y_from, y_to, SIMD_WIDTH):
            # Spans of eight rows. From the edge's upper end, so that the result is exact at the height of that corner.
            centers = rows_from(first_y) + offset_y
            lefts = ceil(left_x + (centers - left_y) * left_slope - offset_x)
            rights = ceil(right_x + (centers - right_y) * right_slope - offset_x)
            store(spans, np.uint64(0), to_ints(minimum(maximum(lefts, 0.0), np.float64(width))))
            store(spans, np.uint64(SIMD_WIDTH), to_ints(minimum(maximum(rights, 0.0), np.float64(width))))
            for y in range(first_y, min(first_y + SIMD_WIDTH, y_to)):
                x_from = spans[np.uint64(y - first_y)]
                x_to = spans[np.uint64(y - first_y + SIMD_WIDTH)]
                if x_from >= x_to:
                    continue
                start = np.float32(key_y * (y + offset_y) + key + key_x * offset_x)
                base = first_pixel_at + np.uint64(y - top) * stride
                # Whole vectors: pixels outside the span keep their values.
                vector, end = np.uint64(x_from) & ~np.uint64(SIMD_WIDTH - 1), np.uint64(x_to)
                while vector < end:
                    at, x = base + vector, np.int32(vector)
                    depth_test(nearness, owner, at, x, x_from, x_to, start, step, np.int32(record))
                    vector += np.uint64(SIMD_WIDTH)
