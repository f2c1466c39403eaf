"""Blocks from memory and back, at any place of an array: nothing here checks where an array ends.

Work that several threads share out among themselves, without the GIL and without a lock.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from worldloom.kernels.simd import DOUBLE_BLOCK, FLOAT_BLOCK, INT_BLOCK, INT_LANES, LANES, Generated


def _load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    vector = context.get_value_type(signature.return_type)
    loaded = builder.load(builder.bitcast(builder.gep(data, [arguments[1]]), vector.as_pointer()))
    loaded.align = 4
    return loaded


def _store(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array, at, block = arguments
    data = context.make_array(signature.args[0])(context, builder, array).data
    builder.store(block, builder.bitcast(builder.gep(data, [at]), block.type.as_pointer())).align = 4
    return context.get_dummy_value()


@intrinsic  # type: ignore[untyped-decorator]
def load_ints(typing_context: Any, array: Any, at: Any) -> Generated:
    """The eight numbers of an array of 32-bit integers from `at` on."""
    return INT_BLOCK(array, types.uint64), _load


@intrinsic  # type: ignore[untyped-decorator]
def load_floats(typing_context: Any, array: Any, at: Any) -> Generated:
    """The eight numbers of an array of float32 from `at` on."""
    return FLOAT_BLOCK(array, types.uint64), _load


@intrinsic  # type: ignore[untyped-decorator]
def load_points(typing_context: Any, array: Any, at: Any) -> Generated:
    """x, y and z of the eight rows from `at` on of an array [n, 3] of float32: three blocks."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        all_three = ir.VectorType(ir.FloatType(), 3 * LANES)
        first = builder.gep(data, [builder.mul(arguments[1], ir.Constant(ir.IntType(64), 3))])
        loaded = builder.load(builder.bitcast(first, all_three.as_pointer()))
        loaded.align = 4
        every_third = (ir.Constant(INT_LANES, [3 * k + axis for k in range(LANES)]) for axis in range(3))
        undefined = ir.Constant(all_three, ir.Undefined)
        axes = (builder.shuffle_vector(loaded, undefined, lanes) for lanes in every_third)
        wide = [builder.fpext(axis, context.get_value_type(DOUBLE_BLOCK)) for axis in axes]
        return context.make_tuple(builder, signature.return_type, wide)

    return types.UniTuple(DOUBLE_BLOCK, 3)(array, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def store(typing_context: Any, array: Any, at: Any, block: Any) -> Generated:
    """Write a block into an array of numbers of its size, from `at` on."""
    return types.void(array, types.uint64, block), _store


@intrinsic  # type: ignore[untyped-decorator]
def load_pairs(typing_context: Any, array: Any, places: Any, at: Any) -> Generated:
    """What an array of 32-bit integers has at the eight `places` from `at` on, and what is behind each: two blocks."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data, places = (context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (0, 1))
        four, long = ir.VectorType(ir.IntType(64), LANES // 2), ir.IntType(64)
        # In this order it takes one shuffle each to part them afterwards.
        halves = []
        for lanes in ((0, 1, 4, 5), (2, 3, 6, 7)):
            half = ir.Constant(four, ir.Undefined)
            for k, lane in enumerate(lanes):
                from_here = builder.gep(places, [builder.add(arguments[2], ir.Constant(long, lane))])
                place = builder.zext(builder.load(from_here), long)
                pair = builder.load(builder.bitcast(builder.gep(data, [place]), long.as_pointer()))
                pair.align = 4
                half = builder.insert_element(half, pair, ir.Constant(ir.IntType(32), k))
            halves.append(builder.bitcast(half, INT_LANES))
        left, right = (
            builder.shuffle_vector(*halves, ir.Constant(INT_LANES, [k + side for k in (0, 2, 8, 10, 4, 6, 12, 14)]))
            for side in (0, 1)
        )
        return context.make_tuple(builder, signature.return_type, (left, right))

    return types.UniTuple(INT_BLOCK, 2)(array, places, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def take_part(typing_context: Any, taken: Any, size: Any) -> Generated:
    """Add `size` to the one number of an array of int64, as nobody else can in between; what it was before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        counter = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", counter, arguments[1], "monotonic")

    return types.int64(taken, types.int64), generate
