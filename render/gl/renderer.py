"""Draws views on a graphics card.

A draw is cut into pages; each is prepared, issued and asked back, and while the card works on it the one before is
unpacked into the arena.
"""

import ctypes
from types import TracebackType
from typing import Self

from worldloom.kernels.gl.visible import BOTH_SIDES, COMMAND_WORDS, MIRRORED_FRONT_ONLY
from worldloom.kernels.tables import I32, I64, U8, ViewTable
from worldloom.render.check import check_draw
from worldloom.render.devices import is_software
from worldloom.render.gl import raw
from worldloom.render.gl.assets import GpuLibrary
from worldloom.render.gl.context import GLContext, compile_program
from worldloom.render.gl.prepare import PageBuffers, Preparer, Tables
from worldloom.render.gl.readback import Readback
from worldloom.render.gl.targets import Page, Target, TargetCache, plan_pages
from worldloom.render.renderer import Mark, compile_kernels, unmarked
from worldloom.render.scene import Scene

_PAGES_IN_FLIGHT = 2
_FAR = (ctypes.c_float * 1)(0.0)


class GLRenderer:
    """The renderer for graphics cards. The thread that makes it is the only one that may use it."""

    name = "gl"

    def __init__(self, device: int | None = None) -> None:
        """Open a device by its EGL number, or the first one."""
        self._context = GLContext(device)
        self._gl = gl = self._context.raw
        programs = [
            compile_program(self._context.moderngl, vertex, fragment)
            for vertex, fragment in (
                ("geometry.vert.glsl", "geometry.frag.glsl"),
                ("geometry.vert.glsl", "lamplit.frag.glsl"),
                ("sky.vert.glsl", "sky.frag.glsl"),
                ("sky.vert.glsl", "sky_box.frag.glsl"),
                ("cover.vert.glsl", "resolve.frag.glsl"),
            )
        ]
        self._geometry, self._lamplit, self._sky, self._sky_box, self._resolve = (program.glo for program in programs)
        self._empty_vertex_array = gl.create("VertexArrays")
        self._targets = TargetCache(gl)
        self._library: GpuLibrary | None = None
        self._preparer = Preparer()
        on_processor = is_software(self._context.device)
        self._flights = [(PageBuffers(gl), Readback(gl, on_processor)) for _ in range(_PAGES_IN_FLIGHT)]
        # Depth runs from 1 (near) to 0 (far). Shaders turn pictures upside down, which turns triangles around; letting
        # the clip origin do it would also give edges through pixel centres to the wrong side.
        gl.ClipControl(raw.LOWER_LEFT, raw.ZERO_TO_ONE)
        gl.FrontFace(raw.CLOCKWISE)
        gl.Disable(raw.DITHER)
        gl.PixelStorei(raw.PACK_ALIGNMENT, 4)
        gl.check("setting up")
        compile_kernels(self)

    @property
    def device(self) -> str:
        """What draws, as its driver names it."""
        return self._context.device

    def draw(self, scene: Scene, views: ViewTable, arena: U8, offsets: I64, mark: Mark = unmarked) -> None:
        """Paint every output that the views ask for into the arena, each at its offset."""
        self._context.enter()
        check_draw(scene, views, arena, offsets)
        if not views.outputs.any():
            return
        tables = Tables(self._upload_library(scene).table, scene.instances, scene.lanes, views)
        try:
            turn = 0
            for page in plan_pages(views, scene.lanes, self._targets.layers_per_page):
                buffers, readback = self._flights[turn]
                readback.finish(views, offsets, arena, mark)
                target = self._targets.get(page.group, page.views.size)
                segments = self._preparer.fill(tables, page.views, buffers)
                mark("cull")
                self._issue(page, target, buffers, segments)
                readback.start(page, target, mark)
                turn = (turn + 1) % _PAGES_IN_FLIGHT
            for step in range(_PAGES_IN_FLIGHT):
                self._flights[(turn + step) % _PAGES_IN_FLIGHT][1].finish(views, offsets, arena, mark)
            self._gl.check("drawing")
        except BaseException:
            for _, readback in self._flights:
                readback.abandon()
            raise

    def close(self) -> None:
        """Give everything back. Closing twice does nothing."""
        if self._context.closed:
            return
        self._context.enter()
        for buffers, readback in self._flights:
            readback.release()
            buffers.release()
        if self._library is not None:
            self._library.release()
        self._targets.release()
        self._context.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _upload_library(self, scene: Scene) -> GpuLibrary:
        table = scene.assets.table
        if self._library is None or self._library.table is not table:
            if self._library is not None:
                self._library.release()
                self._library = None
            self._library = GpuLibrary(self._gl, table)
        return self._library

    def _issue(self, page: Page, target: Target, buffers: PageBuffers, segments: I32) -> None:
        """Queue everything that paints a page: its rows, the sky behind them, and the mean of the samples."""
        gl = self._gl
        gl.BindFramebuffer(raw.FRAMEBUFFER, target.draw_framebuffer)
        gl.Viewport(0, 0, page.group.width, page.group.height)
        gl.ClearNamedFramebufferfv(target.draw_framebuffer, raw.DEPTH, 0, _FAR)
        gl.BindTextureUnit(3, buffers.layers.texture())
        if page.has_lamps:
            gl.BindTextureUnit(4, buffers.lamps.texture())
        gl.Enable(raw.DEPTH_TEST)
        self._draw_rows(self._lamplit if page.has_lamps else self._geometry, buffers, segments)
        self._draw_sky(self._sky_box if page.has_sky_textures else self._sky, page.views.size)
        if page.group.samples > 1:
            self._draw_resolved(page.views.size, target)

    def _draw_rows(self, program: int, buffers: PageBuffers, segments: I32) -> None:
        gl = self._gl
        assert self._library is not None
        self._library.use(buffers.records.name)
        gl.UseProgram(program)
        gl.DepthFunc(raw.GREATER)
        gl.BindBuffer(raw.DRAW_INDIRECT_BUFFER, buffers.commands.name)
        for facing, first, count in segments.tolist():
            if facing == BOTH_SIDES:
                gl.Disable(raw.CULL_FACE)
            else:
                gl.Enable(raw.CULL_FACE)
                gl.CullFace(raw.FRONT if facing == MIRRORED_FRONT_ONLY else raw.BACK)
            start = ctypes.c_void_p(first * 4 * COMMAND_WORDS)
            gl.MultiDrawElementsIndirect(raw.TRIANGLES, raw.UNSIGNED_INT, start, count, 0)

    def _draw_sky(self, program: int, layers: int) -> None:
        """Only where depth is still that of the far plane."""
        gl = self._gl
        gl.Disable(raw.CULL_FACE)
        gl.DepthFunc(raw.GEQUAL)
        gl.UseProgram(program)
        gl.BindVertexArray(self._empty_vertex_array)
        gl.DrawArraysInstanced(raw.TRIANGLES, 0, 3, layers)

    def _draw_resolved(self, layers: int, target: Target) -> None:
        gl = self._gl
        gl.BindFramebuffer(raw.FRAMEBUFFER, target.read_framebuffer)
        gl.Disable(raw.DEPTH_TEST)
        gl.UseProgram(self._resolve)
        gl.BindTextureUnit(1, target.sampled_color)
        gl.BindTextureUnit(2, target.sampled_depth or target.sampled_color)
        gl.DrawArraysInstanced(raw.TRIANGLES, 0, 3, layers)
