"""The frame arena: one flat buffer of bytes that renderers paint into, and where in it each picture lies.

An offsets table [V, 4] gives the byte where each output of each view begins, -1 where it was not asked for. Offsets
need no alignment: a depth picture may begin at any byte, as it does inside a serialised reply.
"""

import numpy as np

from worldloom.kernels.frames import place_frames
from worldloom.kernels.tables import I64, OUTPUT_BYTES, OUTPUTS, U8, ViewTable


def lay_out(views: ViewTable, start: int = 0) -> tuple[I64, int]:
    """Offsets that put output after output, each as one [V, H, W, ...] block if sizes agree; and the byte after all."""
    offsets = np.empty((len(views.lane), len(OUTPUTS)), np.int64)
    return offsets, place_frames(views.width, views.height, views.outputs, start, offsets)


def make_arena(size_bytes: int) -> U8:
    """A zeroed buffer to paint into."""
    return np.zeros(size_bytes, np.uint8)


def picture(arena: U8, views: ViewTable, offsets: I64, view: int, output: str) -> np.ndarray:
    """One painted picture, as an array over the arena: [H, W, 3] for rgb, else [H, W]."""
    column = OUTPUTS.index(output)
    start = int(offsets[view, column])
    if start < 0:
        asked = [name for k, name in enumerate(OUTPUTS) if views.outputs[view] >> k & 1]
        raise ValueError(f"view {view} was not asked for {output}, only for {', '.join(asked) or 'nothing'}")
    height, width = int(views.height[view]), int(views.width[view])
    data = arena[start : start + height * width * OUTPUT_BYTES[column]]
    if output == "depth":
        return data.view(np.float32).reshape(height, width)
    return data.reshape((height, width, 3) if output == "rgb" else (height, width))
