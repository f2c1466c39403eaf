"""Light maps on the graphics card: the target they are drawn into, a layer for each, and what a page needs of them."""

import ctypes
from typing import NamedTuple

import numpy as np

from worldloom.kernels.gl.casting import MAP_FLOATS, find_casting, fit_page, pack_casting, pack_maps
from worldloom.kernels.gl.packing import INSTANCE_FLOATS
from worldloom.kernels.gl.visible import COMMAND_WORDS, sort_visible
from worldloom.kernels.light_maps import LIGHT_MAP_SIZE, compute_map_side
from worldloom.kernels.outputs import GRAY, RGB
from worldloom.kernels.tables import F64, I32, I64, MAX_LAMPS, AssetTable, InstanceTable, LaneTable, ViewTable
from worldloom.render.gl import raw
from worldloom.render.gl.buffers import MappedBuffer, ShaderTable
from worldloom.render.gl.raw import RawGL

MAX_MAP_BYTES = 64 << 20
"""Memory of the light maps of a page, unless those of one view take more."""
_TEXEL_BYTES = 12
_EMPTY = (ctypes.c_float * 4)(-3.0e38, 0.0, 0.0, 0.0)
_FAR = (ctypes.c_float * 1)(0.0)


class FittedMaps(NamedTuple):
    """The light maps of a page: `size` rows of `maps` and `view_of`; those of layer k from `first_map[k]` on."""

    maps: F64  # [n, LIGHT_MAP_SIZE]
    first_map: I32  # [layers + 1]
    view_of: I32  # [n]
    size: int


def most_views(width: int, height: int, lamps: int) -> int:
    """Return the most views with shadows of a page; their lanes have at most so many lamps."""
    return max(1, MAX_MAP_BYTES // (_TEXEL_BYTES * compute_map_side(width, height) ** 2 * max(lamps, 1)))


def fit(assets: AssetTable, instances: InstanceTable, lanes: LaneTable, views: ViewTable, page: I64) -> FittedMaps:
    """Fit the light maps of the views of a page; there are none without shadows, or if no view asks for colours."""
    first_map = np.zeros(page.size + 1, np.int32)
    if not views.shadows[page[0]] or not (views.outputs[page] & (RGB | GRAY)).any():
        return FittedMaps(np.zeros((0, LIGHT_MAP_SIZE)), first_map, np.zeros(0, np.int32), 0)
    most = int(np.maximum(lanes.lamp_count[views.lane[page]], 1).sum(dtype=np.int64)) + MAX_LAMPS
    maps, view_of = np.zeros((most, LIGHT_MAP_SIZE)), np.zeros(most, np.int32)
    count = fit_page(assets, instances, lanes, views, page, maps, first_map, view_of)
    return FittedMaps(maps, first_map, view_of, count)


class LightMaps:
    """The buffers that the light maps of a page are drawn from."""

    def __init__(self, gl: RawGL) -> None:
        self.records = MappedBuffer(gl)
        self.commands = MappedBuffer(gl)
        self.table = ShaderTable(gl)

    def pack(
        self,
        assets: AssetTable,
        instances: InstanceTable,
        lanes: LaneTable,
        views: ViewTable,
        fitted: FittedMaps,
        matrix: F64,
    ) -> int:
        """Pack what may cast onto the light maps of a page, and the maps; return the number of draw commands."""
        maps, _, view_of, count = fitted
        pack_maps(views, maps, view_of, count, self.table.buffer.array((count, MAP_FLOATS), np.float32))
        rows = int(lanes.row_count[views.lane[view_of[:count]]].sum(dtype=np.int64))
        layer, row, run, kind, sorted_layer, sorted_row = np.empty((6, rows), np.int32)
        casting = find_casting(assets, instances, lanes, views, maps, view_of, count, matrix, layer, row, run, kind)
        meshes = len(assets.mesh_first_triangle)
        commands = self.commands.array((min(meshes, max(casting, 1)), COMMAND_WORDS), np.uint32)
        bucket_ends, segments = np.empty(3 * meshes, np.int32), np.empty((max(casting, 1), 4), np.int32)
        command_count, _ = sort_visible(
            assets, casting, 1, layer, row, run, kind, bucket_ends, sorted_layer, sorted_row, commands, segments, 0
        )
        records = self.records.array((casting, INSTANCE_FLOATS), np.float32)
        pack_casting(assets, instances, lanes, views, maps, view_of, sorted_layer, sorted_row, casting, records)
        return int(command_count)

    def release(self) -> None:
        """Release the memory."""
        for each in (self.records, self.commands, self.table):
            each.release()


class MapTarget:
    """A texture array that light maps are drawn into: the largest that was needed for the last size."""

    def __init__(self, gl: RawGL) -> None:
        self._gl = gl
        self._side = self._layers = 0
        self._framebuffer = self._texture = self._depth = 0

    def bind(self, side: int, maps: int) -> None:
        """Have the next commands draw into the first `maps` layers, which are empty, of `side` texels a side."""
        layers = 1 << max(maps - 1, 0).bit_length()
        if side != self._side or layers > self._layers:
            self.release()
            self._create(side, layers)
        gl = self._gl
        gl.BindFramebuffer(raw.FRAMEBUFFER, self._framebuffer)
        gl.Viewport(0, 0, side, side)
        gl.ClearNamedFramebufferfv(self._framebuffer, raw.COLOR, 0, _EMPTY)
        gl.ClearNamedFramebufferfv(self._framebuffer, raw.DEPTH, 0, _FAR)

    @property
    def texture(self) -> int:
        """The texture array; 0 if nothing was drawn."""
        return self._texture

    def release(self) -> None:
        """Release the memory."""
        if self._framebuffer:
            self._gl.delete("Framebuffers", self._framebuffer)
            self._gl.delete("Textures", self._texture, self._depth)
        self._side = self._layers = self._framebuffer = self._texture = self._depth = 0

    def _create(self, side: int, layers: int) -> None:
        gl = self._gl
        self._texture, self._depth = (gl.create("Textures", raw.ARRAY_TEXTURE) for _ in range(2))
        gl.TextureStorage3D(self._texture, 1, raw.RG32F, side, side, layers)
        gl.TextureStorage3D(self._depth, 1, raw.DEPTH32F, side, side, layers)
        gl.TextureParameteri(self._texture, raw.TEXTURE_MIN_FILTER, raw.NEAREST)
        gl.TextureParameteri(self._texture, raw.TEXTURE_MAG_FILTER, raw.NEAREST)
        self._framebuffer = gl.create("Framebuffers")
        gl.NamedFramebufferTexture(self._framebuffer, raw.COLOR_ATTACHMENT, self._texture, 0)
        gl.NamedFramebufferTexture(self._framebuffer, raw.DEPTH_ATTACHMENT, self._depth, 0)
        status = gl.CheckNamedFramebufferStatus(self._framebuffer, raw.FRAMEBUFFER)
        gl.check(f"creating {layers} light maps of {side} x {side}")
        if status != raw.FRAMEBUFFER_COMPLETE:
            raise RuntimeError(f"the OpenGL driver cannot draw light maps: framebuffer status is {status:#x}")
        self._side, self._layers = side, layers
