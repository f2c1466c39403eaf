"""Cost of drawing: the two renderers, batches, threads, and outputs."""

import numpy as np
import pytest

from worldloom.bench.measuring import Report
from worldloom.bench.workloads import block_yard
from worldloom.kernels.gl.packing import unpack_frames
from worldloom.kernels.outputs import DEFAULT_OUTPUT_NAMES, DEPTH, NORMALS, output_bits
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.cpu import CPURenderer
from worldloom.render.gl.renderer import GLRenderer
from worldloom.render.renderer import Renderer
from worldloom.render.views import select_views


class Batch:
    """Views of a scene, and memory for their frames."""

    def __init__(self, lanes: int, **settings: object) -> None:
        self.scene, self.views = block_yard(lanes, **settings)  # type: ignore[arg-type]
        self.offsets, size_bytes = lay_out(self.views)
        self.arena = allocate_arena(size_bytes)

    def draw(self, renderer: Renderer) -> None:
        """Draw all views in one call."""
        renderer.draw(self.scene, self.views, self.arena, self.offsets)

    def draw_singly(self, renderer: Renderer) -> None:
        """Draw the same views with a call for each."""
        for view in range(len(self.views.lane)):
            one = select_views(self.views, [view])
            renderer.draw(self.scene, one, self.arena, self.offsets[view : view + 1])


def bench_cpu_against_software_gl(report: Report, cpu: CPURenderer, gl: GLRenderer) -> None:
    batch = Batch(1024)
    ratio = report.ratio(lambda: batch.draw(gl), lambda: batch.draw(cpu))
    report.row("cpu against gl on this device, 1024 views of 64², 21 boxes each", f"{ratio:.1f} ×", "≥ 5 ×", ratio >= 5)


def bench_gl_batch_against_single_views(report: Report, gl: GLRenderer) -> None:
    batch = Batch(256)
    ratio = report.ratio(lambda: batch.draw_singly(gl), lambda: batch.draw(gl))
    report.row("gl, 256 views in a batch against one at a time", f"{ratio:.1f} ×", "≥ 3 ×", ratio >= 3)


def bench_cpu_batch_against_single_views(report: Report, cpu: CPURenderer) -> None:
    batch = Batch(256)
    ratio = report.ratio(lambda: batch.draw_singly(cpu), lambda: batch.draw(cpu))
    report.row("cpu, 256 views in a batch against one at a time", f"{ratio:.1f} ×")


def bench_unpack_against_copy(report: Report) -> None:
    batch = Batch(1024)
    pixels = 64 * 64
    words = np.random.default_rng(0).integers(0, 2**32, (1024, pixels), np.uint32)
    copied = np.empty_like(words)
    page = np.arange(1024)
    ratio = report.ratio(
        lambda: np.copyto(copied, words),
        lambda: unpack_frames(words, batch.views, page, batch.offsets, batch.arena),
        rounds=41,
    )
    report.row(
        "unpacking RGBA tiles into RGB slots, against a copy's bandwidth", f"{ratio:.2f} ×", "≥ 0.5 ×", ratio >= 0.5
    )


@pytest.mark.parametrize("name", ["cpu", "gl"])
def bench_cost_per_view_as_batches_grow(report: Report, name: str, request: pytest.FixtureRequest) -> None:
    renderer: Renderer = request.getfixturevalue(name)
    small, large = Batch(256), Batch(4096)
    ratio = report.ratio(lambda: large.draw(renderer), lambda: small.draw(renderer), rounds=7) / 16
    report.row(f"{name}, cost per view at 4096 views against 256", f"{ratio:.2f} ×", "≤ 1.2 ×", ratio <= 1.2)


def bench_two_threads_against_one(report: Report, cpu: CPURenderer) -> None:
    batch = Batch(1024)
    with CPURenderer(threads=1) as one, CPURenderer(threads=2) as two:
        ratio = report.ratio(lambda: batch.draw(one), lambda: batch.draw(two), rounds=31)
    report.row("cpu, two threads against one", f"{ratio:.2f} ×", "≥ 1.6 ×", ratio >= 1.6)


@pytest.mark.parametrize("name", ["cpu", "gl"])
def bench_translucent_rows_against_opaque_ones(report: Report, name: str, request: pytest.FixtureRequest) -> None:
    renderer: Renderer = request.getfixturevalue(name)
    opaque, some = Batch(256), Batch(256)
    some.scene.instances.alpha[some.scene.rows(some.views.lane)[:, 1:6]] = 0.5
    ratio = report.ratio(lambda: some.draw(renderer), lambda: opaque.draw(renderer))
    report.row(f"{name}, 256 views with 5 of 21 boxes translucent, against none", f"{ratio:.2f} ×")


_EVERYTHING = output_bits(DEFAULT_OUTPUT_NAMES)


@pytest.mark.parametrize("name", ["cpu", "gl"])
@pytest.mark.parametrize(
    ("what", "settings"),
    [
        ("64² rgb, plain colours", {}),
        ("64² rgb, textures", {"textured": True}),
        ("64² rgb, textures and fog", {"textured": True, "fog": True}),
        ("64² rgb, textures, 4 samples", {"textured": True, "samples": 4}),
        ("64² all four outputs", {"outputs": _EVERYTHING}),
        ("64² depth alone", {"outputs": DEPTH}),
        ("64² normals alone", {"outputs": NORMALS}),
        ("160×120 rgb, textures", {"textured": True, "width": 160, "height": 120}),
    ],
)
def bench_views_per_second(
    report: Report, name: str, what: str, settings: dict[str, object], request: pytest.FixtureRequest
) -> None:
    renderer: Renderer = request.getfixturevalue(name)
    batch = Batch(512, **settings)
    seconds = report.seconds(lambda: batch.draw(renderer), rounds=5)
    report.row(f"{name}, 512 views of 21 boxes, {what}", f"{512 / seconds:,.0f} views/s")
