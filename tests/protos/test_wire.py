"""The wire format is read and written as protobuf does it: varints, fields, and packed integers."""

from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1.dm_env_rpc_pb2 import Tensor
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from worldloom.kernels import wire as kernel_wire
from worldloom.kernels.wire import VARINT_BYTES
from worldloom.protos.wire import (
    WireError,
    field_header,
    has_more_fields,
    read_fields,
    read_varint,
    read_varints,
    varint,
    varint_tag,
    write_varints,
)

DTYPES = ["int32", "int64", "uint32", "uint64"]


def payload_of(dtype: str) -> Any:
    return getattr(Tensor(), f"{dtype}s")


def packed(values: np.ndarray) -> bytes:
    """Return integers as protobuf packs them, without the tag and length before them."""
    payload = payload_of(values.dtype.name)
    payload.array.extend(values.tolist())
    data: bytes = payload.SerializeToString()
    return data[1 + len(varint(len(data))) :] if len(values) > 100 else data[2:]


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_varints(number: int, before: bytes, after: bytes) -> None:
    data = varint(number)
    assert data == packed(np.array([number], np.uint64))
    assert read_varint(before + data + after, len(before)) == (number, len(before) + len(data))


def test_fields() -> None:
    message = varint_tag(1) + varint(300) + field_header(15, 4) + b"text" + varint_tag(1) + varint(0)
    data = b"\xff" + message + b"\xff"
    assert list(read_fields(data, 1, len(data) - 1)) == [(1, 300, -1), (15, 6, 10), (1, 0, -1)]
    assert data[6:10] == b"text"
    assert list(read_fields(data, 1, 1)) == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x80", "the data ends within a varint"),
        (b"\x08", "the data ends within a varint"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "a varint of more than 10 bytes"),
        (b"\x00\x01", "a field has the number 0: expected 1 to 536870911"),
        (varint(2**29 << 3) + b"\x01", "a field has the number 536870912"),
        (b"\x0a\x02a", "field 1 ends after its message"),
        (b"\x0d\x00\x00\x00\x00", "field 1 has the wire type 5: expected varint or length-delimited"),
    ],
)
def test_bytes_that_are_no_message(data: bytes, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        list(read_fields(data, 0, len(data)))
    with pytest.raises(WireError):  # also if more bytes follow the message
        list(read_fields(data + b"\x08", 0, len(data)))


@given(st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, st.integers(0, 9))))
def test_reading_what_protobuf_writes(values: np.ndarray) -> None:
    found = read_varints(np.frombuffer(packed(values), np.uint8), len(values), values.dtype.name)
    assert found is not None
    assert found.dtype == values.dtype
    assert np.array_equal(found, values)


@given(st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_side=0, max_side=4))))
def test_writing_what_protobuf_reads(values: np.ndarray) -> None:
    data = write_varints(values)
    payload = payload_of(values.dtype.name)
    payload.MergeFromString(b"\x0a" + varint(len(data)) + data)
    assert list(payload.array) == values.ravel().tolist()


@given(st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, st.integers(0, 9))))
def test_reading_what_our_server_writes(values: np.ndarray) -> None:
    data = np.zeros(VARINT_BYTES * len(values) + 3, np.uint8)
    kernel_wire.write_varints(values.astype(np.int64)[None], np.array([3]), data)
    found = read_varints(data[3:], len(values), values.dtype.name)
    assert found is not None
    assert np.array_equal(found, values)


@given(
    st.one_of(st.binary(max_size=24), st.lists(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]), max_size=30).map(bytes)),
    st.integers(0, 6),
    st.sampled_from(DTYPES),
)
def test_any_bytes_are_read_as_protobuf_does_or_rejected(data: bytes, count: int, dtype: str) -> None:
    found = read_varints(np.frombuffer(data, np.uint8), count, dtype)
    if found is not None:
        payload = payload_of(dtype)
        payload.MergeFromString(b"\x0a" + varint(len(data)) + data)
        assert list(payload.array) == found.tolist()


def test_small_numbers_take_a_byte() -> None:
    assert write_varints(np.array([0, 1, 127], np.int32)) == b"\x00\x01\x7f"


@pytest.mark.parametrize(("data", "count"), [(b"\x01", 2), (b"\x81", 1), (b"", 1), (b"\x80" * 10 + b"\x01", 1)])
def test_cut_or_too_long(data: bytes, count: int) -> None:
    assert read_varints(np.frombuffer(data, np.uint8), count, "int64") is None


def test_booleans() -> None:
    found = read_varints(np.frombuffer(b"\x01\x00", np.uint8), 2, "bool")
    assert found is not None
    assert found.tolist() == [True, False]
    assert read_varints(np.frombuffer(b"\x02\x00", np.uint8), 2, "bool") is None


def serialized(*fields: tuple[int, int, bytes | int]) -> bytes:
    """A message of fields: number, wire type and value."""
    return b"".join(
        varint(number << 3 | wire_type) + (value if isinstance(value, bytes) else varint(value))
        for number, wire_type, value in fields
    )


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 0),
        (rpc.EnvironmentRequest(step=rpc.StepRequest(requested_observations=[1] * 500)).SerializeToString(), 2),
        (rpc.EnvironmentRequest(step={"actions": {k: rpc.Tensor() for k in range(9)}}).SerializeToString(), 10),
        (b"\x1a\x00\x22\x00" * 50, 100),  # a payload again and again
        (serialized(*[(77, 0, 5)] * 7), 7),  # fields that nobody knows
        (serialized((77, 1, bytes(8)), (77, 5, bytes(4)), *[(77, 2, varint(3) + b"abc")] * 4), 6),
        (serialized((3, 2, varint(8) + b"\x10\x01" * 4)), 5),  # UIDs that are not packed
        (serialized((77, 3, b""), (78, 0, 1), (77, 4, b"")), 3),  # a group
    ],
)
def test_fields_are_counted_without_parsing(data: bytes, count: int) -> None:
    descriptor = rpc.EnvironmentRequest.DESCRIPTOR
    rpc.EnvironmentRequest.FromString(data)  # it is a message
    assert not has_more_fields(data, descriptor, count)
    assert count == 0 or has_more_fields(data, descriptor, count - 1)


@given(st.binary(max_size=200))
def test_any_bytes_can_be_counted(data: bytes) -> None:
    assert has_more_fields(data, rpc.EnvironmentRequest.DESCRIPTOR, 1000) is False
