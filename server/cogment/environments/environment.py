"""What a trial asks of its environment, wherever that is: in this server's engine or behind an endpoint.

One trial's environment: what it is asked, and whether its answers can be.

An environment behind an endpoint: the worlds of trials in another program.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from worldloom.protos.cogment.api import environment_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import Message, TrialParams
from worldloom.protos.cogment.api.environment_pb2_grpc import EnvironmentStub
from worldloom.protos.errors import Internal, InvalidArgument, RequestError
from worldloom.server.cogment.orchestrator.actors import ENVIRONMENT_ID, Cast
from worldloom.server.cogment.orchestrator.connections import ask
from worldloom.server.cogment.orchestrator.endings import failure
from worldloom.server.logs import Log


class WrongAction(InvalidArgument):
    """An action that cannot be. The trial stands where it stood: its actor may give another."""

    def __init__(self, actor_id: int, problem: str) -> None:
        super().__init__(problem)
        self.actor_id = actor_id


class Environment(Protocol):
    """The worlds of many trials. Every call is made on the event loop, and raises RequestError for what cannot be."""

    async def start(self, request: api.EnvStartRequest) -> api.EnvStartReply:
        """Begin a trial: its first observations."""

    async def update(self, request: api.EnvUpdateRequest) -> api.EnvUpdateReply:
        """Advance a trial by one tick. An actor's action that cannot be raises WrongAction, and nothing has changed."""

    async def on_message(self, request: api.EnvOnMessageRequest) -> None:
        """Take messages that actors sent to the environment."""

    async def end(self, request: api.EnvEndRequest) -> None:
        """End a trial; one that has ended already, or never was, is no error."""


log = Log("trials")

T = TypeVar("T")


class TrialEnvironment:
    """An environment as one trial knows it. Once the trial is under way, what fails here ends it."""

    def __init__(self, environment: Environment, name: str, trial_id: str, cast: Cast, deadline_s: float) -> None:
        self._environment = environment
        self.name = name
        self._trial_id = trial_id
        self._cast = cast
        self.deadline_s = deadline_s

    async def start(self, params: TrialParams) -> api.ObservationSet:
        """Begin the trial: the first observations."""
        request = api.EnvStartRequest(trial_id=self._trial_id, actor_counts=self._cast.counts)
        if params.environment.HasField("config"):
            request.config.CopyFrom(params.environment.config)
        if params.HasField("trial_config"):
            request.trial_config.CopyFrom(params.trial_config)
        observations = (await self._environment.start(request)).observation_set
        self._check(observations)
        return observations

    async def update(self, actions: Sequence[bytes], as_snapshot: bool) -> api.EnvUpdateReply:
        """Advance by a tick. WrongAction has changed nothing."""
        request = api.EnvUpdateRequest(
            trial_id=self._trial_id, action_set=api.ActionSet(actions=actions), reply_with_snapshot=as_snapshot
        )
        reply = await self._ask(self._environment.update(request))
        try:
            self._check(reply.observation_set)
        except Internal as error:
            raise failure(error) from error
        return reply

    async def hand_over(self, messages: Sequence[Message]) -> None:
        """Give it its messages, if it has any."""
        if messages:
            request = api.EnvOnMessageRequest(trial_id=self._trial_id, actor_id=ENVIRONMENT_ID, messages=messages)
            await self._ask(self._environment.on_message(request))

    async def keep_awake(self, every_s: float) -> None:
        """Say again and again that the trial is not forgotten, until cancelled: humans may take long over a tick."""
        while True:
            await asyncio.sleep(every_s)
            with suppress(RequestError):
                await self._environment.on_message(
                    api.EnvOnMessageRequest(trial_id=self._trial_id, actor_id=ENVIRONMENT_ID)
                )

    async def end(self) -> None:
        """End the trial. No failure matters any more."""
        try:
            async with asyncio.timeout(self.deadline_s):
                await self._environment.end(api.EnvEndRequest(trial_id=self._trial_id))
        except TimeoutError:
            log.warning("environment did not end", trial=self._trial_id, environment=self.name)
        except RequestError as error:
            log.info("environment did not end", trial=self._trial_id, environment=self.name, reason=str(error))
        except Exception:
            log.error("environment failed", trial=self._trial_id, environment=self.name)

    async def _ask(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except WrongAction:
            raise
        except RequestError as error:
            raise failure(error, by=self.name) from error

    def _check(self, observations: api.ObservationSet) -> None:
        actors, there = len(self._cast.actors), len(observations.observations)
        if len(observations.actors_map) != actors:
            raise Internal(
                f"{self.name} gave an actors_map of {len(observations.actors_map)} entries: expected {actors}, one "
                "for each actor"
            )
        for actor_id, index in enumerate(observations.actors_map):
            if not 0 <= index < there:
                raise Internal(
                    f"{self.name} gave an actors_map whose entry for actor {actor_id} is {index}: expected 0 to "
                    f"{there - 1}, since it gave {there} observations"
                )


class RemoteEnvironment:
    """An Environment service. Every call raises RequestError, which names it, if it fails or takes too long."""

    def __init__(self, endpoint: str, channel: Any, deadline_s: float) -> None:
        self._name = f"the environment at {endpoint}"
        self._stub = EnvironmentStub(channel)
        self._deadline_s = deadline_s

    async def start(self, request: api.EnvStartRequest) -> api.EnvStartReply:
        """Begin a trial: its first observations."""
        reply: api.EnvStartReply = await self._ask("Start", self._stub.Start(request, timeout=self._deadline_s))
        return reply

    async def update(self, request: api.EnvUpdateRequest) -> api.EnvUpdateReply:
        """Advance a trial by one tick."""
        reply: api.EnvUpdateReply = await self._ask("Update", self._stub.Update(request, timeout=self._deadline_s))
        return reply

    async def on_message(self, request: api.EnvOnMessageRequest) -> None:
        """Hand over messages."""
        await self._ask("OnMessage", self._stub.OnMessage(request, timeout=self._deadline_s))

    async def end(self, request: api.EnvEndRequest) -> None:
        """End a trial."""
        await self._ask("End", self._stub.End(request, timeout=self._deadline_s))

    async def _ask(self, what: str, call: Awaitable[T | None]) -> T:
        return await ask(call, f"{self._name}: {what}", self._deadline_s)
