"""The frame arena: one flat buffer of bytes that renderers paint into, and where in it each picture lies.

An offsets table [V, 4] gives the byte where each output of each view begins, -1 where it was not asked for. Offsets
need no alignment: a depth picture may begin at any byte, as it does inside a serialised reply.

All memory of this process as one arena.

Pictures are painted where they are needed: into replies, shared segments, a client's own arrays. These lie anywhere,
and a renderer takes one arena and offsets into it. So the arena is all there is, and an offset is an address. Whoever
makes offsets of it must be sure of them: nothing below will notice one that is wrong.
"""

import ctypes

import numpy as np

from worldloom.kernels.tables import F64, I32, I64, OUTPUT_BYTES, OUTPUTS, U8, ViewTable
from worldloom.kernels.views import place_frames


def lay_out(views: ViewTable, start: int = 0) -> tuple[I64, int]:
    """Offsets that put output after output, each as one [V, H, W, ...] block if sizes agree; and the byte after all."""
    offsets = np.empty((len(views.lane), len(OUTPUTS)), np.int64)
    return offsets, place_frames(views.width, views.height, views.outputs, start, offsets)


def make_arena(size_bytes: int) -> U8:
    """A zeroed buffer to paint into."""
    return np.zeros(size_bytes, np.uint8)


def picture(arena: U8, views: ViewTable, offsets: I64, view: int, output: str) -> np.ndarray:
    """One painted picture, as an array over the arena: [H, W, 3] for rgb, else [H, W]."""
    column = OUTPUTS.index(output)
    start = int(offsets[view, column])
    if start < 0:
        asked = [name for k, name in enumerate(OUTPUTS) if views.outputs[view] >> k & 1]
        raise ValueError(f"view {view} was not asked for {output}, only for {', '.join(asked) or 'nothing'}")
    height, width = int(views.height[view]), int(views.width[view])
    data = arena[start : start + height * width * OUTPUT_BYTES[column]]
    if output == "depth":
        return data.view(np.float32).reshape(height, width)
    return data.reshape((height, width, 3) if output == "rgb" else (height, width))


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
