"""The outputs of a camera: one table, from which everything that lists outputs is derived.

A new output is a row here, and its constants below; docs/architecture.md ("Adding an output") lists the other files.
Kernels need plain integers, so the bits and columns are module constants rather than attributes of the rows.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import numpy as np

Side = TypeVar("Side", int, str)


class Output(NamedTuple):
    """One kind of frame that a camera can be asked for."""

    name: str
    dtype: str
    channels: int
    """Numbers of a pixel. With one, a frame has no dimension of channels."""
    maximum: int | None
    """Largest value, None if it has no bound. Not used where the values are labels."""
    has_labels: bool
    """True if the values are indices of the family's labels."""
    description: str
    minimum: int | None = 0
    """Smallest value, None if it has no bound."""
    by_name_only: bool = False
    """True if an agent is offered it only where its join setting `observations` names it."""
    needs_step: bool = False
    """True if it tells what a step has changed: states that no step has led to have no such frames."""

    @property
    def pixel_bytes(self) -> int:
        """Bytes of a pixel."""
        return np.dtype(self.dtype).itemsize * self.channels

    def frame_shape(self, height: Side, width: Side) -> tuple[Side | int, ...]:
        """Return the shape of a frame, in pixels or in words."""
        return (height, width) if self.channels == 1 else (height, width, self.channels)

    def largest_value(self, labels: int) -> int | None:
        """Return the largest value in frames of a family with that many labels, None if it has no bound."""
        return labels - 1 if self.has_labels else self.maximum


OUTPUTS = (
    Output("rgb", "uint8", 3, 255, False, "Colours, row 0 at the top."),
    Output("gray", "uint8", 1, 255, False, "Brightness."),
    Output("depth", "float32", 1, None, False, "Metres along the view axis, the far plane where nothing is."),
    Output("segmentation", "uint8", 1, None, True, "Labels of what is seen."),
    Output(
        "normals",
        "float32",
        3,
        1,
        False,
        "Unit normals in camera space (x right, y up, z towards the camera), 0 where nothing is. Offered by name only.",
        minimum=-1,
        by_name_only=True,
    ),
    Output(
        "flow",
        "float32",
        2,
        None,
        False,
        "Pixels, to the right and down, by which what is seen has moved on the screen since the last step, 0 in the "
        "first frame of an episode. Offered by name only.",
        minimum=None,
        by_name_only=True,
        needs_step=True,
    ),
)
"""All outputs, in the order of the columns of an offsets table."""

OUTPUT_COUNT = len(OUTPUTS)
OUTPUT_NAMES = tuple(output.name for output in OUTPUTS)
DEFAULT_OUTPUT_NAMES = tuple(output.name for output in OUTPUTS if not output.by_name_only)
"""Outputs that every agent is offered."""
STATE_OUTPUT_NAMES = tuple(output.name for output in OUTPUTS if not output.needs_step)
"""Outputs that a state alone determines."""
PIXEL_BYTES = tuple(output.pixel_bytes for output in OUTPUTS)

RGB_COLUMN, GRAY_COLUMN, DEPTH_COLUMN, SEGMENTATION_COLUMN, NORMALS_COLUMN, FLOW_COLUMN = range(OUTPUT_COUNT)
"""Columns of an offsets table."""
RGB, GRAY, DEPTH, SEGMENTATION, NORMALS, FLOW = (1 << column for column in range(OUTPUT_COUNT))
"""Bits of `ViewTable.outputs`: bit k asks for `OUTPUTS[k]`."""


def output_bits(names: Iterable[str]) -> int:
    """Return the bit mask that asks for these outputs."""
    bits = 0
    for name in names:
        if name not in OUTPUT_NAMES:
            raise ValueError(f"unknown output {name!r}: expected some of {', '.join(OUTPUT_NAMES)}")
        bits |= 1 << OUTPUT_NAMES.index(name)
    return bits


def outputs_of(bits: int) -> list[Output]:
    """Return the outputs that a bit mask asks for."""
    return [output for column, output in enumerate(OUTPUTS) if bits >> column & 1]
