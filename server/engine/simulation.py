"""The stage of a tick that simulates: worlds of one pool are advanced by one call.

A family that raises an error fails the steps of the worlds that caused it: what was done for several worlds together is
done again for each alone, on the state as it was before.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import I64
from worldloom.protos.errors import Internal
from worldloom.server.engine.slices import begin_in_slices, separate
from worldloom.server.engine.timing import TickBudget
from worldloom.server.engine.world import FAILURES, Autoreset, Step, World, finish_step
from worldloom.server.logs import Log
from worldloom.worlds.family import LaneErrors
from worldloom.worlds.lanes import INTERRUPTED, RUNNING
from worldloom.worlds.pool import Pool

log = Log("engine")


def simulate(worlds: Sequence[World], budget: TickBudget) -> tuple[list[Step], list[World]]:
    """Advance these worlds by one step; return the steps of their agents with the state that each reply reports.

    Also return the worlds that have more episodes to begin than there is time for in this tick.
    """
    by_pool: dict[tuple[Pool, int], list[World]] = {}
    for world in worlds:
        by_pool.setdefault((world.pool, world.action_repeat), []).append(world)
    done: list[Step] = []
    large: list[World] = []
    for (pool, _), its_worlds in by_pool.items():
        # A world that has begun some episodes in an earlier tick goes on with that, however little is left.
        is_long = sum(len(world.lanes) for world in its_worlds) * pool.begin_s > budget.left_s
        if is_long or any(world.begun is not None for world in its_worlds):
            its_worlds, some = separate(pool, its_worlds, budget)
            large += some
        if len(its_worlds) == 1:
            done += _try_to_advance(pool, its_worlds[0], _advance_one)
        elif its_worlds:
            done += _advance_together(pool, its_worlds)
    if not large:
        return done, large
    begun, waiting = begin_in_slices(large, budget, fail_world)
    for world in begun:
        done += _try_to_advance(world.pool, world, _advance_begun)
    return done, waiting


def _advance_together(pool: Pool, worlds: list[World]) -> list[Step]:
    lanes = np.concatenate([world.lanes for world in worlds])
    before = pool.save(lanes)
    try:
        return _advance(pool, worlds, lanes)
    except FAILURES:  # families may come from other packages
        pool.restore(lanes, before)
    return [step for world in worlds for step in _try_to_advance(pool, world, _advance_one)]


def _try_to_advance(pool: Pool, world: World, advance: Callable[[Pool, World], list[Step]]) -> list[Step]:
    """Advance a world alone; fail its steps if its family raises an error. Their next step begins a new episode."""
    try:
        return advance(pool, world)
    except FAILURES as error:
        fail_world(world, error)
        return []


def _advance_one(pool: Pool, world: World) -> list[Step]:
    lanes = world.lanes
    if world.begins_episode:
        pool.interrupt(lanes[world.beginning_lanes])
    first = int(lanes[0])
    has_begun = bool(pool.status[first] != RUNNING)
    try:
        _step_lanes(pool, [world], lanes)
    except LaneErrors as failed:
        fail_world(world, next(iter(failed.errors.values())))
        return []
    return finish_step(world, has_begun, int(pool.status[first]))


def _advance_begun(pool: Pool, world: World) -> list[Step]:
    """Advance a world whose episodes were begun in slices, in the lanes that did not begin one."""
    assert world.begun is not None
    begun, held = world.begun, _hold_lanes(world)
    rest = np.flatnonzero(~begun if held is None else ~(begun | held))
    if len(rest):
        actions = _gather_actions(pool, [world])
        pool.step(world.lanes[rest], {name: action[rest] for name, action in actions.items()}, world.action_repeat)
    world.begun = None
    return finish_step(world, bool(begun[0]), int(pool.status[world.lanes[0]]))


def _advance(pool: Pool, worlds: list[World], lanes: I64) -> list[Step]:
    new = [world.lanes[world.beginning_lanes] for world in worlds if world.begins_episode]
    if new:
        pool.interrupt(np.concatenate(new))
    has_begun = (pool.status[lanes] != RUNNING).tolist()
    errors: Mapping[int, BaseException] = {}
    try:
        _step_lanes(pool, worlds, lanes)
    except LaneErrors as failed:
        errors = failed.errors
    status = pool.status[lanes].tolist()
    done: list[Step] = []
    first = 0
    for world in worlds:
        error = next((errors[lane] for lane in world.lanes.tolist() if lane in errors), None) if errors else None
        if error is None:
            done += finish_step(world, has_begun[first], status[first])
        else:
            fail_world(world, error)
        first += len(world.lanes)
    return done


def _step_lanes(pool: Pool, worlds: list[World], lanes: I64) -> None:
    """Step the lanes of these worlds, but for those that are held."""
    actions = _gather_actions(pool, worlds)
    masks = [_hold_lanes(world) for world in worlds]
    if any(mask is not None for mask in masks):
        pairs = zip(worlds, masks, strict=True)
        parts = [np.zeros(len(world.lanes), np.bool_) if mask is None else mask for world, mask in pairs]
        is_held = np.concatenate(parts)
        stepped = np.flatnonzero(~is_held)
        lanes, actions = lanes[stepped], {name: action[stepped] for name, action in actions.items()}
    pool.step(lanes, actions, worlds[0].action_repeat)


def _hold_lanes(world: World) -> NDArray[np.bool_] | None:
    """Record that this step leaves some lanes as they are; return them, or None."""
    if world.autoreset is Autoreset.NEXT_STEP:  # it steps or begins all of them
        return None
    held, kept = world.held_lanes, world.kept_lanes
    if held is not None:
        world.pool.hold(world.lanes[held])
    if kept is not None:
        world.pool.report_first(world.lanes[kept])
    return held


def _gather_actions(pool: Pool, worlds: list[World]) -> dict[str, np.ndarray]:
    """Return the actions of all lanes and agents, [lanes, agents, *shape]; absent agents get the idle action."""
    gathered = {}
    for spec in pool.family.actions:
        by_agent = []
        for index in range(pool.family.agents):
            parts = [world.action_of(index, spec.name) for world in worlds]
            by_agent.append(parts[0] if len(parts) == 1 else np.concatenate(parts))
        gathered[spec.name] = by_agent[0][:, None] if len(by_agent) == 1 else np.stack(by_agent, axis=1)
    return gathered


def fail_world(world: World, error: BaseException, doing: str = "stepped") -> None:
    """Fail the steps of a world whose family raised an error. Their next step begins a new episode."""
    family = world.pool.family.name
    log.error("family failed", family=family, world=world.name)
    world.pool.interrupt(world.lanes)
    world.begun = None
    world.reset_all()
    steps = [agent.step for agent in world.agents.values() if agent.step is not None]
    for agent in world.agents.values():
        agent.step, agent.state = None, INTERRUPTED
    fail_steps(steps, f"family {family!r} failed while it {doing} {world.name}", error)


def fail_steps(steps: Iterable[Step], what: str, error: BaseException) -> None:
    """Fail steps because of a bug. The agents' next steps begin new sequences."""
    for step in steps:
        step.agent.state = INTERRUPTED
        step.fail(Internal.caused_by(what, error))
