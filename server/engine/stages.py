"""The stages of a tick after the simulation: write the scene, draw, fill the replies. Each handles all worlds at once.

Steps with the same observation request form a group: one call of the family for each camera serves all of them. One
call of the renderer draws all views of all groups, straight into the replies and shared memory, with what is watched.
A family that raises an error fails the steps of the worlds that caused it: what was done for several worlds together is
done again for each alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from worldloom.kernels.outputs import OUTPUT_COUNT
from worldloom.kernels.tables import I64, PreviousTable, ViewTable
from worldloom.kernels.wire import write_rows, write_varints
from worldloom.protos.errors import exception_text
from worldloom.render.arena import PROCESS_MEMORY
from worldloom.render.renderer import EndStage, Renderer
from worldloom.render.scene import Scene
from worldloom.server.engine.before import join_previous, previous_of
from worldloom.server.engine.observations import ObservationRequest, ObservationSpec
from worldloom.server.engine.pictures import PictureFrames, is_drawn
from worldloom.server.engine.shared_memory import next_ring_index, shared_addresses, shared_locations
from worldloom.server.engine.simulation import fail_steps
from worldloom.server.engine.timing import Counters
from worldloom.server.engine.watching import WatchedBatch
from worldloom.server.engine.world import FAILURES, Boundary, Step
from worldloom.server.logs import Log
from worldloom.worlds.lanes import FIRST, LAST
from worldloom.worlds.pool import Pool

log = Log("engine")


@dataclass
class StepGroup:
    """Steps with the same observation request, their lanes, and what the family observed in these lanes."""

    steps: list[Step]
    request: ObservationRequest
    lanes: I64
    """Lanes of all steps in order, the same number for each step."""
    addresses: I64
    """For each observation, and last for the state, its address in each step's reply, [fields, steps]."""
    drawn: list[tuple[str, int]] = field(default_factory=list)
    """The cameras that are drawn, each with the bits of its outputs."""
    views: list[ViewTable] = field(default_factory=list)
    """For each of these a view of each lane."""
    offsets: list[I64] = field(default_factory=list)
    """Addresses that the frames of these views are drawn to."""
    previous: list[PreviousTable | None] = field(default_factory=list)
    """For each of the tables of views what they showed one step before, where flow is asked for."""
    pictures: list[PictureFrames] = field(default_factory=list)
    """Frames of the other cameras, which the family supplies."""
    ring_indices: list[int] = field(default_factory=list)
    """For each step the set of frames in its shared memory that is drawn into, if any is."""
    observed: dict[str, np.ndarray] = field(default_factory=dict)
    """The family's own observations, [lanes, *shape]."""

    @property
    def pool(self) -> Pool:
        """The pool of the lanes."""
        return self.steps[0].agent.world.pool


def write_scene(steps: Iterable[Step], scene: Scene) -> list[StepGroup]:
    """Group the steps, give each a reply buffer, and have the families write instances, lights and cameras."""
    by_request: dict[ObservationRequest, list[Step]] = {}
    for step in steps:
        by_request.setdefault(step.request, []).append(step)
    groups = [group for same in by_request.values() for group in _prepare_groups(same)]
    for group in groups:
        if group.views:
            for step in group.steps:
                if step.agent.world.lighting:
                    step.agent.world.write_lighting(scene)
    return groups


def _prepare_groups(steps: list[Step]) -> list[StepGroup]:
    """Return a group of these steps, with its views and observations.

    If the family fails, return a group for each step that it does not fail for; the others fail.
    """
    try:
        return [_prepare_group(steps)]
    except FAILURES as error:  # families may come from other packages
        if len(steps) > 1:
            return [group for step in steps for group in _prepare_groups([step])]
        world = steps[0].agent.world
        log.error("family failed", family=world.pool.family.name, world=world.name)
        fail_steps(steps, f"family {world.pool.family.name!r} failed while it observed {world.name}", error)
        return []


def _prepare_group(steps: list[Step]) -> StepGroup:
    worlds = [step.agent.world for step in steps]
    lanes = worlds[0].lanes if len(worlds) == 1 else np.concatenate([world.lanes for world in worlds])
    addresses = []
    for step in steps:
        step.reply, where = step.out or step.request.layout.buffers.acquire()
        addresses.append(where)
    group = StepGroup(
        steps, steps[0].request, lanes, np.ascontiguousarray(np.concatenate(addresses).reshape(len(steps), -1).T)
    )
    if group.request.is_shared:
        group.ring_indices = [next_ring_index(step) for step in steps]
    for step in steps:
        if step.boundary is Boundary.LAST:  # the only steps of a world that may not have begun an episode
            step.agent.world.pool.ensure_state(step.agent.world.lanes)
    for name in group.request.family_names:
        group.observed[name] = group.pool.observe(group.lanes, name, steps[0].agent.index)
    _add_views(group)
    return group


def _add_views(group: StepGroup) -> None:
    agent = group.steps[0].agent
    for camera, bits in group.request.cameras:
        offsets = _frame_offsets(group, camera)
        if not is_drawn(group.pool.family, camera):
            group.pictures.append(PictureFrames(agent, group.lanes, camera, bits, offsets))
            continue
        views = agent.views(group.lanes, camera, bits)
        _change_fields_of_view(views, camera, group.steps)
        group.drawn.append((camera, bits))
        group.views.append(views)
        group.offsets.append(offsets)
        group.previous.append(previous_of(group.steps, camera, bits))


def _frame_offsets(group: StepGroup, camera: str) -> I64:
    """Return the addresses of a camera's frames, [views, outputs]: in each reply those of its lanes in order."""
    lanes_each = len(group.lanes) // len(group.steps)
    offsets = np.full((len(group.steps), lanes_each, OUTPUT_COUNT), -1, np.int64)
    numbered = enumerate(group.request.observations)
    # A frame that is asked for in the reply and in shared memory is drawn into the latter; see _copy_if_shared.
    for number, spec in sorted(numbered, key=lambda pair: pair[1].shared_frame is not None):
        if spec.camera == camera and spec.final_of is None:
            if spec.shared_frame is None:
                starts, size_bytes = group.addresses[number], spec.data_bytes
            else:
                starts = shared_addresses(group.steps, group.ring_indices, spec.shared_frame)
                size_bytes = group.steps[0].agent.specs.shared_bytes[spec.shared_frame]
            lane_bytes = size_bytes // lanes_each
            offsets[:, :, spec.output] = starts[:, None] + lane_bytes * np.arange(lanes_each)
    return offsets.reshape(-1, OUTPUT_COUNT)


def _change_fields_of_view(views: ViewTable, camera: str, steps: list[Step]) -> None:
    """Apply the fields of view that agents have set by properties."""
    lanes_each = len(views.lane) // len(steps)
    for number, step in enumerate(steps):
        step.agent.set_field_of_view(views, camera, slice(number * lanes_each, (number + 1) * lanes_each))


def draw(
    groups: list[StepGroup],
    renderer: Renderer,
    scene: Scene,
    counters: Counters,
    end_stage: EndStage,
    watched: WatchedBatch | None = None,
) -> list[StepGroup]:
    """Draw the frames that were asked for; return the groups that could be drawn. The steps of the others fail.

    What viewers watch is drawn in the same batch. If that fails, both are drawn again, each without the other.
    """
    groups = [one for group in groups for one in _write_pictures(group)]
    try:
        _draw_together(groups, renderer, scene, counters, end_stage, watched)
        return groups
    except FAILURES as error:
        if watched is None or watched.views is None:
            return _draw_apart(groups, renderer, scene, counters, end_stage, error)
        log.warning("drawing with pictures for viewers failed", reason=exception_text(error))
    try:
        _draw_together(groups, renderer, scene, counters, end_stage)
    except FAILURES as error:
        groups = _draw_apart(groups, renderer, scene, counters, end_stage, error)

    def draw_watched(views: ViewTable, offsets: I64) -> None:
        renderer.draw(scene, views, PROCESS_MEMORY, offsets, end_stage)
        counters.draws += 1

    watched.draw_apart(draw_watched)
    return groups


def _write_pictures(group: StepGroup) -> list[StepGroup]:
    """Have a group's family make its pictures. If it fails, return a group for each step that it does not fail for."""
    try:
        for frames in group.pictures:
            frames.write()
        return [group]
    except FAILURES as error:  # families may come from other packages
        if len(group.steps) == 1:
            _fail_drawing(group, error)
            return []
    return [made for step in group.steps for one in _prepare_groups([step]) for made in _write_pictures(one)]


def _draw_apart(
    groups: list[StepGroup],
    renderer: Renderer,
    scene: Scene,
    counters: Counters,
    end_stage: EndStage,
    error: BaseException,
) -> list[StepGroup]:
    """Draw each group alone, or each step of a single group, after an error; return those that could be drawn."""
    if len(groups) == 1 and len(groups[0].steps) == 1:
        _fail_drawing(groups[0], error)
        return []
    log.warning("drawing together failed", groups=len(groups), reason=exception_text(error))
    drawn: list[StepGroup] = []
    if len(groups) == 1:
        for step in groups[0].steps:
            for group in _prepare_groups([step]):
                drawn += draw([group], renderer, scene, counters, end_stage)
        return drawn
    for group in groups:
        try:
            _draw_together([group], renderer, scene, counters, end_stage)
            drawn.append(group)
        except FAILURES as its_error:
            drawn += _draw_apart([group], renderer, scene, counters, end_stage, its_error)
    return drawn


def _fail_drawing(group: StepGroup, error: BaseException) -> None:
    """Fail the step of a group of one."""
    family = group.pool.family.name
    log.error("drawing failed", family=family, world=group.steps[0].agent.world.name)
    fail_steps(group.steps, f"frames of family {family!r} cannot be drawn", error)


def _draw_together(
    groups: list[StepGroup],
    renderer: Renderer,
    scene: Scene,
    counters: Counters,
    end_stage: EndStage,
    watched: WatchedBatch | None = None,
) -> None:
    tables = [views for group in groups for views in group.views]
    addresses = [each for group in groups for each in group.offsets]
    asked = sum(len(table.lane) for table in tables)
    previous = [table for group in groups for table in group.previous]
    if watched is not None and watched.views is not None:
        tables.append(watched.views)
        addresses.append(watched.offsets)
        previous.append(None)
    if tables:
        views, offsets = tables[0], addresses[0]
        if len(tables) > 1:
            views = ViewTable(*(np.concatenate(columns) for columns in zip(*tables, strict=True)))
            offsets = np.concatenate(addresses)
        began_s = perf_counter()
        before = join_previous([(len(table.lane), one) for table, one in zip(tables, previous, strict=True)])
        renderer.draw(scene, views, PROCESS_MEMORY, offsets, end_stage, before)
        if watched is not None and asked < len(views.lane):
            pixels = views.width.astype(np.int64) * views.height
            watched.add_cost((perf_counter() - began_s) * float(pixels[asked:].sum() / pixels.sum()))
        counters.draws += 1
        counters.views += asked
    for group in groups:
        for (camera, bits), table in zip(group.drawn, group.views, strict=True):
            counters.count_frames(camera, bits, len(table.lane))
        for frames in group.pictures:
            frames.add_to(counters)


def fill_replies(groups: list[StepGroup]) -> None:
    """Write states and all observations but frames into the replies."""
    for group in groups:
        layout = group.request.layout
        if layout.state_offset is not None:
            states = np.array([[step.state] for step in group.steps], np.uint8)
            write_rows(states, group.addresses[-1], PROCESS_MEMORY)
        for number, spec in enumerate(group.request.observations):
            if spec.final_of is not None:
                break  # these come last
            starts = group.addresses[number]
            if spec.is_frame:
                _copy_if_shared(group, spec, starts)
            else:
                rows = _rows(group, spec)
                if layout.fields[number].as_varints:
                    write_varints(rows.astype(np.int64), starts, PROCESS_MEMORY)
                else:
                    write_rows(np.ascontiguousarray(rows).view(np.uint8), starts, PROCESS_MEMORY)
        if layout.append_final is not None:
            for step in group.steps:
                if step.final is not None:
                    step.reply = layout.append_final(step.reply, step.final)


def _rows(group: StepGroup, spec: ObservationSpec) -> np.ndarray:
    """Return the values of an observation, a row for each step."""
    pool, lanes = group.pool, group.lanes
    if spec.shared_frame is not None:
        return shared_locations(group.steps, group.ring_indices, spec.shared_frame)
    if spec.name in group.observed:
        return group.observed[spec.name].reshape(len(group.steps), -1)
    if spec.name == "reward":
        values, first, last = pool.reward[lanes, group.steps[0].agent.index], 0.0, 0.0
    elif spec.name == "discount":
        values, first, last = pool.discount[lanes], 1.0, 1.0
    else:
        values, first, last = pool.step_type[lanes], FIRST, LAST
    rows: np.ndarray = values.reshape(len(group.steps), -1)
    for row, step in zip(rows, group.steps, strict=True):
        if step.boundary is not Boundary.NONE:
            row[:] = first if step.boundary is Boundary.FIRST else last
    return rows


def _copy_if_shared(group: StepGroup, spec: ObservationSpec, starts: I64) -> None:
    """Copy a frame that is asked for in the reply and in shared memory: it was drawn into the latter only."""
    if any(other.shared_frame == spec.name for other in group.request.observations):
        for start, shared in zip(starts, shared_addresses(group.steps, group.ring_indices, spec.name), strict=True):
            PROCESS_MEMORY[start : start + spec.data_bytes] = PROCESS_MEMORY[shared : shared + spec.data_bytes]
