"""The interface of renderers."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from worldloom.kernels.compiling import announce_compiling
from worldloom.kernels.outputs import OUTPUT_NAMES, output_bits
from worldloom.kernels.tables import I64, U8, PreviousTable, ViewTable
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.render.views import make_views

EndStage: TypeAlias = Callable[[str], None]
"""Called at the end of each stage of a draw that a renderer can tell apart, with its name: `cull` (finding and packing
visible instances), `draw`, `readback` (copying pixels from the card) or `unpack` (writing pixels into the arena). The
time after the last call is `draw`, too."""


def ignore_stage(stage: str) -> None:
    """Do nothing: the default where stages are not timed."""


class Renderer(Protocol):
    """A renderer of views of a scene. The thread that creates it is the one that uses and closes it."""

    name: str
    """`gl` or `cpu`."""

    @property
    def device(self) -> str:
        """Description of the device that draws."""

    @property
    def max_side_pixels(self) -> int:
        """Largest width and height of a frame."""

    def draw(
        self,
        scene: Scene,
        views: ViewTable,
        arena: U8,
        offsets: I64,
        end_stage: EndStage = ignore_stage,
        previous: PreviousTable | None = None,
    ) -> None:
        """Write every output that the views ask for to its offset in the arena, and change no other byte.

        `offsets` [V, outputs] are bytes of the arena, as `worldloom.render.arena.lay_out` returns them. Tables that
        are not valid together raise ValueError before anything is drawn. Flow is motion since `previous`, a row for
        each view; without it, it is 0.
        """

    def close(self) -> None:
        """Release all resources. Closing twice does nothing."""


def compile_kernels(renderer: Renderer) -> None:
    """Draw one pixel, which compiles or loads every kernel that the renderer needs, and announce compiling."""
    scene = Scene(AssetLibrary(texture_size=8))
    lane = scene.add(1, 1)
    scene.lanes.lamp_count[lane] = 1
    views = make_views(lane, width=1, height=1, outputs=output_bits(OUTPUT_NAMES))
    with announce_compiling():
        offsets, size_bytes = lay_out(views)
        renderer.draw(scene, views, allocate_arena(size_bytes), offsets)
