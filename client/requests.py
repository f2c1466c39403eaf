"""Requests encoded: those of steps from pieces of bytes, without protobuf objects; settings with protobuf.

    EnvironmentRequest { step: StepRequest {
        actions: { uid: Tensor { payload { array }, shape }, … }, requested_observations: [uid, …] } }

`StepWriter` checks actions against their specs first, so that nothing is sent of a step that the server would refuse.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from numpy.typing import ArrayLike

from worldloom.client.errors import BadAction
from worldloom.client.specs import Spec
from worldloom.protos.wire import field_header, varint, varint_tag, write_varints

_LEAST_INTEGER, _GREATEST_INTEGER = -(2**63), 2**64 - 1
"""Range of the integers that a message can have."""
_STEP = 3
_ACTIONS, _REQUESTED_OBSERVATIONS = 1, 2
_KEY, _VALUE = 1, 2
_ARRAY, _SHAPE = 1, 15
"""Field numbers of the messages above."""
_FIXED_SIZE_DTYPES = frozenset({"int8", "uint8", "float32", "float64", "bool"})
"""Dtypes whose numbers have the same bytes in a message as in memory; the others are varints."""
_FEW_BYTES = 64
"""Size in memory of actions that are likely to come again."""
_FEW_ELEMENTS = 32
"""Number of elements up to which a list is compared faster than an array."""
_MAX_TABLE_VALUES = 256
"""Values of an integer action whose varints are looked up in a table."""
Seeds: TypeAlias = int | list[int | None] | None
"""Seeds of a reset: one for all lanes, one or None for each, or none."""
_ACCEPTED_KINDS = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}
"""`np.dtype.kind` of an action -> kinds that are accepted for it: none that loses more than precision."""


class StepWriter:
    """Encoder of the actions of steps."""

    def __init__(self, actions: Mapping[str, Spec], clip: bool = False) -> None:
        """Take the specs of the actions. With `clip`, floats beyond their limits become these limits."""
        self._actions = {name: _ActionWriter(spec, clip) for name, spec in actions.items()}
        self._specs, self._clip = actions, clip
        self._of_lanes: dict[int, StepWriter] = {}

    def with_lanes(self, lanes: int) -> "StepWriter":
        """Return the encoder of the same actions for another number of lanes."""
        if lanes not in self._of_lanes:
            specs = {name: spec.with_lanes(lanes) for name, spec in self._specs.items()}
            self._of_lanes[lanes] = StepWriter(specs, self._clip)
        return self._of_lanes[lanes]

    def write(self, actions: Mapping[str, ArrayLike]) -> list[bytes]:
        """Return the map of actions of a StepRequest, in pieces; BadAction if one is not in its space."""
        return self.encode(self.validate(actions))

    def validate(self, actions: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
        """Return the actions as arrays of their dtypes; BadAction if one is not in its space."""
        if not isinstance(actions, Mapping):
            raise BadAction(f"actions are {type(actions).__name__}: expected a dict of {self._names}")
        if actions.keys() != self._actions.keys():
            raise BadAction(f"actions are {', '.join(map(repr, actions)) or 'none'}: expected {self._names}, each once")
        return {name: writer.validate(actions[name]) for name, writer in self._actions.items()}

    def encode(self, actions: Mapping[str, np.ndarray]) -> list[bytes]:
        """Return the map of actions of a StepRequest, in pieces, from the arrays of `validate`."""
        return [piece for name, array in actions.items() for piece in self._actions[name].encode(array)]

    @property
    def _names(self) -> str:
        return ", ".join(map(repr, self._actions)) or "none"


def write_step(actions: Sequence[bytes], requested: bytes) -> bytes:
    """Return a step request, from the results of `StepWriter.write` and `write_observation_request`."""
    return b"".join((field_header(_STEP, sum(map(len, actions)) + len(requested)), *actions, requested))


def write_observation_request(uids: Iterable[int]) -> bytes:
    """Return the field `requested_observations` of a StepRequest."""
    data = b"".join(map(varint, uids))
    return field_header(_REQUESTED_OBSERVATIONS, len(data)) + data if data else b""


class _ActionWriter:
    """Encoder of one action, which it validates."""

    def __init__(self, spec: Spec, clip: bool) -> None:
        self._spec = spec
        self._dtype = np.dtype(spec.dtype)
        self._wire_dtype = spec.wire_dtype
        # Without limits of its own an action has those of its dtype: arrays of another dtype may exceed them, and
        # floats may be infinite.
        limits: Any = np.finfo(self._dtype) if self._dtype.kind == "f" else np.iinfo(_integer_dtype(self._dtype))
        self._low: Any = limits.min if spec.low is None else spec.low
        self._high: Any = limits.max if spec.high is None else spec.high
        self._is_uniform = np.ndim(self._low) == 0 and np.ndim(self._high) == 0
        """All elements have the same limits."""
        if self._is_uniform:
            self._low, self._high = np.asarray(self._low).item(), np.asarray(self._high).item()
        has_limits = spec.low is not None or spec.high is not None
        self._is_clipped = clip and has_limits and self._dtype.kind == "f"
        sides = b"".join(map(varint, spec.shape))
        self._shape = field_header(_SHAPE, len(sides)) + sides if sides else b""
        self._payload: int = tensor_utils.np_type_to_data_type(self._dtype)  # also the number of the payload's field
        self._uid = varint_tag(_KEY) + varint(spec.uid)
        self._is_fixed_size = self._dtype.name in _FIXED_SIZE_DTYPES
        self._heads: dict[int, bytes] = {}
        """All that comes before the numbers, by the number of their bytes, of which there are few."""
        self._varints = None if self._is_fixed_size else self._write_table()
        """The varints of all values from the lowest to the highest, all of one length, if these are not too many."""

    def encode(self, array: np.ndarray) -> list[bytes]:
        """Return the entry of the map of actions, in pieces."""
        if self._is_fixed_size:
            data = array.tobytes()
        elif array.nbytes <= _FEW_BYTES:
            data = _encode_few(array.tobytes(), array.dtype.str)
        elif self._varints is not None:
            data = self._varints.take(array.ravel() - self._low).tobytes()
        else:
            data = write_varints(array)
        head = self._heads.get(len(data))
        if head is None:
            head = self._heads[len(data)] = self._write_head(len(data))
        return [head, data, self._shape]

    def _write_table(self) -> np.ndarray | None:
        count = int(self._high) - int(self._low) + 1 if self._is_uniform else 0
        if not 0 < count <= _MAX_TABLE_VALUES:
            return None
        data = write_varints(np.arange(count, dtype=np.int64) + int(self._low))
        return np.frombuffer(data, f"V{len(data) // count}")

    def _write_head(self, data_bytes: int) -> bytes:
        """Return all that comes before so many bytes of numbers."""
        array_head = field_header(_ARRAY, data_bytes)
        payload_head = field_header(self._payload, len(array_head) + data_bytes)
        tensor_bytes = len(payload_head) + len(array_head) + data_bytes + len(self._shape)
        value_head = field_header(_VALUE, tensor_bytes)
        entry_head = field_header(_ACTIONS, len(self._uid) + len(value_head) + tensor_bytes)
        return b"".join((entry_head, self._uid, value_head, payload_head, array_head))

    def validate(self, value: ArrayLike) -> np.ndarray:
        """Return the action as an array of its dtype; BadAction if it is not in its space."""
        spec = self._spec
        try:
            given = np.asarray(value)
        except ValueError as error:  # lists of different lengths
            raise BadAction(f"action {spec.name!r} is not an array ({error}): expected {self._expected}") from error
        if given.shape != spec.shape:
            raise BadAction(f"action {spec.name!r} has shape {list(given.shape)}: expected {self._expected}")
        if given.dtype.kind not in _ACCEPTED_KINDS[self._dtype.kind]:
            raise BadAction(f"action {spec.name!r} has dtype {given.dtype}: expected {self._expected}")
        array = given
        if self._dtype.kind == "f" and given.dtype != self._wire_dtype:
            with np.errstate(over="ignore"):  # too large a number becomes infinite, and fails the check of the range
                array = given.astype(self._wire_dtype)
        if self._is_clipped:
            array = np.clip(array, self._spec.low, self._spec.high)  # NaN stays NaN
        self._check_range(array, given)
        return array.astype(self._wire_dtype, order="C", copy=False)

    def _check_range(self, array: np.ndarray, given: np.ndarray) -> None:
        if self._is_uniform and self._is_in_range(array):
            return
        is_inside = (array >= self._low) & (array <= self._high)
        if not is_inside.all():
            first = np.unravel_index(int(np.argmin(is_inside)), is_inside.shape)
            index = [int(number) for number in first]
            expected = self._expected
            if not self._is_uniform:
                low, high = (np.broadcast_to(limit, is_inside.shape)[first] for limit in (self._low, self._high))
                expected = f"{self._spec.dtype} from {low} to {high} there"
            raise BadAction(f"action {self._spec.name!r} is {given[first]} at {index}: expected {expected}")

    def _is_in_range(self, array: np.ndarray) -> bool:
        """Return whether all elements are within limits that are the same for all; NaN is inside no range."""
        low, high = self._low, self._high
        if array.size > _FEW_ELEMENTS:
            return bool(low <= array.min() and array.max() <= high)
        for value in array.ravel().tolist():  # noqa: SIM110 (a generator takes longer than the few values)
            if not low <= value <= high:
                return False
        return True

    @property
    def _expected(self) -> str:
        spec = self._spec
        low, high = (None if bound is None else np.unique(bound).tolist() for bound in (spec.low, spec.high))
        limits = "" if low is None and high is None else f" from {_format_bounds(low)} to {_format_bounds(high)}"
        return f"{spec.dtype} {list(spec.shape)}{limits}"


@functools.lru_cache(maxsize=1024)
def _encode_few(data: bytes, dtype: str) -> bytes:
    """Return a few integers as varints. Actions of a lane or two are mostly some of a few."""
    return write_varints(np.frombuffer(data, dtype))


def pack_settings(settings: Mapping[str, Any]) -> dict[str, rpc.Tensor]:
    """Pack the settings of a world or a join: numbers, bools, strings, or lists of them, or bytes."""
    packed = {}
    for name, value in settings.items():
        if isinstance(value, int) and not _LEAST_INTEGER <= value <= _GREATEST_INTEGER:
            raise ValueError(
                f"setting {name!r} is {repr(value)[:100]}: expected an integer from {_LEAST_INTEGER} to "
                f"{_GREATEST_INTEGER}"
            )
        # NumPy converts an integer that fits uint64 only to a float.
        is_large = isinstance(value, int) and value > np.iinfo(np.int64).max
        if isinstance(value, bytes | bytearray | memoryview):
            data = bytes(value)
            packed[name] = rpc.Tensor(uint8s=rpc.Tensor.Uint8Array(array=data), shape=[len(data)])
            continue
        try:
            packed[name] = tensor_utils.pack_tensor(np.uint64(value) if is_large else value)
        except (TypeError, ValueError, OverflowError) as error:
            hint = "; for a dict, its JSON text: json.dumps(…)" if isinstance(value, dict) else ""
            raise ValueError(
                f"setting {name!r} is {repr(value)[:100]}: expected a number, a bool, a string, a list or bytes{hint}"
            ) from error
    return packed


def seed_settings(seeds: Seeds) -> dict[str, Any]:
    """Return the settings of ResetWorld for a seed, or for one or None for each lane."""
    if seeds is None or isinstance(seeds, int):
        return {} if seeds is None else {"seed": seeds}
    has_seed = np.array([seed is not None for seed in seeds])
    if not has_seed.any():
        return {}
    return {"seed": np.array([seed or 0 for seed in seeds], np.uint64), "seed_mask": has_seed}


def reset_settings(seeds: Seeds, variation: int | np.ndarray | None, lanes: "slice | np.ndarray") -> dict[str, Any]:
    """Return the settings of ResetWorld for some lanes, from seeds and variations of all lanes."""
    own = np.array(seeds, object)[lanes].tolist() if isinstance(seeds, list) else seeds
    return {**seed_settings(own), **variation_settings(variation, lanes)}


def variation_settings(numbers: int | np.ndarray | None, lanes: "slice | np.ndarray") -> dict[str, Any]:
    """Return the setting for the variations of some lanes: a number for all, one for each, or those that they have."""
    if numbers is None:
        return {}
    return {"variation": numbers[lanes] if isinstance(numbers, np.ndarray) else numbers}


def _integer_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.uint8) if dtype.kind == "b" else dtype


def _format_bounds(bounds: list[float] | None) -> str:
    """Format sorted bounds: one number if all elements have the same, else the range of them."""
    if bounds is None:
        return "any"
    return str(bounds[0]) if len(bounds) == 1 else f"{bounds[0]}…{bounds[-1]}"
