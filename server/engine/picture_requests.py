"""Requests for pictures, by which viewers and the engine talk about views of lanes."""

import time
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from worldloom.kernels.outputs import OUTPUT_NAMES, OUTPUTS
from worldloom.kernels.tables import U8
from worldloom.server.engine.followed import FollowedLane, FollowedSteps

_ID_DIGITS = 12
_REMEMBERED_VIEWS = 4096
"""Views of which a viewer's `RecentViews` keeps the order."""


class ViewState(IntEnum):
    """State of a watched view."""

    NOT_BEGUN = 0
    """No episode has begun."""
    RUNNING = 1
    ENDED = 2
    NOT_DRAWABLE = 3
    """Its family or the renderer failed, or there is no such camera."""
    GONE = 4
    """There is no such world, lane or agent."""
    POSTPONED = 5
    """There was no time for it in this picture."""


def world_id(name: str) -> str:
    """Return a short form of a world's name, by which viewers call it. It does not suffice to join the world."""
    family, _, digits = name.rpartition("-")
    return f"{family}-{digits[:_ID_DIGITS]}"


class WatchedView(NamedTuple):
    """A view that a viewer asks for."""

    world: str
    """Id of the world."""
    lane: int
    agent: int = 0
    camera: str = ""
    """Name of a camera; the family's first if empty."""
    output: str = "rgb"


class WatchedFrame(NamedTuple):
    """State of a watched view, and its frame."""

    view: WatchedView
    state: ViewState
    episode: int = -1
    step: int = 0
    start: int = -1
    """First byte of its frame in the memory of the request; -1 if it was not drawn."""


class RecentViews:
    """The order in which a viewer has got pictures that families supply, so that all of its views have their turn."""

    def __init__(self) -> None:
        self._ranks: dict[WatchedView, int] = {}
        self._count = 0

    def rank(self, view: WatchedView) -> int:
        """Return a number that is the larger, the later the last picture of this view was made."""
        return self._ranks.get(view, -1)

    def add(self, view: WatchedView) -> None:
        """Note that a picture of this view was made."""
        self._ranks.pop(view, None)
        self._ranks[view] = self._count = self._count + 1
        if len(self._ranks) > _REMEMBERED_VIEWS:
            del self._ranks[next(iter(self._ranks))]


class PictureRequest:
    """Views that somebody watches. `deliver` is called on the engine's thread when `frames` tells what came of them."""

    def __init__(
        self,
        views: Sequence[WatchedView],
        size: int,
        deliver: Callable[["PictureRequest"], None],
        memory: U8 | None = None,
        followed: FollowedLane | None = None,
        recent: RecentViews | None = None,
    ) -> None:
        self.views = views
        self.size = size
        """Width and height of each frame."""
        self.deliver = deliver
        self.memory: U8 = np.empty(0, np.uint8) if memory is None else memory
        """Memory for the frames, replaced by a larger array where it does not suffice."""
        self.followed = followed
        """A lane whose recent steps are delivered with the picture."""
        self.recent = RecentViews() if recent is None else recent
        """Kept by the viewer from one request to the next, and used by the engine's thread only."""
        self.frames: list[WatchedFrame] = []
        self.steps: FollowedSteps | None = None
        """Steps of the followed lane."""
        self.is_late = False
        """It had to wait because pictures had taken their share of the engine's time, or the engine was busy."""
        self.waits_since_s = time.monotonic()

    def frame(self, number: int) -> np.ndarray:
        """Return the frame of a view that was drawn, [size, size] or [size, size, 3]."""
        output = OUTPUTS[OUTPUT_NAMES.index(self.frames[number].view.output)]
        return self.frame_bytes(number).view(output.dtype).reshape(output.frame_shape(self.size, self.size))

    def frame_bytes(self, number: int) -> U8:
        """Return the bytes of the frame of a view that was drawn; those between frames in the memory mean nothing."""
        found = self.frames[number]
        output = OUTPUTS[OUTPUT_NAMES.index(found.view.output)]
        return self.memory[found.start : found.start + output.pixel_bytes * self.size**2]

    def drop(self, numbers: Iterable[int], state: ViewState) -> None:
        """Set the state of views that are not drawn."""
        for number in numbers:
            self.frames[number] = self.frames[number]._replace(state=state, start=-1)
