"""SIMD vectors: eight numbers in one register, with the operators of a scalar.

LLVM vectorises a loop only if it is long enough to pay for its prologue; the runs of a row are not. With the types here
a kernel states what happens to eight pixels: `+ - * / & | << >>` work element by element, and a scalar operand is
broadcast. `kernels/intrinsics.py` loads and stores vectors.
"""

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model

SIMD_WIDTH = 8
"""Elements of a vector."""

Floats: TypeAlias = Any
Doubles: TypeAlias = Any
Ints: TypeAlias = Any

LLVM_FLOATS = ir.VectorType(ir.FloatType(), SIMD_WIDTH)
LLVM_INTS = ir.VectorType(ir.IntType(32), SIMD_WIDTH)

Generated: TypeAlias = tuple[Any, Callable[..., Any]]
"""Signature and code generator: the return value of an intrinsic."""
_FAST = ("contract", "nsz")
"""Fast-math flags of float operations, the same as in `compiling.py`."""


class _Vector(types.Type):  # type: ignore[misc]
    """The numba type of a vector."""

    def __init__(self, element: Any) -> None:
        self.element = element
        super().__init__(name=f"Vector({element})")


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, vector: Any) -> None:
        super().__init__(manager, vector, ir.VectorType(manager.lookup(vector.element).get_value_type(), SIMD_WIDTH))


FLOAT_VECTOR, DOUBLE_VECTOR, INT_VECTOR = _Vector(types.float32), _Vector(types.float64), _Vector(types.int32)


def broadcast(builder: Any, value: Any, vector: Any) -> Any:
    """Generate code that copies a scalar into all elements of a vector."""
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(LLVM_INTS, [0] * SIMD_WIDTH))


def _as_vector(builder: Any, value: Any, vector: Any) -> Any:
    return value if value.type == vector else broadcast(builder, value, vector)


def _as_operand(given: Any, vector: Any) -> Any:
    """Return the numba type that an operand beside `vector` is converted to: itself, or the element type."""
    return given if isinstance(given, _Vector) else vector.element


def _operator(symbol: Callable[..., Any], floats: Callable[..., Any] | None, ints: Callable[..., Any] | None) -> None:
    """Define an operator between two vectors, and between a vector and a scalar."""

    class Overload(AbstractTemplate):  # type: ignore[misc]
        key = symbol

        def generic(self, arguments: Any, keywords: Any) -> Any:
            vectors = [argument for argument in arguments if isinstance(argument, _Vector)]
            if len(arguments) != 2 or not vectors or (ints if vectors[0] == INT_VECTOR else floats) is None:
                return None
            return vectors[0](*(_as_operand(argument, vectors[0]) for argument in arguments))

    infer_global(symbol)(Overload)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = context.get_value_type(signature.return_type)
        left, right = (_as_vector(builder, argument, vector) for argument in arguments)
        if signature.return_type == INT_VECTOR:
            assert ints is not None
            return ints(builder, left, right)
        assert floats is not None
        return floats(builder, left, right, flags=_FAST)

    for pair in ((_Vector, _Vector), (_Vector, types.Number), (types.Number, _Vector)):
        lower_builtin(symbol, *pair)(generate)


_operator(operator.add, ir.IRBuilder.fadd, ir.IRBuilder.add)
_operator(operator.sub, ir.IRBuilder.fsub, ir.IRBuilder.sub)
_operator(operator.mul, ir.IRBuilder.fmul, ir.IRBuilder.mul)
_operator(operator.truediv, ir.IRBuilder.fdiv, None)
_operator(operator.and_, None, ir.IRBuilder.and_)
_operator(operator.or_, None, ir.IRBuilder.or_)
_operator(operator.lshift, None, ir.IRBuilder.shl)
_operator(operator.rshift, None, ir.IRBuilder.lshr)  # a logical shift: zeros enter from the left


@intrinsic  # type: ignore[untyped-decorator]
def floats(typing_context: Any, number: Any) -> Generated:
    """Broadcast a scalar to a vector of float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return broadcast(builder, arguments[0], LLVM_FLOATS)

    return FLOAT_VECTOR(types.float32), generate


@intrinsic  # type: ignore[untyped-decorator]
def doubles(typing_context: Any, number: Any) -> Generated:
    """Broadcast a scalar to a vector of float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return broadcast(builder, arguments[0], context.get_value_type(DOUBLE_VECTOR))

    return DOUBLE_VECTOR(types.float64), generate


@intrinsic  # type: ignore[untyped-decorator]
def ints(typing_context: Any, number: Any) -> Generated:
    """Broadcast a scalar to a vector of int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return broadcast(builder, arguments[0], LLVM_INTS)

    return INT_VECTOR(types.int32), generate


@intrinsic  # type: ignore[untyped-decorator]
def count_from(typing_context: Any, number: Any) -> Generated:
    """Return the vector of float32 number, number + 1, …, number + 7 of an integer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        steps = ir.Constant(LLVM_INTS, list(range(SIMD_WIDTH)))
        return builder.sitofp(builder.add(broadcast(builder, arguments[0], LLVM_INTS), steps), LLVM_FLOATS)

    return FLOAT_VECTOR(types.int32), generate


@intrinsic  # type: ignore[untyped-decorator]
def to_floats(typing_context: Any, vector: Any) -> Generated:
    """Convert int32 elements to float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.sitofp(arguments[0], LLVM_FLOATS)

    return FLOAT_VECTOR(INT_VECTOR), generate


@intrinsic  # type: ignore[untyped-decorator]
def to_ints(typing_context: Any, vector: Any) -> Generated:
    """Convert float elements to int32, truncating; the result is undefined for values that do not fit."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fptosi(arguments[0], LLVM_INTS)

    return INT_VECTOR(vector), generate


@intrinsic  # type: ignore[untyped-decorator]
def bits_of(typing_context: Any, vector: Any) -> Generated:
    """Reinterpret float32 elements as int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], LLVM_INTS)

    return INT_VECTOR(FLOAT_VECTOR), generate


@intrinsic  # type: ignore[untyped-decorator]
def from_bits(typing_context: Any, vector: Any) -> Generated:
    """Reinterpret int32 elements as float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], LLVM_FLOATS)

    return FLOAT_VECTOR(INT_VECTOR), generate


def _select_by(comparison: str) -> Callable[..., Any]:
    """Return a generator that selects the left element where it compares true to the right one, else the right."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = context.get_value_type(signature.return_type)
        left, right = (_as_vector(builder, argument, vector) for argument in arguments)
        compare = builder.icmp_signed if signature.return_type == INT_VECTOR else builder.fcmp_ordered
        return builder.select(compare(comparison, left, right), left, right)

    return generate


@intrinsic  # type: ignore[untyped-decorator]
def minimum(typing_context: Any, vector: Any, other: Any) -> Generated:
    """Return the lesser of each pair of elements; that of `other` where one of them is NaN."""
    return vector(vector, _as_operand(other, vector)), _select_by("<")


@intrinsic  # type: ignore[untyped-decorator]
def maximum(typing_context: Any, vector: Any, other: Any) -> Generated:
    """Return the greater of each pair of elements; that of `other` where one of them is NaN."""
    return vector(vector, _as_operand(other, vector)), _select_by(">")


@intrinsic  # type: ignore[untyped-decorator]
def where_at_least(typing_context: Any, values: Any, limit: Any, vector: Any, other: Any) -> Generated:
    """Return the elements of `vector` where `values` >= `limit`, and of `other` elsewhere and where NaN is compared."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, limit, vector, other = arguments
        reached = builder.fcmp_ordered(">=", values, _as_vector(builder, limit, values.type))
        return builder.select(reached, vector, _as_vector(builder, other, vector.type))

    return vector(values, _as_operand(limit, values), vector, _as_operand(other, vector)), generate


def _by_llvm(name: str) -> Callable[..., Any]:
    """Return a generator that calls an LLVM intrinsic of one vector."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = context.get_value_type(signature.return_type)
        bits = 32 if signature.return_type == FLOAT_VECTOR else 64
        function_type = ir.FunctionType(vector, [vector])
        function = cgutils.get_or_insert_function(builder.module, function_type, f"llvm.{name}.v{SIMD_WIDTH}f{bits}")
        return builder.call(function, arguments)

    return generate


@intrinsic  # type: ignore[untyped-decorator]
def floor(typing_context: Any, vector: Any) -> Generated:
    """Round each element down."""
    return vector(vector), _by_llvm("floor")


@intrinsic  # type: ignore[untyped-decorator]
def ceil(typing_context: Any, vector: Any) -> Generated:
    """Round each element up."""
    return vector(vector), _by_llvm("ceil")


@intrinsic  # type: ignore[untyped-decorator]
def rint(typing_context: Any, vector: Any) -> Generated:
    """Round each element to the nearest integer, halves to even."""
    return vector(vector), _by_llvm("rint")


@intrinsic  # type: ignore[untyped-decorator]
def sqrt(typing_context: Any, vector: Any) -> Generated:
    """Return the square root of each element."""
    return vector(vector), _by_llvm("sqrt")


@intrinsic  # type: ignore[untyped-decorator]
def absolute(typing_context: Any, vector: Any) -> Generated:
    """Return the absolute value of each element."""
    return vector(vector), _by_llvm("fabs")


@intrinsic  # type: ignore[untyped-decorator]
def multiply_halves(typing_context: Any, vector: Any, other: Any) -> Generated:
    """Multiply int32 elements as pairs of 16-bit numbers: low by low, high by high, each modulo 2^16."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        halves = ir.VectorType(ir.IntType(16), 2 * SIMD_WIDTH)
        product = builder.mul(builder.bitcast(arguments[0], halves), builder.bitcast(arguments[1], halves))
        return builder.bitcast(product, LLVM_INTS)

    return INT_VECTOR(INT_VECTOR, INT_VECTOR), generate


@intrinsic  # type: ignore[untyped-decorator]
def change_mask(typing_context: Any, before: Any, vector: Any) -> Generated:
    """Return a mask whose bit k is set where element k differs from the one before it; `before` precedes `vector`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        shift = ir.Constant(LLVM_INTS, list(range(SIMD_WIDTH - 1, 2 * SIMD_WIDTH - 1)))
        shifted = builder.shuffle_vector(*arguments, shift)
        bits = builder.bitcast(builder.icmp_signed("!=", shifted, arguments[1]), ir.IntType(SIMD_WIDTH))
        return builder.zext(bits, ir.IntType(64))

    return types.uint64(INT_VECTOR, INT_VECTOR), generate


@intrinsic  # type: ignore[untyped-decorator]
def is_any_above(typing_context: Any, vector: Any, limit: Any) -> Generated:
    """Return whether an element of a vector of float32 is above a limit, or is NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        above = builder.fcmp_unordered(">", arguments[0], broadcast(builder, arguments[1], LLVM_FLOATS))
        bits = builder.bitcast(above, ir.IntType(SIMD_WIDTH))
        return builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))

    return types.boolean(FLOAT_VECTOR, types.float32), generate


@intrinsic  # type: ignore[untyped-decorator]
def is_any_below(typing_context: Any, vector: Any, limit: Any) -> Generated:
    """Return whether an element of a vector of float32 is below a limit, or is NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        below = builder.fcmp_unordered("<", arguments[0], broadcast(builder, arguments[1], LLVM_FLOATS))
        bits = builder.bitcast(below, ir.IntType(SIMD_WIDTH))
        return builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))

    return types.boolean(FLOAT_VECTOR, types.float32), generate


@intrinsic  # type: ignore[untyped-decorator]
def at_least_mask(typing_context: Any, vector: Any, limit: Any) -> Generated:
    """Return a mask whose bit k is set where element k is at least the limit; not where NaN is compared."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, limit = arguments[0], _as_vector(builder, arguments[1], arguments[0].type)
        compare = builder.icmp_signed if signature.args[0] == INT_VECTOR else builder.fcmp_ordered
        bits = builder.bitcast(compare(">=", values, limit), ir.IntType(SIMD_WIDTH))
        return builder.zext(bits, ir.IntType(64))

    return types.uint64(vector, _as_operand(limit, vector)), generate


@intrinsic  # type: ignore[untyped-decorator]
def rows_from(typing_context: Any, number: Any) -> Generated:
    """Return the vector of float64 number, number + 1, …, number + 7 of an integer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        steps = ir.Constant(LLVM_INTS, list(range(SIMD_WIDTH)))
        counted = builder.add(broadcast(builder, arguments[0], LLVM_INTS), steps)
        return builder.sitofp(counted, context.get_value_type(DOUBLE_VECTOR))

    return DOUBLE_VECTOR(types.int32), generate


@intrinsic  # type: ignore[untyped-decorator]
def select(typing_context: Any, condition: Any, number: Any, other: Any) -> Generated:
    """Return one of two scalars without a branch, which could be mispredicted."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(*arguments)

    return types.float64(types.boolean, types.float64, types.float64), generate


@intrinsic  # type: ignore[untyped-decorator]
def lowest_set_bit(typing_context: Any, bits: Any) -> Generated:
    """Return the index of the lowest set bit; undefined for 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate
