"""The form of a StepResponse with certain observations, worked out byte by byte.

    EnvironmentResponse { step: StepResponse { state, observations: { uid: Tensor { payload { array }, shape }, … } } }

Every number is written in as many bytes as its largest value takes, so that nothing moves when values change, and UIDs
in as many as it takes for the data after them to be aligned, so that clients can look at it without a copy. Any reader
of protobuf takes it all for what it is.
"""

from typing import NamedTuple

from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc

from worldloom.kernels.wire import VARINT_BYTES
from worldloom.protos.wire import field, varint, varint_tag
from worldloom.server.dm_env_rpc.specs import PAYLOADS
from worldloom.server.engine.observations import DTYPES_AS_IN_MEMORY, Observation
from worldloom.server.engine.replies import Layout, Place

_STEP = rpc.EnvironmentResponse.DESCRIPTOR.fields_by_name["step"].number
_STATE, _OBSERVATIONS = (rpc.StepResponse.DESCRIPTOR.fields_by_name[name].number for name in ("state", "observations"))
_SHAPE = rpc.Tensor.DESCRIPTOR.fields_by_name["shape"].number
_KEY, _VALUE, _ARRAY = 1, 2, 1
_ALIGNED_TO = 8
"""Of the bytes of a message; the memory of a bytes object is aligned to more."""


def step_layout(observations: tuple[Observation, ...]) -> Layout:
    """The form of replies with these observations, in this order."""
    state = varint_tag(_STATE) + b"\0"
    # How long the head is depends on what follows, and how that is aligned on how long the head is. The first length
    # that suffices is taken; where it is one byte too many, that goes into the number that says how much follows.
    for length_bytes in range(1, VARINT_BYTES):
        head_bytes = 1 + length_bytes + len(state)
        entries, end = _entries(observations, head_bytes)
        following = len(state) + end - head_bytes
        if len(varint(following)) <= length_bytes:
            break
    head = varint(_STEP << 3 | 2) + _long_varint(following, length_bytes) + state
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
    return entry_head(_OBSERVATIONS, varint_tag(_KEY) + uid, one)


def entry_head(number: int, key: bytes, one: Observation) -> bytes:
    """What comes before an observation's data in an entry of a map of Tensors, which is field `number` of its message.

    `key` is the entry's key with its tag.
    """
    payload_number = rpc.Tensor.DESCRIPTOR.fields_by_name[PAYLOADS[one.dtype]].number
    sides = b"".join(varint(side) for side in one.shape)
    shape = field(_SHAPE, len(sides)) + sides if one.shape else b""
    array = field(_ARRAY, one.data_bytes)
    payload = field(payload_number, len(array) + one.data_bytes) + array
    value = field(_VALUE, len(shape) + len(payload) + one.data_bytes) + shape + payload
    inner = key + value
    return field(number, len(inner) + one.data_bytes) + inner


def _long_varint(number: int, size: int) -> bytes:
    """An integer in so many bytes, which is more than it needs: readers do not mind."""
    data = bytearray(varint(number))
    data[-1] |= 0x80 if len(data) < size else 0
    data += b"\x80" * (size - len(data) - 1) + b"\0" * (len(data) < size)
    return bytes(data)
