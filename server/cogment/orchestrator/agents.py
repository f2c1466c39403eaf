"""The agents of a trial, each an actor that a service at some endpoint decides for."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from worldloom.protos.cogment.api import agent_pb2 as api
from worldloom.protos.cogment.api.agent_pb2_grpc import AgentStub
from worldloom.protos.cogment.api.common_pb2 import Message, Observation, TrialConfig
from worldloom.protos.errors import RequestError
from worldloom.server.cogment.orchestrator.actors import Actor
from worldloom.server.cogment.orchestrator.connections import ask
from worldloom.server.cogment.orchestrator.endings import failure, together
from worldloom.server.cogment.orchestrator.messages import Mail
from worldloom.server.cogment.settings import AgentFailure
from worldloom.server.logs import Log

log = Log("trials")

T = TypeVar("T")


class Agent:
    """One agent in one trial. Every call raises RequestError, which names the agent, if it fails or takes too long."""

    def __init__(self, actor: Actor, trial_id: str, channel: Any, deadline_s: float) -> None:
        self.trial_id = trial_id
        self.actor_id = actor.id
        self._name = f"{actor} at {actor.endpoint}"
        self._config = actor.config
        self._who: dict[str, Any] = {"trial_id": trial_id, "actor_id": actor.id}
        self._stub = AgentStub(channel)
        self._deadline_s = deadline_s

    def __str__(self) -> str:
        return self._name

    async def start(self, counts: Sequence[int], trial_config: TrialConfig | None) -> None:
        """Tell it that a trial begins."""
        request = api.AgentStartRequest(
            **self._who, config=self._config, actor_counts=counts, trial_config=trial_config
        )
        await self._ask("Start", self._stub.Start(request, timeout=self._deadline_s))

    async def decide(self, observation: Observation) -> api.AgentDecideReply:
        """Ask what it does."""
        request = api.AgentDecideRequest(**self._who, observation=observation)
        reply: api.AgentDecideReply = await self._ask("Decide", self._stub.Decide(request, timeout=self._deadline_s))
        return reply

    async def reward(self, tick_id: int, reward: api.Reward) -> None:
        """Tell it what a tick was worth."""
        request = api.AgentRewardRequest(**self._who, tick_id=tick_id, reward=reward)
        await self._ask("Reward", self._stub.Reward(request, timeout=self._deadline_s))

    async def on_message(self, messages: Sequence[Message]) -> None:
        """Hand it its messages."""
        request = api.AgentOnMessageRequest(**self._who, messages=messages)
        await self._ask("OnMessage", self._stub.OnMessage(request, timeout=self._deadline_s))

    async def end(self) -> None:
        """Tell it that the trial is over."""
        await self._ask("End", self._stub.End(api.AgentEndRequest(**self._who), timeout=self._deadline_s))

    async def _ask(self, what: str, call: Awaitable[T | None]) -> T:
        return await ask(call, f"{self}: {what}", self._deadline_s)


class Agents:
    """All agents of one trial, asked at the same time. One that fails ends the trial, or idles: it is left out, which
    is logged the first time."""

    def __init__(self, agents: Sequence[Agent], on_failure: AgentFailure) -> None:
        self.all = tuple(agents)
        self._on_failure = on_failure
        self._idlers: set[Agent] = set()
        self.missed_last = False
        """Whether one of them did not take the last observation."""

    def starts(self, counts: Sequence[int], trial_config: TrialConfig | None) -> list[Coroutine[Any, Any, None]]:
        """The calls that tell them of the trial. One that fails keeps it from starting, whatever else is the rule."""
        return [agent.start(counts, trial_config) for agent in self.all]

    async def decide(self, observation_of: Callable[[int], Observation]) -> list[api.AgentDecideReply | None]:
        """What each of them does; nothing for one that idles."""
        calls = [self._tolerant(agent, agent.decide(observation_of(agent.actor_id))) for agent in self.all]
        decisions = await together(*calls)
        self.missed_last = any(decision is None for decision in decisions)
        return decisions

    async def reward(self, tick_id: int, rewards: Sequence[api.Reward]) -> None:
        """Tell each what a tick was worth."""
        calls = [self._tolerant(agent, agent.reward(tick_id, rewards[agent.actor_id])) for agent in self.all]
        await together(*calls)

    async def hand_over(self, mail: Mail) -> None:
        """Give each its messages, if it has any."""
        waiting = [(agent, mail.collect(agent.actor_id)) for agent in self.all]
        await together(*(self._tolerant(agent, agent.on_message(messages)) for agent, messages in waiting if messages))

    async def dismiss(self, mail: Mail, last: tuple[int, Sequence[api.Reward]] | None) -> None:
        """Tell each that the trial is over, after the rewards of the last tick and its messages if the end was planned.
        No failure matters any more."""
        await asyncio.gather(*(_dismiss(agent, mail.collect(agent.actor_id), last) for agent in self.all))

    def tolerate(self, agent: Agent, error: RequestError) -> None:
        """Go on without an agent, or raise TrialOver."""
        if self._on_failure == "end":
            raise failure(error) from error
        if agent not in self._idlers:
            self._idlers.add(agent)
            log.warning("agent idles", trial=agent.trial_id, agent=str(agent), reason=str(error))

    async def _tolerant(self, agent: Agent, call: Awaitable[T]) -> T | None:
        try:
            return await call
        except RequestError as error:
            self.tolerate(agent, error)
            return None


async def _dismiss(agent: Agent, messages: Sequence[Message], last: tuple[int, Sequence[api.Reward]] | None) -> None:
    try:
        if last is not None:
            tick_id, rewards = last
            await agent.reward(tick_id, rewards[agent.actor_id])
            if messages:
                await agent.on_message(messages)
    except RequestError as error:
        log.info("agent missed the end", trial=agent.trial_id, agent=str(agent), reason=str(error))
    try:
        await agent.end()
    except RequestError as error:
        log.info("agent did not end", trial=agent.trial_id, agent=str(agent), reason=str(error))
