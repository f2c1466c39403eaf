"""Pages: views that are drawn together into the layers of one target; what the card needs for one, and the way back.

A page is views of one size and number of samples that agree in whether they ask for depth and whether their lanes have
lamps and sky boxes. The buffers that CPU and card share stay mapped for as long as they live: before one is written or
read, its last use by the card must be waited for by a fence. Two sets of buffers in turn keep both sides busy.

Waiting goes through ctypes, which releases the GIL. A fence before the copy separates the time of drawing from that of
reading back.
"""

import ctypes
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from worldloom.kernels.gl.packing import (
    INSTANCE_FLOATS,
    LAMP_FLOATS,
    LAYER_FLOATS,
    pack_instances,
    pack_lamps,
    pack_layers,
    unpack_frames,
)
from worldloom.kernels.gl.visible import COMMAND_WORDS, FACINGS, find_visible, sort_visible
from worldloom.kernels.outputs import DEPTH
from worldloom.kernels.tables import I32, I64, NO_TEXTURE, U8, AssetTable, InstanceTable, LaneTable, ViewTable
from worldloom.render.gl import raw
from worldloom.render.gl.raw import RawGL
from worldloom.render.gl.targets import Group, Target
from worldloom.render.renderer import EndStage

MAX_LAMPLIT_VIEWS = 1024
"""Most views of a page with lamps: their lamps fit into the smallest buffer texture of OpenGL 4.5, 65536 vectors."""
WAIT_S = 60.0
"""Time after which a page that is not finished is an error."""
_NO_DEPTH = np.empty((0, 0), np.uint8)


class Page(NamedTuple):
    """Views that are drawn together: the k-th of `views` into layer k."""

    group: Group
    has_lamps: bool
    has_sky_textures: bool
    views: I64


def plan_pages(views: ViewTable, lanes: LaneTable, layers_per_page: Callable[[Group], int]) -> Iterator[Page]:
    """Yield all views that ask for an output, group after group, in pages.

    Lanes with and without lamps need different programs, which a driver may round differently: the program must depend
    on the view's own lane, not on the others of its page.
    """
    wants_depth = (views.outputs & DEPTH) != 0
    has_lamps = lanes.lamp_count[views.lane] > 0
    has_sky_textures = lanes.sky_textures[views.lane] != NO_TEXTURE
    key = (views.width.astype(np.int64) << 36) | (views.height.astype(np.int64) << 6)
    key |= (views.samples.astype(np.int64) << 3) | (has_lamps << 2) | (has_sky_textures << 1) | wants_depth
    asked = np.flatnonzero(views.outputs)
    order = asked[np.argsort(key[asked], kind="stable")]
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    for members in np.split(order, starts[1:]) if order.size else ():
        first = members[0]
        group = Group(
            int(views.width[first]), int(views.height[first]), int(views.samples[first]), bool(wants_depth[first])
        )
        step = min(layers_per_page(group), MAX_LAMPLIT_VIEWS if has_lamps[first] else len(members))
        for start in range(0, members.size, step):
            some = members[start : start + step]
            yield Page(group, bool(has_lamps[first]), bool(has_sky_textures[first]), some)


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


class PageBuffers:
    """The buffers that a page is drawn from."""

    def __init__(self, gl: RawGL) -> None:
        self.records = MappedBuffer(gl)
        self.commands = MappedBuffer(gl)
        self.layers = ShaderTable(gl)
        self.lamps = ShaderTable(gl)

    def release(self) -> None:
        """Release the memory."""
        for each in (self.records, self.commands, self.layers, self.lamps):
            each.release()


class Tables(NamedTuple):
    """The tables that a draw reads."""

    assets: AssetTable
    instances: InstanceTable
    lanes: LaneTable
    views: ViewTable


class PagePacker:
    """Culling, sorting and packing of pages, with scratch arrays that grow by doubling."""

    def __init__(self) -> None:
        self._matrix = np.empty((3, 4), np.float64)
        self._pairs = np.empty((6, 0), np.int32)
        self._segments = np.empty((0, 3), np.int32)
        self._bucket_ends = np.empty(0, np.int32)

    def pack(self, tables: Tables, page: I64, buffers: PageBuffers) -> I32:
        """Cull, sort and pack a page; return the segments [n, 3] to draw: (facing, first command, commands)."""
        segments = self._pack_rows(tables, page, buffers)
        assets, _, lanes, views = tables
        layers = buffers.layers.buffer.array((page.size, LAYER_FLOATS), np.float32)
        pack_layers(lanes, views, page, assets.texture_size, layers)
        lamps = int(lanes.lamp_count[views.lane[page]].sum(dtype=np.int64))
        if lamps:
            pack_lamps(lanes, views, page, buffers.lamps.buffer.array((lamps, LAMP_FLOATS), np.float32))
        return segments

    def _pack_rows(self, tables: Tables, page: I64, buffers: PageBuffers) -> I32:
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
        # There are no more commands than buckets, nor than rows.
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
        size = layers * group.width * group.height * 4
        self._buffer.reserve(size * (2 if group.depth else 1))
        self._page = page
        self._drawn = gl.FenceSync(raw.SYNC_COMPLETE, 0)
        if self._is_software:
            self._wait_until_drawn()  # the copy would wait, and the times could not be separated
        end_stage("draw")
        gl.BindBuffer(raw.PIXEL_PACK_BUFFER, self._buffer.name)
        box = (0, 0, 0, 0, group.width, group.height, layers)
        gl.GetTextureSubImage(target.color, *box, raw.RGBA, raw.UNSIGNED_BYTE, size, None)
        if group.depth:
            gl.GetTextureSubImage(target.depth, *box, raw.RED, raw.FLOAT, size, ctypes.c_void_p(size))
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
        depth_bytes = self._buffer.array((layers, 4 * pixels), np.uint8, words.nbytes) if group.depth else _NO_DEPTH
        unpack_frames(words, depth_bytes, views, page.views, offsets, arena)
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
