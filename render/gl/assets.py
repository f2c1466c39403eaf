"""The asset table on the graphics card: vertices, triangles and textures, uploaded again when something is added."""

from collections.abc import Mapping

import numpy as np

from worldloom.kernels.gl.packing import INSTANCE_FLOATS, PREVIOUS_FLOATS
from worldloom.kernels.tables import AssetTable
from worldloom.render.gl import raw
from worldloom.render.gl.raw import RawGL

_VERTEX_FLOATS = 8
_RECORDS, _PREVIOUS = 1, 2
"""Bindings of the vertex arrays for instance records, and for those of one step before; binding 0 is the vertices."""


class GpuAssets:
    """An asset table as buffers and textures, and the vertex arrays that draw from them."""

    def __init__(self, gl: RawGL, table: AssetTable) -> None:
        self.table = table
        self._gl = gl
        vertices = np.concatenate([table.positions, table.normals, table.uvs], axis=1, dtype=np.float32)
        self._buffers = [_upload(gl, vertices), _upload(gl, table.triangles.astype(np.uint32))]
        self.vertex_array = self._make_vertex_array({_RECORDS: INSTANCE_FLOATS})
        self.vertex_array_with_previous = self._make_vertex_array(
            {_RECORDS: INSTANCE_FLOATS, _PREVIOUS: PREVIOUS_FLOATS}
        )
        self.texture = self._upload_textures()

    def use(self, records: int, previous: int | None = None) -> None:
        """Bind these assets, with the instance records of that buffer, and those of one step before if given."""
        array = self.vertex_array if previous is None else self.vertex_array_with_previous
        self._gl.BindVertexArray(array)
        self._gl.VertexArrayVertexBuffer(array, _RECORDS, records, 0, 4 * INSTANCE_FLOATS)
        if previous is not None:
            self._gl.VertexArrayVertexBuffer(array, _PREVIOUS, previous, 0, 4 * PREVIOUS_FLOATS)
        self._gl.BindTextureUnit(0, self.texture)

    def release(self) -> None:
        """Release the memory."""
        self._gl.delete("VertexArrays", self.vertex_array, self.vertex_array_with_previous)
        self._gl.delete("Buffers", *self._buffers)
        self._gl.delete("Textures", self.texture)

    def _make_vertex_array(self, records: Mapping[int, int]) -> int:
        """Return a vertex array of these vertices, and of records of so many floats at these bindings."""
        gl, array = self._gl, self._gl.create("VertexArrays")
        gl.VertexArrayVertexBuffer(array, 0, self._buffers[0], 0, 4 * _VERTEX_FLOATS)
        gl.VertexArrayElementBuffer(array, self._buffers[1])
        attributes = [(0, 3, 0), (0, 3, 3), (0, 2, 6)]
        for binding, size in records.items():
            attributes += [(binding, 4, start) for start in range(0, size, 4)]
            gl.VertexArrayBindingDivisor(array, binding, 1)
        for location, (binding, floats, start) in enumerate(attributes):
            gl.EnableVertexArrayAttrib(array, location)
            gl.VertexArrayAttribFormat(array, location, floats, raw.FLOAT, 0, 4 * start)
            gl.VertexArrayAttribBinding(array, location, binding)
        return array

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
