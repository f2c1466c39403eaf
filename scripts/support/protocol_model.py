"""What the protocol asks of a server with some worlds, as plain Python: who is told what, who waits for whom.

Shares nothing with the server. Worlds here are of a few kinds whose episodes end after a known number of steps, as long
as nobody moves.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

RUNNING, TERMINATED, INTERRUPTED = 1, 2, 3
FIRST, MID, LAST = 0, 1, 2
MAX_WORLDS, MAX_LANES = 4, 6


class Kind(NamedTuple):
    """A kind of world."""

    settings: dict[str, Any]
    agents: int
    lanes: int | None
    lands_after: int
    """Steps after which an episode ends by its rules."""


CATCH = {"family": "catch", "rows": 3, "max_steps": 9}
MAZE = {"family": "maze", "size": 5, "goals": 1, "max_steps": 3}
KINDS = (
    Kind(CATCH, 1, None, 2),
    Kind({**MAZE, "agents": 3}, 3, None, 10**9),
    Kind({**CATCH, "lanes": 2}, 1, 2, 2),
    Kind({**MAZE, "agents": 2, "lanes": 2}, 2, 2, 10**9),
)


@dataclass(eq=False)
class Agent:
    world: "World"
    slot: int
    state: int = INTERRUPTED
    has_stepped: bool = False
    must_be_told: bool = False
    """Its sequence was ended while it could not be told: the next step says so."""

    @property
    def believes_to_run(self) -> bool:
        return self.state == RUNNING or self.must_be_told

    def end(self) -> None:
        """End its sequence, and the answer to its request says so."""
        if self.believes_to_run:
            self.state, self.must_be_told = INTERRUPTED, False


@dataclass(eq=False)
class World:
    kind: Kind
    max_steps: int
    name: str = ""
    steps: int | None = None
    """In the episode; None: the next step begins one."""
    agents: dict[int, tuple["Client", Agent]] = field(default_factory=dict)
    resets: list[tuple["Client", int | None]] = field(default_factory=list)
    """Who waits to reset it, and the max_steps they want."""
    has_other_specs: bool = False
    """Whether a reset has changed them: they can only be changed once here."""
    is_gone: bool = False


@dataclass(eq=False)
class Client:
    agent: Agent | None = None
    is_busy: bool = False
    resets: bool = False
    """Waits in ResetWorld."""
    is_closed: bool = False
    expected: list[tuple[Any, ...]] = field(default_factory=list)
    """Answers that must have come: a kind, and what goes with it."""

    def told(self, *answer: Any) -> None:
        self.is_busy = self.resets = False
        if not self.is_closed:
            self.expected.append(answer)

    @property
    def world(self) -> World | None:
        """Where it is, if that is still there."""
        return None if self.agent is None or self.agent.world.is_gone else self.agent.world


class Model:
    def __init__(self) -> None:
        self.worlds: list[World] = []
        self.created: list[tuple[Client, World]] = []
        """Worlds whose names are not known yet."""
        self._first: World | None = None
        """The world that goes on before all others."""

    @property
    def is_crossed(self) -> bool:
        """Somebody who is running in one world waits to reset another: then the order in which worlds go on matters."""
        return any(
            caller.world not in (None, world) and not caller.is_closed
            for world in self.worlds
            for caller, _ in world.resets
        )

    # Requests.

    def create(self, client: Client, kind: Kind, is_right: bool) -> None:
        lanes = kind.lanes or 1
        if not is_right:
            client.told("error", "INVALID_ARGUMENT")
        elif len(self.worlds) >= MAX_WORLDS or sum(w.kind.lanes or 1 for w in self.worlds) + lanes > MAX_LANES:
            client.told("error", "RESOURCE_EXHAUSTED")
        else:
            world = World(kind, int(kind.settings["max_steps"]))
            self.worlds.append(world)
            self.created.append((client, world))
            client.told("create_world")

    def join(self, client: Client, world: World | None, slot: int | None, is_right: bool) -> None:
        if client.world is not None:
            client.told("error", "FAILED_PRECONDITION")
        elif world is None or world.is_gone:
            client.told("error", "NOT_FOUND")
        elif not is_right or (slot is not None and slot >= world.kind.agents):
            client.told("error", "INVALID_ARGUMENT")
        else:
            free = [number for number in range(world.kind.agents) if number not in world.agents]
            if not free or (slot is not None and slot not in free):
                client.told("error", "FAILED_PRECONDITION")
                return
            client.agent = Agent(world, free[0] if slot is None else slot)
            world.agents[client.agent.slot] = client, client.agent
            client.told("join_world")

    def step(self, client: Client, wants_right: bool, acts_right: bool) -> None:
        if self._is_outside(client):
            return
        agent = client.agent
        assert agent is not None
        if not wants_right or (agent.believes_to_run and not acts_right):
            client.told("error", "INVALID_ARGUMENT")
        else:
            agent.has_stepped = client.is_busy = True

    def reset(self, client: Client, is_right: bool) -> None:
        if self._is_outside(client):
            return
        if not is_right:
            client.told("error", "INVALID_ARGUMENT")
            return
        assert client.agent is not None
        client.agent.end()
        client.told("reset")

    def reset_world(
        self, client: Client, world: World | None, max_steps: int | None, is_right: bool, changes_specs: bool
    ) -> None:
        if world is None or world.is_gone:
            client.told("error", "NOT_FOUND")
        elif not is_right:
            client.told("error", "INVALID_ARGUMENT")
        elif changes_specs and not world.has_other_specs and world.agents:
            client.told("error", "FAILED_PRECONDITION")
        else:
            world.has_other_specs |= changes_specs
            client.is_busy = client.resets = True
            if client.world not in (None, world):
                # From now on its own world need not wait for it: a reset that does is done before this one.
                assert client.world is not None
                self._finish_resets(client.world)
                self._first = client.world
            world.resets.append((client, max_steps))
            self._finish_resets(world)

    def leave(self, client: Client) -> None:
        self._take_out(client)
        client.told("leave_world")

    def destroy(self, client: Client, world: World | None) -> None:
        if world is None or world.is_gone:
            client.told("error", "NOT_FOUND")
        elif client.world is world:
            client.told("error", "FAILED_PRECONDITION")
        else:
            self.worlds.remove(world)
            world.is_gone = True
            for one, agent in world.agents.values():
                if agent.has_stepped:
                    one.told("error", "NOT_FOUND")
            for one, _ in world.resets:
                one.told("error", "NOT_FOUND")
            world.resets.clear()
            client.told("destroy_world")

    def read(self, client: Client) -> None:
        """A property of the world that the client is in."""
        client.told(*(("error", "NOT_FOUND") if client.world is None else ("extension",)))

    def nonsense(self, client: Client, code: str) -> None:
        client.told("error", code)

    def close(self, client: Client) -> None:
        client.is_closed = True
        self._take_out(client)

    # What follows.

    def go_on(self) -> None:
        """Every world goes as far as it can without another request."""
        first, self._first = self._first, None
        if first in self.worlds:
            assert first is not None
            self._go_on(first)
        while sum(self._go_on(world) for world in self.worlds):
            pass

    def _go_on(self, world: World) -> bool:
        agents = list(world.agents.values())
        for client, agent in agents:
            if agent.has_stepped and (agent.must_be_told or (world.resets and agent.state == RUNNING)):
                agent.must_be_told = False
                self._tell(client, agent, INTERRUPTED, LAST, 1.0)
        if world.resets:
            return self._finish_resets(world)
        if not agents or not all(agent.has_stepped for _, agent in agents):
            return False
        self._advance(world)
        return True

    def _advance(self, world: World) -> None:
        agents = list(world.agents.values())
        begins = world.steps is None or not any(agent.state == RUNNING for _, agent in agents)
        world.steps = 0 if begins or world.steps is None else world.steps + 1
        status, kind = RUNNING, FIRST if begins else MID
        if world.steps == world.kind.lands_after:
            status, kind = TERMINATED, LAST
        elif world.steps >= world.max_steps:
            status, kind = INTERRUPTED, LAST
        discount = 0.0 if status == TERMINATED else 1.0
        for client, agent in agents:
            if agent.state != RUNNING:
                self._tell(client, agent, RUNNING, FIRST, 1.0)
            elif world.kind.lanes is not None:
                self._tell(client, agent, RUNNING, kind, discount)
            elif begins:
                self._tell(client, agent, INTERRUPTED, LAST, 1.0)
            else:
                self._tell(client, agent, status, kind, discount)
        if status != RUNNING:
            world.steps = None

    def _finish_resets(self, world: World) -> bool:
        agents = list(world.agents.values())
        if not world.resets or any(agent.state == RUNNING and not client.resets for client, agent in agents):
            return False
        resets, world.resets = world.resets, []
        callers = [client for client, _ in resets]
        for client, agent in agents:
            if client in callers:
                agent.end()
            elif agent.state == RUNNING:
                agent.state, agent.must_be_told = INTERRUPTED, True
        for client, max_steps in resets:
            world.max_steps = world.max_steps if max_steps is None else max_steps
            client.told("reset_world")
        world.steps = None
        return True

    def _tell(self, client: Client, agent: Agent, state: int, step_type: int, discount: float) -> None:
        agent.state, agent.has_stepped = state, False
        lanes = agent.world.kind.lanes or 1
        client.told("step", state, [step_type] * lanes, [discount] * lanes)

    def _is_outside(self, client: Client) -> bool:
        if client.world is None:
            client.told("error", "FAILED_PRECONDITION" if client.agent is None else "NOT_FOUND")
        return client.world is None

    def _take_out(self, client: Client) -> None:
        if client.world is not None and client.agent is not None:
            del client.world.agents[client.agent.slot]
        client.agent = None

    def everyone_in(self) -> Iterator[Agent]:
        """All agents in worlds that are there."""
        return (agent for world in self.worlds for _, agent in world.agents.values())
