"""A page's tables for the card: what is visible, sorted into commands, and the records shaders read."""

from typing import NamedTuple

import numpy as np

from worldloom.kernels.gl.records import (
    INSTANCE_FLOATS,
    LAMP_FLOATS,
    LAYER_FLOATS,
    pack_instances,
    pack_lamps,
    pack_layers,
)
from worldloom.kernels.gl.visible import COMMAND_WORDS, FACINGS, find_visible, sort_visible
from worldloom.kernels.tables import I32, I64, AssetTable, InstanceTable, LaneTable, ViewTable
from worldloom.render.gl import raw
from worldloom.render.gl.buffers import MappedBuffer
from worldloom.render.gl.raw import RawGL


class ShaderTable:
    """A buffer that shaders read as a table of vectors of four."""

    def __init__(self, gl: RawGL) -> None:
        self.buffer = MappedBuffer(gl)
        self._gl = gl
        self._texture = gl.create("Textures", raw.BUFFER_TEXTURE)
        self._seen_through_it = 0

    def texture(self) -> int:
        """The table as it is bound; its buffer may be another one by now."""
        if self._seen_through_it != self.buffer.name:
            self._seen_through_it = self.buffer.name
            self._gl.TextureBuffer(self._texture, raw.RGBA32F, self.buffer.name)
        return self._texture

    def release(self) -> None:
        """Give the memory back."""
        self._gl.delete("Textures", self._texture)
        self.buffer.release()


class PageBuffers:
    """The buffers a page is drawn from."""

    def __init__(self, gl: RawGL) -> None:
        self.records = MappedBuffer(gl)
        self.commands = MappedBuffer(gl)
        self.layers = ShaderTable(gl)
        self.lamps = ShaderTable(gl)

    def release(self) -> None:
        """Give the memory back."""
        for each in (self.records, self.commands, self.layers, self.lamps):
            each.release()


class Tables(NamedTuple):
    """What a draw reads, gathered once: a scene hands out fresh named tuples each time."""

    assets: AssetTable
    instances: InstanceTable
    lanes: LaneTable
    views: ViewTable


class Preparer:
    """Fills page buffers. Keeps its scratch arrays, which grow by doubling."""

    def __init__(self) -> None:
        self._matrix = np.empty((3, 4), np.float64)
        self._pairs = np.empty((6, 0), np.int32)
        self._segments = np.empty((0, 3), np.int32)
        self._bucket_ends = np.empty(0, np.int32)

    def fill(self, tables: Tables, page: I64, buffers: PageBuffers) -> I32:
        """Cull, sort and pack a page; the segments [n, 3] to draw: (facing, first command, commands)."""
        segments = self._fill_rows(tables, page, buffers)
        assets, _, lanes, views = tables
        layers = buffers.layers.buffer.array((page.size, LAYER_FLOATS), np.float32)
        pack_layers(lanes, views, page, assets.texture_size, layers)
        lamps = int(lanes.lamp_count[views.lane[page]].sum(dtype=np.int64))
        if lamps:
            pack_lamps(lanes, views, page, buffers.lamps.buffer.array((lamps, LAMP_FLOATS), np.float32))
        return segments

    def _fill_rows(self, tables: Tables, page: I64, buffers: PageBuffers) -> I32:
        assets, instances, lanes, views = tables
        rows = int(lanes.row_count[views.lane[page]].sum(dtype=np.int64))
        if rows > self._pairs.shape[1]:
            self._pairs = np.empty((6, 1 << (rows - 1).bit_length()), np.int32)
            self._segments = np.empty((self._pairs.shape[1], 3), np.int32)
        layer, row, run, kind, sorted_layer, sorted_row = self._pairs
        count, runs = find_visible(assets, instances, lanes, views, page, self._matrix, layer, row, run, kind)
        buckets = runs * FACINGS * len(assets.mesh_first_triangle)
        if buckets > self._bucket_ends.size:
            self._bucket_ends = np.empty(1 << (buckets - 1).bit_length(), np.int32)
        # No more commands than buckets, nor than rows.
        commands = buffers.commands.array((min(buckets, count), COMMAND_WORDS), np.uint32)
        _, segments = sort_visible(
            assets,
            count,
            runs,
            layer,
            row,
            run,
            kind,
            self._bucket_ends,
            sorted_layer,
            sorted_row,
            commands,
            self._segments,
        )
        records = buffers.records.array((count, INSTANCE_FLOATS), np.float32)
        pack_instances(instances, views, page, sorted_layer, sorted_row, count, self._matrix, records)
        return self._segments[:segments]
