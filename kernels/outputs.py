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
    """Largest value, None if it has no bound; the smallest is 0. Not used where the values are labels."""
    has_labels: bool
    """True if the values are indices of the family's labels."""
    description: str

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
)
"""All outputs, in the order of the columns of an offsets table."""

OUTPUT_COUNT = len(OUTPUTS)
OUTPUT_NAMES = tuple(output.name for output in OUTPUTS)
PIXEL_BYTES = tuple(output.pixel_bytes for output in OUTPUTS)

RGB_COLUMN, GRAY_COLUMN, DEPTH_COLUMN, SEGMENTATION_COLUMN = range(OUTPUT_COUNT)
"""Columns of an offsets table."""
RGB, GRAY, DEPTH, SEGMENTATION = (1 << column for column in range(OUTPUT_COUNT))
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
