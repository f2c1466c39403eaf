"""Entering eight pixels into the visibility buffer: the rasteriser's innermost step, instruction by instruction."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from worldloom.kernels.blocks import FLOAT_LANES, INT_LANES, LANES, all_lanes


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
