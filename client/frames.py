"""Frames as learners want them: with a channel axis, first or last."""

from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium import spaces

Channels: TypeAlias = Literal["last", "first"]
"""The axis of channels in an array of frames: [lanes, height, width, channels] or [lanes, channels, height, width]."""


def arrange_channels(frames: np.ndarray, channels: Channels | None) -> np.ndarray:
    """Return a view of frames [lanes, height, width] or [lanes, height, width, 3] with the channels where asked.

    Frames without a channel axis get one of length 1. None leaves them as they are.
    """
    if channels is None:
        return frames
    with_axis = frames[..., None] if frames.ndim == 3 else frames
    return with_axis if channels == "last" else with_axis.transpose(0, 3, 1, 2)


def arrange_space(box: Any, channels: Channels | None) -> "spaces.Box[Any]":
    """Return the space of one lane's frames, arranged."""
    low, high = (arrange_channels(bound[None], channels)[0] for bound in (box.low, box.high))
    return spaces.Box(low, high, dtype=box.dtype)
