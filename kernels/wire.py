"""Numbers written into serialised messages at given bytes, and read from them.

Most numbers lie on the wire as they do in memory. Integers do not: their length there depends on their value. Written
with continuation bits up to a fixed width they mean the same to every reader, and the next one stays where it is.
"""

import numpy as np

from worldloom.kernels.compiling import brief
from worldloom.kernels.tables import I64, U8

VARINT_BYTES = 10
"""The longest that an integer can be."""


@brief
def write_rows(rows: U8, starts: I64, arena: U8) -> None:
    """Copy row k of `rows` [n, size] to the bytes of the arena from starts[k] on."""
    for k in range(rows.shape[0]):
        start = starts[k]
        for i in range(rows.shape[1]):
            arena[start + i] = rows[k, i]


@brief
def write_varints(rows: I64, starts: I64, arena: U8) -> None:
    """Write row k of `rows` [n, size] as integers of VARINT_BYTES each, from starts[k] on."""
    for k in range(rows.shape[0]):
        start = starts[k]
        for i in range(rows.shape[1]):
            left = np.uint64(rows[k, i])
            for place in range(VARINT_BYTES - 1):
                arena[start + place] = np.uint8(left & np.uint64(0x7F)) | np.uint8(0x80)
                left >>= np.uint64(7)
            arena[start + VARINT_BYTES - 1] = np.uint8(left)
            start += VARINT_BYTES


@brief
def read_varints(data: U8, values: I64) -> int:
    """Read integers into `values` until the data ends; how many there are, or -1 if the data is cut or malformed.

    More than fit into `values` are counted but not kept.
    """
    count = 0
    place = 0
    size = data.shape[0]
    while place < size:
        value = np.uint64(0)
        shift = 0
        while True:
            if place >= size or shift > 63:
                return -1
            byte = data[place]
            place += 1
            value |= np.uint64(byte & np.uint8(0x7F)) << np.uint64(shift)
            shift += 7
            if byte < 0x80:
                break
        if count < values.shape[0]:
            values[count] = np.int64(value)
        count += 1
    return count
