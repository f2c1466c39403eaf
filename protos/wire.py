"""Protobuf's wire format, for messages that are encoded and decoded by hand.

A message is a sequence of fields. A field starts with a tag, which is its number and wire type; its value is a varint,
or a length and that many bytes. A varint is an integer in groups of seven bits, lowest first; the top bit of a byte is
set where another byte follows.

The first half encodes and decodes single values. The second half reads and writes packed arrays of varints with NumPy,
whole arrays at a time. `worldloom.kernels.wire` has the server's compiled versions, which write into its memory; this
module is for everything that must not need numba, which is every client.
"""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

_VARINT, _LENGTH_DELIMITED = 0, 2
"""Wire types."""
_MAX_FIELD_NUMBER = 2**29 - 1
_MAX_VARINT_BYTES = 10


class WireError(ValueError):
    """Bytes that `read_varint` and `read_fields` cannot decode."""


def varint(number: int) -> bytes:
    """Return a non-negative integer as a varint."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def varint_tag(number: int) -> bytes:
    """Return the tag of a field whose value is a varint."""
    return varint(number << 3 | _VARINT)


@functools.lru_cache(maxsize=4096)
def field_header(number: int, size_bytes: int) -> bytes:
    """Return the tag and length that precede the value of a length-delimited field."""
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(size_bytes)


def read_varint(data: bytes, start: int) -> tuple[int, int]:
    """Return the integer at `start`, and the offset after it; WireError if it is cut off or too long."""
    try:
        byte = data[start]
        if byte < 0x80:
            return byte, start + 1
        value, shift = byte & 0x7F, 7
        while shift < 7 * _MAX_VARINT_BYTES:
            start += 1
            byte = data[start]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, start + 1
            shift += 7
    except IndexError:
        raise WireError("the data ends within a varint") from None
    raise WireError(f"a varint of more than {_MAX_VARINT_BYTES} bytes")


def read_fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of the message in `data[start:end]`.

    A length-delimited field is its number, the start of its value and the end of it; a varint field is its number, its
    value and -1. WireError for other wire types and for bytes that are no message.
    """
    while start < end:
        tag, start = read_varint(data, start)
        number, wire_type = tag >> 3, tag & 7
        if not 0 < number <= _MAX_FIELD_NUMBER:
            raise WireError(f"a field has the number {number}: expected 1 to {_MAX_FIELD_NUMBER}")
        value, start = read_varint(data, start)
        if wire_type == _VARINT:
            yield number, value, -1
        elif wire_type == _LENGTH_DELIMITED:
            if start + value > end:
                raise WireError(f"field {number} ends after its message")
            yield number, start, start + value
            start += value
        else:
            raise WireError(f"field {number} has the wire type {wire_type}: expected varint or length-delimited")
    if start != end:
        raise WireError("a field ends after its message")


_FIXED_BYTES = {1: 8, 5: 4}
"""Size of the values of the other wire types; those of groups have none."""


def has_more_fields(data: bytes, descriptor: Any, most: int) -> bool:
    """Return whether a message has more than `most` fields; `descriptor` is protobuf's, of its type.

    Fields of the messages in its fields count too, unless those are repeated. So this is found without parsing, which
    can take a second for a message of a few megabytes. Bytes that are no message are left to the parser: False.
    """
    pending = [(descriptor, 0, len(data))]
    try:
        while pending:
            kind, start, end = pending.pop()
            while start < end:
                most -= 1
                if most < 0:
                    return True
                tag, start = read_varint(data, start)
                wire_type = tag & 7
                if wire_type == _VARINT:
                    _, start = read_varint(data, start)
                elif wire_type == _LENGTH_DELIMITED:
                    size, start = read_varint(data, start)
                    field = kind.fields_by_number.get(tag >> 3)
                    if field is not None and field.message_type is not None and not field.is_repeated:
                        pending.append((field.message_type, start, min(start + size, end)))
                    start += size
                else:
                    start += _FIXED_BYTES.get(wire_type, 0)
    except WireError:
        return False
    return False


# Packed arrays.

_CONTINUATION_BITS = np.uint64(0x8080808080808080)
"""The top bits of eight bytes."""
_MERGE_MASKS = {
    1: (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00)),
    2: (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000)),
    4: (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000)),
}
"""Masks that close the gaps between groups of bits, pairs of neighbours at a time: the width of the gap -> the groups
that stay, the groups that are shifted down by that width."""


_SHIFTS = np.arange(0, 70, 7, dtype=np.uint64)
"""Positions of the groups of seven bits in an integer."""


def read_varints(data: np.ndarray, count: int, dtype: str) -> np.ndarray | None:
    """Return `count` integers as an array of `dtype`.

    None if the bytes hold more or fewer varints, end within one, or have a value that does not fit the dtype.
    """
    if not count:
        return None if len(data) else np.zeros(0, dtype)
    is_wide = len(data) == _MAX_VARINT_BYTES * count
    values = _read_wide(data.reshape(count, _MAX_VARINT_BYTES)) if is_wide else None
    if values is None:
        values = _read_mixed(data, count)
    return None if values is None else _narrow(values, np.dtype(dtype))


def _read_wide(rows: np.ndarray) -> np.ndarray | None:
    """Decode varints of ten bytes each, the form that our server writes; None if some are shorter."""
    low = np.ascontiguousarray(rows[:, :8]).view("<u8")[:, 0]
    high, highest = rows[:, 8], rows[:, 9]
    if not ((low & _CONTINUATION_BITS == _CONTINUATION_BITS).all() and (high >= 0x80).all() and (highest < 0x80).all()):
        return None
    values = low & ~_CONTINUATION_BITS
    for width, (even, odd) in _MERGE_MASKS.items():  # groups of 7 bits, then of 14, then of 28
        values = (values & even) | ((values & odd) >> np.uint64(width))
    values |= (high & np.uint8(0x7F)).astype(np.uint64) << np.uint64(56)
    values |= highest.astype(np.uint64) << np.uint64(63)
    return values


def _read_mixed(data: np.ndarray, count: int) -> np.ndarray | None:
    """Decode varints of any lengths."""
    ends = np.flatnonzero(data < 0x80)
    if len(ends) != count or ends[-1] != len(data) - 1:
        return None
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > _MAX_VARINT_BYTES:
        return None
    values = np.zeros(count, np.uint64)
    for index in range(longest):
        byte = data[np.minimum(starts + index, ends)] & np.uint8(0x7F)
        values |= np.where(index < lengths, byte, 0).astype(np.uint64) << np.uint64(7 * index)
    return values


def _narrow(values: np.ndarray, dtype: np.dtype) -> np.ndarray | None:
    """Convert to the dtype; None if a value does not fit. Protobuf sign-extends negative integers to 64 bits."""
    wide = values.view(np.int64) if dtype.kind == "i" else values
    if dtype.itemsize == wide.itemsize:
        return wide
    narrow = wide.astype(dtype)
    return narrow if np.array_equal(narrow, wide) else None


def write_varints(values: np.ndarray) -> bytes:
    """Return integers as packed varints, all in as many bytes as the largest of them needs."""
    wide = values.ravel().astype(np.int64 if values.dtype.kind == "i" else np.uint64).view(np.uint64)
    largest = int(wide.max(initial=0))
    if largest < 0x80:
        return wide.astype(np.uint8).tobytes()
    width = -(-largest.bit_length() // 7)
    data: np.ndarray = (wide[:, None] >> _SHIFTS[:width]).astype(np.uint8)
    data |= np.uint8(0x80)
    data[:, -1] &= np.uint8(0x7F)
    return data.tobytes()
