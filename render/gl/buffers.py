"""Buffers that the processor and the card both see, as NumPy arrays.

A buffer stays mapped for as long as it lives. Who writes or reads one while the card may be using it must wait for the
fence of that use first (see `readback.py`); two sets in turn keep both sides busy.
"""

import ctypes
import math

import numpy as np
from numpy.typing import DTypeLike

from worldloom.render.gl import raw
from worldloom.render.gl.raw import RawGL


class MappedBuffer:
    """A buffer that grows by doubling and never shrinks."""

    def __init__(self, gl: RawGL, *, read: bool = False) -> None:
        self._gl = gl
        self._access = (raw.BUFFER_READ if read else raw.BUFFER_WRITE) | raw.BUFFER_PERSISTENT | raw.BUFFER_COHERENT
        # Bytes the processor reads should lie in its own memory; those it writes, where the driver likes them.
        self._storage = self._access | (raw.CLIENT_STORAGE if read else 0)
        self._bytes = np.empty(0, np.uint8)
        self.name = 0

    @property
    def size(self) -> int:
        """Bytes it holds now."""
        return self._bytes.size

    def array(self, shape: tuple[int, ...], dtype: DTypeLike, start: int = 0) -> np.ndarray:
        """The buffer's bytes from `start` as an array. Growing makes a new buffer: earlier arrays must not be used."""
        wanted = start + math.prod(shape) * np.dtype(dtype).itemsize
        self.reserve(wanted)
        return self._bytes[start:wanted].view(dtype).reshape(shape)

    def reserve(self, wanted: int) -> None:
        """Make room for that many bytes; the content is lost if it had to grow."""
        if wanted <= self.size and self.name:
            return
        size = max(1 << max(wanted - 1, 0).bit_length(), 4096)
        self.release()
        self.name = self._gl.create("Buffers")
        self._gl.NamedBufferStorage(self.name, size, None, self._storage)
        address = self._gl.MapNamedBufferRange(self.name, 0, size, self._access)
        self._gl.check(f"making a buffer of {size} bytes")
        if not address:
            raise MemoryError(f"the graphics device gave no buffer of {size} bytes")
        self._bytes = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    def release(self) -> None:
        """Give the memory back."""
        self._bytes = np.empty(0, np.uint8)
        if self.name:
            self._gl.delete("Buffers", self.name)
            self.name = 0


def upload(gl: RawGL, array: np.ndarray) -> int:
    """A buffer that holds a copy of the array for good."""
    name = gl.create("Buffers")
    data = np.ascontiguousarray(array)
    gl.NamedBufferStorage(name, max(data.nbytes, 4), data.ctypes.data if data.nbytes else None, 0)
    gl.check(f"uploading {data.nbytes} bytes")
    return name
