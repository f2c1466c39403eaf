"""The recent steps of single lanes, recorded for people who watch them. Used by the engine's thread only."""

from collections import deque
from typing import NamedTuple

import numpy as np

from worldloom.server.engine.world import Step
from worldloom.worlds.lanes import FIRST, LAST

MAX_ACTION_NUMBERS = 256
"""Numbers of an action that viewers get: its first ones."""
_MAX_STEPS = 4096
"""Steps of a lane that are kept until they are taken."""


class FollowedStep(NamedTuple):
    """A step of a followed lane."""

    episode: int
    step: int
    reward: float
    step_type: int


class FollowedLane:
    """The recent steps of one lane, as one agent sees them, since they were taken last."""

    def __init__(self, world: str, lane: int, agent: int) -> None:
        self.world = world
        self.lane = lane
        self.agent = agent
        self.episode_return = 0.0
        """Rewards of its episode, since it is followed."""
        self.actions: dict[str, list[float]] = {}
        """Values of its last actions, by name."""
        self._steps: deque[FollowedStep] = deque(maxlen=_MAX_STEPS)
        self._dropped = 0
        self._last: FollowedStep | None = None

    def take(self) -> tuple[list[FollowedStep], int]:
        """Return the steps since the last call, and the number of those before that were dropped."""
        taken = list(self._steps), self._dropped
        self._steps.clear()
        self._dropped = 0
        return taken

    def record(self, step: Step) -> None:
        """Record a step of its world by its agent, or by another if that has not joined."""
        world = step.agent.world
        if self.lane >= len(world.lanes) or self.agent >= world.pool.family.agents:
            return
        pool, lane = world.pool, int(world.lanes[self.lane])
        row = FollowedStep(
            int(pool.episode[lane]),
            int(pool.steps[lane]),
            float(pool.reward[lane, self.agent]),
            int(pool.step_type[lane]),
        )
        has_ended = self._last is not None and self._last.step_type == LAST
        if has_ended and row.step_type == LAST and self._last is not None and row[:2] == self._last[:2]:
            return  # a lane that waits for its reset
        if row.step_type == FIRST or has_ended:
            self.episode_return = 0.0
        self.episode_return += row.reward
        self._last = row
        self._dropped += len(self._steps) == self._steps.maxlen
        self._steps.append(row)
        if step.agent.index == self.agent:
            self.actions = {
                name: np.ravel(values[self.lane])[:MAX_ACTION_NUMBERS].astype(float).tolist()
                for name, values in step.actions.items()
                if self.lane < len(values)
            }
