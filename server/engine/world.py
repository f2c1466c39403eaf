"""Worlds, their agents, and each agent's position in its sequence of steps. Used by the engine's thread only.

An agent's state is the one that its last reply reported; it starts as INTERRUPTED. A step from INTERRUPTED or
TERMINATED begins a sequence and ignores its actions, a step from RUNNING advances it. A world advances when all its
agents have stepped. It begins a new episode when none of them is in the middle of a sequence; an agent that joins later
begins its sequence in the episode that is under way.

A sequence can end while its agent's stream waits for something else, so that no reply can say so. Such an agent is one
of the world's `interrupted_agents` until its next step, which is answered with INTERRUPTED.
"""

from asyncio import CancelledError
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import I64
from worldloom.protos.errors import RequestError
from worldloom.worlds.family import Spec
from worldloom.worlds.pool import INTERRUPTED, RUNNING, Pool

if TYPE_CHECKING:
    from worldloom.server.engine.observations import AgentSpecs, ObservationRequest
    from worldloom.server.engine.shared_memory import Segment
    from worldloom.server.engine.slices import LaneAddition


FAILURES = (Exception, SystemExit, GeneratorExit, CancelledError)
"""Everything that code of others may raise, and that must not end the engine. KeyboardInterrupt is not part of it: in a
program with an engine in its own process it is the user's."""


class Boundary(Enum):
    """An end of an agent's sequence that is not an end of the episode.

    Replies report reward, discount and step type of the episode, unless a sequence begins (FIRST) or is cut (LAST) for
    this agent alone.
    """

    NONE = 0
    FIRST = 1
    LAST = 2


class Step:
    """One step of one agent, from its request to its reply."""

    __slots__ = ("actions", "agent", "answer", "boundary", "fail", "reply", "request", "ring_index", "state")

    def __init__(
        self,
        agent: "Agent",
        actions: Mapping[str, np.ndarray],
        request: "ObservationRequest",
        answer: Callable[["Step"], None],
        fail: Callable[[RequestError], None],
    ) -> None:
        self.agent = agent
        self.actions = actions
        """[lanes, *shape] by name. An action that is missing is replaced by the idle one."""
        self.request = request
        self.answer = answer
        """Called with this step once its reply is complete."""
        self.fail = fail
        """Called instead of `answer` if the step fails."""
        self.state = INTERRUPTED
        self.boundary = Boundary.NONE
        self.reply = b""
        self.ring_index: int | None = None
        """The set of frames in shared memory that the step is drawn into, once it is known."""


class Agent:
    """A participant of a world, joined through a stream or a trial."""

    def __init__(self, world: "World", index: int, specs: "AgentSpecs") -> None:
        self.world = world
        self.index = index
        self.specs = specs
        self.state = INTERRUPTED
        self.step: Step | None = None
        """The step that waits for the steps of the other agents."""
        self.segment: Segment | None = None
        """Memory shared with the agent's client."""
        self.half_heights: dict[str, float] = {}
        """Changed fields of view, by camera; see worldloom.kernels.tables.ViewTable."""
        self.is_resetting = False
        """The agent's stream waits for ResetWorld of this world or another, cannot step, and is not waited for."""

    def replace_specs(self, specs: "AgentSpecs") -> None:
        """Use other specs with the same UIDs, for the waiting step too."""
        self.specs = specs
        if self.step is not None:
            self.step.request = specs.request([spec.uid for spec in self.step.request.observations])

    @property
    def is_running(self) -> bool:
        """The agent is in the middle of a sequence."""
        return self.state == RUNNING

    @property
    def is_told_running(self) -> bool:
        """The last reply reported RUNNING, so the client believes to be in the middle of a sequence."""
        return self.is_running or self in self.world.interrupted_agents

    def end_sequence(self) -> None:
        """Begin another sequence with the next step. The client knows: the reply to its current request says so."""
        self.state = INTERRUPTED
        self.world.interrupted_agents.discard(self)


class WorldReset:
    """A ResetWorld request that waits until the agents that it interrupts have been answered."""

    def __init__(
        self,
        caller: Agent | None,
        given: Mapping[str, object],
        answer: Callable[[], None],
        fail: Callable[[RequestError], None],
    ) -> None:
        self.caller = caller
        """The caller's own agent, if it has joined a world: this one or another."""
        self.given = given
        """Settings of ResetWorld."""
        self.answer = answer
        self.fail = fail
        self.addition: LaneAddition | None = None
        """The lanes that the world will have, if the settings need others."""


class World:
    """One or more lanes of a pool, and the agents in them."""

    def __init__(self, name: str, settings: Mapping[str, object], seed: int, pool: Pool, lanes: I64) -> None:
        self.name = name
        self.settings = dict(settings)
        """The family's own settings, as given."""
        self.seed = seed
        self.is_vector = False
        self.move(pool, lanes)
        self.agents: dict[int, Agent] = {}
        """Agents by index."""
        self.resets: list[WorldReset] = []
        self.interrupted_agents: set[Agent] = set()
        """Agents whose last reply reported RUNNING, and whose sequence was ended since."""
        self.begun: NDArray[np.bool_] | None = None
        """Lanes whose episode was begun for the waiting steps, while they are begun over several ticks; else None."""
        self.lighting: dict[str, np.ndarray] = {}
        """Changed columns of worldloom.kernels.tables.LaneTable."""
        self.used_at_s = 0.0
        self.creator = ""
        """Name of the stream that created it."""
        self.is_lost = False
        """The stream that created and joined it has ended without leaving it, and nobody has used it since."""
        self.has_streams = True
        """The agents are streams, whose end is noticed. Otherwise only calls show that the world is in use."""
        self.is_gone = False
        self.when_gone: Callable[[str], None] = lambda why: None
        """Called with the reason when the world is destroyed."""

    def move(self, pool: Pool, lanes: I64) -> None:
        """Use these lanes of this pool from now on."""
        self.pool = pool
        self.lanes = lanes
        self.begun = None
        self.idle_actions = {spec.name: idle_action(spec, len(lanes)) for spec in pool.family.actions}
        """Values of actions that are not sent."""

    @property
    def is_ready(self) -> bool:
        """All agents have stepped, and no reset waits."""
        return bool(self.agents) and not self.resets and all(agent.step for agent in self.agents.values())

    @property
    def begins_episode(self) -> bool:
        """No agent is in the middle of a sequence, so the next step begins an episode."""
        return not any(agent.is_running for agent in self.agents.values())

    @property
    def is_attended(self) -> bool:
        """The world has an agent whose end will be noticed."""
        return self.has_streams and bool(self.agents)

    @property
    def is_free_to_reset(self) -> bool:
        """Every agent's sequence has ended, or its stream waits for ResetWorld itself."""
        return not any(agent.is_running and not agent.is_resetting for agent in self.agents.values())


def interrupt_sequences(world: World) -> list[Step]:
    """Return the last steps of agents whose sequence was ended, or is by a waiting reset."""
    last_steps: list[Step] = []
    for agent in world.agents.values():
        step = agent.step
        if step is not None and (agent in world.interrupted_agents or (world.resets and agent.is_running)):
            agent.step = None
            agent.end_sequence()
            world.begun = None
            step.state, step.boundary = INTERRUPTED, Boundary.LAST
            last_steps.append(step)
    return last_steps


def idle_action(spec: Spec, lanes: int) -> np.ndarray:
    """Return [lanes, *shape] of zero, or of the allowed value nearest to it."""
    low = -np.inf if spec.minimum is None else np.reshape(spec.minimum, spec.shape if np.ndim(spec.minimum) else ())
    high = np.inf if spec.maximum is None else np.reshape(spec.maximum, spec.shape if np.ndim(spec.maximum) else ())
    is_text = np.dtype(spec.dtype).kind == "U"
    idle = np.empty((lanes, *spec.shape), spec.dtype)
    idle[...] = "" if is_text else np.clip(0, low, high)
    idle.flags.writeable = False  # shared by all steps
    return idle
