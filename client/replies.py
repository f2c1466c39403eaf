"""Replies to steps as NumPy arrays, without protobuf objects: where tensors lie in the bytes, and arrays over them.

    EnvironmentResponse { step: StepResponse { state, observations: { uid: Tensor { payload { array }, shape }, … } } }

The walk knows the form that every writer of protobuf gives such a message: each field at most once, in any order,
numbers packed. Whatever else there may be (fields in pieces, texts, damage) is left to protobuf itself, which knows all
of it, and is slower.
"""

from collections.abc import Iterator, Mapping
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from google.protobuf.message import DecodeError

from worldloom.client.errors import BadReply, ServerError
from worldloom.client.specs import Spec
from worldloom.protos.wire import read_varints

_STEP = 3
_OBSERVATIONS = 2
_KEY, _VALUE = 1, 2
_ARRAY, _SHAPE = 1, 15
_VARINT, _LENGTH_DELIMITED = 0, 2
_HIGHEST_FIELD = 63
"""There are none above in the messages we know."""
_DTYPES = dict(
    enumerate(["float32", "float64", "int8", "int32", "int64", "uint8", "uint32", "uint64", "bool"], start=1)
)
"""The field of a Tensor -> the dtype in it."""
_AS_IN_MEMORY = frozenset({"float32", "float64", "int8", "uint8"})
_WORTH_SHARING_BYTES = 1 << 16
"""Less is copied: that takes microseconds, and whoever keeps a number should not keep a whole reply with it."""

Arrays: TypeAlias = dict[str, np.ndarray]


class _Odd(Exception):  # noqa: N818  # never seen outside
    """Not the form that we know."""


class _Tensor(NamedTuple):
    """Where the numbers of a tensor lie."""

    field: int
    start: int
    end: int
    shape: tuple[int, ...]


class _Lent:
    """Bytes as memory that may be written. For bytes that nobody else looks at, which a reply's are."""

    def __init__(self, owner: bytes) -> None:
        self._owner = owner
        address = np.frombuffer(owner, np.uint8).__array_interface__["data"][0]
        self.__array_interface__ = {
            "version": 3, "shape": (len(owner),), "typestr": "|u1", "data": (address, False)
        }  # fmt: skip


class StepReader:
    """Reads replies to steps that ask for the same. Most have the same form, byte for byte but for the numbers: then
    where everything lies is known from the one before."""

    def __init__(self, expected: Mapping[int, Spec]) -> None:
        self._expected = expected
        self._size = -1
        self._between: list[tuple[int, int, bytes]] = []
        """All bytes of the last reply that are not numbers, and where they lie."""
        self._tensors: dict[int, _Tensor] = {}

    def read(self, reply: bytes) -> Arrays:
        """The observations in a reply, by name: exactly those expected. Large ones are views of the reply.

        They can be written, and keep the reply alive for as long as they live.
        """
        try:
            if not self._has_known_form(reply):
                self._learn(reply)
            memory = np.asarray(_Lent(reply))
            return {spec.name: _array(memory, self._tensors[uid], spec) for uid, spec in self._expected.items()}
        except (_Odd, IndexError):
            return _read_any(reply, self._expected)

    def _has_known_form(self, reply: bytes) -> bool:
        return len(reply) == self._size and all(reply[start:end] == same for start, end, same in self._between)

    def _learn(self, reply: bytes) -> None:
        tensors = _find_tensors(reply)
        if tensors.keys() != self._expected.keys():
            raise _Odd
        numbers = sorted((tensor.start, tensor.end) for tensor in tensors.values())
        starts, ends = [0, *(end for _, end in numbers)], [*(start for start, _ in numbers), len(reply)]
        self._between = [(start, end, reply[start:end]) for start, end in zip(starts, ends, strict=True)]
        self._tensors, self._size = tensors, len(reply)


def _find_tensors(data: bytes) -> dict[int, _Tensor]:
    [(number, start, end)] = _only(data, 0, len(data))
    if number != _STEP:
        raise _Odd
    tensors = {}
    for number, entry_start, entry_end in _parts(data, start, end):
        if number == _OBSERVATIONS and entry_end >= 0:
            uid, tensor = _entry(data, entry_start, entry_end)
            if uid in tensors:
                raise _Odd
            tensors[uid] = tensor
    return tensors


def _entry(data: bytes, start: int, end: int) -> tuple[int, _Tensor]:
    uid, value = 0, None
    for number, part_start, part_end in _once(data, start, end):
        if number == _KEY and part_end < 0:
            uid = part_start
        elif number == _VALUE and part_end >= 0:
            value = _tensor(data, part_start, part_end)
    if value is None:
        raise _Odd
    return uid, value


def _tensor(data: bytes, start: int, end: int) -> _Tensor:
    field, array_start, array_end = 0, 0, 0
    shape: tuple[int, ...] = ()
    for number, part_start, part_end in _once(data, start, end):
        if part_end < 0:
            raise _Odd
        if number == _SHAPE:
            sides = []
            while part_start < part_end:
                side, part_start = _varint(data, part_start)
                sides.append(side)
            if part_start != part_end:
                raise _Odd
            shape = tuple(sides)
        elif number in _DTYPES and not field:
            field = number
            for inner, inner_start, inner_end in _once(data, part_start, part_end):
                if inner != _ARRAY or inner_end < 0:
                    raise _Odd
                array_start, array_end = inner_start, inner_end
        else:
            raise _Odd
    return _Tensor(field, array_start, array_end, shape)


def _array(memory: np.ndarray, tensor: _Tensor, spec: Spec) -> np.ndarray:
    dtype = _DTYPES.get(tensor.field)
    if dtype != spec.dtype or tensor.shape != spec.shape:
        raise _Odd
    data = memory[tensor.start : tensor.end]
    if dtype not in _AS_IN_MEMORY:
        values = read_varints(data, prod(spec.shape), dtype)
        if values is None:
            raise _Odd
        return values.reshape(spec.shape)
    if len(data) != spec.size_bytes:
        raise _Odd
    if len(data) < _WORTH_SHARING_BYTES:
        data = data.copy()
    values = data.view(spec.wire_dtype)
    # A float at an odd byte is legal, but much of NumPy works on a copy then, each time anew.
    return (values if values.flags.aligned else values.copy()).reshape(spec.shape)


def _read_any(reply: bytes, expected: Mapping[int, Spec]) -> Arrays:
    """The same with protobuf's own reader: for replies of an unusual form, and to say what is wrong with others."""
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
                f"{spec.name!r} cannot be read ({error}): expected {spec.dtype} {list(spec.shape)}"
            ) from error
        if value.dtype != spec.dtype or value.shape != spec.shape:
            raise BadReply(
                f"{spec.name!r} came as {value.dtype} {list(value.shape)}: expected {spec.dtype} {list(spec.shape)}"
            )
        found[spec.name] = value if value.flags.writeable else value.copy()
    return found


def parse_reply(reply: bytes, kind: str) -> rpc.EnvironmentResponse:
    """A reply of that kind as a protobuf object; ServerError if it is an error."""
    try:
        response = rpc.EnvironmentResponse.FromString(reply)
    except DecodeError as error:
        raise BadReply(f"{len(reply)} bytes that cannot be read: expected an EnvironmentResponse") from error
    came = response.WhichOneof("payload")
    if came == "error":
        raise ServerError(response.error.code, response.error.message)
    if came != kind:
        raise BadReply(f"a reply with {came or 'no payload'}: expected {kind}")
    return response


def _only(data: bytes, start: int, end: int) -> list[tuple[int, int, int]]:
    parts = list(_parts(data, start, end))
    if len(parts) != 1 or parts[0][2] < 0:
        raise _Odd
    return parts


def _once(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Fields, none of which may be there twice."""
    seen = 0
    for part in _parts(data, start, end):
        if seen >> part[0] & 1:
            raise _Odd
        seen |= 1 << part[0]
        yield part


def _parts(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The fields of a message: number, first byte and the byte past the last; or number, value and -1."""
    while start < end:
        tag, start = _varint(data, start)
        number, kind = tag >> 3, tag & 7
        if not 0 < number <= _HIGHEST_FIELD:
            raise _Odd
        value, start = _varint(data, start)
        if kind == _VARINT:
            yield number, value, -1
        elif kind == _LENGTH_DELIMITED and start + value <= end:
            yield number, start, start + value
            start += value
        else:
            raise _Odd
    if start != end:
        raise _Odd


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An integer, and the byte past it. Past the end of the data it is an IndexError."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
        if shift > 63:
            raise _Odd
