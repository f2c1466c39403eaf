"""Second stage of a tick: which views were asked for, and where in the replies their pixels go.

Steps that ask for the same of the same pool are one group: one call of the family for each camera serves all of them.

Third stage of a tick: one pass over all views of all worlds, painted into the replies.

Fourth stage of a tick: numbers are written into the replies, and the steps are answered.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from worldloom.kernels.tables import I64, OUTPUTS, ViewTable
from worldloom.kernels.wire import write_rows, write_varints
from worldloom.protos.errors import Internal
from worldloom.render.arena import MEMORY
from worldloom.render.renderer import Mark, Renderer
from worldloom.render.scene import Scene
from worldloom.server.engine.observations import Observation, Wanted
from worldloom.server.engine.replies import Place
from worldloom.server.engine.shared_memory import Segment
from worldloom.server.engine.timing import Counters
from worldloom.server.engine.world import AS_FIRST, AS_IT_IS, Step, World
from worldloom.server.logs import Log
from worldloom.worlds.pool import FIRST, INTERRUPTED, LAST, Pool

log = Log("engine")


@dataclass
class Group:
    """Steps that ask for the same, the lanes they are about, and what the family says of them."""

    steps: list[Step]
    wanted: Wanted
    lanes: I64
    """Of all steps in order, equally many each."""
    replies: I64
    """Where in MEMORY the reply of each step lies."""
    views: list[ViewTable] = field(default_factory=list)
    """For each camera a view of each lane."""
    offsets: list[I64] = field(default_factory=list)
    """Where in MEMORY the pictures of these views go."""
    ring_slots: list[int] = field(default_factory=list)
    """Where in its shared memory each step's pictures go, if any do."""
    observed: dict[str, np.ndarray] = field(default_factory=dict)
    """The family's own observations, [lanes, *shape]."""

    @property
    def pool(self) -> Pool:
        """Where the lanes are."""
        return self.steps[0].agent.world.pool


def plan(steps: Iterable[Step], scene: Scene) -> list[Group]:
    """Group the steps, ask the families what they show and where their cameras stand, and give each step its reply."""
    together: dict[Wanted, list[Step]] = {}
    for step in steps:
        together.setdefault(step.wanted, []).append(step)
    groups = [group for same in together.values() if (group := _make_group(same)) is not None]
    _light(scene, {step.agent.world for group in groups if group.views for step in group.steps})
    return groups


def join_views(groups: Sequence[Group]) -> tuple[ViewTable, I64] | None:
    """One table of all views of these groups, and where their pictures go; None if there are none."""
    tables = [views for group in groups for views in group.views]
    if not tables:
        return None
    offsets = [one for group in groups for one in group.offsets]
    if len(tables) == 1:
        return tables[0], offsets[0]
    return ViewTable(*(np.concatenate(columns) for columns in zip(*tables, strict=True))), np.concatenate(offsets)


def refuse(steps: Iterable[Step], text: str) -> None:
    """Tell these agents that a bug keeps them from seeing what they asked for. Their next step begins a sequence."""
    for step in steps:
        step.agent.state = INTERRUPTED
        step.refuse(Internal(text))


def _make_group(steps: list[Step]) -> Group | None:
    """None if the family failed: then the steps are refused."""
    worlds = [step.agent.world for step in steps]
    lanes = worlds[0].lanes if len(worlds) == 1 else np.concatenate([world.lanes for world in worlds])
    replies = np.empty(len(steps), np.int64)
    for number, step in enumerate(steps):
        step.reply, replies[number] = step.wanted.layout.slots.take()
    group = Group(steps, steps[0].wanted, lanes, replies)
    if group.wanted.is_shared:
        group.ring_slots = [segment_of(step).turn() for step in steps]
    try:
        _observe(group)
        _look(group)
    except Exception:  # a family is anybody's code: the other groups go on
        family = group.pool.family.name
        log.error("family failed", family=family, worlds=len(worlds))
        refuse(steps, f"family {family!r} failed while it showed its worlds; the server's log has more")
        return None
    return group


def _observe(group: Group) -> None:
    pool, slot = group.pool, group.steps[0].agent.slot
    for name in group.wanted.family_names:
        spec = next(spec for spec in pool.family.observations if spec.name == name)
        value = pool.observe(group.lanes, name, slot)
        if value.dtype != spec.dtype or value.shape != (len(group.lanes), *spec.shape):
            raise ValueError(
                f"observation {name!r} came as {value.dtype} {list(value.shape)}: expected {spec.dtype} "
                f"{[len(group.lanes), *spec.shape]}, as its spec says"
            )
        group.observed[name] = value


def _look(group: Group) -> None:
    agent = group.steps[0].agent
    joining = agent.offer.joining
    for camera, bits in group.wanted.cameras:
        views = group.pool.views(
            group.lanes,
            camera,
            agent.slot,
            width=joining.width,
            height=joining.height,
            outputs=bits,
            samples=joining.samples,
        )
        _widen(views, camera, group.steps)
        group.views.append(views)
        group.offsets.append(_offsets(group, camera))


def _offsets(group: Group, camera: str) -> I64:
    """Where the pictures of a camera go: in each reply those of its lanes, one after the other."""
    lanes_each = len(group.lanes) // len(group.steps)
    offsets = np.full((len(group.steps), lanes_each, len(OUTPUTS)), -1, np.int64)
    placed = zip(group.wanted.observations, group.wanted.layout.places, strict=True)
    for one, place in sorted(placed, key=lambda pair: pair[0].shows is not None):  # a shared picture wins; see fill
        if one.camera == camera:
            if one.shows is None:
                starts, size_bytes = group.replies + place.start, one.data_bytes
            else:
                starts, size_bytes = shared_places(group, one.shows), group.steps[0].agent.offer.shared_bytes[one.shows]
            lane_bytes = size_bytes // lanes_each
            offsets[:, :, one.output] = starts[:, None] + lane_bytes * np.arange(lanes_each)
    return offsets.reshape(-1, len(OUTPUTS))


def shared_places(group: Group, picture: str) -> I64:
    """Where in MEMORY a picture goes that is shared, for each step."""
    places = [segment_of(step).place(picture, slot) for step, slot in zip(group.steps, group.ring_slots, strict=True)]
    return np.array(places, np.int64)


def segment_of(step: Step) -> Segment:
    """The memory shared with a step's client, which is there if it was offered."""
    segment = step.agent.segment
    assert segment is not None
    return segment


def _widen(views: ViewTable, camera: str, steps: list[Step]) -> None:
    """Fields of view that agents have changed."""
    first = 0
    for step in steps:
        count = len(step.agent.world.lanes)
        half_height = step.agent.half_heights.get(camera)
        if half_height is not None:
            views.half_height[first : first + count] = half_height
        first += count


def _light(scene: Scene, worlds: set[World]) -> None:
    """Lights that agents have changed, over what the family says."""
    for world in worlds:
        for column, value in world.lighting.items():
            getattr(scene.lanes, column)[world.pool.scene_lane[world.lanes]] = value


class Easel:
    """A renderer, and what it draws."""

    def __init__(self, renderer: Renderer, scene: Scene, counters: Counters, mark: Mark) -> None:
        self.renderer = renderer
        self.scene = scene
        self.counters = counters
        self._mark = mark

    def draw(self, groups: list[Group]) -> list[Group]:
        """Paint what was asked for. Groups that cannot be drawn are refused; the others come back."""
        try:
            self._paint(groups)
        except Exception:
            log.error("drawing failed", groups=len(groups))
            return [group for group in groups if self._can_be_drawn(group)]
        return groups

    def _can_be_drawn(self, group: Group) -> bool:
        try:
            self._paint([group])
        except Exception as error:
            refuse(group.steps, f"pictures of family {group.pool.family.name!r} cannot be drawn: {error}")
            return False
        return True

    def _paint(self, groups: list[Group]) -> None:
        joined = join_views(groups)
        if joined is None:
            return
        views, offsets = joined
        self.renderer.draw(self.scene, views, MEMORY, offsets, self._mark)
        self.counters.draws += 1
        self.counters.views += len(views.lane)
        for bit, output in enumerate(OUTPUTS):
            self.counters.frames[output] += int(np.count_nonzero(views.outputs & (1 << bit)))


def fill(groups: list[Group]) -> None:
    """Complete the replies, and answer."""
    for group in groups:
        layout = group.wanted.layout
        if layout.state_at is not None:
            states = np.array([[step.state] for step in group.steps], np.uint8)
            write_rows(states, group.replies + layout.state_at, MEMORY)
        for one, place in zip(group.wanted.observations, layout.places, strict=True):
            if one.is_picture:
                _copy_if_shared(group, one, place)
            else:
                rows = _rows(group, one)
                starts = group.replies + place.start
                if place.as_varints:
                    write_varints(rows.astype(np.int64), starts, MEMORY)
                else:
                    write_rows(np.ascontiguousarray(rows).view(np.uint8), starts, MEMORY)
        for step in group.steps:
            step.answer(step)


def _rows(group: Group, one: Observation) -> np.ndarray:
    """The numbers of an observation, a row for each step."""
    pool, lanes = group.pool, group.lanes
    if one.shows is not None:
        return _where_shared(group, one.shows)
    if one.name in group.observed:
        return group.observed[one.name].reshape(len(group.steps), -1)
    if one.name == "reward":
        values, first, last = pool.reward[lanes, group.steps[0].agent.slot], 0.0, 0.0
    elif one.name == "discount":
        values, first, last = pool.discount[lanes], 1.0, 1.0
    else:
        values, first, last = pool.step_type[lanes], FIRST, LAST
    rows: np.ndarray = values.reshape(len(group.steps), -1)
    for row, step in zip(rows, group.steps, strict=True):
        if step.way != AS_IT_IS:
            row[:] = first if step.way == AS_FIRST else last
    return rows


def _where_shared(group: Group, picture: str) -> np.ndarray:
    """Slot, byte and size of each lane's picture in shared memory, a row for each step."""
    lanes_each = len(group.lanes) // len(group.steps)
    lane_bytes = group.steps[0].agent.offer.shared_bytes[picture] // lanes_each
    rows = np.empty((len(group.steps), lanes_each, 3), np.int64)
    rows[:, :, 0] = np.array(group.ring_slots)[:, None]
    first = np.array(
        [segment_of(s).start(picture, slot) for s, slot in zip(group.steps, group.ring_slots, strict=True)]
    )
    rows[:, :, 1] = first[:, None] + lane_bytes * np.arange(lanes_each)
    rows[:, :, 2] = lane_bytes
    return rows.reshape(len(group.steps), -1)


def _copy_if_shared(group: Group, one: Observation, place: Place) -> None:
    """A picture that is wanted in the reply and in shared memory was painted into the latter."""
    if any(other.shows == one.name for other in group.wanted.observations):
        for reply, shared in zip(group.replies, shared_places(group, one.name), strict=True):
            start = reply + place.start
            MEMORY[start : start + one.data_bytes] = MEMORY[shared : shared + one.data_bytes]
