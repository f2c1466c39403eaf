"""Fourth stage of a tick: numbers are written into the replies, and the steps are answered."""

import numpy as np

from worldloom.kernels.wire import write_rows, write_varints
from worldloom.render.memory import MEMORY
from worldloom.server.engine.layout import Place
from worldloom.server.engine.offer import Observation
from worldloom.server.engine.plan import Group, segment_of, shared_places
from worldloom.server.engine.world import AS_FIRST, AS_IT_IS
from worldloom.worlds.pool import FIRST, LAST


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
