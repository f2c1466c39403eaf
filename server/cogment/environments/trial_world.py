"""The world of one trial, whose agents are the trial's actors and always step together. Engine thread only.

All trials whose worlds are in the engine, by id; and those that were, for a while. Engine thread only.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from worldloom.protos.cogment.api import environment_pb2 as api
from worldloom.protos.errors import (
    AlreadyExists,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    RequestError,
    ResourceExhausted,
    Unavailable,
)
from worldloom.protos.worldloom import trials_pb2
from worldloom.server.cogment.environments.messages import (
    ActorClass,
    Memory,
    Seen,
    Start,
    observation_layout,
    read_actions,
    read_start,
    share,
)
from worldloom.server.dm_env_rpc.tensors import ActionReader, shown
from worldloom.server.engine.directory import WorldDirectory
from worldloom.server.engine.engine import SHUTTING_DOWN, Engine
from worldloom.server.engine.observations import ObservationRequest, ReplyLayoutCache
from worldloom.server.engine.router import ReplyRoute
from worldloom.server.engine.world import Agent, Boundary, Step, World
from worldloom.server.logs import Log
from worldloom.worlds.registry import FamilyError, find_family
from worldloom.worlds.settings import SettingError

_AGENTS = "agents"
"""The setting of families whose worlds have as many agents as one likes."""

_REQUESTED = "requested_observations"
"""Actor classes say with it what streams say with the join setting 'observations'."""


class Outcome(NamedTuple):
    """What a trial is like after a tick."""

    tick_id: int
    timestamp_ns: int
    observations: list[Seen]
    actors_map: list[int]
    rewards: list[float]
    is_last: bool
    """The sequence has ended, and the trial with it."""


Reply: TypeAlias = Outcome | RequestError | None
Answer: TypeAlias = Callable[[Reply], None]


class Actor:
    """An actor: an agent, and what it is asked and told."""

    def __init__(self, agent: Agent, takes_deltas: bool) -> None:
        self.agent = agent
        self._uids = tuple(agent.specs.observations)
        self.readers = {spec.name: ActionReader(spec, None) for spec in agent.specs.actions.values()}
        self._memory = Memory(self.wanted) if takes_deltas else None

    @property
    def wanted(self) -> ObservationRequest:
        """All that its class requests."""
        return self.agent.specs.request(self._uids)

    def see(self, snapshot: bytes, as_snapshot: bool) -> Seen:
        """What it is told that sees this."""
        return Seen(snapshot, is_snapshot=True) if self._memory is None else self._memory.see(snapshot, as_snapshot)

    def forget_seen(self) -> None:
        """Nobody knows whether it saw the last observation: the next is a snapshot."""
        if self._memory is not None:
            self._memory.forget()


class Tick:
    """A step of all actors; `finish` is called when the last of them is answered or refused."""

    def __init__(self, actors: int, as_snapshots: bool, answer: Answer, finish: Callable[["Tick"], None]) -> None:
        self.as_snapshots = as_snapshots
        self.answer = answer
        self.steps: list[Step] = []
        self.is_refused = False
        self._finish = finish
        self._waiting = actors

    def take(self, step: Step) -> None:
        """An actor is answered."""
        self.steps.append(step)
        self._count_down()

    def refuse(self, _refusal: RequestError) -> None:
        """An actor is refused. Why, the log says; to the trial it means that its world failed, or is gone."""
        self.is_refused = True
        self._count_down()

    def _count_down(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._finish(self)
            self.steps.clear()  # they know this tick: in a circle their replies would wait for the garbage collector


class TrialWorld:
    """A trial under way. `when_over` is called once, with the reason; the world is gone then."""

    def __init__(self, engine: Engine, start: Start, when_over: Callable[["TrialWorld", str], None]) -> None:
        self._engine = engine
        self.trial_id = start.trial_id
        self._world, self._actors = _make(engine, start)
        self._world.has_streams = False
        self._world.when_gone = self._be_over
        self._when_over = when_over
        self._why_over = ""
        self._next_tick_id = 0

    @property
    def actors(self) -> int:
        """How many there are."""
        return len(self._actors)

    @property
    def world_name(self) -> str:
        """Of its world, for the log."""
        return self._world.name

    def use(self) -> None:
        """Somebody asks for it."""
        self._world.used_at_s = self._engine.directory.clock()

    def begin(self, answer: Answer) -> None:
        """Give the first observations."""
        self._step([{} for _ in self._actors], Tick(self.actors, True, answer, self._finish))

    def update(self, contents: Sequence[bytes], as_snapshots: bool, answer: Answer) -> None:
        """Take the actions of all actors; nothing has happened if they are refused."""
        actions = read_actions(contents, [actor.readers for actor in self._actors])
        self._step(actions, Tick(self.actors, as_snapshots, answer, self._finish))

    def forget_seen(self) -> None:
        """Nobody knows whether the last observations arrived: the next are snapshots."""
        for actor in self._actors:
            actor.forget_seen()

    def end(self, why: str) -> None:
        """Destroy the world."""
        self._engine.destroy(self._world, why)

    def _be_over(self, why: str) -> None:
        self._why_over = why
        self._when_over(self, why)

    def _step(self, actions: Sequence[Mapping[str, np.ndarray]], tick: Tick) -> None:
        for actor, action in zip(self._actors, actions, strict=True):
            self._engine.step(Step(actor.agent, action, actor.wanted, tick.take, tick.refuse))

    def _finish(self, tick: Tick) -> None:
        if not tick.is_refused:
            tick.answer(self._outcome(tick))
        elif self._world.is_gone:
            tick.answer(is_over(self.trial_id, self._why_over))
        else:  # some of its agents may have moved on, others not
            why = f"family {self._world.pool.family.name!r} failed; the server's log has more"
            self.end(why)
            tick.answer(Internal(f"trial {shown(self.trial_id)} is over: {why}"))

    def _outcome(self, tick: Tick) -> Outcome:
        steps = sorted(tick.steps, key=lambda step: step.agent.index)
        seen = [actor.see(step.reply, tick.as_snapshots) for actor, step in zip(self._actors, steps, strict=True)]
        observations, actors_map = share(seen)
        is_last = not all(step.agent.is_running for step in steps)
        rewards = [_reward(step) for step in steps]
        outcome = Outcome(self._next_tick_id, time.time_ns(), observations, actors_map, rewards, is_last)
        self._next_tick_id += 1
        if is_last:
            self.end("its sequence has ended")
        return outcome


def is_over(trial_id: str, why: str) -> FailedPrecondition:
    """What is told whoever asks for a trial that was."""
    return FailedPrecondition(f"trial {shown(trial_id)} is over: {why}; start another")


def _make(engine: Engine, start: Start) -> tuple[World, list[Actor]]:
    """The world of a trial, and its actors; nothing is left of it if any of it is refused."""
    directory = engine.directory
    world = directory.create(_world_settings(start))
    try:
        agents = world.pool.family.agents
        if agents != start.actors:
            raise InvalidArgument(
                f"the trial has {start.actors} actors: expected {agents}, as many as the world of family "
                f"{world.pool.family.name!r} has agents"
            )
        layout_cache = engine.layout_cache(observation_layout)
        classes = [one for one in start.classes for _ in range(one.actors)]
        actors = [_join(directory, world, index, one, layout_cache) for index, one in enumerate(classes)]
        _check_size(actors, engine.limits.max_reply_bytes)
    except RequestError:
        directory.destroy(world)
        raise
    return world, actors


def _world_settings(start: Start) -> dict[str, object]:
    """Those of CreateWorld; a family that leaves the number of agents open is told how many actors there are."""
    settings = dict(start.world_settings)
    family = settings.get("family")
    if not isinstance(family, str) or _AGENTS in settings:
        return settings
    try:
        known = {setting.name: setting for setting in find_family(family[:100]).settings}
        if _AGENTS in known:
            settings[_AGENTS] = known[_AGENTS].parse(start.actors)
    except FamilyError:
        pass  # it is refused when the world is made
    except SettingError as error:
        raise InvalidArgument(
            f"the trial has {start.actors} actors: expected {known[_AGENTS].expected}, as family {family!r} takes them"
        ) from error
    return settings


def _join(
    directory: WorldDirectory, world: World, index: int, one: ActorClass, layout_cache: ReplyLayoutCache
) -> Actor:
    try:
        return Actor(directory.join(world, {**one.joining, "agent": index}, layout_cache), one.takes_deltas)
    except RequestError as refusal:
        text = re.sub(r"(the join )?setting 'observations'", _REQUESTED, str(refusal))
        raise type(refusal)(f"actor class {shown(one.id)}: {text}") from refusal


def _check_size(actors: Sequence[Actor], most_bytes: int) -> None:
    size_bytes = sum(actor.wanted.data_bytes for actor in actors)
    if size_bytes > most_bytes:
        raise ResourceExhausted(
            f"the observations of {len(actors)} actors take {size_bytes} bytes: expected {most_bytes} at most; request "
            "fewer or smaller pictures, or raise --max-reply-bytes"
        )


def _reward(step: Step) -> float:
    """What the world gave for a step; nothing if that began a sequence, or was cut short."""
    world = step.agent.world
    return float(world.pool.reward[world.lanes[0], step.agent.index]) if step.boundary is Boundary.NONE else 0.0


log = Log("trials")

_MOST_REMEMBERED = 1024
"""Trials that are over, whose late calls are told why."""


class TrialWorlds:
    """The trials. What is asked of them is answered by `answer`, now or when the tick ends, or refused at once."""

    def __init__(self, engine: Engine, defaults: trials_pb2.EnvironmentConfig | None, route: ReplyRoute) -> None:
        self._engine = engine
        self._defaults = defaults
        self._route = route
        self._trials: dict[str, TrialWorld] = {}
        self._over: dict[str, str] = {}
        """Why they are; the latest last."""

    def serve(self, target: Any, call: Callable[[Answer], None]) -> None:
        """Make a call, and have exactly one reply of it delivered to the target: what it answers, or a refusal."""
        self._engine.counters.requests += 1
        answer = partial(self._send, target)
        try:
            call(answer)
        except RequestError as refusal:
            answer(refusal)
        except Exception as error:
            log.error("request failed")
            answer(Internal(f"the server failed: {type(error).__name__}; its log has more"))

    def start(self, request: api.EnvStartRequest, answer: Answer) -> TrialWorld:
        """Begin a trial; the answer is its first Outcome."""
        trial_id = request.trial_id
        if self._engine.is_draining:
            raise Unavailable(SHUTTING_DOWN)
        if trial_id in self._trials:
            raise AlreadyExists(f"trial {shown(trial_id)} is under way: expected the id of another, or End before it")
        trial = TrialWorld(self._engine, read_start(request, self._defaults), self._be_over)
        self._trials[trial_id] = trial
        self._over.pop(trial_id, None)
        self._engine.counters.trials += 1
        log.info("trial started", trial=trial_id, world=trial.world_name, actors=trial.actors)
        trial.begin(answer)
        return trial

    def update(self, request: api.EnvUpdateRequest, answer: Answer) -> None:
        """Advance a trial; the answer is its next Outcome."""
        trial = self._find(request.trial_id)
        trial.update(request.action_set.actions, request.reply_with_snapshot, answer)

    def on_message(self, request: api.EnvOnMessageRequest, answer: Answer) -> None:
        """Count messages. No world has any use for them."""
        trial = self._find(request.trial_id)
        if not -1 <= request.actor_id < trial.actors:
            raise InvalidArgument(
                f"actor_id is {request.actor_id}: expected one from 0 to {trial.actors - 1}, or -1 for the environment"
            )
        self._engine.counters.messages += len(request.messages)
        for message in request.messages:
            log.debug("message", trial=trial.trial_id, sender=message.sender_id, payload=message.payload.type_url[:100])
        answer(None)

    def end(self, trial_id: str, answer: Answer) -> None:
        """End a trial, if it is there."""
        if trial_id in self._trials:
            self._trials[trial_id].end("it was ended")
        answer(None)

    def give_up(self, trial: TrialWorld) -> None:
        """End a trial whose Start nobody waits for any more."""
        if self._trials.get(trial.trial_id) is trial:
            trial.end("its Start was cancelled")

    def forget_seen(self, trial_id: str) -> None:
        """The last Outcome did not reach whoever asked for it."""
        if trial_id in self._trials:
            self._trials[trial_id].forget_seen()

    def _find(self, trial_id: str) -> TrialWorld:
        trial = self._trials.get(trial_id)
        if trial is None:
            if trial_id in self._over:
                raise is_over(trial_id, self._over[trial_id])
            raise NotFound(f"there is no trial {shown(trial_id)}: expected the id of one that was started here")
        trial.use()
        return trial

    def _be_over(self, trial: TrialWorld, why: str) -> None:
        del self._trials[trial.trial_id]
        self._over[trial.trial_id] = why
        if len(self._over) > _MOST_REMEMBERED:
            del self._over[next(iter(self._over))]
        self._engine.counters.trials -= 1
        log.info("trial over", trial=trial.trial_id, world=trial.world_name, reason=why)

    def _send(self, target: Any, reply: Reply) -> None:
        if isinstance(reply, RequestError):
            self._engine.counters.refusals += 1
            log.debug("refused", code=reply.code, text=str(reply))
        self._route.send(target, reply)
