"""Fourth stage of a tick: numbers are written into the replies, and the steps are answered."""

import numpy as np

from worldloom.kernels.wire import write_rows, write_varints
from worldloom.render.memory import MEMORY
from worldloom.server.engine.offer import Observation
from worldloom.server.engine.plan import Group
from worldloom.server.engine.world import AS_FIRST, AS_IT_IS
from worldloom.worlds.pool import FIRST, LAST


def fill(groups: list[Group]) -> None:
    """Complete the replies, and answer."""
    for group in groups:
        layout = group.wanted.layout
        states = np.array([[step.state] for step in group.steps], np.uint8)
        write_rows(states, group.replies + layout.state_at, MEMORY)
        for one, place in zip(group.wanted.observations, layout.places, strict=True):
            if one.camera is None:
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
