"""Work that several threads share out among themselves, without the GIL and without a lock."""

from typing import Any

from numba import types
from numba.extending import intrinsic

from worldloom.kernels.blocks import Generated


@intrinsic  # type: ignore[untyped-decorator]
def take_part(typing_context: Any, taken: Any, size: Any) -> Generated:
    """Add `size` to the one number of an array of int64, as nobody else can in between; what it was before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        counter = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", counter, arguments[1], "monotonic")

    return types.int64(taken, types.int64), generate
