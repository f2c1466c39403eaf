"""Pictures of worlds for people who watch them.

A viewer asks for the views on its screen, one request at a time. The next tick that answers steps draws them in the
same batch as what clients asked for; if nothing is stepped for a moment, they are drawn alone. Requests wait while the
engine is busy with work that is divided over ticks, and when pictures have taken more than their share of its time. A
client's replies are the same bytes with viewers and without, and a picture that cannot be drawn fails no step.

Without viewers a tick does nothing for them but look at two empty containers. Used by the engine's thread only.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from worldloom.kernels.outputs import OUTPUT_COUNT, OUTPUT_NAMES, OUTPUTS
from worldloom.kernels.tables import I64, U8, ViewTable
from worldloom.render.arena import address_of
from worldloom.render.scene import Scene
from worldloom.server.engine.directory import WorldDirectory
from worldloom.server.engine.followed import FollowedLane, FollowedStep
from worldloom.server.engine.pictures import is_drawn, write_pictures
from worldloom.server.engine.world import FAILURES, Step, World
from worldloom.server.logs import Log
from worldloom.worlds.lanes import RUNNING

log = Log("watching")

NOT_BEGUN, IS_RUNNING, HAS_ENDED, NOT_DRAWABLE, GONE, POSTPONED = range(6)
"""States of a watched view: no episode has begun; one is running; it has ended; its family or the renderer failed, or
has no such camera; there is no such world, lane or agent; there was no time for it in this picture."""
BATCH_PATIENCE_S = 0.1
"""Time that a request waits for a tick that answers steps, so that both are drawn in one batch."""
_BUSY_PATIENCE_S = 1.0
"""Time that a request waits at most for work that is divided over ticks, such as adding many lanes."""
_FAILURE_PAUSE_S = 1.0
"""Time without pictures after one that made a draw fail, which then was repeated without it."""
_SUPPLIED_PICTURES_S = 0.01
"""Time for the pictures of one request that families supply; one is made at least."""
_ALIGNMENT = 64
_ID_DIGITS = 12


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
    state: int
    episode: int = -1
    step: int = 0
    start: int = -1
    """First byte of its frame in the memory of the request; -1 if it was not drawn."""


class PictureRequest:
    """Views that somebody watches. `deliver` is called on the engine's thread when `frames` tells what came of them."""

    def __init__(
        self,
        views: Sequence[WatchedView],
        size: int,
        deliver: Callable[["PictureRequest"], None],
        memory: U8 | None = None,
        followed: FollowedLane | None = None,
    ) -> None:
        self.views = views
        self.size = size
        """Width and height of each frame."""
        self.deliver = deliver
        self.memory: U8 = np.empty(0, np.uint8) if memory is None else memory
        """Memory for the frames, replaced by a larger array where it does not suffice."""
        self.followed = followed
        """A lane whose recent steps are delivered with the picture."""
        self.frames: list[WatchedFrame] = []
        self.steps: list[FollowedStep] = []
        self.dropped = 0
        self.is_late = False
        """It had to wait because pictures had taken their share of the engine's time, or the engine was busy."""
        self.waits_since_s = time.monotonic()

    def frame(self, number: int) -> np.ndarray:
        """Return the frame of a view, [size, size] or [size, size, 3]."""
        found = self.frames[number]
        output = OUTPUTS[OUTPUT_NAMES.index(found.view.output)]
        data = self.memory[found.start : found.start + output.pixel_bytes * self.size**2]
        return data.view(output.dtype).reshape(output.frame_shape(self.size, self.size))


class Watching:
    """The picture requests that wait, and the lanes that are followed."""

    def __init__(self, directory: WorldDirectory) -> None:
        self._directory = directory
        self.requests: deque[PictureRequest] = deque()
        self.followed: dict[World, list[FollowedLane]] = {}
        self.share = 0.05
        """Part of the engine's time that pictures may take while worlds are stepped."""
        self.pictures = 0
        """Pictures since the start."""
        self.tiles = 0
        """Frames in these pictures."""
        self.late = 0
        """Pictures that came later than asked for: the engine was busy, or their share of its time was spent."""
        self._free_at_s = 0.0
        self._worlds: dict[str, World] = {}
        self._known_changes = -1

    def find(self, name: str) -> World | None:
        """Return the world with this id."""
        if self._known_changes != self._directory.changes:
            self._known_changes = self._directory.changes
            self._worlds = {world_id(world.name): world for world in self._directory.worlds.values()}
        return self._worlds.get(name)

    def follow(self, lane: FollowedLane) -> None:
        """Record the steps of a lane from now on; nothing happens if there is no such world."""
        world = self.find(lane.world)
        if world is not None:
            self.followed.setdefault(world, []).append(lane)

    def unfollow(self, lane: FollowedLane) -> None:
        """Record the steps of a lane no more."""
        for world, lanes in list(self.followed.items()):
            if lane in lanes:
                lanes.remove(lane)
            if not lanes:
                del self.followed[world]

    def record(self, steps: Iterable[Step]) -> None:
        """Record these steps of the lanes that are followed."""
        for step in steps:
            world = step.agent.world
            for lane in self.followed.get(world, ()):
                if step.agent.index == lane.agent or lane.agent not in world.agents:
                    lane.record(step)

    @property
    def patience_s(self) -> float:
        """Seconds until the oldest request that waits is drawn even though nothing is stepped."""
        return max(0.0, self.requests[0].waits_since_s + BATCH_PATIENCE_S - time.monotonic())

    def take(self, has_steps: bool, is_busy: bool) -> "WatchedBatch | None":
        """Return the requests to draw in this tick, if it is time for some."""
        now_s = time.monotonic()
        if is_busy and now_s < self.requests[0].waits_since_s + _BUSY_PATIENCE_S:
            is_waiting = True
        else:
            is_waiting = has_steps and now_s < self._free_at_s
        if is_waiting:
            for request in self.requests:
                self.late += not request.is_late
                request.is_late = True
            return None
        if not has_steps and self.patience_s > 0:
            return None
        batch = WatchedBatch(self, self.requests)
        self.requests = deque()
        return batch

    def charge(self, seconds: float) -> None:
        """Count time that pictures took: as long as it is more than their share, others wait."""
        self._free_at_s = time.monotonic() + seconds * (1 / self.share - 1)

    def pause(self) -> None:
        """Draw no pictures beside steps for a while, after one that cannot be drawn."""
        self._free_at_s = time.monotonic() + _FAILURE_PAUSE_S


class _Group(NamedTuple):
    """Views of one request that are placed by one call of their family."""

    world: World
    camera: str
    agent: int
    output: int
    samples: int
    shadows: bool
    is_drawn: bool


class WatchedBatch:
    """The views of all requests that are drawn in one tick."""

    def __init__(self, watching: Watching, requests: Iterable[PictureRequest]) -> None:
        self._watching = watching
        self._requests = list(requests)
        self._tables: list[ViewTable] = []
        self._offsets: list[I64] = []
        self._cost_s = 0.0
        self.views: ViewTable | None = None
        """The views of all requests, or None if there is nothing to draw."""
        self.offsets: I64 = np.empty((0, OUTPUT_COUNT), np.int64)
        """Addresses of their frames."""

    def write_scene(self, scene: Scene) -> None:
        """Have the families write instances and place cameras; what they fail in is left out."""
        began_s = time.perf_counter()
        for request in self._requests:
            self._place(request, scene)
        if self._tables:
            self.views = ViewTable(*(np.concatenate(columns) for columns in zip(*self._tables, strict=True)))
            self.offsets = np.concatenate(self._offsets)
        self._cost_s += time.perf_counter() - began_s

    def add_cost(self, seconds: float) -> None:
        """Count the part of a draw's time that its views took."""
        self._cost_s += seconds

    def fail(self, error: BaseException) -> None:
        """Give up its views, with which a draw has failed."""
        log.warning("pictures for viewers cannot be drawn", reason=error)
        self.views = None
        for request in self._requests:
            request.frames = [
                frame._replace(state=NOT_DRAWABLE, start=-1) if frame.start >= 0 else frame for frame in request.frames
            ]
        self._watching.pause()

    def finish(self) -> None:
        """Deliver all requests."""
        watching = self._watching
        if self._cost_s:
            watching.charge(self._cost_s)
        for request in self._requests:
            watching.pictures += 1
            watching.tiles += sum(frame.start >= 0 for frame in request.frames)
            if request.followed is not None:
                request.steps, request.dropped = request.followed.take()
            request.deliver(request)

    def _place(self, request: PictureRequest, scene: Scene) -> None:
        """Find the lanes of a request's views, lay out their frames, and write what they show."""
        frames: list[WatchedFrame] = []
        groups: dict[_Group, list[int]] = {}
        size_bytes = 0
        for view in request.views:
            frame, group = self._find(view)
            if group is not None:
                groups.setdefault(group, []).append(len(frames))
                frame = frame._replace(start=size_bytes)
                frame_bytes = OUTPUTS[group.output].pixel_bytes * request.size**2
                size_bytes += -(-frame_bytes // _ALIGNMENT) * _ALIGNMENT
            frames.append(frame)
        if len(request.memory) < size_bytes:
            request.memory = np.empty(size_bytes, np.uint8)
        request.frames = frames
        deadline_s = time.perf_counter() + _SUPPLIED_PICTURES_S
        for group, numbers in groups.items():
            try:
                written = self._write_group(request, group, numbers, scene, deadline_s)
            except FAILURES as error:  # families may come from other packages
                log.warning("a view for viewers failed", world=group.world.name, camera=group.camera, reason=error)
                self._drop(frames, numbers, NOT_DRAWABLE)
            else:
                self._drop(frames, numbers[written:], POSTPONED)

    @staticmethod
    def _drop(frames: list[WatchedFrame], numbers: Sequence[int], state: int) -> None:
        for number in numbers:
            frames[number] = frames[number]._replace(state=state, start=-1)

    def _find(self, view: WatchedView) -> tuple[WatchedFrame, _Group | None]:
        """Return the state of a view, and how it is drawn, if it can be."""
        world = self._watching.find(view.world)
        if world is None or not 0 <= view.lane < len(world.lanes) or not 0 <= view.agent < world.pool.family.agents:
            return WatchedFrame(view, GONE), None
        pool, lane = world.pool, int(world.lanes[view.lane])
        family, agent = pool.family, world.agents.get(view.agent)
        camera = next((one for one in family.cameras if view.camera in ("", one.name)), None)
        if camera is None or view.output not in camera.outputs:
            return WatchedFrame(view, NOT_DRAWABLE), None
        if pool.is_untouched(lane):
            return WatchedFrame(view, NOT_BEGUN), None
        state = IS_RUNNING if pool.status[lane] == RUNNING else HAS_ENDED
        join = None if agent is None else agent.specs.join_settings
        samples, shadows = (1, False) if join is None else (join.samples, join.shadows)
        output = OUTPUT_NAMES.index(view.output)
        frame = WatchedFrame(view, state, int(pool.episode[lane]), int(pool.steps[lane]))
        drawn = is_drawn(family, camera.name)
        return frame, _Group(world, camera.name, view.agent, output, samples, shadows, drawn)

    def _write_group(
        self, request: PictureRequest, group: _Group, numbers: Sequence[int], scene: Scene, deadline_s: float
    ) -> int:
        """Write what the lanes of a group show; return how many of its views there was time for."""
        world, size = group.world, request.size
        lanes = world.lanes[[request.frames[number].view.lane for number in numbers]]
        offsets = np.full((len(lanes), OUTPUT_COUNT), -1, np.int64)
        base = address_of(request.memory)
        offsets[:, group.output] = [base + request.frames[number].start for number in numbers]
        if not group.is_drawn:
            for done in range(len(lanes)):
                if done and time.perf_counter() > deadline_s:
                    return done
                rows = slice(done, done + 1)
                write_pictures(
                    world.pool, lanes[rows], group.camera, group.agent, size, size, 1 << group.output, offsets[rows]
                )
            return len(lanes)
        views = world.pool.views(
            lanes,
            group.camera,
            group.agent,
            width=size,
            height=size,
            outputs=1 << group.output,
            samples=group.samples,
            shadows=group.shadows,
        )
        agent = world.agents.get(group.agent)
        if agent is not None and group.camera in agent.half_heights:
            views.half_height[:] = agent.half_heights[group.camera]
        if world.lighting:
            world.write_lighting(scene)
        self._tables.append(views)
        self._offsets.append(offsets)
        return len(lanes)
