"""Frames as learners want them: with an axis of channels, first or last, and the frames of several steps stacked."""

import math
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


def arrange_space(box: Any, channels: Channels | None, stack: int = 1) -> "spaces.Box[Any]":
    """Return the space of one lane's frames, arranged and stacked."""
    low, high = (_repeat(arrange_channels(bound[None], channels), channels, stack)[0] for bound in (box.low, box.high))
    return spaces.Box(low, high, dtype=box.dtype)


class FrameStack:
    """The last frames of each lane's episode along the axis of channels, oldest first.

    At the beginning of an episode all of them are its first frame. Frames are given as the server sends them. The
    arrays returned are the caller's: the stack keeps frames of its own.
    """

    def __init__(self, size: int, channels: Channels) -> None:
        self._size = size
        self._channels = channels
        self._stacked: np.ndarray = np.zeros(0)

    def begin(self, frames: np.ndarray, lanes: np.ndarray | None = None) -> np.ndarray:
        """Begin episodes in the lanes of a mask, or in all; leave the others as they are. `frames` are of all lanes."""
        if lanes is None:
            self._stacked = np.ascontiguousarray(self._repeat(frames))  # of transposed frames it would not be
        else:
            self._stacked[lanes] = self._repeat(frames[lanes])
        return self._stacked.copy()

    def push(self, frames: np.ndarray, is_first: np.ndarray, is_held: np.ndarray | None) -> np.ndarray:
        """Add the frames of a step, where lanes of a mask began an episode, and those of another were left as is."""
        held = None if is_held is None or not is_held.any() else self._stacked[is_held]
        _shift(self._stacked, frames, self._channels)
        if held is not None:
            self._stacked[is_held] = held
        if is_first.any():
            self._stacked[is_first] = self._repeat(frames[is_first])
        return self._stacked.copy()

    def stack_final(self, frames: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Return the stacks that these lanes, by index, end their episodes with; call it before `push`."""
        stacked: np.ndarray = self._stacked[lanes]
        _shift(stacked, frames, self._channels)
        return stacked

    def _repeat(self, frames: np.ndarray) -> np.ndarray:
        return _repeat(arrange_channels(frames, self._channels), self._channels, self._size)


def tile_frames(frames_nhwc: np.ndarray) -> np.ndarray:
    """Arrange frames in rows, as close to a square as possible; the rest is black."""
    count, height, width, channels = frames_nhwc.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    padded = np.zeros((rows * columns, height, width, channels), frames_nhwc.dtype)
    padded[:count] = frames_nhwc
    by_rows = padded.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    return by_rows.reshape(rows * height, columns * width, channels)


def _repeat(frames: np.ndarray, channels: Channels | None, count: int) -> np.ndarray:
    return frames if count == 1 else np.concatenate([frames] * count, axis=1 if channels == "first" else -1)


def _shift(stacked: np.ndarray, frames: np.ndarray, channels: Channels) -> None:
    """Drop the oldest frames of contiguous stacks, and add the newest.

    Moving the whole memory by one frame's channels puts all older ones where they belong, and other numbers where the
    newest go. NumPy would copy a few bytes of each pixel at a time with the channels last, five times slower, and
    make a copy first with the channels first.
    """
    axis = 1 if channels == "first" else 3
    by_channel = np.moveaxis(stacked, axis, 0)
    newest = np.moveaxis(arrange_channels(frames, channels), axis, 0)
    moved = len(newest) * math.prod(stacked.shape[axis + 1 :])
    flat = stacked.reshape(-1)
    flat[:-moved] = flat[moved:]
    for channel in range(len(newest)):  # faster than all at once
        by_channel[channel - len(newest)] = newest[channel]
