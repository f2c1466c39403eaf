"""Replies decoded: those to steps as NumPy arrays, without protobuf objects; all others with protobuf.

    EnvironmentResponse { step: StepResponse { state, observations: { uid: Tensor { payload { array }, shape }, … } } }

`StepReader` finds the tensors of a reply by walking its fields, and returns arrays over its bytes. The walk handles the
form that protobuf writers give such a message: each field at most once, in any order, numbers packed. Any other form
(fields in pieces, strings, damage) raises `_UnusualForm`, and the reply is decoded by protobuf itself, which handles
all of them but is slower.
"""

from collections.abc import Collection, Iterator, Mapping
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from google.protobuf.message import DecodeError

from worldloom.client.errors import BadReply, ServerError
from worldloom.client.specs import Spec
from worldloom.protos.wire import WireError, read_fields, read_varint, read_varints

_STEP = 3
_OBSERVATIONS = 2
_KEY, _VALUE = 1, 2
_ARRAY, _SHAPE = 1, 15
"""Field numbers of the messages above."""
_DTYPES = dict(
    enumerate(["float32", "float64", "int8", "int32", "int64", "uint8", "uint32", "uint64", "bool"], start=1)
)
"""Payload fields of a Tensor -> the dtype of their numbers."""
_FIXED_SIZE_DTYPES = frozenset({"float32", "float64", "int8", "uint8"})
"""Dtypes whose numbers have the same bytes in a message as in memory; the others are varints."""
_MIN_VIEW_BYTES = 1 << 16
"""Smaller arrays are copied: that takes microseconds, and a number that is kept does not keep a whole reply alive."""

_MAX_FORMS = 64
"""Forms of replies that are kept."""
_MAX_REMEMBERED_BYTES = 32 << 20
"""Bytes of tensors that are remembered, with what they were decoded from: positions in the ring of a long rollout."""

Arrays: TypeAlias = dict[str, np.ndarray]


class _UnusualForm(Exception):  # noqa: N818  # caught in this module
    """A reply of a form that the walk does not handle."""


class _Tensor(NamedTuple):
    """A tensor in a reply: the field of its payload, the byte range of its numbers, and its shape."""

    payload_field: int
    start: int
    end: int
    shape: tuple[int, ...]


class _Form(NamedTuple):
    """A form of replies."""

    between: list[tuple[int, int, bytes]]
    """All bytes that are not numbers of tensors, with their positions."""
    tensors: dict[int, _Tensor]
    small: list[tuple[str, np.dtype[Any], int, int, tuple[int, ...]]]
    """Tensors that are copied: name, dtype, number of elements, position, shape."""
    remembered: list[tuple[int, int, int]]
    """Tensors whose numbers come again and again: UID, and begin and end of the numbers."""
    others: list[int]
    """UIDs of all others."""

    def fits(self, reply: bytes) -> bool:
        """True if a reply of the same size has this form."""
        return all(reply[start:end] == same for start, end, same in self.between)


class _WritableBytes:
    """The memory of a bytes object as a writable array. Only for bytes with a single owner, such as a reply."""

    def __init__(self, owner: bytes) -> None:
        self._owner = owner
        address = np.frombuffer(owner, np.uint8).__array_interface__["data"][0]
        self.__array_interface__ = {
            "version": 3, "shape": (len(owner),), "typestr": "|u1", "data": (address, False)
        }  # fmt: skip


class StepReader:
    """Decoder of replies to steps that ask for the same observations.

    Successive replies mostly differ in their numbers alone. So the positions of all tensors are kept, with the bytes
    between them, and a reply with the same bytes there is not walked again. Replies of different sizes have different
    forms: some observations have a row for each episode that ended.

    Of tensors that take few different values, such as positions in a ring, these can be remembered.
    """

    def __init__(self, expected: Mapping[int, Spec], remembered: Collection[int] = ()) -> None:
        """Take the specs of the observations by UID. The arrays of those to remember must not be written to."""
        self._expected = expected
        self._remembered = remembered
        self._known: dict[tuple[int, bytes], np.ndarray] = {}
        """Decoded tensors by UID and numbers, of those that are remembered."""
        self._known_bytes = 0
        self._forms: dict[int, _Form] = {}
        """Known forms of replies, by the size of the reply."""

    def read(self, reply: bytes) -> Arrays:
        """Return the observations of a reply by name: exactly those expected.

        Large ones are views of the reply; they are writable, and keep the reply alive.
        """
        try:
            form = self._forms.get(len(reply))
            if form is None or not form.fits(reply):
                form = self._find_form(reply)
            found = {
                name: np.frombuffer(reply, dtype, count, start).reshape(shape).copy()
                for name, dtype, count, start, shape in form.small
            }
            memory = np.asarray(_WritableBytes(reply)) if form.others else None
            for uid, start, end in form.remembered:
                key = (uid, reply[start:end])
                array = self._known.get(key)
                if array is None:
                    memory = np.asarray(_WritableBytes(reply)) if memory is None else memory
                    array = self._remember(key, _read_array(memory, form.tensors[uid], self._expected[uid]))
                found[self._expected[uid].name] = array
            for uid in form.others:
                assert memory is not None
                found[self._expected[uid].name] = _read_array(memory, form.tensors[uid], self._expected[uid])
            return found
        except (_UnusualForm, WireError):
            return _read_with_protobuf(reply, self._expected)

    def _find_form(self, reply: bytes) -> _Form:
        tensors = _walk_reply(reply)
        if tensors.keys() != self._expected.keys():
            raise _UnusualForm
        ranges = sorted((tensor.start, tensor.end) for tensor in tensors.values())
        starts, ends = [0, *(end for _, end in ranges)], [*(start for start, _ in ranges), len(reply)]
        between = [(start, end, reply[start:end]) for start, end in zip(starts, ends, strict=True)]
        if len(self._forms) >= _MAX_FORMS:
            self._forms.clear()
        small, remembered, others = [], [], []
        for uid, spec in self._expected.items():
            _, start, end, shape = tensors[uid]
            if uid in self._remembered:
                remembered.append((uid, start, end))
            elif _is_small(tensors[uid], spec):
                small.append((spec.name, spec.wire_dtype, prod(shape), start, shape))
            else:
                others.append(uid)
        self._forms[len(reply)] = form = _Form(between, tensors, small, remembered, others)
        return form

    def _remember(self, key: tuple[int, bytes], array: np.ndarray) -> np.ndarray:
        size_bytes = len(key[1]) + array.nbytes
        if self._known_bytes + size_bytes > _MAX_REMEMBERED_BYTES:
            self._known.clear()
            self._known_bytes = 0
        self._known[key] = array
        self._known_bytes += size_bytes
        return array


def _walk_reply(data: bytes) -> dict[int, _Tensor]:
    """Return the tensors of a StepResponse by UID."""
    fields = list(read_fields(data, 0, len(data)))
    if len(fields) != 1:
        raise _UnusualForm
    [(number, start, end)] = fields
    if number != _STEP or end < 0:
        raise _UnusualForm
    tensors = {}
    for number, entry_start, entry_end in read_fields(data, start, end):
        if number == _OBSERVATIONS and entry_end >= 0:
            uid, tensor = _walk_entry(data, entry_start, entry_end)
            if uid in tensors:
                raise _UnusualForm
            tensors[uid] = tensor
    return tensors


def _walk_entry(data: bytes, start: int, end: int) -> tuple[int, _Tensor]:
    """Return the UID and the tensor of an entry of the map of observations."""
    uid, tensor = 0, None
    for number, field_start, field_end in _read_unique_fields(data, start, end):
        if number == _KEY and field_end < 0:
            uid = field_start  # a varint field: this is its value
        elif number == _VALUE and field_end >= 0:
            tensor = _walk_tensor(data, field_start, field_end)
    if tensor is None:
        raise _UnusualForm
    return uid, tensor


def _walk_tensor(data: bytes, start: int, end: int) -> _Tensor:
    payload_field, array_start, array_end = 0, 0, 0
    shape: tuple[int, ...] = ()
    for number, field_start, field_end in _read_unique_fields(data, start, end):
        if field_end < 0:
            raise _UnusualForm
        if number == _SHAPE:
            shape = _read_shape(data, field_start, field_end)
        elif number in _DTYPES and not payload_field:
            payload_field = number
            for inner, inner_start, inner_end in _read_unique_fields(data, field_start, field_end):
                if inner != _ARRAY or inner_end < 0:
                    raise _UnusualForm
                array_start, array_end = inner_start, inner_end
        else:
            raise _UnusualForm
    return _Tensor(payload_field, array_start, array_end, shape)


def _read_shape(data: bytes, start: int, end: int) -> tuple[int, ...]:
    sides = []
    while start < end:
        side, start = read_varint(data, start)
        sides.append(side)
    if start != end:
        raise _UnusualForm
    return tuple(sides)


def _read_unique_fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of a message, as `read_fields` does; _UnusualForm if a number occurs twice."""
    seen: set[int] = set()
    for field in read_fields(data, start, end):
        if field[0] in seen:
            raise _UnusualForm
        seen.add(field[0])
        yield field


def _is_small(tensor: _Tensor, spec: Spec) -> bool:
    """Return whether a tensor is what it should be, and copied as it is."""
    dtype = _DTYPES.get(tensor.payload_field)
    size_bytes = prod(tensor.shape) * spec.wire_dtype.itemsize
    return (
        dtype == spec.dtype
        and dtype in _FIXED_SIZE_DTYPES
        and spec.allows(tensor.shape)
        and tensor.end - tensor.start == size_bytes < _MIN_VIEW_BYTES
    )


def _read_array(memory: np.ndarray, tensor: _Tensor, spec: Spec) -> np.ndarray:
    dtype = _DTYPES.get(tensor.payload_field)
    shape = tensor.shape
    if dtype != spec.dtype or not spec.allows(shape):
        raise _UnusualForm
    data = memory[tensor.start : tensor.end]
    if dtype not in _FIXED_SIZE_DTYPES:
        values = read_varints(data, prod(shape), dtype)
        if values is None:
            raise _UnusualForm
        return values.reshape(shape)
    if len(data) != prod(shape) * spec.wire_dtype.itemsize:
        raise _UnusualForm
    if len(data) < _MIN_VIEW_BYTES:
        data = data.copy()
    values = data.view(spec.wire_dtype)
    # Unaligned floats are legal, but much of NumPy then works on a copy, made anew each time.
    return (values if values.flags.aligned else values.copy()).reshape(shape)


def _read_with_protobuf(reply: bytes, expected: Mapping[int, Spec]) -> Arrays:
    """Decode with protobuf: replies of an unusual form, and wrong ones, for which it raises BadReply."""
    tensors = parse_reply(reply, "step").step.observations
    found = {}
    for uid, spec in expected.items():
        if uid not in tensors:
            raise BadReply(f"a reply without {spec.name!r}: expected {[one.name for one in expected.values()]}")
        try:
            data = np.asarray(tensor_utils.unpack_proto(tensors[uid]))
            value = np.asarray(tensor_utils.reshape_array(data, tensors[uid].shape), data.dtype)
        except (TypeError, ValueError) as error:
            raise BadReply(
                f"{spec.name!r} cannot be decoded ({error}): expected {spec.dtype} {list(spec.shape)}"
            ) from error
        if value.dtype != spec.dtype or not spec.allows(value.shape):
            raise BadReply(
                f"{spec.name!r} is {value.dtype} {list(value.shape)}: expected {spec.dtype} {list(spec.shape)}"
            )
        found[spec.name] = value if value.flags.writeable else value.copy()
    return found


def parse_reply(reply: bytes, kind: str) -> rpc.EnvironmentResponse:
    """Decode a reply of a kind as a protobuf object; ServerError if it is an error."""
    try:
        response = rpc.EnvironmentResponse.FromString(reply)
    except DecodeError as error:
        raise BadReply(f"{len(reply)} bytes that cannot be decoded: expected an EnvironmentResponse") from error
    payload = response.WhichOneof("payload")
    if payload == "error":
        raise ServerError(response.error.code, response.error.message)
    if payload != kind:
        raise BadReply(f"a reply with {payload or 'no payload'}: expected {kind}")
    return response
