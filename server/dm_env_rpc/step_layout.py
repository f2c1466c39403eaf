"""The layout of StepResponse messages, computed byte by byte.

    EnvironmentResponse { step: StepResponse { state, observations: { uid: Tensor { payload { array }, shape }, … } } }

Every number is encoded in as many bytes as its largest value takes, so that offsets do not change with values. UIDs are
encoded in as many bytes as it takes to align the data after them, so that clients can use it without a copy. Both are
valid protobuf: readers accept varints with leading zero groups.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc

from worldloom.kernels.wire import VARINT_BYTES
from worldloom.protos.wire import field_header, varint, varint_tag, write_varints
from worldloom.server.dm_env_rpc.specs import PAYLOADS
from worldloom.server.engine.observations import DTYPES_AS_IN_MEMORY, ObservationSpec
from worldloom.server.engine.replies import ObservationField, ReplyLayout, bytes_layout

_STEP = rpc.EnvironmentResponse.DESCRIPTOR.fields_by_name["step"].number
_STATE, _OBSERVATIONS = (rpc.StepResponse.DESCRIPTOR.fields_by_name[name].number for name in ("state", "observations"))
_SHAPE = rpc.Tensor.DESCRIPTOR.fields_by_name["shape"].number
_KEY, _VALUE, _ARRAY = 1, 2, 1
_ALIGNED_TO = 8
"""Alignment of data in a message; the memory of a bytes object itself is aligned to more."""


def step_layout(observations: tuple[ObservationSpec, ...]) -> ReplyLayout:
    """Return the layout of replies with these observations, in this order."""
    state = varint_tag(_STATE) + b"\0"
    # The size of the head depends on what follows, and the alignment of what follows on the size of the head. The first
    # size that suffices is taken; if that is one byte too many, the length of the message is encoded one byte longer.
    for length_bytes in range(1, VARINT_BYTES):
        head_bytes = 1 + length_bytes + len(state)
        entries, end = _entries(observations, head_bytes)
        following = len(state) + end - head_bytes
        if len(varint(following)) <= length_bytes:
            break
    head = varint(_STEP << 3 | 2) + _long_varint(following, length_bytes) + state
    constants, fields = {0: head}, []
    for spec, entry in zip(observations, entries, strict=True):
        constants[entry.start] = entry.head
        fields.append(ObservationField(entry.start + len(entry.head), spec.dtype not in DTYPES_AS_IN_MEMORY))
    is_final = [spec.final_of is not None for spec in observations]
    append_final = None
    if any(is_final):
        first = is_final.index(True)
        append_final = partial(_append_final, observations[first:], len(head), entries[first].start)
    return bytes_layout(end, constants, len(head) - 1, tuple(fields), append_final)


def _append_final(
    observations: tuple[ObservationSpec, ...], head_bytes: int, start: int, reply: bytes, values: Sequence[np.ndarray]
) -> bytes:
    """Return a reply with the values of its final observations. They begin at `start`, where it has them empty."""
    state = reply[head_bytes - 2 : head_bytes]
    pieces: list[bytes | memoryview] = [state, memoryview(reply)[head_bytes:start]]
    for spec, value in zip(observations, values, strict=True):
        in_memory = spec.dtype in DTYPES_AS_IN_MEMORY
        data = np.ascontiguousarray(value).data.cast("B") if in_memory else write_varints(value)
        key = varint_tag(_KEY) + varint(spec.uid)
        pieces += [_entry_head(_OBSERVATIONS, key, spec.dtype, value.shape, len(data)), data]
    return b"".join([field_header(_STEP, sum(map(len, pieces))), *pieces])


class _Entry(NamedTuple):
    """An entry of the map of observations: its offset, and its bytes up to the data, which comes last."""

    start: int
    head: bytes


def _entries(observations: tuple[ObservationSpec, ...], start: int) -> tuple[list[_Entry], int]:
    """Return the entries from an offset on, and the offset after them."""
    entries = []
    for spec in observations:
        entries.append(_Entry(start, _aligned_head(spec, start)))
        start += len(entries[-1].head) + spec.data_bytes
    return entries, start


def _aligned_head(spec: ObservationSpec, start: int) -> bytes:
    """Return the bytes before an observation's data, such that the data is aligned."""
    shortest = len(varint(spec.uid))
    heads = [_head(spec, _long_varint(spec.uid, size)) for size in range(shortest, VARINT_BYTES + 1)]
    return next((head for head in heads if (start + len(head)) % _ALIGNED_TO == 0), heads[0])


def _head(spec: ObservationSpec, uid: bytes) -> bytes:
    return entry_head(_OBSERVATIONS, varint_tag(_KEY) + uid, spec)


def entry_head(number: int, key: bytes, spec: ObservationSpec) -> bytes:
    """Return the bytes before an observation's data in an entry of a map of Tensors.

    The map is field `number` of its message; `key` is the entry's key with its tag.
    """
    shape = spec.shape if spec.final_of is None else (0, *spec.shape[1:])
    return _entry_head(number, key, spec.dtype, shape, spec.data_bytes)


def _entry_head(number: int, key: bytes, dtype: str, shape: tuple[int, ...], data_bytes: int) -> bytes:
    payload_number = rpc.Tensor.DESCRIPTOR.fields_by_name[PAYLOADS[dtype]].number
    sides = b"".join(varint(side) for side in shape)
    shape_field = field_header(_SHAPE, len(sides)) + sides if shape else b""
    array = field_header(_ARRAY, data_bytes)
    payload = field_header(payload_number, len(array) + data_bytes) + array
    value = field_header(_VALUE, len(shape_field) + len(payload) + data_bytes) + shape_field + payload
    inner = key + value
    return field_header(number, len(inner) + data_bytes) + inner


def _long_varint(number: int, size: int) -> bytes:
    """Encode an integer in `size` bytes, which may be more than it needs."""
    data = bytearray(varint(number))
    data[-1] |= 0x80 if len(data) < size else 0
    data += b"\x80" * (size - len(data) - 1) + b"\0" * (len(data) < size)
    return bytes(data)
