"""Tensor specs, such that every client can make sense of them; and which payload carries which dtype."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2

from worldloom.server.engine.observations import Offer
from worldloom.worlds.family import Bound

DTYPES: dict[str, int] = {
    "float32": dm_env_rpc_pb2.FLOAT,
    "float64": dm_env_rpc_pb2.DOUBLE,
    "int8": dm_env_rpc_pb2.INT8,
    "int32": dm_env_rpc_pb2.INT32,
    "int64": dm_env_rpc_pb2.INT64,
    "uint8": dm_env_rpc_pb2.UINT8,
    "uint32": dm_env_rpc_pb2.UINT32,
    "uint64": dm_env_rpc_pb2.UINT64,
    "bool": dm_env_rpc_pb2.BOOL,
    "str": dm_env_rpc_pb2.STRING,
}
"""NumPy's name of a dtype -> the protocol's."""

PAYLOADS: dict[str, str] = {
    dtype: f"{dm_env_rpc_pb2.DataType.Name(number).lower()}s" for dtype, number in DTYPES.items()
}
"""NumPy's name of a dtype -> the field of a Tensor that carries it."""

BYTE_DTYPES = frozenset({"int8", "uint8"})
"""Their payloads are bytes; all others are repeated fields."""


def tensor_spec(
    name: str, dtype: str, shape: Sequence[int], minimum: Bound = None, maximum: Bound = None
) -> dm_env_rpc_pb2.TensorSpec:
    """A TensorSpec. Two ranges are not sent, since dm_env's conversion of specs breaks on them.

    That of a shape that varies in length, and the maximum of a single integer where it is its type's own: dm_env
    counts the values by adding one to it.
    """
    if dtype not in DTYPES:
        raise ValueError(f"spec {name!r} has dtype {dtype!r}: expected one of {', '.join(DTYPES)}")
    if sum(size < 0 for size in shape) > 1:
        raise ValueError(f"spec {name!r} has shape {list(shape)}: expected one dimension of varying length at most")
    spec = dm_env_rpc_pb2.TensorSpec(name=name, dtype=DTYPES[dtype], shape=shape)
    try:
        if isinstance(minimum, tuple) or isinstance(maximum, tuple):
            least, most = element_bounds(dtype, shape, minimum, maximum)
            getattr(spec.min, PAYLOADS[dtype]).array.extend(least.tolist())
            getattr(spec.max, PAYLOADS[dtype]).array.extend(most.tolist())
            return spec
        low, high = bounds(dtype, minimum, maximum)
    except ValueError as error:
        raise ValueError(f"spec {name!r} has {error}") from None
    if any(size < 0 for size in shape):
        low = high = None
    if not shape and np.dtype(dtype).kind in "iu" and high == np.iinfo(dtype).max:
        high = None
    if low is not None:
        _put(spec.min, dtype, low)
    if high is not None:
        _put(spec.max, dtype, high)
    return spec


def offer_specs(offer: Offer) -> dm_env_rpc_pb2.TensorSpec:
    """What an agent is offered, as ActionObservationSpecs."""
    lanes = () if offer.lanes is None else (offer.lanes,)
    specs = dm_env_rpc_pb2.ActionObservationSpecs()
    for uid, spec in offer.actions.items():
        shape = (*lanes, *spec.shape)
        specs.actions[uid].CopyFrom(tensor_spec(spec.name, spec.dtype, shape, spec.minimum, spec.maximum))
    for uid, one in offer.observations.items():
        specs.observations[uid].CopyFrom(tensor_spec(one.name, one.dtype, one.shape, one.minimum, one.maximum))
    return specs


def bounds(dtype: str, minimum: float | None, maximum: float | None) -> tuple[float | None, float | None]:
    """A range in numbers that the dtype can represent; None where it limits nothing.

    A bound of floats is rounded to the nearest, so that whoever sends the number that the spec shows is in range; one
    of integers is rounded inwards.
    """
    kind = np.dtype(dtype).kind
    if kind in "bU":
        return None, None
    info: Any = np.finfo(dtype) if kind == "f" else np.iinfo(dtype)
    # As plain Python numbers, which compare exactly whatever their types.
    least, most = np.asarray(info.min).item(), np.asarray(info.max).item()
    start = np.asarray(-math.inf if minimum is None else minimum).item()
    end = np.asarray(math.inf if maximum is None else maximum).item()
    error = ValueError(f"range {minimum} to {maximum}: expected one that some {dtype} lies in")
    if not (start <= most and least <= end):  # so written, NaN is refused
        raise error
    low = high = None
    if start >= least:
        low = float(np.dtype(dtype).type(start)) if kind == "f" else math.ceil(start)
    if end <= most:
        high = float(np.dtype(dtype).type(end)) if kind == "f" else math.floor(end)
    if low is not None and high is not None and low > high:
        raise error
    return low, high


def element_bounds(dtype: str, shape: Sequence[int], minimum: Bound, maximum: Bound) -> tuple[np.ndarray, np.ndarray]:
    """A range for each element of a tensor, in order, where they differ; infinite where nothing limits.

    Lanes have the same: bounds of one lane are repeated for all.
    """
    if np.dtype(dtype).kind != "f":
        raise ValueError(f"a range for each element, and dtype {dtype!r}: expected one range for all, or floats")
    elements = math.prod(shape)
    found = []
    for bound, limit in ((minimum, -math.inf), (maximum, math.inf)):
        each = np.array(limit if bound is None else bound, dtype).reshape(-1)
        if any(size < 0 for size in shape) or each.size == 0 or elements % each.size:
            raise ValueError(f"{each.size} bounds: expected as many as shape {list(shape)} has elements")
        found.append(np.resize(each, elements))
    least, most = found
    if not (least <= most).all():  # so written, NaN is refused
        raise ValueError(f"range {minimum} to {maximum}: expected one that some {dtype} lies in for each element")
    return least, most


def _put(value: dm_env_rpc_pb2.TensorSpec.Value, dtype: str, bound: float) -> None:
    payload = getattr(value, PAYLOADS[dtype])
    if dtype in BYTE_DTYPES:
        payload.array = np.dtype(dtype).type(bound).tobytes()
    else:
        payload.array.append(bound)
