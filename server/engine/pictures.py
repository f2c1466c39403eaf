"""Frames that a family supplies as pictures, where others are drawn: written to the same addresses."""

from typing import NamedTuple

import numpy as np

from worldloom.kernels.outputs import GRAY_COLUMN, RGB_COLUMN
from worldloom.kernels.tables import I64, U8
from worldloom.kernels.wire import write_rows
from worldloom.render.arena import PROCESS_MEMORY
from worldloom.server.engine.timing import Counters
from worldloom.server.engine.world import Agent
from worldloom.worlds.family import Family
from worldloom.worlds.pool import Pool


def is_drawn(family: Family, camera: str) -> bool:
    """Return whether the renderer draws the frames of a camera."""
    return all(one.is_drawn for one in family.cameras if one.name == camera)


class PictureFrames(NamedTuple):
    """Frames of a camera that is not drawn, in some lanes of a world's pool."""

    agent: Agent
    lanes: I64
    camera: str
    outputs: int
    """Bits of the outputs."""
    offsets: I64
    """Addresses of the frames, [lanes, outputs]; -1 for those that are not asked for."""

    def write(self) -> None:
        """Have the family make the pictures, and write the frames."""
        join, pool = self.agent.specs.join_settings, self.agent.world.pool
        size = join.width, join.height
        write_pictures(pool, self.lanes, self.camera, self.agent.index, *size, self.outputs, self.offsets)

    def add_to(self, counters: Counters) -> None:
        """Count the frames, once they are part of a reply."""
        counters.count_frames(self.camera, self.outputs, len(self.lanes))


def write_pictures(
    pool: Pool, lanes: I64, camera: str, agent: int, width: int, height: int, outputs: int, offsets: I64
) -> None:
    """Have a family make pictures of these lanes, and write them as frames to their addresses, [lanes, outputs]."""
    pictures = pool.family.picture(pool.state, lanes, camera, agent, width, height)
    expected = (len(lanes), height, width, 3)
    if pictures.dtype != np.uint8 or pictures.shape != expected:
        raise ValueError(
            f"pictures of camera {camera!r} came as {pictures.dtype} {list(pictures.shape)}: expected uint8 "
            f"{list(expected)}"
        )
    for column, convert in ((RGB_COLUMN, np.ascontiguousarray), (GRAY_COLUMN, _to_gray)):
        if outputs >> column & 1:
            starts = np.ascontiguousarray(offsets[:, column])
            write_rows(convert(pictures).reshape(len(lanes), -1), starts, PROCESS_MEMORY)


def _to_gray(pictures: U8) -> U8:
    """Return the brightness of pictures, [..., 3], as the renderer computes it (docs/rendering.md)."""
    red, green, blue = np.moveaxis(pictures.astype(np.uint16), -1, 0)  # the sum below is at most 65408
    return np.asarray((77 * red + 150 * green + 29 * blue + 128) >> 8, np.uint8)
