"""Frames as learners want them: with an axis of channels, first or last, and the frames of several steps stacked."""

import math
from collections import deque
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium import spaces

Channels: TypeAlias = Literal["last", "first"]
"""The axis of channels in an array of frames: [lanes, height, width, channels] or [lanes, channels, height, width]."""


def arrange_channels(frames: np.ndarray, channels: Channels | None, leading: int = 1) -> np.ndarray:
    """Return a view of frames [lanes, height, width] or [lanes, height, width, 3] with the channels where asked.

    Frames without a channel axis get one of length 1. None leaves them as they are. `leading` is the number of axes in
    front of the height.
    """
    if channels is None:
        return frames
    with_axis = frames[..., None] if frames.ndim == leading + 2 else frames
    return with_axis if channels == "last" else np.moveaxis(with_axis, -1, -3)


def restore_channels(frames: np.ndarray, channels: Channels | None, ndim: int) -> np.ndarray:
    """Return a view of frames that `arrange_channels` would turn into these; it has `ndim` dimensions."""
    if channels is None:
        return frames
    channels_last = frames if channels == "last" else frames.transpose(0, 2, 3, 1)
    return channels_last if channels_last.ndim == ndim else channels_last[..., 0]


def arrange_space(box: Any, channels: Channels | None, stack: int = 1) -> "spaces.Box[Any]":
    """Return the space of one lane's frames, arranged and stacked."""
    low, high = (_repeat(arrange_channels(bound[None], channels), channels, stack)[0] for bound in (box.low, box.high))
    return spaces.Box(low, high, dtype=box.dtype)


class FrameStack:
    """The last frames of each lane's episode along the axis of channels, oldest first.

    At the beginning of an episode all of them are its first frame. Frames are given as the server sends them. The
    arrays returned are the caller's: the stack keeps frames of its own.

    After an interrupt, a step may be added a second time: with the same `number` as the last one, `stack_final` and
    `push` return the same again.
    """

    def __init__(self, size: int, channels: Channels) -> None:
        self._size = size
        self._channels = channels
        self._stacked: np.ndarray = np.zeros(0)
        self._last: deque[tuple[None, int | None]] = deque([(None, None)], maxlen=1)
        """The number of the step that older frames were last moved for, with the result of that."""
        self._held: np.ndarray | None = None
        """The stacks of lanes that this step leaves as they are."""
        self._final: tuple[int | None, np.ndarray] = (None, self._stacked)
        """The number of the last step that ended episodes, and the stacks that these ended with."""

    def begin(self, frames: np.ndarray, lanes: np.ndarray | None = None) -> np.ndarray:
        """Begin episodes in the lanes of a mask, or in all; leave the others as they are. `frames` are of all lanes."""
        if lanes is None or not self._stacked.size:
            self._stacked = np.ascontiguousarray(self._repeat(frames))  # of transposed frames it would not be
        else:
            self._stacked[lanes] = self._repeat(frames[lanes])
        return self._stacked.copy()

    def push(
        self, frames: np.ndarray, is_first: np.ndarray, is_held: np.ndarray | None, number: int | None = None
    ) -> np.ndarray:
        """Add the frames of a step, where lanes of a mask began an episode, and those of another were left as is."""
        if not self._stacked.size:  # the first step of a world, which begins an episode in every lane
            self._last.append((None, number))
            return self.begin(frames)
        if number is None or number != self._last[0][1]:  # or else the rest is done again
            self._held = None if is_held is None or not is_held.any() else self._stacked[is_held]
            older, newer = _find_older(self._stacked, self._size, self._channels)
            # The call of C that moves frames keeps the number, too: an interrupt comes before both or after both.
            self._last.extend(zip(map(older.__setitem__, (...,), (newer,)), (number,), strict=False))
        _add_newest(self._stacked, frames, self._channels)
        if self._held is not None:
            self._stacked[is_held] = self._held
        if is_first.any():
            self._stacked[is_first] = self._repeat(frames[is_first])
        return self._stacked.copy()

    def stack_final(self, frames: np.ndarray, lanes: np.ndarray, number: int | None = None) -> np.ndarray:
        """Return the stacks that these lanes, by index, end their episodes with; call it before `push`."""
        if number is None or number != self._final[0]:
            stacked: np.ndarray = self._stacked[lanes]
            older, newer = _find_older(stacked, self._size, self._channels)
            older[...] = newer
            _add_newest(stacked, frames, self._channels)
            self._final = number, stacked
        return self._final[1]

    def take_over(self, lanes: np.ndarray, other: "FrameStack", other_lanes: np.ndarray) -> None:
        """Have the stacks of lanes of another FrameStack in these lanes; both are given by index."""
        self._stacked[lanes] = other._stacked[other_lanes]

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


def _find_older(stacked: np.ndarray, size: int, channels: Channels) -> tuple[np.ndarray, np.ndarray]:
    """Return views of contiguous stacks: copied to the first, the second drops the oldest frames.

    Moving the whole memory by one frame's channels puts all older ones where they belong, and other numbers where the
    newest go. NumPy would copy a few bytes of each pixel at a time with the channels last, five times slower, and
    make a copy first with the channels first.
    """
    axis = 1 if channels == "first" else 3
    moved = math.prod(stacked.shape[axis:]) // size
    flat = stacked.reshape(-1)
    return flat[:-moved], flat[moved:]


def _add_newest(stacked: np.ndarray, frames: np.ndarray, channels: Channels) -> None:
    axis = 1 if channels == "first" else 3
    by_channel = np.moveaxis(stacked, axis, 0)
    newest = np.moveaxis(arrange_channels(frames, channels), axis, 0)
    for channel in range(len(newest)):  # faster than all at once
        by_channel[channel - len(newest)] = newest[channel]
