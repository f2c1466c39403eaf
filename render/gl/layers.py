"""Translucent rows in the OpenGL renderer: layers drawn one by one into a spare target, and blended over the page.

Each rank of rows (see `kernels/gl/layers.py`) is drawn into a target of its own, tested against the depth of the opaque
rows, so that only the nearest triangle of a row is seen. Its pixels are then blended by a shader that reads and writes
the page: how blending in hardware rounds differs from driver to driver.
"""

import ctypes

from worldloom.render.gl import raw
from worldloom.render.gl.buffers import MappedBuffer
from worldloom.render.gl.context import GLContext, compile_program
from worldloom.render.gl.pages import Page
from worldloom.render.gl.targets import Target, TargetCache

_NOTHING = (ctypes.c_float * 4)(0.0, 0.0, 0.0, 0.0)
_LAYER_UNIT, _PAGE_UNIT, _ALPHA_BINDING = 1, 2, 0
_FIRST_ALPHA = 0
"""Location of the uniform that tells where the alphas of a rank begin."""


class LayerBlender:
    """The programs, the spare targets and the framebuffer that layers need."""

    def __init__(self, context: GLContext) -> None:
        self._gl = context.raw
        self._blend, self._blend_samples = (
            compile_program(context.moderngl, "cover.vert.glsl", fragment).glo
            for fragment in ("blend.frag.glsl", "blend_samples.frag.glsl")
        )
        self._spares = TargetCache(self._gl)
        self._framebuffer = self._gl.create("Framebuffers")

    def bind_alphas(self, alphas: MappedBuffer) -> None:
        """Bind the alphas [rank, layer] of a page."""
        self._gl.BindBufferBase(raw.SHADER_STORAGE_BUFFER, _ALPHA_BINDING, alphas.name)

    def begin_layer(self, page: Page, target: Target) -> None:
        """Have rows drawn into an empty spare target, before what is opaque in the page."""
        gl, spare, group = self._gl, self._spare(page), page.group
        texture = raw.ARRAY_TEXTURE if group.samples == 1 else raw.ARRAY_TEXTURE_MULTISAMPLE
        start, size = (0, 0, 0, 0), (group.width, group.height, page.views.size)
        gl.CopyImageSubData(target.depth_test, texture, *start, spare.depth_test, texture, *start, *size)
        gl.ClearNamedFramebufferfv(spare.draw_framebuffer, raw.COLOR, 0, _NOTHING)
        gl.BindFramebuffer(raw.FRAMEBUFFER, spare.draw_framebuffer)
        gl.Enable(raw.DEPTH_TEST)

    def blend_layer(self, page: Page, target: Target, rank: int, empty_vertex_array: int) -> None:
        """Blend what was drawn over the page; labels stay."""
        gl, spare, layers = self._gl, self._spare(page), page.views.size
        program = self._blend if page.group.samples == 1 else self._blend_samples
        gl.NamedFramebufferTexture(self._framebuffer, raw.COLOR_ATTACHMENT, target.sampled_color, 0)
        gl.BindFramebuffer(raw.FRAMEBUFFER, self._framebuffer)
        gl.Disable(raw.DEPTH_TEST)
        gl.Disable(raw.CULL_FACE)
        gl.ColorMask(1, 1, 1, 0)
        gl.UseProgram(program)
        gl.ProgramUniform1i(program, _FIRST_ALPHA, rank * layers)
        gl.BindTextureUnit(_LAYER_UNIT, spare.sampled_color)
        gl.BindTextureUnit(_PAGE_UNIT, target.sampled_color)
        gl.BindVertexArray(empty_vertex_array)
        gl.TextureBarrier()
        gl.DrawArraysInstanced(raw.TRIANGLES, 0, 3, layers)
        gl.ColorMask(1, 1, 1, 1)
        gl.NamedFramebufferTexture(self._framebuffer, raw.COLOR_ATTACHMENT, 0, 0)

    def begin_labels(self, target: Target) -> None:
        """Have rows drawn into the page, except for their colours."""
        self._gl.BindFramebuffer(raw.FRAMEBUFFER, target.draw_framebuffer)
        self._gl.Enable(raw.DEPTH_TEST)
        self._gl.ColorMaski(0, 0, 0, 0, 1)

    def end_labels(self) -> None:
        """Have colours drawn again."""
        self._gl.ColorMaski(0, 1, 1, 1, 1)

    def release(self) -> None:
        """Release the memory."""
        self._spares.release()
        self._gl.delete("Framebuffers", self._framebuffer)

    def _spare(self, page: Page) -> Target:
        return self._spares.get(page.group._replace(floats=0), page.views.size)
