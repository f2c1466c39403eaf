"""The form of a StepResponse with certain observations, worked out byte by byte.

    EnvironmentResponse { step: StepResponse { state, observations: { uid: Tensor { payload { array }, shape }, … } } }

Every number is written in as many bytes as its largest value takes, so that nothing moves when values change, and UIDs
in as many as it takes for the data after them to be aligned, so that clients can look at it without a copy. Any reader
of protobuf takes it all for what it is.
"""

from typing import NamedTuple

from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc

from worldloom.kernels.wire import VARINT_BYTES
from worldloom.server.engine.layout import Layout, Place
from worldloom.server.engine.offer import DTYPES_AS_IN_MEMORY, Observation
from worldloom.server.env_rpc.specs import PAYLOADS

_STEP = rpc.EnvironmentResponse.DESCRIPTOR.fields_by_name["step"].number
_STATE, _OBSERVATIONS = (rpc.StepResponse.DESCRIPTOR.fields_by_name[name].number for name in ("state", "observations"))
_SHAPE = rpc.Tensor.DESCRIPTOR.fields_by_name["shape"].number
_KEY, _VALUE, _ARRAY = 1, 2, 1
_ALIGNED_TO = 8
"""Of the bytes of a message; the memory of a bytes object is aligned to more."""


def varint(number: int) -> bytes:
    """An integer as it lies on the wire."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def step_layout(observations: tuple[Observation, ...]) -> Layout:
    """The form of replies with these observations, in this order."""
    state = _tag(_STATE, 0) + b"\0"
    # How long the head is depends on what follows, and how that is aligned on how long the head is.
    for head_bytes in range(len(state) + 2, len(state) + 12):
        entries, end = _entries(observations, head_bytes)
        head = _tag(_STEP, 2) + varint(len(state) + end - head_bytes) + state
        if len(head) == head_bytes:
            break
    else:
        raise AssertionError("some length of the head fits")
    pieces, places = {0: head}, []
    for one, entry in zip(observations, entries, strict=True):
        pieces[entry.start] = entry.head
        places.append(Place(entry.start + len(entry.head), one.dtype not in DTYPES_AS_IN_MEMORY))
    return Layout(end, pieces, len(head) - 1, tuple(places))


class _Entry(NamedTuple):
    """An entry of the map of observations: where it begins, and all of it but the data, which comes last."""

    start: int
    head: bytes


def _entries(observations: tuple[Observation, ...], start: int) -> tuple[list[_Entry], int]:
    """The entries from that byte on, and the byte after them."""
    entries = []
    for one in observations:
        entries.append(_Entry(start, _aligned_head(one, start)))
        start += len(entries[-1].head) + one.data_bytes
    return entries, start


def _aligned_head(one: Observation, start: int) -> bytes:
    """What comes before the data of an observation, such that the data begins where arrays of any type may."""
    shortest = len(varint(one.uid))
    heads = [_head(one, _long_varint(one.uid, size)) for size in range(shortest, VARINT_BYTES + 1)]
    return next((head for head in heads if (start + len(head)) % _ALIGNED_TO == 0), heads[0])


def _head(one: Observation, uid: bytes) -> bytes:
    payload_number = rpc.Tensor.DESCRIPTOR.fields_by_name[PAYLOADS[one.dtype]].number
    sides = b"".join(varint(side) for side in one.shape)
    shape = _tag(_SHAPE, 2) + varint(len(sides)) + sides if one.shape else b""
    array = _tag(_ARRAY, 2) + varint(one.data_bytes)
    payload = _tag(payload_number, 2) + varint(len(array) + one.data_bytes) + array
    value = _tag(_VALUE, 2) + varint(len(shape) + len(payload) + one.data_bytes) + shape + payload
    inner = _tag(_KEY, 0) + uid + value
    return _tag(_OBSERVATIONS, 2) + varint(len(inner) + one.data_bytes) + inner


def _long_varint(number: int, size: int) -> bytes:
    """An integer in so many bytes, which is more than it needs: readers do not mind."""
    data = bytearray(varint(number))
    data[-1] |= 0x80 if len(data) < size else 0
    data += b"\x80" * (size - len(data) - 1) + b"\0" * (len(data) < size)
    return bytes(data)


def _tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)
