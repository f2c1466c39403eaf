"""Blocks: eight numbers side by side, in one vector register, written like one number.

Left to itself the compiler turns a loop into vector code only if it is long enough to be worth its preparations; the
runs of a row are not. Here a kernel says what happens to eight pixels, `+ - * / & | << >>` work number by number, and a
plain number beside a block stands for eight of the same.
"""

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model

LANES = 8

Floats: TypeAlias = Any
Doubles: TypeAlias = Any
Ints: TypeAlias = Any

FLOAT_LANES = ir.VectorType(ir.FloatType(), LANES)
INT_LANES = ir.VectorType(ir.IntType(32), LANES)

Generated: TypeAlias = tuple[Any, Callable[..., Any]]
_FAST = ("contract", "nsz")
"""What `compiling.py` allows the compiler with floats."""


class _Block(types.Type):  # type: ignore[misc]
    def __init__(self, element: Any) -> None:
        self.element = element
        super().__init__(name=f"Block({element})")


@register_model(_Block)
class _BlockModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, block: Any) -> None:
        super().__init__(manager, block, ir.VectorType(manager.lookup(block.element).get_value_type(), LANES))


FLOAT_BLOCK, DOUBLE_BLOCK, INT_BLOCK = _Block(types.float32), _Block(types.float64), _Block(types.int32)


def all_lanes(builder: Any, value: Any, vector: Any) -> Any:
    """A number, eight times."""
    lane = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(lane, ir.Constant(vector, ir.Undefined), ir.Constant(INT_LANES, [0] * LANES))


def _as_block(builder: Any, value: Any, vector: Any) -> Any:
    return value if value.type == vector else all_lanes(builder, value, vector)


def _operator(symbol: Callable[..., Any], floats: Callable[..., Any] | None, ints: Callable[..., Any] | None) -> None:
    """Let an operator work between blocks, and between a block and a number."""

    class Between(AbstractTemplate):  # type: ignore[misc]
        key = symbol

        def generic(self, arguments: Any, keywords: Any) -> Any:
            blocks = [argument for argument in arguments if isinstance(argument, _Block)]
            if len(arguments) != 2 or not blocks or (ints if blocks[0] == INT_BLOCK else floats) is None:
                return None
            kept = [each if isinstance(each, _Block) else blocks[0].element for each in arguments]
            return blocks[0](*kept)

    infer_global(symbol)(Between)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = context.get_value_type(signature.return_type)
        left, right = (_as_block(builder, argument, vector) for argument in arguments)
        if signature.return_type == INT_BLOCK:
            assert ints is not None
            return ints(builder, left, right)
        assert floats is not None
        return floats(builder, left, right, flags=_FAST)

    for pair in ((_Block, _Block), (_Block, types.Number), (types.Number, _Block)):
        lower_builtin(symbol, *pair)(generate)


_operator(operator.add, ir.IRBuilder.fadd, ir.IRBuilder.add)
_operator(operator.sub, ir.IRBuilder.fsub, ir.IRBuilder.sub)
_operator(operator.mul, ir.IRBuilder.fmul, ir.IRBuilder.mul)
_operator(operator.truediv, ir.IRBuilder.fdiv, None)
_operator(operator.and_, None, ir.IRBuilder.and_)
_operator(operator.or_, None, ir.IRBuilder.or_)
_operator(operator.lshift, None, ir.IRBuilder.shl)
_operator(operator.rshift, None, ir.IRBuilder.lshr)  # zeros come in from the left


@intrinsic  # type: ignore[untyped-decorator]
def floats(typing_context: Any, number: Any) -> Generated:
    """A number, eight times."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return all_lanes(builder, arguments[0], FLOAT_LANES)

    return FLOAT_BLOCK(types.float32), generate


@intrinsic  # type: ignore[untyped-decorator]
def doubles(typing_context: Any, number: Any) -> Generated:
    """A number, eight times, of twice the size."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return all_lanes(builder, arguments[0], context.get_value_type(DOUBLE_BLOCK))

    return DOUBLE_BLOCK(types.float64), generate


@intrinsic  # type: ignore[untyped-decorator]
def ints(typing_context: Any, number: Any) -> Generated:
    """A whole number, eight times."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return all_lanes(builder, arguments[0], INT_LANES)

    return INT_BLOCK(types.int32), generate


@intrinsic  # type: ignore[untyped-decorator]
def count_from(typing_context: Any, number: Any) -> Generated:
    """A whole number and the seven after it, as floats."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        steps = ir.Constant(INT_LANES, list(range(LANES)))
        return builder.sitofp(builder.add(all_lanes(builder, arguments[0], INT_LANES), steps), FLOAT_LANES)

    return FLOAT_BLOCK(types.int32), generate


@intrinsic  # type: ignore[untyped-decorator]
def to_floats(typing_context: Any, block: Any) -> Generated:
    """Whole numbers as floats."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.sitofp(arguments[0], FLOAT_LANES)

    return FLOAT_BLOCK(INT_BLOCK), generate


@intrinsic  # type: ignore[untyped-decorator]
def to_ints(typing_context: Any, block: Any) -> Generated:
    """Floats without their fractions; any number for what does not fit."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fptosi(arguments[0], INT_LANES)

    return INT_BLOCK(block), generate


@intrinsic  # type: ignore[untyped-decorator]
def bits_of(typing_context: Any, block: Any) -> Generated:
    """The bits of floats."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], INT_LANES)

    return INT_BLOCK(FLOAT_BLOCK), generate


@intrinsic  # type: ignore[untyped-decorator]
def from_bits(typing_context: Any, block: Any) -> Generated:
    """The floats of these bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], FLOAT_LANES)

    return FLOAT_BLOCK(INT_BLOCK), generate


def _choose(context: Any, builder: Any, signature: Any, arguments: Any, comparison: str) -> Any:
    """One of each two; the second where one is not a number."""
    vector = context.get_value_type(signature.return_type)
    left, right = (_as_block(builder, argument, vector) for argument in arguments)
    compare = builder.icmp_signed if signature.return_type == INT_BLOCK else builder.fcmp_ordered
    return builder.select(compare(comparison, left, right), left, right)


@intrinsic  # type: ignore[untyped-decorator]
def least(typing_context: Any, block: Any, other: Any) -> Generated:
    """The lesser of each two; the second where the first is not a number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _choose(context, builder, signature, arguments, "<")

    return block(block, other if isinstance(other, _Block) else block.element), generate


@intrinsic  # type: ignore[untyped-decorator]
def greatest(typing_context: Any, block: Any, other: Any) -> Generated:
    """The greater of each two; the second where the first is not a number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _choose(context, builder, signature, arguments, ">")

    return block(block, other if isinstance(other, _Block) else block.element), generate


@intrinsic  # type: ignore[untyped-decorator]
def where_from(typing_context: Any, values: Any, limit: Any, block: Any, other: Any) -> Generated:
    """A block where `values` are at least `limit`, and another number elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, limit, block, other = arguments
        reached = builder.fcmp_ordered(">=", values, all_lanes(builder, limit, values.type))
        return builder.select(reached, block, all_lanes(builder, other, block.type))

    return block(values, values.element, block, block.element), generate


@intrinsic  # type: ignore[untyped-decorator]
def where(typing_context: Any, values: Any, limits: Any, block: Any, other: Any) -> Generated:
    """A block where `values` are at least `limits`, and another elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, limits, block, other = arguments
        return builder.select(builder.fcmp_ordered(">=", values, limits), block, other)

    return block(values, limits, block, other), generate


def _by_function(name: str) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = context.get_value_type(signature.return_type)
        bits = 32 if signature.return_type == FLOAT_BLOCK else 64
        function_type = ir.FunctionType(vector, [vector])
        function = cgutils.get_or_insert_function(builder.module, function_type, f"llvm.{name}.v{LANES}f{bits}")
        return builder.call(function, arguments)

    return generate


@intrinsic  # type: ignore[untyped-decorator]
def floor(typing_context: Any, block: Any) -> Generated:
    """The whole number at or below each."""
    return block(block), _by_function("floor")


@intrinsic  # type: ignore[untyped-decorator]
def ceiling(typing_context: Any, block: Any) -> Generated:
    """The whole number at or above each."""
    return block(block), _by_function("ceil")


@intrinsic  # type: ignore[untyped-decorator]
def rounded(typing_context: Any, block: Any) -> Generated:
    """The whole number next to each, the even one of two."""
    return block(block), _by_function("rint")


@intrinsic  # type: ignore[untyped-decorator]
def root(typing_context: Any, block: Any) -> Generated:
    """The square root of each."""
    return block(block), _by_function("sqrt")


@intrinsic  # type: ignore[untyped-decorator]
def times_halves(typing_context: Any, block: Any, other: Any) -> Generated:
    """The products of the lower 16 bits of each two, and of the upper ones, side by side."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        halves = ir.VectorType(ir.IntType(16), 2 * LANES)
        product = builder.mul(builder.bitcast(arguments[0], halves), builder.bitcast(arguments[1], halves))
        return builder.bitcast(product, INT_LANES)

    return INT_BLOCK(INT_BLOCK, INT_BLOCK), generate


@intrinsic  # type: ignore[untyped-decorator]
def changes(typing_context: Any, before: Any, block: Any) -> Generated:
    """Where a block differs from the number before: bit k for its number k. `before` is the block before it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        shifted = builder.shuffle_vector(*arguments, ir.Constant(INT_LANES, list(range(LANES - 1, 2 * LANES - 1))))
        bits = builder.bitcast(builder.icmp_signed("!=", shifted, arguments[1]), ir.IntType(LANES))
        return builder.zext(bits, ir.IntType(64))

    return types.uint64(INT_BLOCK, INT_BLOCK), generate


@intrinsic  # type: ignore[untyped-decorator]
def choose(typing_context: Any, condition: Any, number: Any, other: Any) -> Generated:
    """One of two plain numbers, without a branch that could be mispredicted."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(*arguments)

    return types.float64(types.boolean, types.float64, types.float64), generate


@intrinsic  # type: ignore[untyped-decorator]
def lowest_bit(typing_context: Any, bits: Any) -> Generated:
    """The place of the lowest bit of a number that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate
