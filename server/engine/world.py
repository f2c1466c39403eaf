"""Worlds, their agents, and each agent's position in its sequence of steps. Used by the engine's thread only.

An agent's state is the one that its last reply reported; it starts as INTERRUPTED. A step from INTERRUPTED or
TERMINATED begins a sequence and ignores its actions, a step from RUNNING advances it. A world advances when all its
agents have stepped. It begins a new episode when none of them is in the middle of a sequence; an agent that joins later
begins its sequence in the episode that is under way.

A sequence can end while its agent's stream waits for something else, so that no reply can say so. Such an agent is one
of the world's `interrupted_agents` until its next step, which is answered with INTERRUPTED.
"""

from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import I64, ViewTable
from worldloom.protos.errors import InvalidArgument, RequestError
from worldloom.worlds.family import ActionError, Family
from worldloom.worlds.lanes import INTERRUPTED, LAST, RUNNING, idle_action
from worldloom.worlds.pool import Pool

if TYPE_CHECKING:
    from worldloom.render.scene import Scene
    from worldloom.server.engine.before import StepBefore
    from worldloom.server.engine.observations import AgentSpecs, ObservationRequest
    from worldloom.server.engine.prepared import PreparedStep
    from worldloom.server.engine.replies import ReplyBuffer
    from worldloom.server.engine.resets import WorldReset
    from worldloom.server.engine.shared_memory import Segment
    from worldloom.server.engine.world_settings import WorldSettings


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


class Autoreset(Enum):
    """Begin of the next episode in a lane of a vector world whose episode has ended, as Gymnasium names it."""

    NEXT_STEP = "next_step"
    """The next step begins it, and ignores the lane's action."""
    SAME_STEP = "same_step"
    """It begins within the step that ended the last one."""
    DISABLED = "disabled"
    """ResetWorld begins it; until then the lane waits."""


class LaneSeeds:
    """Seeds of the lanes of a world, as they were given: one for all, or one for each, and the numbers of the lanes."""

    def __init__(self, given: int | Sequence[int], numbers: int | Sequence[int], lanes: int) -> None:
        self.given = given
        """One seed for all lanes, or one for each."""
        self.numbers = numbers
        """Numbers of all lanes, or that of the first."""
        self._lanes = lanes

    @cached_property
    def lane_numbers(self) -> NDArray[np.uint64]:
        """Numbers of the lanes. Made when needed: requests may ask for more lanes than a server allows."""
        if isinstance(self.numbers, int):
            return np.uint64(self.numbers) + np.arange(self._lanes, dtype=np.uint64)
        return np.array(self.numbers, np.uint64)

    @cached_property
    def pairs(self) -> NDArray[np.uint64]:
        """Seed and number of each lane, [2, lanes]. A lane with a seed of its own is lane 0 of a world with it."""
        seeds = np.array([seed % 2**64 for seed in ([self.given] if isinstance(self.given, int) else self.given)], "u8")
        numbers = self.lane_numbers if isinstance(self.given, int) else np.zeros_like(self.lane_numbers)
        return np.stack([np.broadcast_to(seeds, numbers.shape), numbers])

    def replaced(self, others: Self, where: NDArray[np.bool_]) -> Self:
        """Return these seeds with others in some lanes."""
        mixed = type(self)(self.given, self.numbers, self._lanes)
        mixed.pairs = np.where(where, others.pairs, self.pairs)
        return mixed

    def in_family(self, family: Family) -> NDArray[np.uint64]:
        """Return the seeds that the lanes have by the rule of a family."""
        seeds, numbers = self.pairs
        return family.lane_seeds(seeds, numbers)


class Step:
    """One step of one agent, from its request to its reply."""

    __slots__ = (
        "actions",
        "agent",
        "answer",
        "before",
        "boundary",
        "fail",
        "final",
        "out",
        "reply",
        "request",
        "ring_index",
        "state",
    )

    def __init__(
        self,
        agent: "Agent",
        actions: Mapping[str, np.ndarray],
        request: "ObservationRequest",
        answer: Callable[["Step"], None],
        fail: Callable[[RequestError], None],
        out: "ReplyBuffer | None" = None,
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
        self.before: StepBefore | None = None
        """Poses and cameras of its lanes before it, if it asks for flow."""
        self.reply: Any = b""
        self.out = out
        """Memory of the caller's that the reply is written into, instead of a buffer of the layout."""
        self.ring_index: int | None = None
        """The set of frames in shared memory that the step is drawn into, once it is known."""
        self.final: list[np.ndarray] | None = None
        """Last observations of the episodes that ended with this step: `request.final_observations` in order."""


class Agent:
    """A participant of a world, joined through a stream or a trial."""

    def __init__(self, world: "World", index: int, specs: "AgentSpecs") -> None:
        self.world = world
        self.index = index
        self.specs = specs
        self.owner = ""
        """Name of the stream or of the trial's actor that it belongs to, for people who watch."""
        self.state = INTERRUPTED
        self.step: Step | None = None
        """The step that waits for the steps of the other agents."""
        self.segment: Segment | None = None
        """Memory shared with the agent's client."""
        self.half_heights: dict[str, float] = {}
        """Changed fields of view, by camera; see worldloom.kernels.tables.ViewTable."""
        self.last_request: ObservationRequest | None = None
        """Observation request of its last step, if that was alone in its tick."""
        self.prepared: PreparedStep | None = None
        """Views, addresses and numbers of its next step, while steps ask for the same."""
        self.is_resetting = False
        """The agent's stream waits for ResetWorld of this world or another, cannot step, and is not waited for."""

    def replace_specs(self, specs: "AgentSpecs") -> None:
        """Use other specs with the same UIDs, for the waiting step too."""
        self.specs = specs
        if self.step is not None:
            request = self.step.request
            self.step.request = specs.request([spec.uid for spec in request.observations], request.layout_cache)

    @property
    def is_running(self) -> bool:
        """The agent is in the middle of a sequence."""
        return self.state == RUNNING

    @property
    def is_told_running(self) -> bool:
        """The last reply reported RUNNING, so the client believes to be in the middle of a sequence."""
        return self.is_running or self in self.world.interrupted_agents

    def views(self, lanes: I64, camera: str, outputs: int) -> ViewTable:
        """Return a view of each of these lanes of the world's pool through a camera, as this agent has joined."""
        join = self.specs.join_settings
        return self.world.pool.views(
            lanes,
            camera,
            self.index,
            width=join.width,
            height=join.height,
            outputs=outputs,
            samples=join.samples,
            shadows=join.shadows,
        )

    def set_field_of_view(self, views: ViewTable, camera: str, rows: slice = slice(None)) -> None:
        """Give these views through a camera the field of view that the agent has set by a property, if it has."""
        if camera in self.half_heights:
            views.half_height[rows] = self.half_heights[camera]

    def check_actions(self, actions: Mapping[str, np.ndarray]) -> None:
        """Raise InvalidArgument for actions that the family rejects, though each is in its range."""
        check = self.world.check_actions
        if check is None:
            return
        try:
            check(actions)
        except ActionError as error:
            raise InvalidArgument(str(error)) from None

    def end_sequence(self) -> None:
        """Begin another sequence with the next step. The client knows: the reply to its current request says so."""
        self.state = INTERRUPTED
        self.world.interrupted_agents.discard(self)


class World:
    """One or more lanes of a pool, and the agents in them."""

    def __init__(self, name: str, settings: "WorldSettings", pool: Pool, lanes: I64) -> None:
        self.name = name
        self.settings = dict(settings.own)
        """The family's own settings, as given."""
        self.variations = settings.variations
        """The variations of its lanes."""
        self.seeds = settings.seeds
        self.is_vector = settings.is_vector
        self.autoreset = settings.autoreset
        self.action_repeat = settings.action_repeat
        self.move(pool, lanes)
        self.agents: dict[int, Agent] = {}
        """Agents by index."""
        self.resets: list[WorldReset] = []
        self.interrupted_agents: set[Agent] = set()
        """Agents whose last reply reported RUNNING, and whose sequence was ended since."""
        self.begun: NDArray[np.bool_] | None = None
        """Lanes whose episode was begun for the waiting steps, while they are begun over several ticks; else None."""
        self.has_begun = False
        """The episodes of its lanes go on with the next step. False before the first step, and after a reset of all."""
        self.reset_lanes: NDArray[np.bool_] | None = None
        """Lanes that begin an episode with the next step, which holds the others, after a reset of some."""
        self.ended: I64 | None = None
        """Indices of the lanes whose episode ended with this step, if the next has to begin within it."""
        self.lighting: dict[str, np.ndarray] = {}
        """Changed columns of worldloom.kernels.tables.LaneTable."""
        self.used_at_s = 0.0
        self.creator = ""
        """Name of the stream that created it."""
        self.trial_id = ""
        """Id of the trial that it belongs to, if any."""
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
        checks = type(pool.family).check_actions is not Family.check_actions
        self.check_actions = pool.family.check_actions if checks else None
        """Raises ActionError for actions that the family rejects; None for families that reject none."""
        self.idle_actions = {spec.name: idle_action(spec, len(lanes)) for spec in pool.family.actions}
        """Values of actions that are not sent."""

    @property
    def is_ready(self) -> bool:
        """All agents have stepped, and no reset waits."""
        if self.resets or not self.agents:
            return False
        return None not in [agent.step for agent in self.agents.values()]

    @property
    def begins_episode(self) -> bool:
        """No agent is in the middle of a sequence, so the next step begins an episode."""
        return RUNNING not in [agent.state for agent in self.agents.values()]

    @property
    def kept_lanes(self) -> NDArray[np.bool_] | None:
        """Lanes that a reset leaves in their episode, since it began within the last step and none has followed.

        So the next episode of a lane is the same in all modes of autoreset. None if there are no such lanes.
        """
        if self.autoreset is not Autoreset.SAME_STEP or not self.begins_episode:
            return None
        pool, lanes = self.pool, self.lanes
        is_new: NDArray[np.bool_] = (pool.status[lanes] == RUNNING) & (pool.steps[lanes] == 0)
        is_new &= pool.step_type[lanes] == LAST
        if self.reset_lanes is not None:
            is_new &= self.reset_lanes
        return is_new if is_new.any() else None

    @property
    def held_lanes(self) -> NDArray[np.bool_] | None:
        """Lanes that the next step leaves as they are; None if there are none."""
        if self.begins_episode:
            kept = self.kept_lanes
            if self.reset_lanes is None:
                return kept
            return ~self.reset_lanes if kept is None else ~self.reset_lanes | kept
        if self.autoreset is Autoreset.DISABLED:
            has_ended: NDArray[np.bool_] = self.pool.status[self.lanes] != RUNNING
            return has_ended if has_ended.any() else None
        return None

    @property
    def beginning_lanes(self) -> NDArray[np.bool_]:
        """Lanes in which the next step begins an episode, apart from those that have begun one for it."""
        if not self.begins_episode:
            is_over: NDArray[np.bool_] = self.pool.status[self.lanes] != RUNNING
            return is_over & (self.autoreset is not Autoreset.DISABLED)
        held = self.held_lanes
        beginning = np.ones(len(self.lanes), np.bool_) if held is None else ~held
        return beginning if self.begun is None else beginning & ~self.begun

    def action_of(self, agent_index: int, name: str) -> np.ndarray:
        """Return an action of an agent for the waiting step, [lanes, *shape]; the idle one if none was sent."""
        agent = self.agents.get(agent_index)
        action = None
        if agent is not None and agent.state == RUNNING and agent.step is not None:
            action = agent.step.actions.get(name)
        return self.idle_actions[name] if action is None else action

    def write_lighting(self, scene: "Scene") -> None:
        """Write the lights that agents have set by properties over those of the family, before a draw."""
        for column, value in self.lighting.items():
            getattr(scene.lanes, column)[self.pool.scene_lane[self.lanes]] = value

    def reset_all(self) -> None:
        """Begin an episode in every lane with the next step."""
        self.has_begun, self.reset_lanes = False, None

    def reset_some(self, is_reset: NDArray[np.bool_]) -> None:
        """Begin an episode in these lanes with the next step, which leaves the others as they are."""
        if self.has_begun:
            self.reset_lanes = is_reset if self.reset_lanes is None else self.reset_lanes | is_reset

    @property
    def is_attended(self) -> bool:
        """The world has an agent whose end will be noticed."""
        return self.has_streams and bool(self.agents)

    @property
    def is_free_to_reset(self) -> bool:
        """Every agent's sequence has ended, or its stream waits for ResetWorld itself."""
        return not any(agent.is_running and not agent.is_resetting for agent in self.agents.values())


def finish_step(world: World, has_begun: bool, status: int) -> list[Step]:
    """Set the states of the agents of a world that has advanced, and return their steps.

    `has_begun` tells whether its first lane began an episode, `status` is the state of that lane.
    """
    is_partial = world.reset_lanes is not None
    world.has_begun, world.reset_lanes = True, None
    if world.autoreset is Autoreset.SAME_STEP:
        ended = np.flatnonzero(world.pool.status[world.lanes] != RUNNING)
        world.ended = ended if len(ended) else None
    status = RUNNING if world.is_vector else status
    return [_finish_step(agent, has_begun, status, is_partial) for agent in world.agents.values()]


def _finish_step(agent: Agent, has_begun: bool, status: int, is_partial: bool) -> Step:
    step, agent.step = agent.step, None
    assert step is not None, "a world is ready when all its agents have stepped"
    if agent.state != RUNNING:
        # After a reset of some lanes each lane has a step type of its own.
        step.state, step.boundary = RUNNING, Boundary.NONE if is_partial else Boundary.FIRST
    elif has_begun and not agent.world.is_vector:
        # The episode ended in the very step that began this agent's sequence, whose reply had to report RUNNING.
        step.state, step.boundary = INTERRUPTED, Boundary.LAST
    else:
        step.state, step.boundary = status, Boundary.NONE
    agent.state = step.state
    return step


def interrupt_sequences(world: World) -> list[Step]:
    """Return the last steps of agents whose sequence was ended, or is by a waiting reset."""
    last_steps: list[Step] = []
    for agent in world.agents.values():
        step = agent.step
        if step is not None and (agent in world.interrupted_agents or (world.resets and agent.is_running)):
            agent.step = world.begun = None
            agent.end_sequence()
            step.state, step.boundary = INTERRUPTED, Boundary.LAST
            last_steps.append(step)
    return last_steps
