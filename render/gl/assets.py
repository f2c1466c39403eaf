"""The asset table on the graphics card: vertices, triangles and textures, uploaded again when something is added."""

import numpy as np

from worldloom.kernels.gl.packing import INSTANCE_FLOATS
from worldloom.kernels.tables import AssetTable
from worldloom.render.gl import raw
from worldloom.render.gl.raw import RawGL

_VERTEX_FLOATS = 8
_RECORDS = 1
"""Binding of the vertex array for instance records; binding 0 is the vertices."""


class GpuAssets:
    """An asset table as buffers and textures, and the vertex array that draws from them."""

    def __init__(self, gl: RawGL, table: AssetTable) -> None:
        self.table = table
        self._gl = gl
        self.vertex_array = gl.create("VertexArrays")
        vertices = np.concatenate([table.positions, table.normals, table.uvs], axis=1, dtype=np.float32)
        self._buffers = [_upload(gl, vertices), _upload(gl, table.triangles.astype(np.uint32))]
        gl.VertexArrayVertexBuffer(self.vertex_array, 0, self._buffers[0], 0, 4 * _VERTEX_FLOATS)
        gl.VertexArrayElementBuffer(self.vertex_array, self._buffers[1])
        location = 0
        for floats, start in ((3, 0), (3, 3), (2, 6)):
            self._attribute(location, 0, floats, start)
            location += 1
        for start in range(0, INSTANCE_FLOATS, 4):
            self._attribute(location, _RECORDS, 4, start)
            location += 1
        gl.VertexArrayBindingDivisor(self.vertex_array, _RECORDS, 1)
        self.texture = self._upload_textures()

    def use(self, records: int) -> None:
        """Bind these assets, with the instance records of that buffer."""
        self._gl.BindVertexArray(self.vertex_array)
        self._gl.VertexArrayVertexBuffer(self.vertex_array, _RECORDS, records, 0, 4 * INSTANCE_FLOATS)
        self._gl.BindTextureUnit(0, self.texture)

    def release(self) -> None:
        """Release the memory."""
        self._gl.delete("VertexArrays", self.vertex_array)
        self._gl.delete("Buffers", *self._buffers)
        self._gl.delete("Textures", self.texture)

    def _attribute(self, location: int, binding: int, floats: int, start: int) -> None:
        self._gl.EnableVertexArrayAttrib(self.vertex_array, location)
        self._gl.VertexArrayAttribFormat(self.vertex_array, location, floats, raw.FLOAT, 0, 4 * start)
        self._gl.VertexArrayAttribBinding(self.vertex_array, location, binding)

    def _upload_textures(self) -> int:
        gl, table = self._gl, self.table
        count, size, levels = len(table.texels), table.texture_size, len(table.mip_first_texel)
        most = gl.integer(raw.MAX_ARRAY_TEXTURE_LAYERS)
        if count > most or size > gl.integer(raw.MAX_TEXTURE_SIZE):
            raise RuntimeError(
                f"{count} textures of {size} x {size}: expected at most {most} on this graphics device, of at most "
                f"{gl.integer(raw.MAX_TEXTURE_SIZE)} pixels"
            )
        name = gl.create("Textures", raw.ARRAY_TEXTURE)
        gl.TextureStorage3D(name, levels, raw.RGBA8, size, size, max(count, 1))
        for level, first in enumerate(table.mip_first_texel):
            side = size >> level
            texels = np.ascontiguousarray(table.texels[:, first : first + side * side])
            if count:
                gl.TextureSubImage3D(
                    name, level, 0, 0, 0, side, side, count, raw.RGBA, raw.UNSIGNED_BYTE, texels.ctypes.data
                )
        for parameter, value in (
            (raw.TEXTURE_MIN_FILTER, raw.LINEAR_MIPMAP_NEAREST),
            (raw.TEXTURE_MAG_FILTER, raw.LINEAR),
            (raw.TEXTURE_WRAP_S, raw.REPEAT),
            (raw.TEXTURE_WRAP_T, raw.REPEAT),
        ):
            gl.TextureParameteri(name, parameter, value)
        gl.check(f"uploading {count} textures of {size} x {size}")
        return name


def _upload(gl: RawGL, array: np.ndarray) -> int:
    """Return a new immutable buffer with a copy of the array."""
    name = gl.create("Buffers")
    data = np.ascontiguousarray(array)
    gl.NamedBufferStorage(name, max(data.nbytes, 4), data.ctypes.data if data.nbytes else None, 0)
    gl.check(f"uploading {data.nbytes} bytes")
    return name
