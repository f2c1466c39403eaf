"""Clients of the services that other programs run for trials: agents, environments and pre-trial hooks.

All services at an endpoint share one channel (`Channels`), however many trials use it. Every call has the deadline of
the settings and raises a RequestError that names the service (`call_service`). Runs on the event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from worldloom.protos.addresses import is_loopback
from worldloom.protos.cogment.api import agent_pb2 as api
from worldloom.protos.cogment.api import environment_pb2 as env_api
from worldloom.protos.cogment.api.agent_pb2_grpc import AgentStub
from worldloom.protos.cogment.api.common_pb2 import (
    Message,
    Observation,
    TrialConfig,
    TrialParams,
    VersionInfo,
    VersionRequest,
)
from worldloom.protos.cogment.api.environment_pb2_grpc import EnvironmentStub
from worldloom.protos.cogment.api.hooks_pb2 import TrialContext
from worldloom.protos.cogment.api.hooks_pb2_grpc import TrialHooksStub
from worldloom.protos.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    RequestError,
    Unavailable,
)
from worldloom.server.cogment.orchestrator.trial_state import MessageQueue, TrialEnded
from worldloom.server.cogment.settings import Actor, AgentFailure, TrialSettings, parse_actors, parse_endpoint
from worldloom.server.cogment.status import error_from_status
from worldloom.server.config import Limits
from worldloom.server.logs import Log

log = Log("trials")

T = TypeVar("T")

_MAX_UNUSED_CHANNELS = 64
"""Maximum number of unused channels that stay open; hooks may name another endpoint for each trial."""
_RECONNECT_MS = (100, 1_000)
"""Shortest and longest wait before reconnecting. With gRPC's default of two minutes, a restarted service would stay
unreachable for longer than many trials last."""
_MAX_KNOWN_SERVICES = 1024
_STUBS: dict[str, Any] = {"agent": AgentStub, "environment": EnvironmentStub, "hook": TrialHooksStub}


@dataclass
class _SharedChannel:
    channel: Any
    users: int = 0


class Channels:
    """Channels to endpoints, counted by use. Each `acquire` is followed by one `release`."""

    def __init__(self, limits: Limits) -> None:
        self._options = [
            ("grpc.max_receive_message_length", limits.max_reply_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS[0]),
            ("grpc.min_reconnect_backoff_ms", _RECONNECT_MS[0]),
            ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS[1]),
            ("grpc.use_local_subchannel_pool", 1),  # do not share connections with other channels of this process
        ]
        self._open: dict[str, _SharedChannel] = {}
        """Channels by endpoint, most recently released last."""

    def acquire(self, endpoint: str) -> Any:
        """Return the channel to an endpoint; raise ValueError unless it is grpc://HOST:PORT."""
        shared = self._open.get(endpoint)
        if shared is None:
            shared = self._open[endpoint] = _SharedChannel(self._connect(parse_endpoint(endpoint)))
        shared.users += 1
        return shared.channel

    async def release(self, endpoint: str) -> None:
        """End one use of a channel. Unused channels stay open for reuse, up to a maximum number."""
        shared = self._open[endpoint]
        shared.users -= 1
        if not shared.users:
            self._open[endpoint] = self._open.pop(endpoint)
            unused = [name for name, one in self._open.items() if not one.users]
            for name in unused[:-_MAX_UNUSED_CHANNELS]:
                await self._open.pop(name).channel.close()

    async def close(self) -> None:
        """Close all channels."""
        while self._open:
            await self._open.popitem()[1].channel.close()

    def _connect(self, target: str) -> Any:
        host = target.rpartition(":")[0].strip("[]")
        no_proxy = [("grpc.enable_http_proxy", 0)] if host == "localhost" or is_loopback(host) else []
        return grpc.aio.insecure_channel(target, options=[*self._options, *no_proxy])


async def call_service(call: Awaitable[T | None], name: str, deadline_s: float) -> T:
    """Return the reply to a gRPC call; raise RequestError if it fails. `name` is the service and method."""
    try:
        reply = await call
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise DeadlineExceeded(f"{name} did not answer within {deadline_s:g} s (deadline_s)") from None
        raise error_from_status(error, name) from None
    if reply is None:  # gRPC returns None for bytes that it cannot parse
        raise Internal(f"{name} answered with bytes that are not a reply of that method")
    return reply


async def gather_or_cancel(*calls: Coroutine[Any, Any, T]) -> list[T]:
    """Await all calls concurrently and return their results. If one raises, cancel the others and raise its error."""
    if len(calls) == 1:
        return [await calls[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def wait_for_calls(calls: "Sequence[asyncio.Task[None]]") -> None:
    """Wait for calls, or until one has failed, and raise its error. None is cancelled, whatever happens."""
    if calls:
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
        for call in done:
            call.result()


class RemoteAgent:
    """An Agent service that decides for one actor of one trial."""

    def __init__(self, actor: Actor, trial_id: str, channel: Any, deadline_s: float) -> None:
        self.trial_id = trial_id
        self.actor_id = actor.id
        self._name = f"{actor} at {actor.endpoint}"
        self._config = actor.config
        self._ids: dict[str, Any] = {"trial_id": trial_id, "actor_id": actor.id}
        self._stub = AgentStub(channel)
        self._deadline_s = deadline_s
        self._was_reached = False
        """True if Start was called, unless the service was unreachable."""

    def __str__(self) -> str:
        return self._name

    async def start(self, actor_counts: Sequence[int], trial_config: TrialConfig | None) -> None:
        """Call Start."""
        request = api.AgentStartRequest(
            **self._ids, config=self._config, actor_counts=actor_counts, trial_config=trial_config
        )
        self._was_reached = True
        try:
            await self._call("Start", self._stub.Start(request, timeout=self._deadline_s))
        except Unavailable:
            self._was_reached = False
            raise

    async def decide(self, observation: Observation) -> api.AgentDecideReply:
        """Call Decide: return the agent's action, feedback and messages."""
        request = api.AgentDecideRequest(**self._ids, observation=observation)
        reply: api.AgentDecideReply = await self._call("Decide", self._stub.Decide(request, timeout=self._deadline_s))
        return reply

    async def reward(self, tick_id: int, reward: api.Reward) -> None:
        """Call Reward with the reward of a tick."""
        request = api.AgentRewardRequest(**self._ids, tick_id=tick_id, reward=reward)
        await self._call("Reward", self._stub.Reward(request, timeout=self._deadline_s))

    async def on_message(self, messages: Sequence[Message]) -> None:
        """Call OnMessage."""
        request = api.AgentOnMessageRequest(**self._ids, messages=messages)
        await self._call("OnMessage", self._stub.OnMessage(request, timeout=self._deadline_s))

    async def end(self) -> None:
        """Call End, unless Start was not called or did not reach the service."""
        if self._was_reached:
            await self._call("End", self._stub.End(api.AgentEndRequest(**self._ids), timeout=self._deadline_s))

    async def _call(self, method: str, call: Awaitable[T | None]) -> T:
        return await call_service(call, f"{self}: {method}", self._deadline_s)


class RemoteAgents:
    """All agents of one trial, called concurrently. A failed call ends the trial, or the agent idles in that tick."""

    def __init__(self, agents: Sequence[RemoteAgent], on_failure: AgentFailure) -> None:
        self.all = tuple(agents)
        self._on_failure = on_failure
        self._has_idled: set[RemoteAgent] = set()
        self._deliveries: dict[RemoteAgent, asyncio.Task[None]] = {}
        """Latest Reward or OnMessage call of each agent."""
        self.have_missed_last = False
        """True if Decide failed for any of them in this tick: it may not know the last observation."""

    def starts(self, actor_counts: Sequence[int], trial_config: TrialConfig | None) -> list[Coroutine[Any, Any, None]]:
        """Return the Start call of each agent. One that fails prevents the trial, whatever `on_failure` is."""
        return [agent.start(actor_counts, trial_config) for agent in self.all]

    async def decide(
        self, observation_of: Callable[[int], Observation], take: Callable[[RemoteAgent, api.AgentDecideReply], None]
    ) -> list[api.AgentDecideReply | None]:
        """Return the decision of each agent; None for one that idles.

        `take` is called with each decision, for its feedback and messages: also with those that have come when another
        agent fails or the trial ends, since they are pending then.
        """
        arrived: dict[RemoteAgent, api.AgentDecideReply] = {}

        async def ask(agent: RemoteAgent) -> api.AgentDecideReply | None:
            decision = await self._call(agent, agent.decide(observation_of(agent.actor_id)))
            if decision is not None:
                arrived[agent] = decision
            return decision

        try:
            decisions = await gather_or_cancel(*map(ask, self.all))
        except BaseException:
            for agent in filter(arrived.__contains__, self.all):
                with suppress(Exception):  # what ends the trial is known
                    take(agent, arrived[agent])
            raise
        for agent in filter(arrived.__contains__, self.all):
            take(agent, arrived[agent])
        self.have_missed_last = any(decision is None for decision in decisions)
        return decisions

    def reward(self, tick_id: int, rewards: Sequence[api.Reward]) -> "list[asyncio.Task[None]]":
        """Begin to send each agent its reward of a tick; return the calls, for `wait_for_calls`."""
        return self._deliver([(agent, agent.reward(tick_id, rewards[agent.actor_id])) for agent in self.all])

    def deliver(self, queue: MessageQueue) -> "list[asyncio.Task[None]]":
        """Begin to send each agent its messages, if it has any; return the calls, for `wait_for_calls`."""
        waiting = [(agent, queue.pop(agent.actor_id)) for agent in self.all]
        return self._deliver([(agent, agent.on_message(messages)) for agent, messages in waiting if messages])

    def _deliver(self, calls: Sequence[tuple[RemoteAgent, Coroutine[Any, Any, None]]]) -> "list[asyncio.Task[None]]":
        """Begin calls that are not cancelled with the tick: what was taken out of a trial's state is delivered once."""
        begun = {agent: asyncio.create_task(self._call(agent, call)) for agent, call in calls}
        self._deliveries |= begun
        return list(begun.values())

    async def end(self, rewards: Sequence[tuple[int, Sequence[api.Reward]]], queue: MessageQueue) -> None:
        """End the trial for each agent, which gets what is pending first; failures are only logged.

        `rewards` are the ticks whose rewards have not been sent, in order. The last has only begun: an agent gets its
        reward if there was feedback on it.
        """
        last_tick = rewards[-1][0] if rewards else 0
        calls = []
        for agent in self.all:
            pending = [(tick, some[agent.actor_id]) for tick, some in rewards]
            given = [(tick, reward) for tick, reward in pending if tick < last_tick or reward.feedbacks]
            calls.append(self._end_agent(agent, given, queue.pop(agent.actor_id)))
        await asyncio.gather(*calls)

    def abort(self) -> None:
        """Cancel the deliveries that a cancelled `end` leaves."""
        for task in self._deliveries.values():
            task.cancel()

    async def _end_agent(
        self, agent: RemoteAgent, rewards: Sequence[tuple[int, api.Reward]], messages: Sequence[Message]
    ) -> None:
        try:
            if agent in self._deliveries:
                await self._deliveries[agent]
            for tick_id, reward in rewards:
                await agent.reward(tick_id, reward)
            if messages:
                await agent.on_message(messages)
        except (RequestError, TrialEnded) as error:
            log.info("agent missed the last reward", trial=agent.trial_id, agent=str(agent), reason=str(error))
        try:
            await agent.end()
        except RequestError as error:
            log.info("agent did not end", trial=agent.trial_id, agent=str(agent), reason=str(error))

    def handle_failure(self, agent: RemoteAgent, error: RequestError) -> None:
        """Let an agent idle in this tick, or raise TrialEnded. The first time that an agent idles is logged."""
        if self._on_failure == "end":
            raise TrialEnded.by_failure(error) from error
        if agent not in self._has_idled:
            self._has_idled.add(agent)
            log.warning("agent idles", trial=agent.trial_id, agent=str(agent), reason=str(error))

    async def _call(self, agent: RemoteAgent, call: Awaitable[T]) -> T | None:
        try:
            return await call
        except RequestError as error:
            self.handle_failure(agent, error)
            return None


class RemoteEnvironment:
    """An Environment service: the worlds of trials in another program."""

    def __init__(self, endpoint: str, channel: Any, deadline_s: float) -> None:
        self._name = f"the environment at {endpoint}"
        self._stub = EnvironmentStub(channel)
        self._deadline_s = deadline_s

    async def start(self, request: env_api.EnvStartRequest) -> env_api.EnvStartReply:
        """Call Start."""
        reply: env_api.EnvStartReply = await self._call("Start", self._stub.Start(request, timeout=self._deadline_s))
        return reply

    async def update(self, request: env_api.EnvUpdateRequest) -> env_api.EnvUpdateReply:
        """Call Update."""
        reply: env_api.EnvUpdateReply = await self._call("Update", self._stub.Update(request, timeout=self._deadline_s))
        return reply

    async def on_message(self, request: env_api.EnvOnMessageRequest) -> None:
        """Call OnMessage."""
        await self._call("OnMessage", self._stub.OnMessage(request, timeout=self._deadline_s))

    async def end(self, request: env_api.EnvEndRequest) -> None:
        """Call End."""
        await self._call("End", self._stub.End(request, timeout=self._deadline_s))

    async def _call(self, method: str, call: Awaitable[T | None]) -> T:
        return await call_service(call, f"{self._name}: {method}", self._deadline_s)


class Hooks:
    """The TrialHooks services of a server, called one after another before each trial."""

    def __init__(self, settings: TrialSettings, channels: Channels) -> None:
        self._endpoints = settings.pre_hooks
        self._actor_classes = settings.actor_classes
        self._deadline_s = settings.deadline_s
        self._channels = channels

    async def pre_trial(self, context: TrialContext) -> TrialParams:
        """Return the trial's parameters as the hooks change them; other changes of the context are ignored."""
        params = context.params
        for endpoint in self._endpoints:
            given = TrialContext(params=params, trial_id=context.trial_id, user_id=context.user_id)
            params = (await self._call(endpoint, given)).params
            try:
                parse_actors(params, self._actor_classes)
            except InvalidArgument as error:
                raise FailedPrecondition(f"the hook at {endpoint} returned invalid parameters: {error}") from None
        return params

    async def _call(self, endpoint: str, context: TrialContext) -> TrialContext:
        stub = TrialHooksStub(self._channels.acquire(endpoint))
        try:
            call = stub.PreTrial(context, timeout=self._deadline_s)
            reply: TrialContext = await call_service(call, f"the hook at {endpoint}: PreTrial", self._deadline_s)
        finally:
            await self._channels.release(endpoint)
        return reply


class VersionLogger:
    """Log of the versions of remote services, each asked once. One that does not answer is asked again next time."""

    def __init__(self, channels: Channels, deadline_s: float) -> None:
        self._channels = channels
        self._deadline_s = deadline_s
        self._known: set[tuple[str, str]] = set()
        """Services that were asked: (kind, endpoint)."""

    async def log_versions(self, services: Iterable[tuple[str, str]]) -> None:
        """Ask services that are new, given as (kind, endpoint), for their versions, and log them."""
        new = {*services} - self._known
        if len(self._known) + len(new) > _MAX_KNOWN_SERVICES:
            self._known.clear()
        self._known |= new
        await asyncio.gather(*(self._log_version(kind, endpoint) for kind, endpoint in new))

    async def _log_version(self, kind: str, endpoint: str) -> None:
        stub = _STUBS[kind](self._channels.acquire(endpoint))
        try:
            call = stub.Version(VersionRequest(), timeout=self._deadline_s)
            info: VersionInfo = await call_service(call, "Version", self._deadline_s)
        except RequestError as error:
            self._known.discard((kind, endpoint))
            log.debug("versions unknown", service=kind, endpoint=endpoint, reason=str(error))
        else:
            versions = ", ".join(f"{one.name} {one.version}" for one in info.versions)[:200]
            log.info("versions", service=kind, endpoint=endpoint, versions=versions)
        finally:
            await self._channels.release(endpoint)
