"""Specs of actions and observations, parsed from the reply to a join."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils

from worldloom.client.errors import BadReply


@dataclass(frozen=True)
class Spec:
    """The spec of an action or an observation."""

    uid: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    """Shape of all lanes together: the first dimension is their number, or -1 if it varies from reply to reply."""
    low: np.ndarray | None
    """The least value, for all elements or for each; None: no limit but the dtype's own."""
    high: np.ndarray | None
    """The greatest value, in the same form."""

    @cached_property
    def wire_dtype(self) -> np.dtype[Any]:
        """The dtype in little-endian order, as in messages."""
        return np.dtype(np.dtype(self.dtype).newbyteorder("<").str)

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of an array of this spec in memory."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    def empty(self) -> np.ndarray:
        """Return an array of this spec, with no rows if their number varies."""
        return np.empty((0, *self.shape[1:]) if self.shape[:1] == (-1,) else self.shape, self.wire_dtype)

    def allows(self, shape: tuple[int, ...]) -> bool:
        """True if an array may have this shape."""
        return shape == self.shape or (self.shape[:1] == (-1,) and len(shape) > 0 and shape[1:] == self.shape[1:])

    def with_lanes(self, lanes: int) -> "Spec":
        """Return the spec for another number of lanes. All lanes have the same limits."""
        low, high = (bound if bound is None or bound.ndim == 0 else bound[:1] for bound in (self.low, self.high))
        return replace(self, shape=(lanes, *self.shape[1:]), low=low, high=high)


def parse_specs(specs: Iterable[tuple[int, rpc.TensorSpec]]) -> dict[str, Spec]:
    """Parse specs, given with their UIDs. Returns them by name, in the order of their UIDs."""
    return {spec.name: _parse_spec(uid, spec) for uid, spec in sorted(specs)}


def _parse_spec(uid: int, spec: rpc.TensorSpec) -> Spec:
    shape = tuple(spec.shape)
    if spec.dtype in (rpc.INVALID_DATA_TYPE, rpc.STRING, rpc.PROTO) or any(side < 0 for side in shape[1:]):
        kind = rpc.DataType.Name(spec.dtype) if spec.dtype in rpc.DataType.values() else f"type {spec.dtype}"
        raise BadReply(
            f"{spec.name!r} is {kind} {list(shape)}: expected numbers of a fixed shape for each lane; do not ask for it"
        )
    dtype = np.dtype(tensor_utils.data_type_to_np_type(spec.dtype))
    return Spec(uid, spec.name, dtype.name, shape, *_parse_bounds(spec, dtype, shape))


def _parse_bounds(
    spec: rpc.TensorSpec, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    found: list[np.ndarray | None] = []
    for value in (spec.min, spec.max):
        payload = value.WhichOneof("payload")
        array = b"" if payload is None else getattr(value, payload).array
        bounds = np.frombuffer(array, dtype) if isinstance(array, bytes) else np.array(array, dtype)
        if shape[:1] == (-1,):
            bounds = bounds[:0]  # there is none for each element of what varies
        if bounds.size > 1 and bounds.size != prod(shape):
            raise BadReply(f"{spec.name!r} has {bounds.size} bounds: expected one, or one for each of {list(shape)}")
        found.append(None if bounds.size == 0 else bounds.reshape(shape if bounds.size > 1 else ()))
    return found[0], found[1]


def dtypes_and_shapes(specs: dict[str, Spec]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the dtype of each spec and its shape for one lane, to compare what two servers offer."""
    return {name: (spec.dtype, spec.shape[1:]) for name, spec in specs.items()}
