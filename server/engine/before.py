"""Poses and cameras one step before, for steps that ask for flow.

Before the worlds of a tick advance, the families write what the lanes of such steps show, and a copy is kept with the
step. An engine that no step has asked for flow calls nothing here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.outputs import FLOW
from worldloom.kernels.tables import F32, I32, I64, PreviousTable
from worldloom.render.scene import Scene
from worldloom.server.engine.observations import ObservationRequest
from worldloom.server.engine.world import FAILURES, Step, World
from worldloom.worlds.lanes import RUNNING


@dataclass
class LanesBefore:
    """Poses and cameras of the lanes of some steps, those whose episode goes on, before these."""

    rows: int
    """Instance rows of each lane."""
    mesh: I32
    """Meshes of the rows of these lanes, one after the other, [lanes * rows]."""
    pose: F32
    cameras: dict[str, tuple[F32, F32]] = field(default_factory=dict)
    """Poses [lanes, 3, 4] and half heights [lanes] of the cameras that flow is asked of, by name."""


@dataclass
class StepBefore:
    """Poses and cameras of the lanes of one step before it."""

    lanes: LanesBefore
    index: I64
    """For each lane of the step's world its number among these, -1 if it is not one of them."""


def keep_before(worlds: Iterable[World], scene: Scene) -> dict[World, BaseException]:
    """Keep what these worlds, which are about to advance, show where a step asks for flow.

    Return the worlds whose family failed in it, with its errors.
    """
    by_request: dict[ObservationRequest, list[Step]] = {}
    for world in worlds:
        for agent in world.agents.values():
            if agent.step is not None and agent.step.request.flow_cameras:
                by_request.setdefault(agent.step.request, []).append(agent.step)
    failed: dict[World, BaseException] = {}
    for steps in by_request.values():
        failed |= _keep_each(steps, scene)
    return failed


def _keep_each(steps: Sequence[Step], scene: Scene) -> dict[World, BaseException]:
    try:
        _keep(steps, scene)
    except FAILURES as error:  # families may come from other packages
        if len(steps) == 1:
            return {steps[0].agent.world: error}
        failed: dict[World, BaseException] = {}
        for step in steps:
            failed |= _keep_each([step], scene)
        return failed
    return {}


def _keep(steps: Sequence[Step], scene: Scene) -> None:
    """Keep what the lanes of steps with one request show."""
    agent = steps[0].agent
    pool = agent.world.pool
    goes_on = [_goes_on(step.agent.world) for step in steps]
    lanes = np.concatenate([step.agent.world.lanes[mask] for step, mask in zip(steps, goes_on, strict=True)])
    if not len(lanes):
        return
    cameras = {}
    for camera in steps[0].request.flow_cameras:
        views = agent.views(lanes, camera, FLOW)
        first = 0
        for step, mask in zip(steps, goes_on, strict=True):
            count = int(np.count_nonzero(mask))
            step.agent.set_field_of_view(views, camera, slice(first, first + count))
            first += count
        cameras[camera] = (views.camera, views.half_height)
    rows = scene.rows(pool.scene_lane[lanes])
    kept = LanesBefore(rows.shape[1], scene.instances.mesh[rows.ravel()], scene.instances.pose[rows.ravel()], cameras)
    first = 0
    for step, mask in zip(steps, goes_on, strict=True):
        index = np.full(len(mask), -1, np.int64)
        index[mask] = first + np.arange(np.count_nonzero(mask))
        step.before = StepBefore(kept, index)
        first += int(np.count_nonzero(mask))


def _goes_on(world: World) -> NDArray[np.bool_]:
    """Return the lanes of a world whose episode goes on with the next step."""
    held = world.held_lanes
    goes_on: NDArray[np.bool_] = (world.pool.status[world.lanes] == RUNNING) & ~world.beginning_lanes
    return goes_on if held is None else goes_on & ~held


def previous_of(steps: Sequence[Step], camera: str, bits: int, lanes: I64 | None = None) -> PreviousTable | None:
    """Return the table of one step before for views of the lanes of these steps; None if they ask for no flow.

    `lanes` are indices of some lanes, if the views are not of all.
    """
    if not bits & FLOW:
        return None
    parts = [_previous(step, camera, lanes) for step in steps]
    joined = join_previous([(len(part.first_row), part) for part in parts])
    assert joined is not None, "it has parts"
    return joined


def _previous(step: Step, camera: str, lanes: I64 | None) -> PreviousTable:
    """Return the table for views of a step's lanes; a lane has nothing before in the first frame of an episode."""
    world, before = step.agent.world, step.before
    chosen = world.lanes if lanes is None else world.lanes[lanes]
    if before is None or camera not in before.lanes.cameras:
        return _nothing(len(chosen))
    index = before.index if lanes is None else before.index[lanes]
    index = np.where(world.pool.steps[chosen] == 0, -1, index)
    known = np.maximum(index, 0)
    poses, half_heights = before.lanes.cameras[camera]
    first_row = np.where(index < 0, -1, known * before.lanes.rows).astype(np.int32)
    return PreviousTable(first_row, poses[known], half_heights[known], before.lanes.mesh, before.lanes.pose)


def _nothing(count: int) -> PreviousTable:
    cameras, half_heights = np.zeros((count, 3, 4), np.float32), np.ones(count, np.float32)
    no_rows = np.empty(0, np.int32), np.empty((0, 3, 4), np.float32)
    return PreviousTable(np.full(count, -1, np.int32), cameras, half_heights, *no_rows)


def join_previous(tables: Sequence[tuple[int, PreviousTable | None]]) -> PreviousTable | None:
    """Return one table for all views; given are the numbers of views, and their tables. None if there are none.

    Rows that several tables have in common are there once.
    """
    if all(table is None for _, table in tables):
        return None
    starts: dict[int, int] = {}
    distinct: list[PreviousTable] = []
    end = 0
    joined: list[PreviousTable] = []
    for count, given in tables:
        table = _nothing(count) if given is None else given
        if id(table.mesh) not in starts:
            starts[id(table.mesh)] = end
            distinct.append(table)
            end += len(table.mesh)
        start = np.int32(starts[id(table.mesh)])
        joined.append(table._replace(first_row=np.where(table.first_row < 0, table.first_row, table.first_row + start)))
    return PreviousTable(
        np.concatenate([table.first_row for table in joined]),
        np.concatenate([table.camera for table in joined]),
        np.concatenate([table.half_height for table in joined]),
        np.concatenate([table.mesh for table in distinct]),
        np.concatenate([table.pose for table in distinct]),
    )
