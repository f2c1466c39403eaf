"""What a world offers: its specs as plain data, and as Gymnasium spaces."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils

from worldloom.client.errors import BadReply


@dataclass(frozen=True)
class Spec:
    """An action or an observation."""

    uid: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    low: np.ndarray | None
    """One for all numbers, or one for each; None: no limit but the dtype's own."""
    high: np.ndarray | None

    @cached_property
    def wire_dtype(self) -> np.dtype[Any]:
        """Its dtype, little-endian: as numbers lie on the wire."""
        return np.dtype(np.dtype(self.dtype).newbyteorder("<").str)

    @cached_property
    def size_bytes(self) -> int:
        """How much room it takes in memory."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


def read_specs(specs: Iterable[tuple[int, rpc.TensorSpec]]) -> dict[str, Spec]:
    """Specs by name, in the order of their numbers."""
    return {spec.name: _read(uid, spec) for uid, spec in sorted(specs)}


def _read(uid: int, spec: rpc.TensorSpec) -> Spec:
    shape = tuple(spec.shape)
    if spec.dtype in (rpc.INVALID_DATA_TYPE, rpc.STRING, rpc.PROTO) or any(side < 0 for side in shape):
        kind = rpc.DataType.Name(spec.dtype) if spec.dtype in rpc.DataType.values() else f"type {spec.dtype}"
        raise BadReply(f"{spec.name!r} is {kind} {list(shape)}: expected numbers of a fixed shape; do not ask for it")
    dtype = np.dtype(tensor_utils.data_type_to_np_type(spec.dtype))
    return Spec(uid, spec.name, dtype.name, shape, *_bounds(spec, dtype, shape))


def _bounds(
    spec: rpc.TensorSpec, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    found: list[np.ndarray | None] = []
    for value in (spec.min, spec.max):
        payload = value.WhichOneof("payload")
        array = b"" if payload is None else getattr(value, payload).array
        bounds = np.frombuffer(array, dtype) if isinstance(array, bytes) else np.array(array, dtype)
        if bounds.size > 1 and bounds.size != prod(shape):
            raise BadReply(f"{spec.name!r} has {bounds.size} bounds: expected one, or as many as {list(shape)}")
        found.append(None if bounds.size == 0 else bounds.reshape(shape if bounds.size > 1 else ()))
    return found[0], found[1]


def describe(specs: dict[str, Spec]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Just the forms, to compare."""
    return {name: (spec.dtype, spec.shape) for name, spec in specs.items()}
