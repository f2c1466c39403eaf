"""Pictures of worlds for people who watch them.

A viewer asks for the views on its screen, one request at a time. The next tick that answers steps draws them in the
same batch as what clients asked for; if nothing is stepped for a moment, they are drawn alone. Requests wait while the
engine is busy with work that is divided over ticks, and when pictures have taken more than their share of its time. A
client's replies are the same bytes with viewers and without, and a picture that cannot be drawn fails no step.

Without viewers a tick does nothing for them but look at two empty containers. Used by the engine's thread only.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from worldloom.kernels.outputs import OUTPUT_COUNT, OUTPUT_NAMES, OUTPUTS
from worldloom.kernels.tables import I64, ViewTable
from worldloom.render.arena import address_of
from worldloom.render.scene import Scene
from worldloom.server.engine.directory import WorldDirectory
from worldloom.server.engine.followed import FollowedLane
from worldloom.server.engine.picture_requests import PictureRequest, ViewState, WatchedFrame, WatchedView, world_id
from worldloom.server.engine.pictures import is_drawn, write_pictures
from worldloom.server.engine.world import FAILURES, Step, World
from worldloom.server.logs import Log
from worldloom.worlds.lanes import RUNNING

log = Log("watching")

BATCH_PATIENCE_S = 0.1
"""Time that a request waits for a tick that answers steps, so that both are drawn in one batch."""
_STEPPED_S = 1.0
"""Time after a step in which worlds count as being stepped: pictures have no more than their share of it."""
_BUSY_PATIENCE_S = 1.0
"""Time that a request waits at most for work that is divided over ticks, such as adding many lanes."""
_FAILURE_PAUSE_S = 1.0
"""Time without pictures after one that made a draw fail, which then was repeated without it."""
_SUPPLIED_PICTURES_S = 0.01
"""Time of a tick for pictures that families supply, shared by its requests; each request gets one at least."""
_APART_S = 0.05
"""Time for drawing the views of a batch apart, after they could not be drawn together."""
_ALIGNMENT = 64


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
        self._stepped_at_s = -math.inf
        self._names: dict[str, str] = {}
        """Names of worlds by id. Not the worlds, which nobody may ask for again once they are destroyed."""
        self._known_changes = -1

    def find(self, name: str) -> World | None:
        """Return the world with this id."""
        if self._known_changes != self._directory.changes:
            self._known_changes = self._directory.changes
            self._names = {world_id(full): full for full in self._directory.worlds}
        return self._directory.worlds.get(self._names.get(name, ""))

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
            for lane in list(self.followed.get(world, ())):
                if step.agent.index == lane.agent or lane.agent not in world.agents:
                    try:
                        lane.record(step)
                    except FAILURES as error:  # families may come from other packages
                        log.warning("a lane can be followed no more", world=world.name, reason=error)
                        self.unfollow(lane)

    @property
    def patience_s(self) -> float:
        """Seconds until the oldest request that waits is drawn between steps."""
        return max(0.0, self._draw_between_steps_at_s - time.monotonic())

    @property
    def _draw_between_steps_at_s(self) -> float:
        """Time from which the oldest request is drawn alone: not before its share, while worlds are stepped."""
        alone_at_s = self.requests[0].waits_since_s + BATCH_PATIENCE_S
        return max(alone_at_s, min(self._free_at_s, self._stepped_at_s + _STEPPED_S))

    def take(self, has_steps: bool, is_busy: bool) -> "WatchedBatch | None":
        """Return the requests to draw in this tick, if it is time for some."""
        now_s = time.monotonic()
        if has_steps:
            self._stepped_at_s = now_s
        if is_busy and now_s < self.requests[0].waits_since_s + _BUSY_PATIENCE_S:
            is_late = is_waiting = True
        elif has_steps:
            is_late = is_waiting = now_s < self._free_at_s
        else:
            is_waiting = now_s < self._draw_between_steps_at_s
            is_late = is_waiting and now_s >= self.requests[0].waits_since_s + BATCH_PATIENCE_S
        if is_late:
            for request in self.requests:
                self.late += not request.is_late
                request.is_late = True
        if is_waiting:
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


class _Placed(NamedTuple):
    """Views of a group that the renderer draws."""

    request: PictureRequest
    numbers: Sequence[int]
    """Their numbers in the request."""
    views: ViewTable
    offsets: I64
    """Addresses of their frames."""


class WatchedBatch:
    """The views of all requests that are drawn in one tick."""

    def __init__(self, watching: Watching, requests: Iterable[PictureRequest]) -> None:
        self._watching = watching
        self._requests = list(requests)
        self._placed: list[_Placed] = []
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
        if self._placed:
            self.views, self.offsets = _joined(self._placed)
        self._cost_s += time.perf_counter() - began_s

    def add_cost(self, seconds: float) -> None:
        """Count the part of a draw's time that its views took."""
        self._cost_s += seconds

    def draw_apart(self, draw: Callable[[ViewTable, I64], None]) -> None:
        """Draw its views after a draw with them has failed, and leave out those that cannot be drawn.

        They are halved until what fails is found, for as long as there is time.
        """
        began_s = time.perf_counter()
        waiting = [self._placed] if self._placed else []
        failures: list[BaseException] = []
        while waiting:
            part = waiting.pop()
            if time.perf_counter() > began_s + _APART_S:
                _drop(part, ViewState.POSTPONED)
                continue
            try:
                draw(*_joined(part))
            except FAILURES as error:
                failures.append(error)
                if len(part) > 1:
                    middle = len(part) // 2
                    waiting += [part[middle:], part[:middle]]
                else:
                    _drop(part, ViewState.NOT_DRAWABLE)
        self._cost_s += time.perf_counter() - began_s
        if failures:
            log.warning("pictures for viewers cannot be drawn", reason=failures[-1])
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
                request.steps = request.followed.take()
            request.deliver(request)

    def _place(self, request: PictureRequest, scene: Scene) -> None:
        """Find the lanes of a request's views, lay out their frames, and write what they show."""
        groups: dict[_Group, list[int]] = {}
        size_bytes = 0
        request.frames = []
        for number, view in enumerate(request.views):
            frame, group = self._find(view)
            if group is not None:
                groups.setdefault(group, []).append(number)
                frame = frame._replace(start=size_bytes)
                frame_bytes = OUTPUTS[group.output].pixel_bytes * request.size**2
                size_bytes += -(-frame_bytes // _ALIGNMENT) * _ALIGNMENT
            request.frames.append(frame)
        if len(request.memory) < size_bytes:
            request.memory = np.empty(size_bytes, np.uint8)
        for group, numbers in groups.items():
            if group.is_drawn:
                try:
                    self._placed.append(_write_group(request, group, numbers, scene))
                except FAILURES as error:  # families may come from other packages
                    _warn(group, error)
                    request.drop(numbers, ViewState.NOT_DRAWABLE)
        supplied = [(number, group) for group, numbers in groups.items() if not group.is_drawn for number in numbers]
        if supplied:
            self._write_supplied(request, supplied)

    def _write_supplied(self, request: PictureRequest, supplied: list[tuple[int, _Group]]) -> None:
        """Have families make pictures for as long as there is time, first those that were not made for longest."""
        deadline_s = time.perf_counter() + _SUPPLIED_PICTURES_S / len(self._requests)
        supplied.sort(key=lambda pair: request.recent.rank(request.views[pair[0]]))
        warned: set[_Group] = set()
        for done, (number, group) in enumerate(supplied):
            if done and time.perf_counter() > deadline_s:
                request.drop((late for late, _ in supplied[done:]), ViewState.POSTPONED)
                return
            request.recent.add(request.views[number])
            lanes, offsets = _lanes_and_offsets(request, group, [number])
            bits, size = 1 << group.output, request.size
            try:
                write_pictures(group.world.pool, lanes, group.camera, group.agent, size, size, bits, offsets)
            except FAILURES as error:  # families may come from other packages
                if group not in warned:
                    _warn(group, error)
                    warned.add(group)
                request.drop([number], ViewState.NOT_DRAWABLE)

    def _find(self, view: WatchedView) -> tuple[WatchedFrame, _Group | None]:
        """Return the state of a view, and how it is drawn, if it can be."""
        world = self._watching.find(view.world)
        if world is None or not 0 <= view.lane < len(world.lanes) or not 0 <= view.agent < world.pool.family.agents:
            return WatchedFrame(view, ViewState.GONE), None
        pool, lane = world.pool, int(world.lanes[view.lane])
        family, agent = pool.family, world.agents.get(view.agent)
        camera = next((one for one in family.cameras if view.camera in ("", one.name)), None)
        if camera is None or view.output not in camera.outputs:
            return WatchedFrame(view, ViewState.NOT_DRAWABLE), None
        if pool.is_untouched(lane):
            return WatchedFrame(view, ViewState.NOT_BEGUN), None
        state = ViewState.RUNNING if pool.status[lane] == RUNNING else ViewState.ENDED
        join = None if agent is None else agent.specs.join_settings
        samples, shadows = (1, False) if join is None else (join.samples, join.shadows)
        output = OUTPUT_NAMES.index(view.output)
        frame = WatchedFrame(view, state, int(pool.episode[lane]), int(pool.steps[lane]))
        drawn = is_drawn(family, camera.name)
        return frame, _Group(world, camera.name, view.agent, output, samples, shadows, drawn)


def _write_group(request: PictureRequest, group: _Group, numbers: Sequence[int], scene: Scene) -> _Placed:
    """Write what the lanes of a group show."""
    world, size = group.world, request.size
    lanes, offsets = _lanes_and_offsets(request, group, numbers)
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
    if agent is not None:
        agent.set_field_of_view(views, group.camera)
    if world.lighting:
        world.write_lighting(scene)
    return _Placed(request, numbers, views, offsets)


def _lanes_and_offsets(request: PictureRequest, group: _Group, numbers: Sequence[int]) -> tuple[I64, I64]:
    """Return the lanes of these views in their pool, and the addresses of their frames, [views, outputs]."""
    lanes = group.world.lanes[[request.frames[number].view.lane for number in numbers]]
    offsets = np.full((len(lanes), OUTPUT_COUNT), -1, np.int64)
    base = address_of(request.memory)
    offsets[:, group.output] = [base + request.frames[number].start for number in numbers]
    return lanes, offsets


def _joined(parts: Sequence[_Placed]) -> tuple[ViewTable, I64]:
    """Return the views of all these groups, and the addresses of their frames."""
    views = ViewTable(*(np.concatenate(columns) for columns in zip(*(one.views for one in parts), strict=True)))
    return views, np.concatenate([one.offsets for one in parts])


def _drop(parts: Iterable[_Placed], state: ViewState) -> None:
    for one in parts:
        one.request.drop(one.numbers, state)


def _warn(group: _Group, error: BaseException) -> None:
    log.warning("a view for viewers failed", world=group.world.name, camera=group.camera, reason=error)
