"""Memory access that numba has no words for: SIMD loads and stores at any element, and an atomic counter.

Nothing here checks bounds: callers pad their arrays to whole vectors. `kernels/simd.py` has the arithmetic.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from worldloom.kernels.simd import (
    DOUBLE_VECTOR,
    FLOAT_VECTOR,
    INT_VECTOR,
    LLVM_INTS,
    SIMD_WIDTH,
    Generated,
    broadcast,
)


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
def load_some_ints(typing_context: Any, array: Any, start: Any, count: Any, other: Any) -> Generated:
    """Load up to eight 32-bit integers from an array that may end after `count` of them; the rest are `other`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), LLVM_INTS.as_pointer())
        steps = ir.Constant(LLVM_INTS, list(range(SIMD_WIDTH)))
        count = broadcast(builder, builder.trunc(arguments[2], ir.IntType(32)), LLVM_INTS)
        mask = builder.icmp_signed("<", steps, count)
        rest = broadcast(builder, arguments[3], LLVM_INTS)
        function_type = ir.FunctionType(LLVM_INTS, [pointer.type, ir.IntType(32), mask.type, LLVM_INTS])
        name = f"llvm.masked.load.v{SIMD_WIDTH}i32.p0"
        load = cgutils.get_or_insert_function(builder.module, function_type, name)
        return builder.call(load, [pointer, ir.Constant(ir.IntType(32), 4), mask, rest])

    return INT_VECTOR(array, types.uint64, types.uint64, types.int32), generate


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


def _columns(builder: Any, rows: list[Any], doubles: Any) -> list[Any]:
    """Generate code that transposes eight rows of four float32 into four vectors of float64."""

    def shuffle(left: Any, right: Any, *elements: int) -> Any:
        return builder.shuffle_vector(left, right, ir.Constant(LLVM_INTS, elements))

    pairs = [shuffle(rows[k], rows[k + 4], 0, 1, 2, 3, 4, 5, 6, 7) for k in range(4)]
    columns = []
    for low in (0, 2):
        upper, lower = (
            shuffle(left, right, low, low + 8, low + 1, low + 9, low + 4, low + 12, low + 5, low + 13)
            for left, right in (pairs[:2], pairs[2:])
        )
        columns += [shuffle(upper, lower, k, k + 1, k + 8, k + 9, k + 4, k + 5, k + 12, k + 13) for k in (0, 2)]
    return [builder.fpext(column, doubles) for column in columns]


def _eight_rows(builder: Any, first: Any, last: Any) -> list[Any]:
    """Generate the indices first, first + 1, …, first + 7, none of them beyond `last`."""
    rows = (builder.add(first, ir.Constant(ir.IntType(64), k)) for k in range(SIMD_WIDTH))
    return [builder.select(builder.icmp_unsigned("<", row, last), row, last) for row in rows]


def _load_four(builder: Any, pointer: Any) -> Any:
    loaded = builder.load(builder.bitcast(pointer, _FOUR.as_pointer()))
    loaded.align = 4
    return loaded


_FOUR = ir.VectorType(ir.FloatType(), 4)


@intrinsic  # type: ignore[untyped-decorator]
def load_poses(typing_context: Any, poses: Any, first: Any, last: Any) -> Generated:
    """Load eight rows [n, 3, 4] of float32 as twelve vectors of float64; row `last` stands for those after it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        doubles, long = context.get_value_type(DOUBLE_VECTOR), ir.IntType(64)
        starts = [
            builder.gep(data, [builder.mul(row, ir.Constant(long, 12))]) for row in _eight_rows(builder, *arguments[1:])
        ]
        columns = []
        for part in (0, 4, 8):
            rows = [_load_four(builder, builder.gep(start, [ir.Constant(long, part)])) for start in starts]
            columns += _columns(builder, rows, doubles)
        return context.make_tuple(builder, signature.return_type, columns)

    return types.UniTuple(DOUBLE_VECTOR, 12)(poses, types.uint64, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def gather_points(typing_context: Any, points: Any, indices: Any, first: Any, last: Any) -> Generated:
    """Gather the rows of an array [m, 3] of float32 that eight of the indices name, as three vectors of float64.

    The indices are those from `first` on; `last` stands for those after it, and row 0 for negative ones.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data, indices = (context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (0, 1))
        long, two = ir.IntType(64), ir.VectorType(ir.FloatType(), 2)
        rows = []
        for at in _eight_rows(builder, *arguments[2:]):
            index = builder.sext(builder.load(builder.gep(indices, [at])), long)
            zero = ir.Constant(long, 0)
            index = builder.select(builder.icmp_signed(">", index, zero), index, zero)
            start = builder.gep(data, [builder.mul(index, ir.Constant(long, 3))])
            pair = builder.load(builder.bitcast(start, two.as_pointer()))
            pair.align = 4
            row = builder.shuffle_vector(
                pair, ir.Constant(two, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), 4), [0, 1, 2, 3])
            )
            third = builder.load(builder.gep(start, [ir.Constant(long, 2)]))
            rows.append(builder.insert_element(row, third, ir.Constant(ir.IntType(32), 2)))
        columns = _columns(builder, rows, context.get_value_type(DOUBLE_VECTOR))
        return context.make_tuple(builder, signature.return_type, columns[:3])

    return types.UniTuple(DOUBLE_VECTOR, 3)(points, indices, types.uint64, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def store(typing_context: Any, array: Any, start: Any, vector: Any) -> Generated:
    """Store a vector into an array whose elements have the size of its own."""
    return types.void(array, types.uint64, vector), _store


@intrinsic  # type: ignore[untyped-decorator]
def gather_pairs(typing_context: Any, array: Any, indices: Any, start: Any) -> Generated:
    """Gather array[i] and array[i + 1] of 32-bit integers for eight indices i from `start` on: two vectors."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data, indices = (context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (0, 1))
        long, pair_type = ir.IntType(64), ir.DoubleType()
        four = ir.VectorType(pair_type, SIMD_WIDTH // 2)
        # In this order one shuffle each separates the first of all pairs from the second.
        halves = []
        for elements in ((0, 1, 4, 5), (2, 3, 6, 7)):
            half = ir.Constant(four, ir.Undefined)
            for k, element in enumerate(elements):
                index_at = builder.gep(indices, [builder.add(arguments[2], ir.Constant(long, element))])
                index = builder.zext(builder.load(index_at), long)
                pair = builder.load(builder.bitcast(builder.gep(data, [index]), pair_type.as_pointer()))
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
def prefetch(typing_context: Any, array: Any, index: Any) -> Generated:
    """Ask the processor to load array[index], which counts all elements of a contiguous array, into its cache."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        builder.call(function, [pointer, *(ir.Constant(number, flag) for flag in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def fetch_add(typing_context: Any, counter: Any, step: Any) -> Generated:
    """Add `step` to the only element of an int64 array atomically; return its value before.

    A thread that sees the sum also sees all that the thread which added to it had written before.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", data, arguments[1], "acq_rel")

    return types.int64(counter, types.int64), generate
