"""Getting pictures back: the card copies a page into a buffer, a fence says when it is done.

Waiting goes through ctypes and so leaves the GIL to others. Two read-backs in turn let the card draw one page while the
other is unpacked. Another fence before the copy tells waiting for the drawing from waiting for the pixels.
"""

import ctypes

import numpy as np

from worldloom.kernels.pixel_formats import unpack
from worldloom.kernels.tables import I64, U8, ViewTable
from worldloom.render.gl import raw
from worldloom.render.gl.buffers import MappedBuffer
from worldloom.render.gl.raw import RawGL
from worldloom.render.gl.targets import Page, Target
from worldloom.render.renderer import Mark

WAIT_S = 60.0
"""How long a page may take before the device counts as lost."""
_NO_DEPTH = np.empty((0, 0), np.uint8)


class Readback:
    """One page on its way back, or none."""

    def __init__(self, gl: RawGL, on_processor: bool) -> None:
        self._gl = gl
        self._on_processor = on_processor
        self._buffer = MappedBuffer(gl, read=True)
        self._page: Page | None = None
        self._drawn: int | None = None
        self._copied: int | None = None

    def start(self, page: Page, target: Target, mark: Mark) -> None:
        """Ask for a page's pixels, behind everything issued before."""
        gl, group, layers = self._gl, page.group, page.views.size
        size = layers * group.width * group.height * 4
        self._buffer.reserve(size * (2 if group.depth else 1))
        self._page = page
        self._drawn = gl.FenceSync(raw.SYNC_COMPLETE, 0)
        if self._on_processor:
            self._wait_until_drawn()  # the copy would, and nobody could tell the two apart
        mark("draw")
        gl.BindBuffer(raw.PIXEL_PACK_BUFFER, self._buffer.name)
        box = (0, 0, 0, 0, group.width, group.height, layers)
        gl.GetTextureSubImage(target.color, *box, raw.RGBA, raw.UNSIGNED_BYTE, size, None)
        if group.depth:
            gl.GetTextureSubImage(target.depth, *box, raw.RED, raw.FLOAT, size, ctypes.c_void_p(size))
        gl.BindBuffer(raw.PIXEL_PACK_BUFFER, 0)
        self._copied = gl.FenceSync(raw.SYNC_COMPLETE, 0)
        gl.Flush()
        mark("readback")

    def finish(self, views: ViewTable, offsets: I64, arena: U8, mark: Mark) -> None:
        """Wait for the page under way, if any, and put its pictures where they belong."""
        if self._page is None:
            return
        page, self._page = self._page, None
        self._wait_until_drawn()
        mark("draw")
        self._wait_until_copied()
        mark("readback")
        group, layers = page.group, page.views.size
        pixels = group.width * group.height
        words = self._buffer.array((layers, pixels), np.uint32)
        depth_bytes = self._buffer.array((layers, 4 * pixels), np.uint8, words.nbytes) if group.depth else _NO_DEPTH
        unpack(words, depth_bytes, views, page.views, offsets, arena)
        mark("unpack")

    def abandon(self) -> None:
        """Forget the page under way, once the card is done with it."""
        if self._page is not None:
            self._page = None
            self._wait_until_drawn()
            self._wait_until_copied()

    def release(self) -> None:
        """Give the memory back."""
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
            raise RuntimeError(f"the graphics device has not finished a page after {WAIT_S:.0f} s: it may hang")
        if status not in (raw.ALREADY_SIGNALED, raw.CONDITION_SATISFIED):
            raise RuntimeError("waiting for the graphics device failed: it may have been lost")
