"""Pages: views that are drawn together into the layers of one target; what the card needs for one, and the way back.

A page is views of one size and number of samples that agree in the outputs of floats that they ask for, and in whether
their lanes have lamps and sky boxes. The buffers that CPU and card share stay mapped for as long as they live: before
one is written or read, its last use by the card must be waited for by a fence. Two sets of buffers in turn keep both
sides busy.

Waiting goes through ctypes, which releases the GIL. A fence before the copy separates the time of drawing from that of
reading back.
"""

import ctypes
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from worldloom.kernels.gl.layers import rank_layers
from worldloom.kernels.gl.packing import (
    COVERED,
    INSTANCE_FLOATS,
    LABEL_FLOAT,
    LAMP_FLOATS,
    LAYER_FLOATS,
    PREVIOUS_FLOATS,
    PREVIOUS_LAYER_FLOATS,
    pack_instances,
    pack_lamps,
    pack_layers,
    pack_previous,
    unpack_floats,
    unpack_frames,
)
from worldloom.kernels.gl.visible import COMMAND_WORDS, FACINGS, find_visible, sort_visible
from worldloom.kernels.tables import (
    I32,
    I64,
    NO_TEXTURE,
    U8,
    U32,
    AssetTable,
    InstanceTable,
    LaneTable,
    PreviousTable,
    ViewTable,
)
from worldloom.render.gl import raw
from worldloom.render.gl.buffers import MappedBuffer, ShaderTable
from worldloom.render.gl.light_maps import LightMaps, fit, most_views
from worldloom.render.gl.raw import RawGL
from worldloom.render.gl.targets import FLOAT_BITS, FLOAT_FORMATS, Group, Target
from worldloom.render.renderer import EndStage

MAX_LAMPLIT_VIEWS = 1024
"""Most views of a page with lamps: their lamps fit into the smallest buffer texture of OpenGL 4.5, 65536 vectors."""
WAIT_S = 60.0
"""Time after which a page that is not finished is an error."""


class Page(NamedTuple):
    """Views that are drawn together: the k-th of `views` into layer k."""

    group: Group
    has_lamps: bool
    has_sky_textures: bool
    has_shadows: bool
    views: I64


def plan_pages(views: ViewTable, lanes: LaneTable, layers_per_page: Callable[[Group], int]) -> Iterator[Page]:
    """Yield all views that ask for an output, group after group, in pages.

    Lanes with and without lamps need different programs, which a driver may round differently: the program must depend
    on the view's own lane, not on the others of its page.
    """
    floats = views.outputs & FLOAT_BITS
    has_lamps = lanes.lamp_count[views.lane] > 0
    has_sky_textures = lanes.sky_textures[views.lane] != NO_TEXTURE
    # Light maps are drawn for colours only, but what stands for shadows is not shown with any output.
    has_shadows = views.shadows != 0
    key = (views.width.astype(np.int64) << 43) | (views.height.astype(np.int64) << 14) | (has_shadows << 13)
    key |= (views.samples.astype(np.int64) << 10) | (has_lamps << 9) | (has_sky_textures << 8) | floats
    asked = np.flatnonzero(views.outputs)
    order = asked[np.argsort(key[asked], kind="stable")]
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    for members in np.split(order, starts[1:]) if order.size else ():
        first = members[0]
        group = Group(int(views.width[first]), int(views.height[first]), int(views.samples[first]), int(floats[first]))
        step = min(layers_per_page(group), MAX_LAMPLIT_VIEWS if has_lamps[first] else len(members))
        if has_shadows[first]:
            lamps = int(lanes.lamp_count[views.lane[members]].max())
            step = min(step, most_views(group.width, group.height, lamps))
        for start in range(0, members.size, step):
            some = members[start : start + step]
            yield Page(group, bool(has_lamps[first]), bool(has_sky_textures[first]), bool(has_shadows[first]), some)


class PageBuffers:
    """The buffers that a page is drawn from."""

    def __init__(self, gl: RawGL) -> None:
        self.records = MappedBuffer(gl)
        self.commands = MappedBuffer(gl)
        self.layers = ShaderTable(gl)
        self.lamps = ShaderTable(gl)
        self.previous_records = MappedBuffer(gl)
        self.previous_layers = ShaderTable(gl)
        self.light_maps = LightMaps(gl)
        self.alphas = MappedBuffer(gl)

    def release(self) -> None:
        """Release the memory."""
        for each in (
            self.records,
            self.commands,
            self.layers,
            self.lamps,
            self.previous_records,
            self.previous_layers,
            self.light_maps,
            self.alphas,
        ):
            each.release()


class Tables(NamedTuple):
    """The tables that a draw reads."""

    assets: AssetTable
    instances: InstanceTable
    lanes: LaneTable
    views: ViewTable
    previous: PreviousTable


class Segments(NamedTuple):
    """Draw commands of a page: segments [n, 4] of them, (facing, first command, commands, rank)."""

    opaque: I32
    translucent: I32
    """Translucent rows in the order of rows, for all but their colours."""
    ranked: list[I32]
    """Translucent rows by rank, for their colours; see `kernels/gl/layers.py`."""


class Packed(NamedTuple):
    """A page as it is drawn: its rows and its light maps."""

    segments: Segments
    maps: int
    """Number of light maps."""
    casting: int
    """Number of commands that draw them."""


class PagePacker:
    """Culling, sorting and packing of pages, with scratch arrays that grow by doubling."""

    def __init__(self) -> None:
        self._matrix = np.empty((3, 4), np.float64)
        self._pairs = np.empty((6, 0), np.int32)
        self._segments = np.empty((0, 4), np.int32)
        self._bucket_ends = np.empty(0, np.int32)

    def pack(self, tables: Tables, page: I64, buffers: PageBuffers, has_flow: bool) -> Packed:
        """Cull, sort and pack a page and its light maps; return what is to be drawn."""
        segments = self._pack_rows(tables, page, buffers, has_flow)
        assets, instances, lanes, views, _ = tables
        fitted = fit(assets, instances, lanes, views, page)
        casting = 0
        if fitted.size:
            casting = buffers.light_maps.pack(assets, instances, lanes, views, fitted, self._matrix)
        layers = buffers.layers.buffer.array((page.size, LAYER_FLOATS), np.float32)
        pack_layers(lanes, views, page, assets.texture_size, fitted.first_map, layers)
        lamps = int(lanes.lamp_count[views.lane[page]].sum(dtype=np.int64))
        if lamps:
            records = buffers.lamps.buffer.array((lamps, LAMP_FLOATS), np.float32)
            pack_lamps(lanes, views, page, fitted.maps, fitted.first_map, records)
        return Packed(segments, fitted.size, casting)

    def _pack_rows(self, tables: Tables, page: I64, buffers: PageBuffers, has_flow: bool) -> Segments:
        """Pack opaque rows, then translucent ones in their order, then these again by rank."""
        assets, instances, lanes, views, _ = tables
        rows = int(lanes.row_count[views.lane[page]].sum(dtype=np.int64))
        if rows > self._pairs.shape[1]:
            self._pairs = np.empty((6, 1 << (rows - 1).bit_length()), np.int32)
            self._segments = np.empty((self._pairs.shape[1], 4), np.int32)
        layer, row, run, kind, _, _ = self._pairs
        found = find_visible(assets, instances, lanes, views, page, True, self._matrix, layer, row, run, kind)
        count, runs, translucent = found
        # There are no more commands than buckets, nor than rows.
        most_commands = min(self._reserve_buckets(runs, assets), count)
        commands = buffers.commands.array((most_commands + 2 * translucent, COMMAND_WORDS), np.uint32)
        records = buffers.records.array((count + 2 * translucent, INSTANCE_FLOATS), np.float32)
        if has_flow:
            buffers.previous_records.array((count + 2 * translucent, PREVIOUS_FLOATS), np.float32)
        command_count, segment_count = self._sort(assets, count, runs, commands, self._segments, 0)
        self._pack_records(tables, page, buffers, has_flow, 0, count)
        opaque = self._segments[:segment_count].copy()
        if not translucent:
            return Segments(opaque, opaque[:0], [])
        found = find_visible(assets, instances, lanes, views, page, False, self._matrix, layer, row, run, kind)
        first, (layers, runs, _) = count, found
        if not layers:
            return Segments(opaque, opaque[:0], [])
        self._reserve_buckets(runs, assets)
        own = commands[command_count:]
        own_count, segment_count = self._sort(assets, layers, runs, own, self._segments, first)
        in_order = self._segments[:segment_count] + np.array((0, command_count, 0, 0), np.int32)
        self._pack_records(tables, page, buffers, has_flow, first, layers)
        command_count, first = command_count + own_count, first + layers
        ranked = self._rank(tables, page, buffers, layers, first, commands[command_count:])
        ranked += np.array((0, command_count, 0, 0), np.int32)
        self._pack_records(tables, page, buffers, has_flow, first, layers)
        records[first : first + layers, LABEL_FLOAT] = COVERED
        return Segments(opaque, in_order, np.split(ranked, np.flatnonzero(np.diff(ranked[:, 3])) + 1))

    def _pack_records(
        self, tables: Tables, page: I64, buffers: PageBuffers, has_flow: bool, first: int, count: int
    ) -> None:
        """Write the records of the rows that were sorted last, from the record `first` on."""
        assets, instances, lanes, views, previous = tables
        sorted_layer, sorted_row = self._pairs[4:]
        records = buffers.records.array((first + count, INSTANCE_FLOATS), np.float32)[first:]
        pack_instances(assets, instances, lanes, views, page, sorted_layer, sorted_row, count, self._matrix, records)
        if has_flow:
            pack_previous(
                instances,
                lanes,
                views,
                previous,
                page,
                sorted_layer,
                sorted_row,
                count,
                self._matrix,
                buffers.previous_records.array((first + count, PREVIOUS_FLOATS), np.float32)[first:],
                buffers.previous_layers.buffer.array((page.size, PREVIOUS_LAYER_FLOATS), np.float32),
            )

    def _reserve_buckets(self, runs: int, assets: AssetTable) -> int:
        """Make room for sorting rows of so many runs; return the number of buckets."""
        buckets = runs * FACINGS * len(assets.mesh_first_triangle)
        if buckets > self._bucket_ends.size:
            self._bucket_ends = np.empty(1 << (buckets - 1).bit_length(), np.int32)
        return buckets

    def _sort(
        self, assets: AssetTable, count: int, runs: int, commands: U32, segments: I32, first_instance: int
    ) -> tuple[int, int]:
        """Sort the rows that were found; return the number of commands and segments."""
        layer, row, run, kind, sorted_layer, sorted_row = self._pairs
        return sort_visible(
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
            segments,
            first_instance,
        )

    def _rank(
        self, tables: Tables, page: I64, buffers: PageBuffers, count: int, first_instance: int, commands: U32
    ) -> I32:
        """Sort the translucent rows that were found by rank, write their alphas, and return segments [n, 4]."""
        assets, instances, _, views, _ = tables
        layer, row, _, _, sorted_layer, sorted_row = self._pairs
        most = int(np.bincount(layer[:count]).max(initial=0))
        segments = np.empty((FACINGS * most + 1, 4), np.int32)
        alphas = buffers.alphas.array((most, page.size), np.float32)
        segment_count, _ = rank_layers(
            assets,
            instances,
            views,
            page,
            layer,
            row,
            count,
            first_instance,
            self._matrix,
            np.empty(count),
            np.empty(count, np.int32),
            sorted_layer,
            sorted_row,
            commands,
            segments,
            alphas,
        )
        return segments[:segment_count]


class Readback:
    """The copy of one page from the card to the arena, if one is in progress."""

    def __init__(self, gl: RawGL, is_software: bool) -> None:
        self._gl = gl
        self._is_software = is_software
        self._buffer = MappedBuffer(gl, read=True)
        self._page: Page | None = None
        self._drawn: int | None = None
        self._copied: int | None = None

    def start(self, page: Page, target: Target, end_stage: EndStage) -> None:
        """Queue the copy of a page's pixels, after all commands issued so far."""
        gl, group, layers = self._gl, page.group, page.views.size
        pixels = layers * group.width * group.height
        self._buffer.reserve(pixels * (4 + sum(one.pixel_bytes for one in group.formats)))
        self._page = page
        self._drawn = gl.FenceSync(raw.SYNC_COMPLETE, 0)
        if self._is_software:
            self._wait_until_drawn()  # the copy would wait, and the times could not be separated
        end_stage("draw")
        gl.BindBuffer(raw.PIXEL_PACK_BUFFER, self._buffer.name)
        box = (0, 0, 0, 0, group.width, group.height, layers)
        start = 4 * pixels
        gl.GetTextureSubImage(target.color, *box, raw.RGBA, raw.UNSIGNED_BYTE, start, None)
        for name, one in zip(target.floats, FLOAT_FORMATS, strict=True):
            if name:
                size = one.pixel_bytes * pixels
                gl.GetTextureSubImage(name, *box, one.read_format, raw.FLOAT, size, ctypes.c_void_p(start))
                start += size
        gl.BindBuffer(raw.PIXEL_PACK_BUFFER, 0)
        self._copied = gl.FenceSync(raw.SYNC_COMPLETE, 0)
        gl.Flush()
        end_stage("readback")

    def finish(self, views: ViewTable, offsets: I64, arena: U8, end_stage: EndStage) -> None:
        """Wait for the page in progress, if any, and write its frames into the arena."""
        if self._page is None:
            return
        page, self._page = self._page, None
        self._wait_until_drawn()
        end_stage("draw")
        self._wait_until_copied()
        end_stage("readback")
        group, layers = page.group, page.views.size
        pixels = group.width * group.height
        words = self._buffer.array((layers, pixels), np.uint32)
        unpack_frames(words, views, page.views, offsets, arena)
        start = words.nbytes
        for one in group.formats:
            frames = self._buffer.array((layers, one.pixel_bytes * pixels), np.uint8, start)
            unpack_floats(frames, one.column, page.views, offsets, arena)
            start += frames.nbytes
        end_stage("unpack")

    def abandon(self) -> None:
        """Discard the page in progress, after the card is done with it."""
        if self._page is not None:
            self._page = None
            self._wait_until_drawn()
            self._wait_until_copied()

    def release(self) -> None:
        """Release the memory."""
        self.abandon()
        self._buffer.release()

    def _wait_until_drawn(self) -> None:
        fence, self._drawn = self._drawn, None
        self._wait(fence)

    def _wait_until_copied(self) -> None:
        fence, self._copied = self._copied, None
        self._wait(fence)

    def _wait(self, fence: int | None) -> None:
        if fence is None:
            return
        try:
            status = self._gl.ClientWaitSync(fence, raw.SYNC_FLUSH_FIRST, int(WAIT_S * 1e9))
        finally:
            self._gl.DeleteSync(fence)
        if status == raw.TIMEOUT_EXPIRED:
            raise RuntimeError(f"the graphics device has not finished a page after {WAIT_S:.0f} s: it may be hanging")
        if status not in (raw.ALREADY_SIGNALED, raw.CONDITION_SATISFIED):
            raise RuntimeError("waiting for the graphics device failed: it may have been lost")
