"""The one step of the rasteriser that is written as vector instructions by hand.

A span is seldom longer than a few blocks, and left to itself the compiler unrolls a block's eight steps one by one.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LANES = 8

_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_INTS = ir.VectorType(ir.IntType(32), LANES)
_LONGS = ir.VectorType(ir.IntType(64), LANES)


@intrinsic  # type: ignore[untyped-decorator]
def enter_block(
    typing_context: Any, words: Any, at: Any, x: Any, x_from: Any, x_to: Any, start: Any, step: Any, tag: Any
) -> tuple[Any, Callable[..., Any]]:
    """Enter eight pixels that begin at `x`, and their words at `words[at]`, into a visibility buffer.

    Where x_from <= x < x_to and start + step * x is above 0, keep the greater of the word that is there, which is
    positive, and (bits of start + step * x) << 32 | tag.
    """
    signature = types.void(
        words, types.uint64, types.int32, types.int32, types.int32, types.float32, types.float32, types.int64
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, x, x_from, x_to, start, step, tag = arguments
        data = context.make_array(signature.args[0])(context, builder, array).data

        def all_lanes(value: Any, vector: Any) -> Any:
            lane = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
            return builder.shuffle_vector(lane, ir.Constant(vector, ir.Undefined), ir.Constant(_INTS, [0] * LANES))

        xs = builder.add(all_lanes(x, _INTS), ir.Constant(_INTS, list(range(LANES))))
        inside = builder.and_(
            builder.icmp_signed(">=", xs, all_lanes(x_from, _INTS)),
            builder.icmp_signed("<", xs, all_lanes(x_to, _INTS)),
        )
        nearness = builder.fadd(
            all_lanes(start, _FLOATS), builder.fmul(all_lanes(step, _FLOATS), builder.sitofp(xs, _FLOATS))
        )
        # Where it does not count it becomes 0, which every word there is beats. So all words are positive, differences
        # do not overflow, and the greater one is old - min(old - new, 0): a choice between the two would be compiled to
        # a masked store, which takes ten times as long on some processors.
        counts = builder.and_(inside, builder.fcmp_ordered(">", nearness, ir.Constant(_FLOATS, [0.0] * LANES)))
        nearness = builder.select(counts, nearness, ir.Constant(_FLOATS, [0.0] * LANES))
        high = builder.shl(builder.zext(builder.bitcast(nearness, _INTS), _LONGS), ir.Constant(_LONGS, [32] * LANES))
        new = builder.or_(high, all_lanes(tag, _LONGS))
        place = builder.bitcast(builder.gep(data, [at]), _LONGS.as_pointer())
        old = builder.load(place)
        old.align = 8
        difference = builder.sub(old, new)
        sign = builder.ashr(difference, ir.Constant(_LONGS, [63] * LANES))
        builder.store(builder.sub(old, builder.and_(difference, sign)), place).align = 8
        return context.get_dummy_value()

    return signature, generate
