"""Worlds, their agents, and where each agent stands in its sequence. All of it belongs to the engine's thread.

An agent's state is what its last reply told it. It starts in INTERRUPTED. A step from there begins a sequence and
ignores its actions; a step from RUNNING advances it. A world advances when all agents in it have stepped. It begins a
new episode when none of them is in the middle of one; whoever comes later begins its sequence in the episode that is
under way.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from worldloom.kernels.tables import I64
from worldloom.protos.errors import Refusal
from worldloom.worlds.family import Spec
from worldloom.worlds.pool import INTERRUPTED, RUNNING, Pool

if TYPE_CHECKING:
    from worldloom.server.engine.observations import Offer, Wanted
    from worldloom.server.engine.shared_memory import Segment

AS_IT_IS, AS_FIRST, AS_LAST = 0, 1, 2
"""What reward, discount and step_type of a reply say: what the episode says; or that a sequence begins, or is cut, for
this agent alone."""


class Step:
    """A step of one agent, from its request to its reply."""

    __slots__ = ("actions", "agent", "answer", "refuse", "reply", "state", "wanted", "way")

    def __init__(
        self,
        agent: "Agent",
        actions: Mapping[str, np.ndarray],
        wanted: "Wanted",
        answer: Callable[["Step"], None],
        refuse: Callable[[Refusal], None],
    ) -> None:
        self.agent = agent
        self.actions = actions
        """[lanes, *shape] by name; those that are missing do nothing."""
        self.wanted = wanted
        self.answer = answer
        """Called with the step once its reply is there."""
        self.refuse = refuse
        self.state = INTERRUPTED
        self.way = AS_IT_IS
        self.reply = b""


class Agent:
    """Someone in a world."""

    def __init__(self, world: "World", slot: int, offer: "Offer") -> None:
        self.world = world
        self.slot = slot
        self.offer = offer
        self.state = INTERRUPTED
        self.step: Step | None = None
        """The step that waits for the other agents."""
        self.segment: Segment | None = None
        """Memory shared with its client."""
        self.half_heights: dict[str, float] = {}
        """Of cameras whose field of view was changed; see worldloom.kernels.tables.ViewTable."""
        self.is_resetting = False
        """Its stream waits in ResetWorld, of this world or of another: it cannot step, so nobody waits for it."""

    def take_offer(self, offer: "Offer") -> None:
        """Be offered something else, by the same numbers, in the step that waits as well."""
        self.offer = offer
        if self.step is not None:
            self.step.wanted = offer.want([one.uid for one in self.step.wanted.observations])

    @property
    def is_running(self) -> bool:
        """In the middle of a sequence."""
        return self.state == RUNNING


class WorldReset:
    """A ResetWorld request that waits for the agents it interrupts."""

    def __init__(
        self,
        caller: Agent | None,
        restart: Callable[[], None],
        answer: Callable[[], None],
        refuse: Callable[[Refusal], None],
    ) -> None:
        self.caller = caller
        """The caller's own agent, if it is in a world: this one or another."""
        self.restart = restart
        """Applies the settings, or refuses."""
        self.answer = answer
        self.refuse = refuse


class World:
    """One or more lanes of a pool, and who is in there."""

    def __init__(self, name: str, settings: Mapping[str, object], seed: int, pool: Pool, lanes: I64) -> None:
        self.name = name
        self.settings = dict(settings)
        """The family's own, as they were given."""
        self.seed = seed
        self.is_vector = False
        self.move(pool, lanes)
        self.agents: dict[int, Agent] = {}
        self.resets: list[WorldReset] = []
        self.lighting: dict[str, np.ndarray] = {}
        """Columns of worldloom.kernels.tables.LaneTable that were changed."""
        self.used_at_s = 0.0
        self.has_streams = True
        """Whether its agents are streams, which are seen to go. Else nobody is there but when a call is made."""
        self.is_gone = False
        self.when_gone: Callable[[str], None] = lambda why: None
        """Called when it is destroyed, with the reason."""

    def move(self, pool: Pool, lanes: I64) -> None:
        """Be these lanes from now on."""
        self.pool = pool
        self.lanes = lanes
        self.idle_actions = {spec.name: idle_action(spec, len(lanes)) for spec in pool.family.actions}
        """What actions that nobody sends stand for."""

    @property
    def is_ready(self) -> bool:
        """All agents have stepped, and nobody waits to reset."""
        return bool(self.agents) and not self.resets and all(agent.step for agent in self.agents.values())

    @property
    def begins_anew(self) -> bool:
        """Nobody is in the middle of a sequence."""
        return not any(agent.is_running for agent in self.agents.values())

    @property
    def is_attended(self) -> bool:
        """Somebody is there who will be seen to go."""
        return self.has_streams and bool(self.agents)

    @property
    def is_free_to_reset(self) -> bool:
        """Everyone has been told that the sequence ends, or waits in ResetWorld itself."""
        return not any(agent.is_running and not agent.is_resetting for agent in self.agents.values())


def idle_action(spec: Spec, lanes: int) -> np.ndarray:
    """[lanes, *shape] of zero, or of what is allowed nearest to it."""
    low = -np.inf if spec.minimum is None else np.reshape(spec.minimum, spec.shape if np.ndim(spec.minimum) else ())
    high = np.inf if spec.maximum is None else np.reshape(spec.maximum, spec.shape if np.ndim(spec.maximum) else ())
    is_text = np.dtype(spec.dtype).kind == "U"
    idle = np.empty((lanes, *spec.shape), spec.dtype)
    idle[...] = "" if is_text else np.clip(0, low, high)
    idle.flags.writeable = False  # it serves every step
    return idle
