"""The world of one trial: its agents are the trial's actors and step together, once a tick. Engine thread only.

Actions arrive as serialized `worldloom.trials.Action` messages. Observations leave in the reply buffers that the engine
fills, with this layout:

    Observation { observations: { name: Tensor { payload { array }, shape }, … } }

An ObservationDelta has the same wire format, in which each entry of the map is a contiguous run of bytes. So a delta is
the concatenation of the runs that have changed, and merging it into the previous observation gives the new one, since
later entries of a protobuf map replace earlier ones.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from worldloom.protos.errors import FailedPrecondition, Internal, InvalidArgument, RequestError
from worldloom.protos.wire import field_header
from worldloom.protos.worldloom import trials_pb2
from worldloom.server.dm_env_rpc.step_layout import entry_head
from worldloom.server.dm_env_rpc.tensors import ActionReader, check_field_count, shown
from worldloom.server.engine.engine import Engine
from worldloom.server.engine.observations import (
    DTYPES_AS_IN_MEMORY,
    ObservationRequest,
    ObservationSpec,
)
from worldloom.server.engine.replies import ObservationField, ReplyLayout, bytes_layout
from worldloom.server.engine.world import Agent, Boundary, Step, World

M = TypeVar("M", bound=Message)

_OBSERVATIONS_FIELD = trials_pb2.Observation.DESCRIPTOR.fields_by_name["observations"].number
_KEY_FIELD = 1
"""Field of the key in an entry of a protobuf map."""


class InvalidAction(InvalidArgument):
    """An actor's action that cannot be parsed or is out of bounds. The world is unchanged: another may be given."""

    def __init__(self, actor_id: int, problem: str) -> None:
        super().__init__(problem)
        self.actor_id = actor_id


class EncodedObservation(NamedTuple):
    """The content of an ObservationData."""

    content: bytes
    is_snapshot: bool


class RewardConfidence(NamedTuple):
    """Confidence of the feedback with which a trial's world gives rewards."""

    reward_confidence: float = 1.0
    zero_reward_confidence: float = 0.0
    """For rewards of 0, which say nothing in most worlds: by default they do not count beside others' feedback."""

    def of(self, reward: float) -> float:
        """Return the confidence for a reward."""
        return self.reward_confidence if reward else self.zero_reward_confidence


class TickResult(NamedTuple):
    """Observations and rewards of all actors after a tick."""

    tick_id: int
    timestamp_ns: int
    observations: list[EncodedObservation]
    actors_map: list[int]
    """Index of each actor's observation."""
    rewards: list[tuple[float, float]]
    """Reward of each actor and its confidence."""
    is_last: bool
    """True if the episode has ended, and the trial with it."""


Reply: TypeAlias = TickResult | RequestError | None
Answer: TypeAlias = Callable[[Reply], None]


class WorldActor:
    """An actor of a trial: the agent of its world, its action readers and its observations."""

    def __init__(self, agent: Agent, takes_deltas: bool) -> None:
        self.agent = agent
        self.readers = {spec.name: ActionReader(spec, None) for spec in agent.specs.actions.values()}
        self._uids = tuple(agent.specs.observations)
        self._specs = agent.specs
        self._request = agent.specs.request(self._uids)
        self._deltas = DeltaEncoder(self._request) if takes_deltas else None

    @property
    def request(self) -> ObservationRequest:
        """Request for all observations of its class; a reset that moves the world to another pool changes it."""
        if self._specs is not self.agent.specs:
            self._specs = self.agent.specs
            self._request = self._specs.request(self._uids)
        return self._request

    def encode(self, snapshot: bytes, as_snapshot: bool) -> EncodedObservation:
        """Encode an observation as a delta or snapshot for this actor."""
        if self._deltas is None:
            return EncodedObservation(snapshot, is_snapshot=True)
        return self._deltas.encode(snapshot, as_snapshot)

    def reset_deltas(self) -> None:
        """Make the next observation a snapshot."""
        if self._deltas is not None:
            self._deltas.reset()


class PendingTick:
    """A step of all actors. `finish` is called when the last of them has an answer or an error."""

    def __init__(
        self, actor_count: int, as_snapshot: bool, answer: Answer, finish: Callable[["PendingTick"], None]
    ) -> None:
        self.as_snapshot = as_snapshot
        self.answer = answer
        self.steps: list[Step] = []
        self.error: RequestError | None = None
        """The error of the first step that failed."""
        self._finish = finish
        self._missing = actor_count

    def add(self, step: Step) -> None:
        """Take an actor's finished step."""
        self.steps.append(step)
        self._count_down()

    def fail(self, error: RequestError) -> None:
        """Note that an actor's step failed: the world failed, which is logged, or was destroyed."""
        self.error = self.error or error
        self._count_down()

    def _count_down(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._finish(self)
            self.steps.clear()  # steps refer to this tick: without the cycle, reply buffers are freed at once


class TrialWorld:
    """The world and actors of a running trial.

    `when_over` is called once with the reason, when the world is destroyed.
    """

    def __init__(
        self,
        engine: Engine,
        trial_id: str,
        world: World,
        actors: Sequence[WorldActor],
        confidence: RewardConfidence,
        when_over: Callable[["TrialWorld", str], None],
    ) -> None:
        self._engine = engine
        self.trial_id = trial_id
        self._world, self._actors = world, actors
        self._confidence = confidence
        self._world.has_streams = False
        self._world.when_gone = self._set_over
        self._when_over = when_over
        self._end_reason = ""
        self._next_tick_id = 0

    @property
    def actor_count(self) -> int:
        """Number of actors."""
        return len(self._actors)

    @property
    def world_name(self) -> str:
        """Name of its world, for the log."""
        return self._world.name

    def mark_used(self) -> None:
        """Restart the idle timeout of the world."""
        self._world.used_at_s = self._engine.directory.clock()

    def start(self, answer: Answer) -> None:
        """Begin the episode; answer with the first observations."""
        self._step([{} for _ in self._actors], PendingTick(self.actor_count, True, answer, self._finish))

    def update(self, contents: Sequence[bytes], as_snapshot: bool, answer: Answer) -> None:
        """Step with the actions of all actors. If it raises, nothing has changed."""
        actions = parse_actions(contents, [actor.readers for actor in self._actors])
        for actor, action in zip(self._actors, actions, strict=True):
            actor.agent.check_actions(action)
        self._step(actions, PendingTick(self.actor_count, as_snapshot, answer, self._finish))

    def reset_deltas(self) -> None:
        """Make the next observations snapshots: the last ones may not have arrived."""
        for actor in self._actors:
            actor.reset_deltas()

    def end(self, reason: str) -> None:
        """Destroy the world."""
        self._engine.destroy(self._world, reason)

    def _set_over(self, reason: str) -> None:
        self._end_reason = reason
        self._when_over(self, reason)

    def _step(self, actions: Sequence[Mapping[str, np.ndarray]], tick: PendingTick) -> None:
        for actor, action in zip(self._actors, actions, strict=True):
            self._engine.step(Step(actor.agent, action, actor.request, tick.add, tick.fail))

    def _finish(self, tick: PendingTick) -> None:
        if tick.error is None:
            tick.answer(self._build_result(tick))
        elif self._world.is_gone:
            tick.answer(trial_over(self.trial_id, self._end_reason))
        else:  # some agents may have advanced and others not: the trial cannot continue
            reason = str(tick.error)
            self.end(reason)
            tick.answer(Internal(f"trial {shown(self.trial_id)} is over: {reason}"))

    def _build_result(self, tick: PendingTick) -> TickResult:
        steps = sorted(tick.steps, key=lambda step: step.agent.index)
        encoded = [actor.encode(step.reply, tick.as_snapshot) for actor, step in zip(self._actors, steps, strict=True)]
        observations, actors_map = deduplicate(encoded)
        is_last = not all(step.agent.is_running for step in steps)
        rewards = [(reward, self._confidence.of(reward)) for reward in map(_reward, steps)]
        result = TickResult(self._next_tick_id, time.time_ns(), observations, actors_map, rewards, is_last)
        self._next_tick_id += 1
        if is_last:
            self.end("its episode has ended")
        return result


def trial_over(trial_id: str, reason: str) -> FailedPrecondition:
    """Return the error for a call to a trial that has ended."""
    return FailedPrecondition(f"trial {shown(trial_id)} is over: {reason}; start another")


def _reward(step: Step) -> float:
    """Return the reward of a step; 0 for the first and for one cut short by a reset."""
    world = step.agent.world
    return float(world.pool.reward[world.lanes[0], step.agent.index]) if step.boundary is Boundary.NONE else 0.0


def parse_actions(
    contents: Sequence[bytes], readers: Sequence[Mapping[str, ActionReader]]
) -> list[dict[str, np.ndarray]]:
    """Return the actions of each actor by name, [1, *shape]; `readers` has the action readers of each actor."""
    if len(contents) != len(readers):
        raise InvalidArgument(
            f"{len(contents)} actions: expected {len(readers)}, one for each actor, in the order of their ids"
        )
    return [_parse_action(actor_id, content, readers[actor_id]) for actor_id, content in enumerate(contents)]


def parse_content(kind: type[M], content: bytes, what: str) -> M:
    """Parse a message of protos/worldloom/trials.proto; `what` names it in the error."""
    check_field_count(content, kind.DESCRIPTOR)
    try:
        message: M = kind.FromString(content)
    except DecodeError as error:
        raise InvalidArgument(
            f"{what} has {len(content)} bytes that cannot be parsed: expected a {kind.DESCRIPTOR.full_name}"
        ) from error
    return message


def _parse_action(actor_id: int, content: bytes, readers: Mapping[str, ActionReader]) -> dict[str, np.ndarray]:
    try:
        tensors = parse_content(trials_pb2.Action, content, "its content").actions
        # Sorted, so that of several errors always the same one is reported.
        for name in sorted(tensors):
            if name not in readers:
                raise InvalidArgument(f"unknown action {shown(name)}: expected some of {', '.join(readers) or 'none'}")
        return {name: readers[name].read(tensors[name]) for name in sorted(tensors)}
    except InvalidArgument as error:
        raise InvalidAction(actor_id, f"the action of actor {actor_id}: {error}") from error


def observation_layout(observations: tuple[ObservationSpec, ...]) -> ReplyLayout:
    """Return the reply layout of an Observation message with these entries, in this order; it has no state field."""
    pieces, fields, end = {}, [], 0
    for one in observations:
        name = one.name.encode()
        head = entry_head(_OBSERVATIONS_FIELD, field_header(_KEY_FIELD, len(name)) + name, one)
        pieces[end] = head
        fields.append(ObservationField(end + len(head), one.dtype not in DTYPES_AS_IN_MEMORY))
        end += len(head) + one.data_bytes
    return bytes_layout(end, pieces, None, tuple(fields))


class DeltaEncoder:
    """Encoder of an actor's observations as deltas to the previous one."""

    def __init__(self, request: ObservationRequest) -> None:
        ends = [
            place.offset + one.data_bytes
            for one, place in zip(request.observations, request.layout.fields, strict=True)
        ]
        self._entries = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        """Bytes of each entry of the map."""
        self._previous: bytes | None = None

    def reset(self) -> None:
        """Make the next observation a snapshot."""
        self._previous = None

    def encode(self, snapshot: bytes, as_snapshot: bool) -> EncodedObservation:
        """Return a delta to the previous observation; a snapshot if there is none or `as_snapshot` asks for it."""
        previous, self._previous = self._previous, snapshot
        if as_snapshot or previous is None:
            return EncodedObservation(snapshot, is_snapshot=True)
        changed = (snapshot[entry] for entry in self._entries if snapshot[entry] != previous[entry])
        return EncodedObservation(b"".join(changed), is_snapshot=False)


def deduplicate(encoded: Sequence[EncodedObservation]) -> tuple[list[EncodedObservation], list[int]]:
    """Return the unique observations and each actor's index among them."""
    # No set or dict: bytes cache their hash, and the engine writes new content into the same bytes objects.
    unique: list[EncodedObservation] = []
    indices = []
    for one in encoded:
        if one not in unique:
            unique.append(one)
        indices.append(unique.index(one))
    return unique, indices
