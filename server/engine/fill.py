"""Fourth stage of a tick: each step gets the values it asked for, and is answered."""

import numpy as np

from worldloom.kernels.tables import U8
from worldloom.server.engine.offer import Observation
from worldloom.server.engine.plan import Group, Plan
from worldloom.server.engine.world import AS_FIRST, AS_IT_IS, Step
from worldloom.server.errors import Internal
from worldloom.server.serving.logs import Log
from worldloom.worlds.pool import FIRST, LAST

log = Log("engine")

_ALONE = {"reward": 0.0, "discount": 1.0}
"""What a step brings that begins or cuts the sequence of its agent only."""


def fill(plan: Plan, arena: U8) -> None:
    """Answer all steps of the plan. The values are arrays over the arena or over arrays of this tick."""
    for group in plan.groups:
        columns = [_column(group, one, plan, arena) for one in group.wanted.observations]
        first = 0
        for step in group.steps:
            count = len(step.agent.world.lanes)
            step.values = [column[first : first + count] for column in columns]
            _finish(step)
            first += count
            try:
                step.answer(step)
            except Exception as error:
                log.error("answer failed", world=step.agent.world.name)
                step.refuse(Internal(f"the reply could not be made: {error}; the server's log has more"))


def _column(group: Group, one: Observation, plan: Plan, arena: U8) -> np.ndarray:
    """An observation of all lanes of a group, [lanes, *shape]."""
    pool = group.pool
    if one.camera is not None:
        start = int(plan.offsets[group.first_view[one.camera], one.output])
        shape = one.shape if group.steps[0].agent.world.is_vector else (1, *one.shape)
        lane_bytes = int(np.prod(shape[1:])) * np.dtype(one.dtype).itemsize
        data = arena[start : start + len(group.lanes) * lane_bytes]
        return data.view(one.dtype).reshape(len(group.lanes), *shape[1:])
    if one.name in group.observed:
        return group.observed[one.name]
    if one.name == "reward":
        return pool.reward[group.lanes, group.steps[0].agent.slot]
    return pool.discount[group.lanes] if one.name == "discount" else pool.step_type[group.lanes]


def _finish(step: Step) -> None:
    """Say what is true for this agent alone, and leave out the lanes where there is one that nobody asked for."""
    is_vector = step.agent.world.is_vector
    if step.way != AS_IT_IS:
        alone = {**_ALONE, "step_type": FIRST if step.way == AS_FIRST else LAST}
        for number, one in enumerate(step.wanted.observations):
            if one.camera is None and one.name in alone:
                step.values[number] = np.full_like(step.values[number], alone[one.name])
    if not is_vector:
        step.values = [value[0] for value in step.values]
