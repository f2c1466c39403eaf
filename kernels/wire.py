"""Numbers of serialised protobuf messages: written at given offsets, and read.

Most numbers are on the wire as they are in memory. Integers are varints, whose length depends on their value. Padded to
a fixed width with continuation bits they mean the same to every parser, and the offsets after them do not change.
"""

import numpy as np

from worldloom.kernels.compiling import kernel_holding_gil
from worldloom.kernels.tables import I64, U8

VARINT_BYTES = 10
"""Greatest length of a varint; those written here all have it."""


@kernel_holding_gil
def write_rows(rows: U8, starts: I64, arena: U8) -> None:
    """Copy row k of `rows` [n, size] to the bytes of the arena from starts[k] on."""
    for k in range(rows.shape[0]):
        start = starts[k]
        for i in range(rows.shape[1]):
            arena[start + i] = rows[k, i]


@kernel_holding_gil
def write_outcomes(lanes: I64, columns: tuple[U8, U8, U8], firsts: I64, sizes: I64, starts: I64, arena: U8) -> None:
    """Copy bytes of some rows of three columns to the arena, those of column c from starts[c] on.

    Of each of the rows `lanes` these are the sizes[c] bytes from byte firsts[c] on. A column with a start of -1 is
    left out.
    """
    for c in range(3):
        column, first, size, start = columns[c], firsts[c], sizes[c], starts[c]
        if start >= 0:
            for k in range(lanes.size):
                row = lanes[k]
                for i in range(size):
                    arena[start + i] = column[row, first + i]
                start += size


@kernel_holding_gil
def write_varints(rows: I64, starts: I64, arena: U8) -> None:
    """Write row k of `rows` [n, size] as varints of VARINT_BYTES each, from starts[k] on."""
    for k in range(rows.shape[0]):
        start = starts[k]
        for i in range(rows.shape[1]):
            left = np.uint64(rows[k, i])
            for byte in range(VARINT_BYTES - 1):
                arena[start + byte] = np.uint8(left & np.uint64(0x7F)) | np.uint8(0x80)
                left >>= np.uint64(7)
            arena[start + VARINT_BYTES - 1] = np.uint8(left)
            start += VARINT_BYTES


@kernel_holding_gil
def read_varints(data: U8, least: int, most: int, values: I64) -> int:
    """Read varints into `values` until the data ends; return their number.

    Those beyond the size of `values` are counted but not stored. -1 if the data is truncated or malformed, or has a
    value that is not from `least` to `most`.
    """
    count = 0
    position = 0
    size = data.shape[0]
    while position < size:
        value = np.uint64(0)
        shift = 0
        while True:
            if position >= size or shift > 63:
                return -1
            byte = data[position]
            position += 1
            value |= np.uint64(byte & np.uint8(0x7F)) << np.uint64(shift)
            shift += 7
            if byte < 0x80:
                break
        number = np.int64(value)
        if number < least or number > most:
            return -1
        if count < values.shape[0]:
            values[count] = number
        count += 1
    return count
