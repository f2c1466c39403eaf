"""What a renderer is to everyone who draws."""

from typing import Protocol

from worldloom.kernels.tables import I64, U8, ViewTable
from worldloom.render.scene import Scene


class Renderer(Protocol):
    """Draws views of a scene. Whoever makes one uses it from that same thread, and closes it there."""

    name: str
    """What draws: `gl` or `cpu`."""

    @property
    def device(self) -> str:
        """What it draws on, in words for people."""

    def draw(self, scene: Scene, views: ViewTable, arena: U8, offsets: I64) -> None:
        """Paint every output that the views ask for into the arena, each at its offset, and touch no other byte.

        `offsets` [V, 4] are bytes of the arena, as `worldloom.render.arena.lay_out` makes them. Tables that do not fit
        together raise ValueError before anything is painted.
        """

    def close(self) -> None:
        """Give everything back. Closing twice does nothing."""
