"""The recent steps of single lanes, recorded for people who watch them.

Used by the engine's thread only, but for the `FollowedSteps` that it hands out, which do not change any more.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from worldloom.server.engine.world import Step

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


class FollowedSteps(NamedTuple):
    """Steps of a followed lane that a viewer gets with one picture."""

    lane: tuple[str, int, int]
    """World, lane and agent."""
    first: int
    """Number of the first of these steps, since the lane is followed. Those before it that no picture had are lost."""
    steps: Sequence[FollowedStep]
    dropped: int
    """Steps before the first that were too many to be kept."""
    actions: Mapping[str, Sequence[float]]
    """Values of the last actions, by name."""


class FollowedLane:
    """The recent steps of one lane, as one agent sees them, since they were taken last."""

    def __init__(self, world: str, lane: int, agent: int) -> None:
        self.world = world
        self.lane = lane
        self.agent = agent
        self._actions: Mapping[str, Sequence[float]] = {}
        """Replaced with each step, and never written to."""
        self._steps: deque[FollowedStep] = deque(maxlen=_MAX_STEPS)
        self._dropped = self._taken = 0
        self._last: FollowedStep | None = None

    def take(self) -> FollowedSteps:
        """Return the steps since the last call."""
        first = self._taken + self._dropped
        taken = FollowedSteps(
            (self.world, self.lane, self.agent), first, list(self._steps), self._dropped, self._actions
        )
        self._taken = first + len(self._steps)
        self._steps.clear()
        self._dropped = 0
        return taken

    def record(self, step: Step) -> None:
        """Record a step of its world that was simulated, taken by its agent, or by another if that has not joined."""
        world = step.agent.world
        if not 0 <= self.lane < len(world.lanes) or not 0 <= self.agent < world.pool.family.agents:
            return
        pool, lane = world.pool, int(world.lanes[self.lane])
        row = FollowedStep(
            int(pool.episode[lane]),
            int(pool.steps[lane]),
            float(pool.reward[lane, self.agent]),
            int(pool.step_type[lane]),
        )
        if self._last is not None and row[:2] == self._last[:2]:
            return  # a lane that was held, or another agent's part of the same step
        self._last = row
        self._dropped += len(self._steps) == self._steps.maxlen
        self._steps.append(row)
        if step.agent.index == self.agent:
            self._actions = {
                name: np.ravel(values[self.lane])[:MAX_ACTION_NUMBERS].astype(float).tolist()
                for name, values in step.actions.items()
                if self.lane < len(values)
            }
