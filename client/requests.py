"""Requests as bytes: those of steps put together from pieces, all others with protobuf."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from numpy.typing import ArrayLike

from worldloom.client.errors import BadAction
from worldloom.client.specs import Spec
from worldloom.protos.wire import field, varint, varint_tag, write_varints

_STEP = 3
_ACTIONS, _REQUESTED = 1, 2
_KEY, _VALUE = 1, 2
_ARRAY, _SHAPE = 1, 15
_IN_BYTES = frozenset({"int8", "uint8", "float32", "float64", "bool"})
"""What lies on the wire as it does in memory."""
_KINDS = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}
"""Which kinds of arrays are taken for which: nothing that would lose more than digits."""


class StepWriter:
    """Writes the actions of a stream's steps."""

    def __init__(self, actions: Mapping[str, Spec]) -> None:
        self._actions = {name: _ActionWriter(spec) for name, spec in actions.items()}

    def write(self, actions: Mapping[str, ArrayLike]) -> list[bytes]:
        """The part of a step that says what to do. BadAction if anything is wrong with it."""
        if not isinstance(actions, Mapping):
            raise BadAction(f"actions are {type(actions).__name__}: expected a dict of {self._names}")
        if actions.keys() != self._actions.keys():
            raise BadAction(f"actions are {', '.join(map(repr, actions)) or 'none'}: expected {self._names}, each once")
        return [part for name, writer in self._actions.items() for part in writer.write(actions[name])]

    @property
    def _names(self) -> str:
        return ", ".join(map(repr, self._actions)) or "none"


def write_step(actions: Sequence[bytes], asked: bytes) -> bytes:
    """A whole step, of what StepWriter and `ask_for` have written."""
    return b"".join((field(_STEP, sum(map(len, actions)) + len(asked)), *actions, asked))


def ask_for(uids: Iterable[int]) -> bytes:
    """The part of a step that says what to see."""
    data = b"".join(map(varint, uids))
    return field(_REQUESTED, len(data)) + data if data else b""


class _ActionWriter:
    """Checks and writes one action."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._dtype = np.dtype(spec.dtype)
        self._wire_dtype = spec.wire_dtype
        # Limits there are always: another dtype's array may hold more than ours can, and floats may be infinite.
        limits: Any = np.finfo(self._dtype) if self._dtype.kind == "f" else np.iinfo(_as_integer(self._dtype))
        self._low: Any = limits.min if spec.low is None else spec.low
        self._high: Any = limits.max if spec.high is None else spec.high
        sides = b"".join(map(varint, spec.shape))
        self._shape = field(_SHAPE, len(sides)) + sides if sides else b""
        self._payload: int = tensor_utils.np_type_to_data_type(self._dtype)  # the payload's field has its number
        self._uid = varint_tag(_KEY) + varint(spec.uid)

    def write(self, value: ArrayLike) -> list[bytes]:
        """The entry of the map of actions."""
        array = self._take(value)
        data = array.tobytes() if self._dtype.name in _IN_BYTES else write_varints(array)
        array_head = field(_ARRAY, len(data))
        payload_head = field(self._payload, len(array_head) + len(data))
        tensor = (payload_head, array_head, data, self._shape)
        entry = (self._uid, field(_VALUE, sum(map(len, tensor))), *tensor)
        return [field(_ACTIONS, sum(map(len, entry))), *entry]

    def _take(self, value: ArrayLike) -> np.ndarray:
        spec = self._spec
        try:
            came = np.asarray(value)
        except ValueError as error:  # lists of different lengths
            raise BadAction(f"action {spec.name!r} is no array ({error}): expected {self._expected}") from error
        if came.shape != spec.shape:
            raise BadAction(f"action {spec.name!r} has shape {list(came.shape)}: expected {self._expected}")
        if came.dtype.kind not in _KINDS[self._dtype.kind]:
            raise BadAction(f"action {spec.name!r} is of {came.dtype}: expected {self._expected}")
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            array = came.astype(self._wire_dtype) if self._dtype.kind == "f" else came
        self._check_range(array, came)
        return array.astype(self._wire_dtype, order="C", copy=False)

    def _check_range(self, array: np.ndarray, came: np.ndarray) -> None:
        inside = (array >= self._low) & (array <= self._high)  # NaN is inside no range
        if not inside.all():
            first = np.unravel_index(int(np.argmin(inside)), inside.shape)
            where = [int(place) for place in first]
            raise BadAction(f"action {self._spec.name!r} is {came[first]} at {where}: expected {self._expected}")

    @property
    def _expected(self) -> str:
        spec = self._spec
        low, high = (None if bound is None else np.unique(bound).tolist() for bound in (spec.low, spec.high))
        span = "" if low is None and high is None else f" from {_shown(low)} to {_shown(high)}"
        return f"{spec.dtype} {list(spec.shape)}{span}"


def pack_settings(settings: Mapping[str, Any]) -> dict[str, rpc.Tensor]:
    """Settings of a world or a join: numbers, truth values, texts, or lists of them."""
    packed = {}
    for name, value in settings.items():
        # NumPy would make a float of an integer that fits uint64 only.
        is_large = isinstance(value, int) and value > np.iinfo(np.int64).max
        try:
            packed[name] = tensor_utils.pack_tensor(np.uint64(value) if is_large else value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"setting {name!r} is {value!r}: expected a number, a bool, a text or a list") from error
    return packed


def _as_integer(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.uint8) if dtype.kind == "b" else dtype


def _shown(bounds: list[float] | None) -> str:
    if bounds is None:
        return "any"
    return str(bounds[0]) if len(bounds) == 1 else f"{bounds[0]}…{bounds[-1]}"
