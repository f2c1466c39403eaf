"""The agents and the hook of `python -m scripts.trial_rewards`, and what they were told."""

# ruff: noqa: D102, N802  # the services' own names

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc

from worldloom.protos.cogment.api import agent_pb2 as api
from worldloom.protos.cogment.api.agent_pb2_grpc import AgentServicer, add_AgentServicer_to_server
from worldloom.protos.cogment.api.common_pb2 import Action
from worldloom.protos.cogment.api.hooks_pb2 import TrialContext
from worldloom.protos.cogment.api.hooks_pb2_grpc import TrialHooksServicer, add_TrialHooksServicer_to_server
from worldloom.protos.worldloom import trials_pb2

FAILING_ACTOR = 2
"""Actor whose agent fails, is killed, or is late."""


class TrialLog:
    """Everything that actors received, in all trials."""

    def __init__(self) -> None:
        self.ways: dict[str, str] = {}
        """Way to end of each trial that the hook was asked about."""
        self.ticks: dict[str, int] = {}
        """Ticks of each trial before it ends."""
        self.started: set[str] = set()
        """Trials of which an agent was asked for a decision."""
        self.ended_by_itself: set[str] = set()
        """Trials that ended before their client ended them."""
        self.humans: dict[str, float] = {}
        """Sum of the human's rewards by trial."""
        self.agents: dict[tuple[str, int], float] = {}
        """Sum of each agent's rewards by trial and actor."""
        self.problems: list[str] = []
        self._next_ticks: dict[tuple[str, int], int] = {}
        """Tick whose reward comes next, for each agent that was started and has not ended."""

    @property
    def rewarded_ways(self) -> set[str]:
        """Ways to end of trials in which an agent has got a reward."""
        return {self.ways[trial_id] for (trial_id, _), total in self.agents.items() if total}

    def start(self, actor: tuple[str, int]) -> None:
        if actor in self.agents:
            self.problems.append(f"{actor} was started twice")
        self.agents[actor], self._next_ticks[actor] = 0.0, 0

    def reward(self, actor: tuple[str, int], tick_id: int, value: float) -> None:
        if self._next_ticks.get(actor) != tick_id:
            self.problems.append(f"{actor} got the reward of tick {tick_id}: expected {self._next_ticks.get(actor)}")
        else:
            self._next_ticks[actor] += 1
            self.agents[actor] += value

    def end(self, actor: tuple[str, int]) -> None:
        if self._next_ticks.pop(actor, None) is None:
            self.problems.append(f"{actor} got End: expected Start before it, and one End")

    async def until_all_ended(self, timeout_s: float) -> None:
        """Wait until no agent is left."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._next_ticks:
                    await asyncio.sleep(0.05)
        self.problems += [f"{actor} got no End" for actor in self._next_ticks]


class Agents(AgentServicer):
    """Agents that move at random."""

    def __init__(self, log: TrialLog) -> None:
        self._log = log
        self._rng = random.Random(0)

    async def Start(self, request: api.AgentStartRequest, context: Any) -> api.AgentStartReply:
        self._log.start((request.trial_id, request.actor_id))
        return api.AgentStartReply()

    async def Decide(self, request: api.AgentDecideRequest, context: Any) -> api.AgentDecideReply:
        trial_id = request.trial_id
        self._log.started.add(trial_id)
        fails = self._log.ways[trial_id] == "agent_fails" and request.actor_id == FAILING_ACTOR
        if fails and request.observation.tick_id >= self._log.ticks[trial_id]:
            await context.abort(grpc.StatusCode.INTERNAL, "as planned")
        return api.AgentDecideReply(action=Action(content=action_of(self._rng)))

    async def Reward(self, request: api.AgentRewardRequest, context: Any) -> api.AgentRewardReply:
        self._log.reward((request.trial_id, request.actor_id), request.tick_id, request.reward.value)
        return api.AgentRewardReply()

    async def OnMessage(self, request: api.AgentOnMessageRequest, context: Any) -> api.AgentOnMessageReply:
        return api.AgentOnMessageReply()

    async def End(self, request: api.AgentEndRequest, context: Any) -> api.AgentEndReply:
        self._log.end((request.trial_id, request.actor_id))
        return api.AgentEndReply()


class Hook(TrialHooksServicer):
    """A hook that prepares a trial for its end, which the name of its user says: `WAY TICKS`."""

    def __init__(self, log: TrialLog, endpoints: Mapping[str, str], max_inactivity_s: int) -> None:
        self._log, self._endpoints, self._max_inactivity_s = log, endpoints, max_inactivity_s

    async def PreTrial(self, request: TrialContext, context: Any) -> TrialContext:
        way, _, ticks = request.user_id.partition(" ")
        self._log.ways[request.trial_id], self._log.ticks[request.trial_id] = way, int(ticks)
        if way == "max_steps":
            request.params.max_steps = int(ticks)
        elif way in ("silence", "vanished"):
            request.params.max_inactivity = self._max_inactivity_s
        elif way == "agent_killed":
            request.params.actors[FAILING_ACTOR].endpoint = self._endpoints[way]
        elif way == "environment_killed":
            request.params.environment.endpoint = self._endpoints[way]
        return request


def action_of(rng: random.Random) -> bytes:
    """Return the content of a random action."""
    message = trials_pb2.Action()
    message.actions["turn"].floats.array.append(rng.uniform(-1, 1))
    message.actions["move"].floats.array.extend([1.0, rng.uniform(-0.5, 0.5)])
    message.actions["move"].shape.append(2)
    data: bytes = message.SerializeToString()
    return data


@contextlib.asynccontextmanager
async def listening(port: int, agents: Agents, hook: Hook) -> AsyncIterator[None]:
    """Serve agents and hook at a port."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    add_AgentServicer_to_server(agents, server)
    add_TrialHooksServicer_to_server(hook, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(grace=None)
