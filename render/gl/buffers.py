"""Buffers that CPU and card share: mapped for as long as they live, and read by shaders as tables."""

import ctypes
import math

import numpy as np
from numpy.typing import DTypeLike

from worldloom.render.gl import raw
from worldloom.render.gl.raw import RawGL


class MappedBuffer:
    """A mapped buffer, as NumPy arrays; it grows by doubling and never shrinks."""

    def __init__(self, gl: RawGL, *, read: bool = False) -> None:
        self._gl = gl
        self._access = (raw.BUFFER_READ if read else raw.BUFFER_WRITE) | raw.BUFFER_PERSISTENT | raw.BUFFER_COHERENT
        # Bytes that the CPU reads should be in its own memory; for those it writes, the driver may choose.
        self._storage = self._access | (raw.CLIENT_STORAGE if read else 0)
        self._bytes = np.empty(0, np.uint8)
        self.name = 0

    @property
    def size(self) -> int:
        """Capacity in bytes."""
        return self._bytes.size

    def array(self, shape: tuple[int, ...], dtype: DTypeLike, start: int = 0) -> np.ndarray:
        """Return the bytes from `start` on as an array. If the buffer has to grow, earlier arrays become invalid."""
        wanted = start + math.prod(shape) * np.dtype(dtype).itemsize
        self.reserve(wanted)
        return self._bytes[start:wanted].view(dtype).reshape(shape)

    def reserve(self, wanted: int) -> None:
        """Grow to that many bytes; the content is lost if the buffer has to grow."""
        if wanted <= self.size and self.name:
            return
        size = max(1 << max(wanted - 1, 0).bit_length(), 4096)
        self.release()
        self.name = self._gl.create("Buffers")
        self._gl.NamedBufferStorage(self.name, size, None, self._storage)
        address = self._gl.MapNamedBufferRange(self.name, 0, size, self._access)
        self._gl.check(f"creating a buffer of {size} bytes")
        if not address:
            raise MemoryError(f"the graphics device could not map a buffer of {size} bytes")
        self._bytes = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    def release(self) -> None:
        """Release the memory."""
        self._bytes = np.empty(0, np.uint8)
        if self.name:
            self._gl.delete("Buffers", self.name)
            self.name = 0


class ShaderTable:
    """A buffer that shaders read as a buffer texture of vectors of four."""

    def __init__(self, gl: RawGL) -> None:
        self.buffer = MappedBuffer(gl)
        self._gl = gl
        self._texture = gl.create("Textures", raw.BUFFER_TEXTURE)
        self._bound_buffer = 0

    def texture(self) -> int:
        """Return the buffer texture, attached to the buffer's current storage."""
        if self._bound_buffer != self.buffer.name:
            self._bound_buffer = self.buffer.name
            self._gl.TextureBuffer(self._texture, raw.RGBA32F, self.buffer.name)
        return self._texture

    def release(self) -> None:
        """Release the memory."""
        self._gl.delete("Textures", self._texture)
        self.buffer.release()
