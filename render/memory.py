"""All memory of this process as one arena.

Pictures are painted where they are needed: into replies, shared segments, a client's own arrays. These lie anywhere,
and a renderer takes one arena and offsets into it. So the arena is all there is, and an offset is an address. Whoever
makes offsets of it must be sure of them: nothing below will notice one that is wrong.
"""

import ctypes

import numpy as np

from worldloom.kernels.tables import F64, I32, U8

_FIRST = 4096
"""The lowest page never holds anything, and an array at address 0 would look like none to many a library."""
_PAST = 1 << 47
"""Where a process's own half of the addresses ends, on all machines we know."""

MEMORY: U8 = np.ctypeslib.as_array((ctypes.c_uint8 * (_PAST - _FIRST)).from_address(_FIRST))


NUMBERS: F64 = MEMORY.view(np.float64)
"""The same, eight bytes at a time."""
INTEGERS: I32 = MEMORY.view(np.int32)
"""And four bytes at a time: what is at place k of NUMBERS is at 2 k here."""


def place_of(array: np.ndarray) -> int:
    """Where in MEMORY an array's first byte lies. The array must live for as long as that is used."""
    return int(array.ctypes.data) - _FIRST


def place_of_bytes(data: bytes) -> int:
    """Where in MEMORY the content of a bytes object lies."""
    return place_of(np.frombuffer(data, np.uint8))


def place_of_numbers(array: np.ndarray) -> int:
    """Where in NUMBERS an array of float64 lies; such arrays begin at whole numbers. It must live as long, as above."""
    place, rest = divmod(place_of(array), NUMBERS.itemsize)
    if rest or array.dtype != np.float64:
        raise ValueError(f"an array of {array.dtype} at byte {rest} of a number: expected float64 at its beginning")
    return place
