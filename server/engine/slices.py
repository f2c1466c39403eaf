"""Work that is divided over several ticks: adding the lanes of a large world, and beginning episodes in many lanes.

Neither is a step, and both can take seconds. Each tick spends a limited time on them, so that they do not hold up the
steps of other worlds; the request that caused the work is answered when all of it is done.
"""

import math
import secrets
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import I64
from worldloom.server.engine.timing import TickBudget
from worldloom.server.engine.world import FAILURES, World
from worldloom.worlds.pool import Pool

if TYPE_CHECKING:
    from worldloom.server.engine.directory import WorldDirectory
    from worldloom.server.engine.world_settings import WorldSettings

_CHUNK_S = 0.004
"""Time that one call to a family may take, as far as can be foreseen."""


_ROWS_EACH = 16_384
"""Instance rows that are added at a time when a world is created: some 1.2 MB."""


class LaneAddition:
    """Lanes of a pool that are being added, in parts."""

    def __init__(self, directory: "WorldDirectory", pool: Pool, lane_seeds: NDArray[np.uint64]) -> None:
        self.pool = pool
        self._directory = directory
        self._lane_seeds = lane_seeds
        self._parts: list[I64] = []
        self._added = 0
        self._lanes_each = max(1, _ROWS_EACH // max(1, pool.family.rows_per_lane))
        pool.reserve(len(lane_seeds))
        directory.pools.count_lanes(pool, len(lane_seeds))

    def __len__(self) -> int:
        return len(self._lane_seeds)

    @property
    def is_complete(self) -> bool:
        """All lanes have been added."""
        return self._added == len(self._lane_seeds)

    @property
    def lanes(self) -> I64:
        """The lanes that have been added."""
        return np.concatenate(self._parts)

    def add_some(self) -> None:
        """Add some lanes, which takes a few milliseconds."""
        seeds = self._lane_seeds[self._added : self._added + self._lanes_each]
        self._parts.append(self.pool.add(seeds))
        self._added += len(seeds)

    def add_all(self) -> None:
        """Add all lanes that are missing."""
        while not self.is_complete:
            self.add_some()

    def abandon(self) -> None:
        """Free the lanes."""
        if self._parts:
            self.pool.free(self.lanes)
        self._directory.pools.count_lanes(self.pool, -len(self._lane_seeds))


class WorldCreation:
    """A world whose lanes are being added. They count as in use from the beginning."""

    def __init__(self, directory: "WorldDirectory", settings: "WorldSettings", addition: LaneAddition) -> None:
        self.addition = addition
        self._directory = directory
        self._settings = settings
        directory.worlds_in_creation += 1
        directory.lanes_in_use += len(addition)

    def finish(self) -> World:
        """Return the world, which has all its lanes."""
        directory, addition = self._directory, self.addition
        directory.worlds_in_creation -= 1
        name = f"{addition.pool.family.name}-{secrets.token_hex(16)}"
        world = World(name, self._settings, addition.pool, addition.lanes)
        world.used_at_s = directory.clock()
        world.pool.choose_variations(world.lanes, world.variations.choice)
        directory.worlds[world.name] = world
        directory.changes += 1
        return world

    def abandon(self) -> None:
        """Count the world no more: its lanes could not be added."""
        self._directory.worlds_in_creation -= 1
        self._directory.lanes_in_use -= len(self.addition)


Done: TypeAlias = Callable[[BaseException | None], None]
"""Called when all lanes have been added, or with the error that prevented it; then none of them is left."""
Additions: TypeAlias = deque[tuple[LaneAddition, Done]]
"""Lanes that are being added, for the oldest request first."""


def add_lanes(additions: Additions, budget: TickBudget) -> None:
    """Add as many lanes as there is time for."""
    while additions and budget.left_s > 0:
        addition, done = additions[0]
        try:
            budget.spend(addition.add_all if budget.left_s == math.inf else addition.add_some)
        except FAILURES as error:  # there is not enough memory, say
            additions.popleft()
            addition.abandon()
            done(error)
        else:
            if addition.is_complete:
                additions.popleft()
                done(None)


def separate(pool: Pool, worlds: list[World], budget: TickBudget) -> tuple[list[World], list[World]]:
    """Return the worlds of a pool that can be stepped in this tick, and those that have too many episodes to begin."""
    few: list[World] = []
    many: list[World] = []
    counts = [(int(np.count_nonzero(world.beginning_lanes)), world) for world in worlds]
    for count, world in sorted(counts, key=lambda pair: pair[0]):
        if world.begun is None and (count == 0 or count * pool.begin_s <= budget.left_s):
            budget.left_s -= count * pool.begin_s
            few.append(world)
        else:
            many.append(world)
    return few, many


def begin_in_slices(
    worlds: list[World], budget: TickBudget, fail: Callable[[World, BaseException], None]
) -> tuple[list[World], list[World]]:
    """Begin episodes in worlds that have many to begin, as many as there is time for, and some in any case.

    Return the worlds where all have begun, and those that have to go on in the next tick, in the order in which they
    should. `fail` is called for worlds whose family raises an error, which are in neither list.
    """
    begun: list[World] = []
    waiting: list[World] = []
    for number, world in enumerate(worlds):
        try:
            if number and budget.left_s <= 0:
                waiting.insert(number - 1, world)  # before those that had their turn
            elif _begin_episodes(world, budget):
                begun.append(world)
            else:
                waiting.append(world)
        except FAILURES as error:
            fail(world, error)
    return begun, waiting


def _begin_episodes(world: World, budget: TickBudget) -> bool:
    """Begin episodes of a world in a few lanes, and in more while there is time; return whether all have begun.

    `world.begun` tells which.
    """
    pool, lanes = world.pool, world.lanes
    if world.begun is None:
        world.begun = np.zeros(len(lanes), np.bool_)
    todo = np.flatnonzero(world.beginning_lanes)
    pool.interrupt(lanes[todo])
    is_drawn = any(agent.step is not None and agent.step.request.cameras for agent in world.agents.values())
    done = begin_in_chunks(pool, lanes[todo], budget, is_drawn)
    world.begun[todo[:done]] = True
    return done == len(todo)


def begin_in_chunks(pool: Pool, lanes: I64, budget: TickBudget, is_drawn: bool, keep_outcome: bool = False) -> int:
    """Begin episodes in the first few of these lanes, and in more while there is time; return the number of lanes."""
    done = 0
    while done < len(lanes) and (done == 0 or budget.left_s > 0):
        chunk = lanes[done : done + max(1, int(_CHUNK_S / max(pool.begin_s, 1e-9)))]

        def begin(chunk: I64 = chunk) -> None:
            pool.begin(chunk, keep_outcome)
            if is_drawn:
                pool.prepare_views(chunk)

        budget.spend(begin)
        done += len(chunk)
    return done
