"""Renderers report the stages of a draw that they can tell apart; frames do not depend on it."""

import numpy as np
import pytest

from worldloom.bench.workloads import block_yard
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.cpu import CPURenderer
from worldloom.render.gl.renderer import GLRenderer
from worldloom.render.renderer import Renderer


def drawn(renderer: Renderer, marks: list[str] | None) -> np.ndarray:
    scene, views = block_yard(300, width=96, height=96)
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    if marks is None:
        renderer.draw(scene, views, arena, offsets)
    else:
        renderer.draw(scene, views, arena, offsets, marks.append)
    return arena


def test_the_cpu_renderer_has_but_one_stage() -> None:
    marks: list[str] = []
    with CPURenderer(threads=1) as cpu:
        assert (drawn(cpu, marks) == drawn(cpu, None)).all()
    assert marks == []


@pytest.mark.gl
def test_the_gl_renderer_tells_its_stages_page_by_page() -> None:
    marks: list[str] = []
    with GLRenderer() as gl:
        assert (drawn(gl, marks) == drawn(gl, None)).all()
    pages = marks.count("cull")
    assert pages == 3, "300 frames, 128 to a page"
    assert marks.count("unpack") == pages
    issued = ["cull", "draw", "readback"]
    finished = ["draw", "readback", "unpack"]
    assert marks == [*issued, *issued, *finished, *issued, *finished, *finished]
