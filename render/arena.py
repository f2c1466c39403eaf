"""The frame arena: the flat buffer of bytes that renderers write frames into, and the offsets of frames in it.

An offsets table [V, outputs] has the byte where each output of each view begins, -1 where it was not asked for. Offsets
need no alignment: a depth frame may begin at any byte, as it does inside a serialised reply.

Frames are written where they are needed: into replies, shared segments, arrays of a client. These can be anywhere in
memory, and a renderer takes one arena. So PROCESS_MEMORY is an arena of all memory of the process, in which offsets are
addresses. Nothing checks those: code that computes one must make sure that the array stays alive.
"""

import ctypes

import numpy as np

from worldloom.kernels.outputs import OUTPUT_COUNT, OUTPUT_NAMES, OUTPUTS, outputs_of
from worldloom.kernels.tables import F64, I32, I64, U8, ViewTable
from worldloom.kernels.views import assign_offsets


def lay_out(views: ViewTable, start: int = 0) -> tuple[I64, int]:
    """Return offsets of all frames, output after output, and the end.

    If all views have one size and ask for the same, the frames of an output are one array [V, H, W, ...].
    """
    offsets = np.empty((len(views.lane), OUTPUT_COUNT), np.int64)
    return offsets, assign_offsets(views.width, views.height, views.outputs, start, offsets)


def allocate_arena(size_bytes: int) -> U8:
    """Return a zeroed arena."""
    return np.zeros(size_bytes, np.uint8)


def get_frame(arena: U8, views: ViewTable, offsets: I64, view: int, output: str) -> np.ndarray:
    """Return one frame as an array over the arena: [H, W], with channels [H, W, C]."""
    column = OUTPUT_NAMES.index(output)
    start = int(offsets[view, column])
    if start < 0:
        asked = ", ".join(one.name for one in outputs_of(int(views.outputs[view])))
        raise ValueError(f"view {view} was not asked for {output}, only for {asked or 'nothing'}")
    row, height, width = OUTPUTS[column], int(views.height[view]), int(views.width[view])
    data = arena[start : start + height * width * row.pixel_bytes]
    return data.view(row.dtype).reshape(row.frame_shape(height, width))


_FIRST_ADDRESS = 4096
"""The lowest page is never mapped, and many libraries take an array at address 0 for a null pointer."""
_END_ADDRESS = 1 << 47
"""End of the user half of the address space, on all machines that we support."""

PROCESS_MEMORY: U8 = np.ctypeslib.as_array(
    (ctypes.c_uint8 * (_END_ADDRESS - _FIRST_ADDRESS)).from_address(_FIRST_ADDRESS)
)
"""All memory of this process."""
PROCESS_FLOAT64: F64 = PROCESS_MEMORY.view(np.float64)
"""The same memory as float64: element k is at address 8 k of PROCESS_MEMORY."""
PROCESS_INT32: I32 = PROCESS_MEMORY.view(np.int32)
"""The same memory as int32: element k is at address 4 k of PROCESS_MEMORY."""


def address_of(array: np.ndarray) -> int:
    """Return the offset of an array in PROCESS_MEMORY. The array must stay alive for as long as it is used."""
    return int(array.ctypes.data) - _FIRST_ADDRESS


def address_of_bytes(data: bytes) -> int:
    """Return the offset of the content of a bytes object in PROCESS_MEMORY."""
    return address_of(np.frombuffer(data, np.uint8))


def float64_index_of(array: np.ndarray) -> int:
    """Return the index of a float64 array in PROCESS_FLOAT64. The array must stay alive for as long as it is used."""
    index, remainder = divmod(address_of(array), PROCESS_FLOAT64.itemsize)
    if remainder or array.dtype != np.float64:
        raise ValueError(
            f"cannot index an array of {array.dtype} {remainder} bytes past a multiple of 8: expected aligned float64"
        )
    return index
