"""One trial's environment: what it is asked, and whether its answers can be."""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import TypeVar

from worldloom.protos.cogment.api import environment_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import Message, TrialParams
from worldloom.server.cogment.cast import ENVIRONMENT_ID, Cast
from worldloom.server.cogment.endings import failure
from worldloom.server.cogment.environment import Environment, WrongAction
from worldloom.server.errors import Internal, Refusal
from worldloom.server.logs import Log

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
            with suppress(Refusal):
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
        except Refusal as error:
            log.info("environment did not end", trial=self._trial_id, environment=self.name, reason=str(error))
        except Exception:
            log.error("environment failed", trial=self._trial_id, environment=self.name)

    async def _ask(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except WrongAction:
            raise
        except Refusal as error:
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
