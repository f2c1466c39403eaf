"""What a renderer is to everyone who draws."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from worldloom.kernels.compiling import announce_compiling
from worldloom.kernels.tables import I64, OUTPUTS, U8, ViewTable
from worldloom.render.arena import lay_out, make_arena
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.render.views import make_views, output_bits

Mark: TypeAlias = Callable[[str], None]
"""Is told the name of each stage of a draw that a renderer can tell apart, as it ends: `cull` (choosing and packing
what may be seen), `draw`, `readback` (pixels on their way from the card) or `unpack` (pixels into the arena). What
comes after the last of them is `draw`, too."""


def unmarked(stage: str) -> None:
    """For whoever does not ask how long it took."""


class Renderer(Protocol):
    """Draws views of a scene. Whoever makes one uses it from that same thread, and closes it there."""

    name: str
    """What draws: `gl` or `cpu`."""

    @property
    def device(self) -> str:
        """What it draws on, in words for people."""

    def draw(self, scene: Scene, views: ViewTable, arena: U8, offsets: I64, mark: Mark = unmarked) -> None:
        """Paint every output that the views ask for into the arena, each at its offset, and touch no other byte.

        `offsets` [V, 4] are bytes of the arena, as `worldloom.render.arena.lay_out` makes them. Tables that do not fit
        together raise ValueError before anything is painted.
        """

    def close(self) -> None:
        """Give everything back. Closing twice does nothing."""


def compile_kernels(renderer: Renderer) -> None:
    """Draw one pixel, which compiles or loads every kernel the renderer needs, and tell people if they have to wait."""
    scene = Scene(AssetLibrary(texture_size=8))
    lane = scene.add(1, 1)
    scene.lanes.lamp_count[lane] = 1
    views = make_views(lane, width=1, height=1, outputs=output_bits(OUTPUTS))
    with announce_compiling():
        offsets, size_bytes = lay_out(views)
        renderer.draw(scene, views, make_arena(size_bytes), offsets)
