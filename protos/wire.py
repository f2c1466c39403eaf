"""Pieces of protobuf's wire form, for messages that are put together by hand.

Integers as protobuf packs them, seven bits a byte, read and written for whole arrays at a time.
"""

import numpy as np


def varint(number: int) -> bytes:
    """An integer that is not negative."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def varint_tag(number: int) -> bytes:
    """What comes before a field that is an integer."""
    return varint(number << 3)


def field(number: int, size_bytes: int) -> bytes:
    """What comes before a field of so many bytes."""
    return varint(number << 3 | 2) + varint(size_bytes)


_MOST_BYTES = 10
_GOES_ON = np.uint64(0x8080808080808080)
"""The bits of eight bytes that say that more follows."""
_PAIRS = {
    1: (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00)),
    2: (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000)),
    4: (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000)),
}
"""How the bits of neighbours move together: by how many, and which of them stay and go."""


def read_varints(data: np.ndarray, count: int, dtype: str) -> np.ndarray | None:
    """So many integers; None if the bytes are not that many, or are cut, or hold what the dtype cannot."""
    if not count:
        return None if len(data) else np.zeros(0, dtype)
    values = _read_wide(data.reshape(count, _MOST_BYTES)) if len(data) == _MOST_BYTES * count else None
    if values is None:
        values = _read_mixed(data, count)
    return None if values is None else _narrow(values, np.dtype(dtype))


def _read_wide(rows: np.ndarray) -> np.ndarray | None:
    """Integers of ten bytes each, which is how our server writes them all; None if some are shorter."""
    low = np.ascontiguousarray(rows[:, :8]).view("<u8")[:, 0]
    high, highest = rows[:, 8], rows[:, 9]
    if not ((low & _GOES_ON == _GOES_ON).all() and (high >= 0x80).all() and (highest < 0x80).all()):
        return None
    values = low & ~_GOES_ON
    for width, (even, odd) in _PAIRS.items():  # of seven bits each, then of 14, then of 28
        values = (values & even) | ((values & odd) >> np.uint64(width))
    values |= (high & np.uint8(0x7F)).astype(np.uint64) << np.uint64(56)
    values |= highest.astype(np.uint64) << np.uint64(63)
    return values


def _read_mixed(data: np.ndarray, count: int) -> np.ndarray | None:
    """Integers each of a length of its own."""
    ends = np.flatnonzero(data < 0x80)
    if len(ends) != count or ends[-1] != len(data) - 1:
        return None
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > _MOST_BYTES:
        return None
    values = np.zeros(count, np.uint64)
    for place in range(longest):
        byte = data[np.minimum(starts + place, ends)] & np.uint8(0x7F)
        values |= np.where(place < lengths, byte, 0).astype(np.uint64) << np.uint64(7 * place)
    return values


def _narrow(values: np.ndarray, dtype: np.dtype) -> np.ndarray | None:
    """The integers as their dtype; protobuf writes negative ones with all of their 64 bits."""
    wide = values.view(np.int64) if dtype.kind == "i" else values
    if dtype.itemsize == wide.itemsize:
        return wide
    narrow = wide.astype(dtype)
    return narrow if np.array_equal(narrow, wide) else None


def write_varints(values: np.ndarray) -> bytes:
    """Integers one after the other, all in as many bytes as the largest takes."""
    wide = values.ravel().astype(np.int64 if values.dtype.kind == "i" else np.uint64).view(np.uint64)
    most = int(wide.max(initial=0))
    if most < 0x80:
        return wide.astype(np.uint8).tobytes()
    width = -(-most.bit_length() // 7)
    data = np.empty((len(wide), width), np.uint8)
    for place in range(width):
        data[:, place] = (wide >> np.uint64(7 * place)).astype(np.uint8) & np.uint8(0x7F)
    data[:, :-1] |= np.uint8(0x80)
    return data.tobytes()
