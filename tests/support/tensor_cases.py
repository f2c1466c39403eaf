"""Tensors of all kinds, fit and unfit, for the tests of this folder; and what the reference package makes of them."""

from typing import Any

import numpy as np
from dm_env_rpc.v1 import tensor_utils
from dm_env_rpc.v1.dm_env_rpc_pb2 import Tensor
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from worldloom.server.dm_env_rpc.specs import DTYPES, PAYLOADS

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)  # NumPy drops last NULs
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
DIMENSIONS = st.one_of(st.integers(-2, 4), st.sampled_from([-(2**31), 2**31 - 1, 65_536]))


def elements(dtype: str) -> st.SearchStrategy[Any]:
    """Any value of a dtype."""
    if dtype == "str":
        return TEXTS
    return hnp.from_dtype(np.dtype(dtype))


def arrays(dtype: str, shapes: st.SearchStrategy[tuple[int, ...]] = SHAPES) -> st.SearchStrategy[np.ndarray]:
    """Any array of a dtype."""
    if dtype == "str":
        return shapes.flatmap(
            lambda shape: st.lists(TEXTS, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))).map(
                lambda items: np.array(items, np.str_).reshape(shape)
            )
        )
    return hnp.arrays(dtype, shapes, elements=elements(dtype))


ANY_ARRAY = st.sampled_from(sorted(DTYPES)).flatmap(arrays)


@st.composite
def any_tensor(draw: st.DrawFn, likely: tuple[str, ...] = tuple(DTYPES)) -> Tensor:
    """A tensor with any payload, also none, and any shape, mostly one that does not fit."""
    tensor = Tensor()
    kind = draw(st.sampled_from([*likely, "protos", "nothing"]))
    if kind in DTYPES:
        values = draw(st.lists(elements(kind), max_size=12))
        payload = getattr(tensor, PAYLOADS[kind])
        payload.SetInParent()
        if kind in ("int8", "uint8"):
            payload.array = np.array(values, kind).tobytes()
        else:
            payload.array.extend(np.array(values, kind).tolist())
    elif kind == "protos":
        tensor.protos.SetInParent()
        for _ in range(draw(st.integers(0, 2))):
            tensor.protos.array.add()
    tensor.shape.extend(draw(st.lists(DIMENSIONS, max_size=4)))
    return tensor


def flat_values(tensor: Tensor) -> np.ndarray:
    """The elements as the reference unpacks them; it does not take a tensor without a payload."""
    values: np.ndarray = tensor_utils.unpack_proto(tensor) if tensor.WhichOneof("payload") else np.zeros(0)
    return values


def possible_shapes(tensor: Tensor, longest: int) -> list[tuple[int, ...]]:
    """All the shapes, none longer than `longest`, that a tensor may be meant to have, found by trying lengths."""
    sent = tuple(tensor.shape)
    if sum(size < 0 for size in sent) > 1:
        return []
    count = len(flat_values(tensor))
    tries = {tuple(length if size < 0 else size for size in sent) for length in range(longest + 1)}
    return [shape for shape in tries if np.prod(shape, dtype=object) == count or count == 1]
