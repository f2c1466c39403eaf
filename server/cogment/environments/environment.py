"""The environments of trials: their interface, one trial's use of it, and the environment in this server's engine.

    event loop       TrialEnvironment ──► EngineEnvironment ──post──┐      ┌──deliver──► reply of the call
    engine thread                                                   └─► TrialWorlds ──► TrialWorld ──► Engine.step

`Environment` is what the orchestrator and the Environment service call. `EngineEnvironment` implements it on the event
loop and passes each call to `TrialWorlds` on the engine's thread; every call gets exactly one reply.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from worldloom.protos.cogment.api import environment_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import Feedback, Message, ObservationData, TrialParams
from worldloom.protos.errors import (
    AlreadyExists,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    RequestError,
    Unavailable,
)
from worldloom.protos.worldloom import trials_pb2
from worldloom.server.cogment.environments.trial_setup import TrialStart, create_trial_world, parse_start
from worldloom.server.cogment.environments.trial_world import Answer, Reply, TickResult, TrialWorld, trial_over
from worldloom.server.cogment.settings import ENVIRONMENT_ID
from worldloom.server.dm_env_rpc.tensors import MAX_NAME_LENGTH, shown
from worldloom.server.engine.engine import SHUTTING_DOWN, Engine
from worldloom.server.engine.router import Replies, ReplyRoute, deliver_on_loop
from worldloom.server.logs import Log

log = Log("trials")

_LATEST_TICK = -1
"""Tick id of feedback for the current tick."""
_MAX_ENDED = 1024
"""Maximum number of ended trials whose reason is kept, for calls that come too late."""


class Environment(Protocol):
    """The worlds of many trials. Methods run on the event loop and raise RequestError for an invalid request."""

    async def start(self, request: api.EnvStartRequest) -> api.EnvStartReply:
        """Start a trial; return its first observations."""

    async def update(self, request: api.EnvUpdateRequest) -> api.EnvUpdateReply:
        """Advance a trial by one tick. Raises InvalidAction, without any effect, for an actor's invalid action."""

    async def on_message(self, request: api.EnvOnMessageRequest) -> None:
        """Take messages to the environment."""

    async def end(self, request: api.EnvEndRequest) -> None:
        """End a trial; no error if it has ended already or never existed."""


class TrialEnvironment:
    """The environment of one trial: builds its requests and checks its replies."""

    def __init__(
        self, environment: Environment, name: str, trial_id: str, actor_counts: Sequence[int], deadline_s: float
    ) -> None:
        self._environment = environment
        self.name = name
        self._trial_id = trial_id
        self._actor_counts = actor_counts
        self.deadline_s = deadline_s
        self._was_reached = False
        """True if Start was called, unless the environment was unreachable."""

    async def start(self, params: TrialParams) -> api.ObservationSet:
        """Start the trial; return the first observations."""
        request = api.EnvStartRequest(trial_id=self._trial_id, actor_counts=self._actor_counts)
        if params.environment.HasField("config"):
            request.config.CopyFrom(params.environment.config)
        if params.HasField("trial_config"):
            request.trial_config.CopyFrom(params.trial_config)
        self._was_reached = True
        try:
            observations = (await self._environment.start(request)).observation_set
        except Unavailable:
            self._was_reached = False
            raise
        self._check(observations)
        return observations

    async def update(self, actions: Sequence[bytes], as_snapshot: bool) -> api.EnvUpdateReply:
        """Advance by one tick. Raises InvalidAction, without any effect, for an actor's invalid action."""
        request = api.EnvUpdateRequest(
            trial_id=self._trial_id, action_set=api.ActionSet(actions=actions), reply_with_snapshot=as_snapshot
        )
        reply = await self._environment.update(request)
        self._check(reply.observation_set)
        return reply

    async def deliver(self, messages: Sequence[Message]) -> None:
        """Send messages to the environment, if there are any."""
        if messages:
            await self._environment.on_message(self._message_request(messages))

    async def keep_alive(self, interval_s: float) -> None:
        """Send an empty message at intervals until cancelled, so that the trial does not count as idle."""
        while True:
            await asyncio.sleep(interval_s)
            with suppress(RequestError):
                await self._environment.on_message(self._message_request(()))

    async def end(self, messages: Sequence[Message] = ()) -> None:
        """End the trial after delivering messages, unless its Start did not arrive; failures are only logged."""
        if not self._was_reached:
            return
        try:
            async with asyncio.timeout(self.deadline_s):
                with suppress(RequestError):  # an environment that has ended the trial itself need not take them
                    await self.deliver(messages)
                await self._environment.end(api.EnvEndRequest(trial_id=self._trial_id))
        except TimeoutError:
            log.warning("environment did not end", trial=self._trial_id, environment=self.name)
        except RequestError as error:
            log.info("environment did not end", trial=self._trial_id, environment=self.name, reason=str(error))
        except Exception:
            log.error("environment failed", trial=self._trial_id, environment=self.name)

    def _message_request(self, messages: Sequence[Message]) -> api.EnvOnMessageRequest:
        return api.EnvOnMessageRequest(trial_id=self._trial_id, actor_id=ENVIRONMENT_ID, messages=messages)

    def _check(self, observations: api.ObservationSet) -> None:
        """Raise Internal unless there is an observation for each actor."""
        actor_count, observation_count = sum(self._actor_counts), len(observations.observations)
        if len(observations.actors_map) != actor_count:
            raise Internal(
                f"{self.name} returned an actors_map of {len(observations.actors_map)} entries: expected "
                f"{actor_count}, one for each actor"
            )
        for actor_id, index in enumerate(observations.actors_map):
            if not 0 <= index < observation_count:
                raise Internal(
                    f"{self.name} returned an actors_map whose entry for actor {actor_id} is {index}: expected 0 to "
                    f"{observation_count - 1}, since it returned {observation_count} observations"
                )


class PendingCall:
    """A call that waits for the engine's reply. The reply is delivered on the event loop even if it was cancelled."""

    def __init__(self, when_done: Callable[[], None] = lambda: None) -> None:
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._when_done: list[Callable[[], None]] = [when_done]

    def deliver(self, reply: Reply) -> None:
        """Set the reply."""
        for callback in self._when_done:
            callback()
        self._when_done.clear()
        if not self.reply.done():  # done: the call was cancelled
            self.reply.set_result(reply)

    def after_reply(self, callback: Callable[[], None]) -> None:
        """Call a function once the engine has replied, or now if it has."""
        if self._when_done:
            self._when_done.append(callback)
        else:
            callback()


class EngineEnvironment:
    """The environment in an engine. Trials without a configuration of their own get `default_config`."""

    def __init__(self, engine: Engine, default_config: trials_pb2.EnvironmentConfig | None) -> None:
        self._engine = engine
        self._worlds = TrialWorlds(engine, default_config, engine.router.register(_deliver))
        self._advancing: set[str] = set()
        """Ids of trials whose Start or Update is with the engine."""
        self._to_post: list[Callable[[], None]] = []

    async def start(self, request: api.EnvStartRequest) -> api.EnvStartReply:
        """Create a trial's world; return its first observations. Cancelling the call ends the trial."""
        _check_id(request.trial_id)
        if request.trial_id in self._advancing:
            raise AlreadyExists(f"trial {shown(request.trial_id)} exists already: expected a new id")
        started: list[TrialWorld] = []

        def start(answer: Answer) -> None:
            self._worlds.start(request, answer, started.append)

        def undo() -> None:
            for trial in started:
                self._worlds.cancel_start(trial)

        result = await self._advance(request.trial_id, start, undo)
        return api.EnvStartReply(observation_set=_observation_set(result))

    async def update(self, request: api.EnvUpdateRequest) -> api.EnvUpdateReply:
        """Advance a trial by one tick, even if the call is cancelled; the next observations are snapshots then."""
        _check_id(request.trial_id)
        if request.trial_id in self._advancing:
            raise FailedPrecondition(
                f"trial {shown(request.trial_id)} is being started or updated: expected one call at a time"
            )
        result = await self._advance(
            request.trial_id,
            partial(self._worlds.update, request),
            partial(self._worlds.reset_deltas, request.trial_id),
        )
        return api.EnvUpdateReply(
            observation_set=_observation_set(result),
            feedbacks=[
                Feedback(actor_id=actor, tick_id=_LATEST_TICK, value=reward, confidence=confidence)
                for actor, (reward, confidence) in enumerate(result.rewards)
            ],
            end_trial=result.is_last,
        )

    async def on_message(self, request: api.EnvOnMessageRequest) -> None:
        """Count messages, which worlds do not use. A call without messages keeps the trial from counting as idle."""
        _check_id(request.trial_id)
        await self._call(PendingCall(), partial(self._worlds.on_message, request))

    async def end(self, request: api.EnvEndRequest) -> None:
        """End a trial; an Update that is under way fails. No error if there is no such trial."""
        _check_id(request.trial_id)
        await self._call(PendingCall(), partial(self._worlds.end, request.trial_id))

    async def _advance(self, trial_id: str, call: Callable[[Answer], None], undo: Callable[[], None]) -> TickResult:
        """Have the engine advance a trial. If cancelled, call `undo` on the engine's thread after its reply."""
        self._advancing.add(trial_id)
        pending = PendingCall(partial(self._advancing.remove, trial_id))
        try:
            result = await self._call(pending, call)
        except asyncio.CancelledError:
            pending.after_reply(partial(self._post, undo))
            raise
        assert result is not None, "Start and Update are answered with a TickResult"
        return result

    async def _call(self, pending: PendingCall, call: Callable[[Answer], None]) -> TickResult | None:
        """Make a call on the engine's thread; return its reply."""
        self._post(partial(self._worlds.serve, pending, call))
        reply = await pending.reply
        if isinstance(reply, RequestError):
            raise reply
        return reply

    def _post(self, call: Callable[[], None]) -> None:
        """Post a call to the engine together with all others of this pass of the event loop, for the same tick."""
        if not self._to_post:
            asyncio.get_running_loop().call_soon(self._post_all)
        self._to_post.append(call)

    def _post_all(self) -> None:
        for call in self._to_post:
            self._engine.post(call)
        self._to_post.clear()


def _deliver(replies: Replies) -> None:
    """Deliver the replies of an engine's tick to the calls that wait for them. Called on the engine's thread."""
    pending: PendingCall = replies[0][0]
    deliver_on_loop(pending.reply.get_loop(), replies)


def _check_id(trial_id: str) -> None:
    if not trial_id:
        raise InvalidArgument("trial_id is empty: expected the id of a trial")
    if len(trial_id) > MAX_NAME_LENGTH:
        raise InvalidArgument(f"trial_id has {len(trial_id)} characters: expected {MAX_NAME_LENGTH} at most")


def _observation_set(result: TickResult) -> api.ObservationSet:
    return api.ObservationSet(
        tick_id=result.tick_id,
        timestamp=result.timestamp_ns,
        observations=[ObservationData(content=one.content, snapshot=one.is_snapshot) for one in result.observations],
        actors_map=result.actors_map,
    )


def _answer_errors(call: Callable[[Answer], None], answer: Answer) -> None:
    """Make a call that answers; answer with its error if it raises one."""
    try:
        call(answer)
    except RequestError as error:
        answer(error)
    except Exception as error:
        log.error("request failed")
        answer(Internal.caused_by("the server failed", error))


class TrialWorlds:
    """The trials in an engine, by id. Engine thread only.

    Methods answer through `answer`, at once or at the end of the tick, or raise RequestError.
    """

    def __init__(self, engine: Engine, default_config: trials_pb2.EnvironmentConfig | None, route: ReplyRoute) -> None:
        self._engine = engine
        self._default_config = default_config
        self._route = route
        self._trials: dict[str, TrialWorld] = {}
        self._ended: dict[str, str] = {}
        """Reasons of ended trials by id, oldest first."""

    def serve(self, pending: Any, call: Callable[[Answer], None]) -> None:
        """Make a call and deliver exactly one reply to `pending`: its answer, or the error that it raises."""
        self._engine.counters.requests += 1
        _answer_errors(call, partial(self._send, pending))

    def start(self, request: api.EnvStartRequest, answer: Answer, started: Callable[[TrialWorld], None]) -> None:
        """Start a trial, once its family has been built; call `started`, and answer with its first TickResult."""
        start = parse_start(request, self._default_config)

        def create(check_prepared: Callable[[], None]) -> None:
            def call(answer: Answer) -> None:
                check_prepared()
                started(self._create(start, answer))

            _answer_errors(call, answer)

        self._engine.prepare(start.world_settings, create)

    def _create(self, start: TrialStart, answer: Answer) -> TrialWorld:
        trial_id = start.trial_id
        if self._engine.is_draining:
            raise Unavailable(SHUTTING_DOWN)
        if trial_id in self._trials:
            raise AlreadyExists(
                f"trial {shown(trial_id)} exists already: expected a new id, or End of that trial first"
            )
        trial = create_trial_world(self._engine, start, self._remove)
        self._trials[trial_id] = trial
        self._ended.pop(trial_id, None)
        self._engine.counters.trials += 1
        log.info("trial world created", trial=trial_id, world=trial.world_name, actors=trial.actor_count)
        trial.start(answer)
        return trial

    def update(self, request: api.EnvUpdateRequest, answer: Answer) -> None:
        """Advance a trial by one tick; answer with its next TickResult."""
        trial = self._find(request.trial_id)
        trial.update(request.action_set.actions, request.reply_with_snapshot, answer)

    def on_message(self, request: api.EnvOnMessageRequest, answer: Answer) -> None:
        """Count messages, which worlds do not use."""
        trial = self._find(request.trial_id)
        if not ENVIRONMENT_ID <= request.actor_id < trial.actor_count:
            raise InvalidArgument(
                f"actor_id is {request.actor_id}: expected an actor of the trial, 0 to {trial.actor_count - 1}, or -1 "
                "for the environment"
            )
        self._engine.counters.messages += len(request.messages)
        for message in request.messages:
            log.debug("message", trial=trial.trial_id, sender=message.sender_id, payload=message.payload.type_url[:100])
        answer(None)

    def end(self, trial_id: str, answer: Answer) -> None:
        """End a trial, if it exists."""
        if trial_id in self._trials:
            self._trials[trial_id].end("it was ended")
        answer(None)

    def cancel_start(self, trial: TrialWorld) -> None:
        """End a trial whose Start was cancelled."""
        if self._trials.get(trial.trial_id) is trial:
            trial.end("its Start was cancelled")

    def reset_deltas(self, trial_id: str) -> None:
        """Make the next observations of a trial snapshots: its last TickResult did not reach the caller."""
        if trial_id in self._trials:
            self._trials[trial_id].reset_deltas()

    def _find(self, trial_id: str) -> TrialWorld:
        trial = self._trials.get(trial_id)
        if trial is None:
            if trial_id in self._ended:
                raise trial_over(trial_id, self._ended[trial_id])
            raise NotFound(f"there is no trial {shown(trial_id)}: expected the id of a trial that was started here")
        trial.mark_used()
        return trial

    def _remove(self, trial: TrialWorld, reason: str) -> None:
        del self._trials[trial.trial_id]
        self._ended[trial.trial_id] = reason
        if len(self._ended) > _MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        self._engine.counters.trials -= 1
        log.info("trial world destroyed", trial=trial.trial_id, world=trial.world_name, reason=reason)

    def _send(self, pending: Any, reply: Reply) -> None:
        if isinstance(reply, RequestError):
            self._engine.counters.count_refusal(reply.code)
            log.debug("request refused", code=reply.code, text=str(reply))
        self._route.send(pending, reply)
