"""Work that is divided over several ticks: adding the lanes of a large world, and beginning episodes in many lanes.

Neither is a step, and both can take seconds. Each tick spends a limited time on them, so that they do not hold up the
steps of other worlds; the request that caused the work is answered when all of it is done.
"""

import time
from collections import deque
from collections.abc import Callable

import numpy as np

from worldloom.server.engine.directory import LaneAddition
from worldloom.server.engine.world import World
from worldloom.worlds.pool import RUNNING, Pool

TICK_S = 0.02
"""Time that one tick spends on such work."""
_CHUNK_S = 0.004
"""Time that one call to a family may take, as far as can be foreseen."""


class TickBudget:
    """Time that is left in one tick for work that is divided over ticks."""

    def __init__(self, seconds: float) -> None:
        self.left_s = seconds

    def spend(self, work: Callable[[], None]) -> None:
        """Do some work and subtract the time it takes."""
        began_s = time.perf_counter()
        try:
            work()
        finally:
            self.left_s -= time.perf_counter() - began_s


def _begin_episodes(world: World, budget: TickBudget) -> bool:
    """Begin the episodes that the waiting steps of a world begin, as many as there is time for.

    Return whether all have begun. `world.begun` tells which.
    """
    pool, lanes = world.pool, world.lanes
    if world.begun is None:
        if world.begins_episode:
            pool.interrupt(lanes)
        world.begun = np.zeros(len(lanes), np.bool_)
    is_drawn = any(agent.step is not None and agent.step.request.cameras for agent in world.agents.values())
    todo = np.flatnonzero(pool.status[lanes] != RUNNING)
    first = 0
    while first < len(todo) and budget.left_s > 0:
        chunk = todo[first : first + max(1, int(_CHUNK_S / max(pool.begin_s, 1e-9)))]

        def begin(chunk: np.ndarray = chunk) -> None:
            pool.begin(lanes[chunk])
            if is_drawn:
                pool.prepare_views(lanes[chunk])

        budget.spend(begin)
        world.begun[chunk] = True
        first += len(chunk)
    return first >= len(todo)


def divide(
    pool: Pool, worlds: list[World], budget: TickBudget, fail: Callable[[World, Exception], None]
) -> tuple[list[World], list[World], list[World]]:
    """Begin episodes in worlds that may have more to begin than there is time for in this tick.

    Return the worlds of a pool in three lists: those that have few episodes to begin, or none, and can be stepped
    together; those whose episodes have all been begun in slices; and those that have to wait for the next tick. `fail`
    is called for worlds whose family raises an error, which are in none of them.
    """
    together: list[World] = []
    alone: list[World] = []
    later: list[World] = []
    for world in worlds:
        lanes = world.lanes
        count = len(lanes) if world.begins_episode else int(np.count_nonzero(pool.status[lanes] != RUNNING))
        if world.begun is None and (count == 0 or count * pool.begin_s <= budget.left_s):
            budget.left_s -= count * pool.begin_s
            together.append(world)
        else:
            try:
                (alone if _begin_episodes(world, budget) else later).append(world)
            except Exception as error:
                fail(world, error)
    return together, alone, later


class PendingAdditions:
    """Lanes that are being added, for the oldest request first."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[LaneAddition, Callable[[], None]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, addition: LaneAddition, then: Callable[[], None]) -> None:
        """Add lanes in this tick or later ones, then call `then`."""
        self._waiting.append((addition, then))

    def work(self, budget: TickBudget) -> None:
        """Add as many lanes as there is time for."""
        while self._waiting and budget.left_s > 0:
            addition, then = self._waiting[0]
            budget.spend(addition.add_some)
            if addition.is_complete:
                self._waiting.popleft()
                then()
