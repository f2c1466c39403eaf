"""Numbers of messages, compared with protobuf."""

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from worldloom.kernels.wire import VARINT_BYTES, read_varints, write_rows, write_varints

ALL = (-(2**63), 2**63 - 1)
"""The range of int64."""
ANY_INT64 = st.integers(*ALL)


@given(hnp.arrays(np.int64, st.tuples(st.integers(1, 4), st.integers(0, 5)), elements=ANY_INT64))
def test_integers_of_fixed_width_are_integers_to_protobuf(rows: np.ndarray) -> None:
    size = rows.shape[1] * VARINT_BYTES
    starts = 3 + np.arange(len(rows), dtype=np.int64) * (size + 2)
    arena = np.full(len(rows) * (size + 2) + 8, 0xEE, np.uint8)
    write_varints(rows, starts, arena)
    touched = np.zeros(len(arena), bool)
    for row, start in zip(rows, starts, strict=True):
        touched[start : start + size] = True
        data = arena[start : start + size].tobytes()
        message = rpc.Tensor.Int64Array.FromString(b"\x0a" + _length(size) + data)
        assert list(message.array) == row.tolist()
    assert (arena[~touched] == 0xEE).all()


@given(st.lists(ANY_INT64, max_size=40), st.integers(0, 40))
def test_integers_are_read_as_protobuf_writes_them(numbers: list[int], capacity: int) -> None:
    data = _packed(numbers)
    values = np.full(capacity, 7, np.int64)
    assert read_varints(np.frombuffer(data, np.uint8), *ALL, values) == len(numbers)
    kept = min(capacity, len(numbers))
    assert values[:kept].tolist() == numbers[:kept]
    assert (values[kept:] == 7).all()


@given(st.binary(max_size=30))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    values = np.zeros(40, np.int64)
    count = read_varints(np.frombuffer(data, np.uint8), *ALL, values)
    assert count == -1 or count == sum(byte < 0x80 for byte in data)


@pytest.mark.parametrize("data", [b"\x80", b"\x01\xff", b"\xff" * 11 + b"\x00"])
def test_cut_and_overlong_integers_are_refused(data: bytes) -> None:
    assert read_varints(np.frombuffer(data, np.uint8), *ALL, np.zeros(4, np.int64)) == -1


@given(st.lists(st.integers(-4, 4), max_size=9), st.integers(-4, 4), st.integers(-4, 4))
def test_integers_out_of_range_are_refused(numbers: list[int], least: int, most: int) -> None:
    count = read_varints(np.frombuffer(_packed(numbers), np.uint8), least, most, np.zeros(9, np.int64))
    assert count == (len(numbers) if all(least <= number <= most for number in numbers) else -1)


@given(hnp.arrays(np.uint8, st.tuples(st.integers(0, 5), st.integers(0, 9))))
def test_rows_land_where_they_belong(rows: np.ndarray) -> None:
    starts = 1 + np.arange(len(rows), dtype=np.int64)[::-1] * (rows.shape[1] + 1)
    arena = np.zeros(len(rows) * (rows.shape[1] + 1) + 2, np.uint8)
    expected = arena.copy()
    for row, start in zip(rows, starts, strict=True):
        expected[start : start + len(row)] = row
    write_rows(rows, starts, arena)
    assert (arena == expected).all()


def _packed(numbers: list[int]) -> bytes:
    """Return the packed numbers without the tag and the length before them."""
    message = rpc.Tensor.Int64Array(array=numbers).SerializeToString()
    position = 1
    while message and message[position] >= 0x80:
        position += 1
    return message[position + 1 :] if message else b""


def _length(size: int) -> bytes:
    return bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
