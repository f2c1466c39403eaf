"""Decisions of the reconciler, as functions of what it knows: no Ray, no clock, no processes.

`plan_servers` compares the servers with the wanted number and generation. An upgrade replaces one server after another:
a new one is started first where the cluster has room for it, and an old one is drained when the new one is ready. Where
there is no room, the old one is drained first.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Phase = Literal["placing", "starting", "ready", "draining"]
SURGE_WAIT_S = 3.0
"""Time that an upgrade waits for room for one more server, before it drains one to have room."""
_ORDER: Mapping[Phase, int] = {"placing": 0, "starting": 1, "ready": 2, "draining": 3}


@dataclass(frozen=True)
class ServerView:
    """A server, as far as decisions depend on it."""

    number: int
    generation: int
    phase: Phase
    waiting_s: float = 0.0
    """Time that it has waited for resources, while placing."""


@dataclass(frozen=True)
class ServerPlan:
    """Changes to the servers of a fleet."""

    create: int = 0
    """Number of servers to start."""
    drain: tuple[int, ...] = ()
    """Servers that are to hand over their lanes and end."""
    stop: tuple[int, ...] = ()
    """Servers that serve nobody yet, to be ended at once."""


def plan_servers(wanted: int, generation: int, servers: Sequence[ServerView]) -> ServerPlan:
    """Return what brings the servers nearer to the wanted number of this generation."""
    active = [one for one in servers if one.phase != "draining"]
    outdated = [one for one in active if one.generation != generation]
    if unused := [one.number for one in outdated if one.phase != "ready"]:
        return ServerPlan(stop=tuple(unused))
    surplus = len(active) - wanted
    if surplus < 0:
        return ServerPlan(create=-surplus)
    if outdated:
        return _plan_upgrade(surplus, active, outdated, any(one.phase == "draining" for one in servers))
    # Those that serve nobody yet first, then the newest: the oldest have proved themselves.
    leaving = sorted(active, key=lambda one: (_ORDER[one.phase], -one.number))[:surplus]
    return ServerPlan(
        drain=tuple(one.number for one in leaving if one.phase == "ready"),
        stop=tuple(one.number for one in leaving if one.phase != "ready"),
    )


def _plan_upgrade(
    surplus: int, active: Sequence[ServerView], outdated: Sequence[ServerView], is_draining: bool
) -> ServerPlan:
    oldest = tuple(sorted(one.number for one in outdated))
    if surplus > 1:  # the fleet was made smaller meanwhile
        return ServerPlan(drain=oldest[: surplus - 1])
    if is_draining:
        return ServerPlan()
    current = [one for one in active if one not in outdated]
    waiting = [one for one in current if one.phase != "ready"]
    if not waiting:
        return ServerPlan(drain=oldest[:1]) if surplus else ServerPlan(create=1)
    has_no_room = any(one.phase == "placing" and one.waiting_s > SURGE_WAIT_S for one in waiting)
    return ServerPlan(drain=oldest[:1]) if surplus and has_no_room else ServerPlan()


def choose_processors(usable: Sequence[int], taken: Mapping[int, int], count: int) -> tuple[int, ...]:
    """Return processors for a server: those that the fewest other servers of the machine are bound to."""
    return tuple(sorted(sorted(usable, key=lambda one: (taken.get(one, 0), one))[: max(1, count)]))


def nodes_to_avoid(
    alive: Sequence[str], servers_on: Mapping[str, int], suspects: Sequence[str], attempt: int
) -> tuple[str, ...]:
    """Return the nodes that the next attempt to place a server leaves out, so that servers spread over the nodes.

    The first attempt is for the nodes with the fewest servers of this fleet. Each further one allows one server more;
    when all nodes are allowed, the next attempt includes nodes that have just failed.
    """
    trusted = [node for node in alive if node not in suspects]
    if not trusted:
        return ()
    counts = Counter({node: servers_on.get(node, 0) for node in trusted})
    fewest, most = min(counts.values()), max(counts.values())
    if attempt > most - fewest + 1:
        return ()
    crowded = [node for node in trusted if counts[node] > fewest + attempt]
    return (*crowded, *(node for node in alive if node in suspects))
