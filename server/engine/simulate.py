"""First stage of a tick: every world that is ready takes one step, all worlds of a pool in one call."""

from collections.abc import Sequence

import numpy as np

from worldloom.protos.errors import Internal
from worldloom.server.engine.world import AS_FIRST, AS_IT_IS, AS_LAST, Agent, Step, World
from worldloom.server.logs import Log
from worldloom.worlds.pool import INTERRUPTED, RUNNING, Pool

log = Log("engine")


def simulate(worlds: Sequence[World]) -> list[Step]:
    """Step these worlds; the steps of their agents come back, with the state that each is told."""
    by_pool: dict[Pool, list[World]] = {}
    for world in worlds:
        by_pool.setdefault(world.pool, []).append(world)
    done: list[Step] = []
    for pool, its_worlds in by_pool.items():
        try:
            done += _advance(pool, its_worlds)
        except Exception:  # a family is anybody's code: the other pools go on
            log.error("family failed", family=pool.family.name, worlds=len(its_worlds))
            _give_up(pool, its_worlds)
    return done


def _advance(pool: Pool, worlds: list[World]) -> list[Step]:
    new = [world.lanes for world in worlds if world.begins_anew]
    if new:
        pool.interrupt(np.concatenate(new))
    lanes = np.concatenate([world.lanes for world in worlds])
    begun = (pool.status[lanes] != RUNNING).tolist()
    pool.step(lanes, _gather(pool, worlds))
    status = pool.status[lanes].tolist()
    done: list[Step] = []
    first = 0
    for world in worlds:
        for agent in world.agents.values():
            done.append(_take_step(agent, begun[first], RUNNING if world.is_vector else status[first]))
        first += len(world.lanes)
    return done


def _gather(pool: Pool, worlds: list[World]) -> dict[str, np.ndarray]:
    """The actions of all lanes and agents, [lanes, agents, *shape]; agents who are not there do nothing."""
    gathered = {}
    for spec in pool.family.actions:
        parts = [
            np.stack([_action_of(world, slot, spec.name) for slot in range(pool.family.agents)], axis=1)
            if pool.family.agents > 1
            else _action_of(world, 0, spec.name)[:, None]
            for world in worlds
        ]
        gathered[spec.name] = np.concatenate(parts)
    return gathered


def _action_of(world: World, slot: int, name: str) -> np.ndarray:
    agent = world.agents.get(slot)
    action = None
    if agent is not None and agent.step is not None and agent.is_running:
        action = agent.step.actions.get(name)
    return world.idle_actions[name] if action is None else action


def _take_step(agent: Agent, begun: bool, status: int) -> Step:
    """Where the agent stands now that its world has made a step."""
    step, agent.step = agent.step, None
    assert step is not None, "a world is ready when all its agents have stepped"
    if not agent.is_running:
        step.state, step.way = RUNNING, AS_FIRST
    elif begun and not agent.world.is_vector:
        # The episode ended in the very step that began this agent's sequence, which had to be told RUNNING.
        step.state, step.way = INTERRUPTED, AS_LAST
    else:
        step.state, step.way = status, AS_IT_IS
    agent.state = step.state
    return step


def _give_up(pool: Pool, worlds: list[World]) -> None:
    """After a family raised an error: its agents are told, and begin anew with their next step."""
    pool.interrupt(np.concatenate([world.lanes for world in worlds]))
    for world in worlds:
        for agent in world.agents.values():
            step, agent.step = agent.step, None
            agent.state = INTERRUPTED
            if step is not None:
                step.refuse(
                    Internal(
                        f"family {pool.family.name!r} failed while it stepped {world.name}; the server's log has more. "
                        "The next step begins a new episode"
                    )
                )
