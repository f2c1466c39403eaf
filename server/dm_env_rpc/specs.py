"""TensorSpec messages that the reference clients can convert, and the payload field of each dtype."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2

from worldloom.server.engine.observations import AgentSpecs
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
"""Data type of the protocol, by the NumPy name of the dtype."""

PAYLOADS: dict[str, str] = {
    dtype: f"{dm_env_rpc_pb2.DataType.Name(number).lower()}s" for dtype, number in DTYPES.items()
}
"""Field of a Tensor that carries a dtype, by its NumPy name."""

BYTE_DTYPES = frozenset({"int8", "uint8"})
"""Dtypes whose payloads are bytes; those of all others are repeated fields."""


def tensor_spec(
    name: str, dtype: str, shape: Sequence[int], minimum: Bound = None, maximum: Bound = None
) -> dm_env_rpc_pb2.TensorSpec:
    """Return a TensorSpec. Two ranges are left out, since dm_env's conversion of specs fails on them.

    The first is that of a shape with a varying dimension; the second the maximum of a scalar integer where it is the
    maximum of its dtype: dm_env counts the values by adding one to it.
    """
    if dtype not in DTYPES:
        raise ValueError(f"spec {name!r} has dtype {dtype!r}: expected one of {', '.join(DTYPES)}")
    if sum(size < 0 for size in shape) > 1:
        raise ValueError(f"spec {name!r} has shape {list(shape)}: expected one dimension of varying length at most")
    spec = dm_env_rpc_pb2.TensorSpec(name=name, dtype=DTYPES[dtype], shape=shape)
    try:
        if isinstance(minimum, tuple) or isinstance(maximum, tuple):
            if any(size < 0 for size in shape):
                return spec
            least, most = element_bounds(dtype, shape, minimum, maximum)
            _put(spec.min, least)
            _put(spec.max, most)
            return spec
        low, high = bounds(dtype, minimum, maximum)
    except ValueError as error:
        raise ValueError(f"spec {name!r} has {error}") from None
    if any(size < 0 for size in shape):
        low = high = None
    if not shape and np.dtype(dtype).kind in "iu" and high == np.iinfo(dtype).max:
        high = None
    if low is not None:
        _put(spec.min, np.array([low], dtype))
    if high is not None:
        _put(spec.max, np.array([high], dtype))
    return spec


def agent_specs_message(agent_specs: AgentSpecs) -> dm_env_rpc_pb2.TensorSpec:
    """Return the specs of an agent as ActionObservationSpecs."""
    lanes = () if agent_specs.lanes is None else (agent_specs.lanes,)
    specs = dm_env_rpc_pb2.ActionObservationSpecs()
    for uid, spec in agent_specs.actions.items():
        shape = (*lanes, *spec.shape)
        specs.actions[uid].CopyFrom(tensor_spec(spec.name, spec.dtype, shape, spec.minimum, spec.maximum))
    for uid, observation in agent_specs.observations.items():
        specs.observations[uid].CopyFrom(
            tensor_spec(
                observation.name, observation.dtype, observation.shape, observation.minimum, observation.maximum
            )
        )
    return specs


def bounds(dtype: str, minimum: float | None, maximum: float | None) -> tuple[float | None, float | None]:
    """Return a range in numbers that the dtype can represent; None for a bound that excludes nothing.

    A bound of floats is rounded to the nearest, so that the number which the spec shows is in range; one of integers
    is rounded inwards.
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
    if not (start <= most and least <= end):  # written so that NaN fails
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
    """Return minima and maxima of all elements of a tensor, in order and in its dtype.

    Where there is no bound, floats are infinite, and integers the least or greatest of the dtype. The bounds of one
    lane are repeated for all lanes.
    """
    kind = np.dtype(dtype).kind
    if kind not in "fiu":
        raise ValueError(f"a range for each element, and dtype {dtype!r}: expected one range for all, or numbers")
    elements = math.prod(shape)
    given = [bound if isinstance(bound, tuple) else (bound,) for bound in (minimum, maximum)]
    count = max(map(len, given))
    for each in given:
        if any(size < 0 for size in shape) or not each or elements % count or count % len(each):
            raise ValueError(f"{len(each)} bounds: expected as many as shape {list(shape)} has elements")
    lows, highs = (each * (count // len(each)) for each in given)
    found = [bounds(dtype, low, high) for low, high in zip(lows, highs, strict=True)]
    info: Any = np.iinfo(dtype) if kind in "iu" else None
    least, most = (-math.inf, math.inf) if info is None else (info.min, info.max)
    low_of_each = np.array([least if low is None else low for low, _ in found], dtype)
    high_of_each = np.array([most if high is None else high for _, high in found], dtype)
    return np.resize(low_of_each, elements), np.resize(high_of_each, elements)


def _put(value: dm_env_rpc_pb2.TensorSpec.Value, limits: np.ndarray) -> None:
    payload = getattr(value, PAYLOADS[limits.dtype.name])
    if limits.dtype.name in BYTE_DTYPES:
        payload.array = limits.tobytes()
    else:
        payload.array.extend(limits.tolist())
