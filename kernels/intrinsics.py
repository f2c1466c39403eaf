"""Memory access that numba has no words for: SIMD loads and stores at any element, and an atomic counter.

Nothing here checks bounds: callers pad their arrays to whole vectors. `kernels/simd.py` has the arithmetic.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from worldloom.kernels.simd import DOUBLE_VECTOR, FLOAT_VECTOR, INT_VECTOR, LLVM_INTS, SIMD_WIDTH, Generated


def _load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    vector = context.get_value_type(signature.return_type)
    loaded = builder.load(builder.bitcast(builder.gep(data, [arguments[1]]), vector.as_pointer()))
    loaded.align = 4
    return loaded


def _store(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array, start, vector = arguments
    data = context.make_array(signature.args[0])(context, builder, array).data
    builder.store(vector, builder.bitcast(builder.gep(data, [start]), vector.type.as_pointer())).align = 4
    return context.get_dummy_value()


@intrinsic  # type: ignore[untyped-decorator]
def load_ints(typing_context: Any, array: Any, start: Any) -> Generated:
    """Load a vector from an array of 32-bit integers."""
    return INT_VECTOR(array, types.uint64), _load


@intrinsic  # type: ignore[untyped-decorator]
def load_floats(typing_context: Any, array: Any, start: Any) -> Generated:
    """Load a vector from an array of float32."""
    return FLOAT_VECTOR(array, types.uint64), _load


@intrinsic  # type: ignore[untyped-decorator]
def load_points(typing_context: Any, array: Any, start: Any) -> Generated:
    """Load eight rows of an array [n, 3] of float32 as three vectors of float64: x, y and z."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        all_three = ir.VectorType(ir.FloatType(), 3 * SIMD_WIDTH)
        first = builder.gep(data, [builder.mul(arguments[1], ir.Constant(ir.IntType(64), 3))])
        loaded = builder.load(builder.bitcast(first, all_three.as_pointer()))
        loaded.align = 4
        every_third = (ir.Constant(LLVM_INTS, [3 * k + axis for k in range(SIMD_WIDTH)]) for axis in range(3))
        undefined = ir.Constant(all_three, ir.Undefined)
        axes = (builder.shuffle_vector(loaded, undefined, elements) for elements in every_third)
        wide = [builder.fpext(axis, context.get_value_type(DOUBLE_VECTOR)) for axis in axes]
        return context.make_tuple(builder, signature.return_type, wide)

    return types.UniTuple(DOUBLE_VECTOR, 3)(array, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def store(typing_context: Any, array: Any, start: Any, vector: Any) -> Generated:
    """Store a vector into an array whose elements have the size of its own."""
    return types.void(array, types.uint64, vector), _store


@intrinsic  # type: ignore[untyped-decorator]
def gather_pairs(typing_context: Any, array: Any, indices: Any, start: Any) -> Generated:
    """Gather array[i] and array[i + 1] of 32-bit integers for eight indices i from `start` on: two vectors."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data, indices = (context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (0, 1))
        four, long = ir.VectorType(ir.IntType(64), SIMD_WIDTH // 2), ir.IntType(64)
        # In this order one shuffle each separates the first of all pairs from the second.
        halves = []
        for elements in ((0, 1, 4, 5), (2, 3, 6, 7)):
            half = ir.Constant(four, ir.Undefined)
            for k, element in enumerate(elements):
                index_at = builder.gep(indices, [builder.add(arguments[2], ir.Constant(long, element))])
                index = builder.zext(builder.load(index_at), long)
                pair = builder.load(builder.bitcast(builder.gep(data, [index]), long.as_pointer()))
                pair.align = 4
                half = builder.insert_element(half, pair, ir.Constant(ir.IntType(32), k))
            halves.append(builder.bitcast(half, LLVM_INTS))
        left, right = (
            builder.shuffle_vector(*halves, ir.Constant(LLVM_INTS, [k + side for k in (0, 2, 8, 10, 4, 6, 12, 14)]))
            for side in (0, 1)
        )
        return context.make_tuple(builder, signature.return_type, (left, right))

    return types.UniTuple(INT_VECTOR, 2)(array, indices, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def store_rgb(typing_context: Any, words: Any, first: Any, arena: Any, start: Any) -> Generated:
    """Store the three low bytes of eight words one after another, at any byte of the arena.

    NumPy arrays have aligned words only, and byte by byte it takes five times as long: this runs at memory speed.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, arguments[0])
        target = context.make_array(signature.args[2])(context, builder, arguments[2])
        four_each = ir.VectorType(ir.IntType(8), 4 * SIMD_WIDTH)
        three_each = ir.VectorType(ir.IntType(8), 3 * SIMD_WIDTH)
        kept = [4 * pixel + channel for pixel in range(SIMD_WIDTH) for channel in range(3)]
        loaded = builder.load(builder.bitcast(builder.gep(source.data, [arguments[1]]), four_each.as_pointer()))
        loaded.align = 4
        mask = ir.Constant(ir.VectorType(ir.IntType(32), 3 * SIMD_WIDTH), kept)
        shuffled = builder.shuffle_vector(loaded, ir.Constant(four_each, ir.Undefined), mask)
        pointer = builder.bitcast(builder.gep(target.data, [arguments[3]]), three_each.as_pointer())
        builder.store(shuffled, pointer).align = 1
        return context.get_dummy_value()

    return types.void(words, types.int64, arena, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def fetch_add(typing_context: Any, counter: Any, step: Any) -> Generated:
    """Add `step` to the only element of an int64 array atomically; return its value before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", data, arguments[1], "monotonic")

    return types.int64(counter, types.int64), generate
