"""The OpenGL renderer.

A draw is split into pages. Each is packed, issued and read back; while the card works on one, the previous one is
unpacked into the arena.
"""

import ctypes
from types import TracebackType
from typing import NamedTuple, Self

from worldloom.kernels.gl.visible import BOTH_SIDES, COMMAND_WORDS, MIRRORED_FRONT_ONLY
from worldloom.kernels.light_maps import compute_map_side
from worldloom.kernels.outputs import FLOW, NORMALS
from worldloom.kernels.raster.scratch import MAX_WIDTH
from worldloom.kernels.tables import I32, I64, U8, PreviousTable, ViewTable
from worldloom.render.check import check_draw, check_previous
from worldloom.render.devices import is_software
from worldloom.render.gl import raw
from worldloom.render.gl.assets import GpuAssets
from worldloom.render.gl.context import GLContext, compile_program
from worldloom.render.gl.layers import LayerBlender
from worldloom.render.gl.light_maps import MapTarget
from worldloom.render.gl.pages import Packed, Page, PageBuffers, PagePacker, Readback, Tables, plan_pages
from worldloom.render.gl.targets import Target, TargetCache
from worldloom.render.renderer import EndStage, compile_kernels, ignore_stage
from worldloom.render.scene import Scene
from worldloom.render.views import NO_PREVIOUS

_PAGES_IN_FLIGHT = 2
_FAR = (ctypes.c_float * 1)(0.0)
_FLOAT_UNITS = (2, 5, 6)
"""Texture units of the samples of FLOAT_FORMATS, as in render/shaders/resolve.frag.glsl."""


_MACROS = {0: (), NORMALS: ("NORMALS",), FLOW: ("FLOW",), NORMALS | FLOW: ("NORMALS", "FLOW")}
"""Macros of the programs for views that ask for these outputs: those of others know nothing of them."""
_PROGRAMS = (
    ("geometry.vert.glsl", "geometry.frag.glsl"),
    ("geometry.vert.glsl", "lamplit.frag.glsl"),
    ("geometry.vert.glsl", "geometry_shadows.frag.glsl"),
    ("geometry.vert.glsl", "lamplit_shadows.frag.glsl"),
    ("sky.vert.glsl", "sky.frag.glsl"),
    ("sky.vert.glsl", "sky_box.frag.glsl"),
    ("cover.vert.glsl", "resolve.frag.glsl"),
)
"""Shaders of the programs in `_Programs`."""


class _Programs(NamedTuple):
    """Names of the programs that draw a page."""

    geometry: int
    lamplit: int
    geometry_shadows: int
    lamplit_shadows: int
    sky: int
    sky_box: int
    resolve: int

    def surface(self, page: Page) -> int:
        """Return the program that draws the surfaces of a page."""
        if page.has_shadows:
            return self.lamplit_shadows if page.has_lamps else self.geometry_shadows
        return self.lamplit if page.has_lamps else self.geometry


class GLRenderer:
    """The renderer for graphics cards. Only the thread that creates it may use it."""

    name = "gl"

    def __init__(self, device: int | None = None) -> None:
        """Open a device by its EGL number, or the first one."""
        self._context = GLContext(device)
        self._gl = self._context.raw
        with self._context.current():
            self._set_up()
        compile_kernels(self)

    @property
    def device(self) -> str:
        """Name of the device, as its driver reports it."""
        return self._context.device

    def draw(
        self,
        scene: Scene,
        views: ViewTable,
        arena: U8,
        offsets: I64,
        end_stage: EndStage = ignore_stage,
        previous: PreviousTable | None = None,
    ) -> None:
        """Write every requested output of every view to its offset in the arena."""
        with self._context.current():
            check_draw(scene, views, arena, offsets)
            if previous is not None:
                check_previous(scene, views, previous)
            if views.outputs.any():
                self._draw(scene, views, arena, offsets, end_stage, NO_PREVIOUS if previous is None else previous)

    def _draw(
        self, scene: Scene, views: ViewTable, arena: U8, offsets: I64, end_stage: EndStage, previous: PreviousTable
    ) -> None:
        tables = Tables(self._upload_assets(scene).table, scene.instances, scene.lanes, views, previous)
        try:
            turn = 0
            for page in plan_pages(views, scene.lanes, self._targets.layers_per_page):
                buffers, readback = self._flights[turn]
                readback.finish(views, offsets, arena, end_stage)
                target = self._targets.get(page.group, page.views.size)
                packed = self._packer.pack(tables, page.views, buffers, bool(page.group.floats & FLOW))
                end_stage("cull")
                self._issue(page, target, buffers, packed)
                readback.start(page, target, end_stage)
                turn = (turn + 1) % _PAGES_IN_FLIGHT
            for step in range(_PAGES_IN_FLIGHT):
                self._flights[(turn + step) % _PAGES_IN_FLIGHT][1].finish(views, offsets, arena, end_stage)
            self._gl.check("drawing")
        except BaseException:
            for _, readback in self._flights:
                readback.abandon()
            raise

    def close(self) -> None:
        """Release all resources. Closing twice does nothing."""
        if self._context.closed:
            return
        with self._context.current():
            for buffers, readback in self._flights:
                readback.release()
                buffers.release()
            if self._assets is not None:
                self._assets.release()
            self._targets.release()
            self._map_target.release()
            self._blender.release()
            self._context.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _set_up(self) -> None:
        gl = self._gl
        self._programs: dict[int, _Programs] = {}
        self._programs_for(0)
        self._casting = compile_program(self._context.moderngl, "casting.vert.glsl", "casting.frag.glsl").glo
        self._map_target = MapTarget(gl)
        self._empty_vertex_array = gl.create("VertexArrays")
        self._targets = TargetCache(gl)
        self._blender = LayerBlender(self._context)
        self._assets: GpuAssets | None = None
        self._packer = PagePacker()
        software = is_software(self._context.device)
        self._flights = [(PageBuffers(gl), Readback(gl, software)) for _ in range(_PAGES_IN_FLIGHT)]
        # Depth is 1 at the near plane and 0 at the far plane. Shaders flip frames vertically, which reverses winding;
        # an upper left clip origin would do the same, but assign edges through pixel centres to the wrong side.
        gl.ClipControl(raw.LOWER_LEFT, raw.ZERO_TO_ONE)
        gl.FrontFace(raw.CLOCKWISE)
        gl.Disable(raw.DITHER)
        gl.PixelStorei(raw.PACK_ALIGNMENT, 4)
        limits = (raw.MAX_TEXTURE_SIZE, raw.MAX_FRAMEBUFFER_WIDTH, raw.MAX_FRAMEBUFFER_HEIGHT)
        self.max_side_pixels = min(MAX_WIDTH, *map(gl.integer, limits))
        """Largest width and height of a frame: what the device allows, at most what the CPU renderer does."""
        gl.check("setting up")

    def _programs_for(self, floats: int) -> _Programs:
        """Return the programs for views that ask for these outputs, compiled when they are first asked for."""
        asked = floats & (NORMALS | FLOW)
        if asked not in self._programs:
            self._programs[asked] = _Programs(
                *(
                    compile_program(self._context.moderngl, vertex, fragment, _MACROS[asked]).glo
                    for vertex, fragment in _PROGRAMS
                )
            )
        return self._programs[asked]

    def _upload_assets(self, scene: Scene) -> GpuAssets:
        table = scene.assets.table
        if self._assets is None or self._assets.table is not table:
            if self._assets is not None:
                self._assets.release()
                self._assets = None
            self._assets = GpuAssets(self._gl, table)
        return self._assets

    def _issue(self, page: Page, target: Target, buffers: PageBuffers, packed: Packed) -> None:
        """Issue the commands that draw a page.

        These are its light maps, rows, the sky behind them, translucent rows, and the mean of the samples.
        """
        gl = self._gl
        if packed.maps:
            self._draw_light_maps(page, buffers, packed)
        gl.BindFramebuffer(raw.FRAMEBUFFER, target.draw_framebuffer)
        gl.Viewport(0, 0, page.group.width, page.group.height)
        gl.ClearNamedFramebufferfv(target.draw_framebuffer, raw.DEPTH, 0, _FAR)
        gl.BindTextureUnit(3, buffers.layers.texture())
        if page.has_lamps:
            gl.BindTextureUnit(4, buffers.lamps.texture())
        gl.Enable(raw.DEPTH_TEST)
        programs, has_flow = self._programs_for(page.group.floats), bool(page.group.floats & FLOW)
        if has_flow:
            gl.BindTextureUnit(7, buffers.previous_layers.texture())
        program, segments = programs.surface(page), packed.segments
        self._draw_rows(program, buffers, segments.opaque, has_flow)
        self._draw_sky(programs.sky_box if page.has_sky_textures else programs.sky, page.views.size)
        if segments.ranked:
            unshadowed = programs.surface(page._replace(has_shadows=False))
            self._blender.bind_alphas(buffers.alphas)
            for rank, rows in enumerate(segments.ranked):
                self._blender.begin_layer(page, target)
                self._draw_rows(unshadowed, buffers, rows, has_flow)
                self._blender.blend_layer(page, target, rank, self._empty_vertex_array)
            self._blender.begin_labels(target)
            self._draw_rows(unshadowed, buffers, segments.translucent, has_flow)
            self._blender.end_labels()
        if page.group.samples > 1:
            self._draw_resolved(programs.resolve, page.views.size, target)

    def _draw_light_maps(self, page: Page, buffers: PageBuffers, packed: Packed) -> None:
        gl, light_maps = self._gl, buffers.light_maps
        assert self._assets is not None
        self._map_target.bind(compute_map_side(page.group.width, page.group.height), packed.maps)
        self._assets.use(light_maps.records.name)
        gl.UseProgram(self._casting)
        gl.Enable(raw.DEPTH_TEST)
        gl.DepthFunc(raw.GREATER)
        gl.Disable(raw.CULL_FACE)
        gl.BindBuffer(raw.DRAW_INDIRECT_BUFFER, light_maps.commands.name)
        gl.MultiDrawElementsIndirect(raw.TRIANGLES, raw.UNSIGNED_INT, None, packed.casting, 0)
        gl.BindTextureUnit(5, light_maps.table.texture())
        gl.BindTextureUnit(6, self._map_target.texture)

    def _draw_rows(self, program: int, buffers: PageBuffers, segments: I32, has_flow: bool) -> None:
        gl = self._gl
        assert self._assets is not None
        self._assets.use(buffers.records.name, buffers.previous_records.name if has_flow else None)
        gl.UseProgram(program)
        gl.DepthFunc(raw.GREATER)
        gl.BindBuffer(raw.DRAW_INDIRECT_BUFFER, buffers.commands.name)
        for facing, first, count, _ in segments.tolist():
            if facing == BOTH_SIDES:
                gl.Disable(raw.CULL_FACE)
            else:
                gl.Enable(raw.CULL_FACE)
                gl.CullFace(raw.FRONT if facing == MIRRORED_FRONT_ONLY else raw.BACK)
            start = ctypes.c_void_p(first * 4 * COMMAND_WORDS)
            gl.MultiDrawElementsIndirect(raw.TRIANGLES, raw.UNSIGNED_INT, start, count, 0)

    def _draw_sky(self, program: int, layers: int) -> None:
        """Draw the sky where depth is still that of the far plane."""
        gl = self._gl
        gl.Disable(raw.CULL_FACE)
        gl.DepthFunc(raw.GEQUAL)
        gl.UseProgram(program)
        gl.BindVertexArray(self._empty_vertex_array)
        gl.DrawArraysInstanced(raw.TRIANGLES, 0, 3, layers)

    def _draw_resolved(self, program: int, layers: int, target: Target) -> None:
        gl = self._gl
        gl.BindFramebuffer(raw.FRAMEBUFFER, target.read_framebuffer)
        gl.Disable(raw.DEPTH_TEST)
        gl.Disable(raw.CULL_FACE)
        gl.UseProgram(program)
        gl.BindVertexArray(self._empty_vertex_array)
        gl.BindTextureUnit(1, target.sampled_color)
        for unit, name in zip(_FLOAT_UNITS, target.sampled_floats, strict=True):
            gl.BindTextureUnit(unit, name or target.sampled_color)
        gl.DrawArraysInstanced(raw.TRIANGLES, 0, 3, layers)
