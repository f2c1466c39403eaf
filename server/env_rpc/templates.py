"""The form of a StepResponse with certain observations, worked out byte by byte.

    EnvironmentResponse { step: StepResponse { state, observations: { uid: Tensor { payload { array }, shape }, … } } }

Every number is written in as many bytes as its largest value takes, so that nothing moves when values change. Any
reader of protobuf takes it for what it is.
"""

from typing import NamedTuple

from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc

from worldloom.server.engine.layout import Layout, Place
from worldloom.server.engine.offer import DTYPES_AS_IN_MEMORY, Observation
from worldloom.server.env_rpc.specs import PAYLOADS

_STEP = rpc.EnvironmentResponse.DESCRIPTOR.fields_by_name["step"].number
_STATE, _OBSERVATIONS = (rpc.StepResponse.DESCRIPTOR.fields_by_name[name].number for name in ("state", "observations"))
_SHAPE = rpc.Tensor.DESCRIPTOR.fields_by_name["shape"].number
_KEY, _VALUE, _ARRAY = 1, 2, 1


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
    entries = [_entry(one) for one in observations]
    state = _tag(_STATE, 0) + b"\0"
    head = _tag(_STEP, 2) + varint(len(state) + sum(entry.size_bytes for entry in entries)) + state
    pieces, places = {0: head}, []
    end = len(head)
    for one, entry in zip(observations, entries, strict=True):
        pieces[end] = entry.head
        places.append(Place(end + len(entry.head), one.dtype not in DTYPES_AS_IN_MEMORY))
        end += entry.size_bytes
        pieces[end - len(entry.tail)] = entry.tail
    return Layout(end, pieces, len(head) - 1, tuple(places))


class _Entry(NamedTuple):
    """An entry of the map of observations: what comes before its data, and after."""

    head: bytes
    data_bytes: int
    tail: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.head) + self.data_bytes + len(self.tail)


def _entry(one: Observation) -> _Entry:
    data_bytes = one.data_bytes
    payload_number = rpc.Tensor.DESCRIPTOR.fields_by_name[PAYLOADS[one.dtype]].number
    array = _tag(_ARRAY, 2) + varint(data_bytes)
    payload = _tag(payload_number, 2) + varint(len(array) + data_bytes) + array
    sides = b"".join(varint(side) for side in one.shape)
    shape = _tag(_SHAPE, 2) + varint(len(sides)) + sides if one.shape else b""
    value = _tag(_VALUE, 2) + varint(len(payload) + data_bytes + len(shape)) + payload
    inner = _tag(_KEY, 0) + varint(one.uid) + value
    return _Entry(_tag(_OBSERVATIONS, 2) + varint(len(inner) + data_bytes + len(shape)) + inner, data_bytes, shape)


def _tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)
