"""The environment in this server's engine: calls on the event loop become calls on the engine's thread, and back."""

import asyncio
from collections.abc import Callable
from functools import partial

from worldloom.protos.cogment.api import environment_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import Feedback, ObservationData
from worldloom.protos.errors import AlreadyExists, FailedPrecondition, InvalidArgument, RequestError
from worldloom.protos.worldloom import trials_pb2
from worldloom.server.cogment.environments.trial_world import Answer, Outcome, Reply, TrialWorld, TrialWorlds
from worldloom.server.dm_env_rpc.tensors import MAX_NAME_LENGTH, shown
from worldloom.server.engine.engine import Engine
from worldloom.server.engine.router import Replies, deliver_on_loop

LATEST_TICK = -1
"""As the tick of a feedback: the one that is under way."""


class Waiting:
    """A call that waits for the engine's reply, which is delivered on the event loop, also if nobody waits by then."""

    def __init__(self, when_done: Callable[[], None] = lambda: None) -> None:
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._when_done: list[Callable[[], None]] = [when_done]

    def deliver(self, reply: Reply) -> None:
        """Take the reply."""
        for call in self._when_done:
            call()
        self._when_done.clear()
        if not self.reply.done():  # else the call was cancelled
            self.reply.set_result(reply)

    def give_up(self, then: Callable[[], None]) -> None:
        """The call was cancelled. `then` is called once the engine has replied."""
        if self._when_done:
            self._when_done.append(then)
        else:
            then()


class EngineEnvironment:
    """The trials of an engine. Those without a configuration of their own have the defaults."""

    def __init__(self, engine: Engine, defaults: trials_pb2.EnvironmentConfig | None) -> None:
        self._engine = engine
        self._worlds = TrialWorlds(engine, defaults, engine.router.register(_deliver))
        self._advancing: set[str] = set()
        """Trials whose Start or Update is with the engine."""
        self._to_post: list[Callable[[], None]] = []

    async def start(self, request: api.EnvStartRequest) -> api.EnvStartReply:
        """Make a trial's world and give its first observations. A trial whose Start is cancelled is ended."""
        _check_id(request.trial_id)
        if request.trial_id in self._advancing:
            raise AlreadyExists(f"trial {shown(request.trial_id)} is under way: expected the id of another")
        started: list[TrialWorld] = []

        def start(answer: Answer) -> None:
            started.append(self._worlds.start(request, answer))

        def undo() -> None:
            for trial in started:
                self._worlds.give_up(trial)

        outcome = await self._advance(request.trial_id, start, undo)
        return api.EnvStartReply(observation_set=_observation_set(outcome))

    async def update(self, request: api.EnvUpdateRequest) -> api.EnvUpdateReply:
        """Advance a trial by one tick, also if the call is cancelled. Then the next observations are snapshots."""
        _check_id(request.trial_id)
        if request.trial_id in self._advancing:
            raise FailedPrecondition(
                f"trial {shown(request.trial_id)} is being started or updated: expected one call at a time"
            )
        outcome = await self._advance(
            request.trial_id,
            partial(self._worlds.update, request),
            partial(self._worlds.forget_seen, request.trial_id),
        )
        return api.EnvUpdateReply(
            observation_set=_observation_set(outcome),
            feedbacks=[
                Feedback(actor_id=actor, tick_id=LATEST_TICK, value=reward, confidence=1.0)
                for actor, reward in enumerate(outcome.rewards)
            ],
            end_trial=outcome.is_last,
        )

    async def on_message(self, request: api.EnvOnMessageRequest) -> None:
        """Take messages, of which worlds make nothing. Without any it is a sign of life: the trial is not idle."""
        _check_id(request.trial_id)
        await self._ask(Waiting(), partial(self._worlds.on_message, request))

    async def end(self, request: api.EnvEndRequest) -> None:
        """End a trial; an Update that is under way is told so. One that is not there is no error."""
        _check_id(request.trial_id)
        await self._ask(Waiting(), partial(self._worlds.end, request.trial_id))

    async def _advance(self, trial_id: str, call: Callable[[Answer], None], undo: Callable[[], None]) -> Outcome:
        """Have the engine advance a trial; if that is cancelled, `undo` is called on its thread afterwards."""
        self._advancing.add(trial_id)
        waiting = Waiting(partial(self._advancing.remove, trial_id))
        try:
            outcome = await self._ask(waiting, call)
        except asyncio.CancelledError:
            waiting.give_up(partial(self._post, undo))
            raise
        assert outcome is not None, "Start and Update are answered with an outcome"
        return outcome

    async def _ask(self, waiting: Waiting, call: Callable[[Answer], None]) -> Outcome | None:
        self._post(partial(self._worlds.serve, waiting, call))
        reply = await waiting.reply
        if isinstance(reply, RequestError):
            raise reply
        return reply

    def _post(self, call: Callable[[], None]) -> None:
        """Have the engine make this call, in one tick with all that arrives together with it."""
        if not self._to_post:
            asyncio.get_running_loop().call_soon(self._post_all)
        self._to_post.append(call)

    def _post_all(self) -> None:
        for call in self._to_post:
            self._engine.post(call)
        self._to_post.clear()


def _deliver(replies: Replies) -> None:
    """Deliver the replies of a tick to the calls that wait for them. Called on the engine's thread."""
    waiting: Waiting = replies[0][0]
    deliver_on_loop(waiting.reply.get_loop(), replies)


def _check_id(trial_id: str) -> None:
    if not trial_id:
        raise InvalidArgument("trial_id is empty: expected the id of a trial")
    if len(trial_id) > MAX_NAME_LENGTH:
        raise InvalidArgument(f"trial_id has {len(trial_id)} characters: expected {MAX_NAME_LENGTH} at most")


def _observation_set(outcome: Outcome) -> api.ObservationSet:
    return api.ObservationSet(
        tick_id=outcome.tick_id,
        timestamp=outcome.timestamp_ns,
        observations=[ObservationData(content=one.content, snapshot=one.is_snapshot) for one in outcome.observations],
        actors_map=outcome.actors_map,
    )
