"""Trials of a server on a real socket, with fake agents, environments, hooks and exporters that log their calls.

Everything runs on the test's event loop. A test ends with a check that nothing of its trials is left.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from google.protobuf.any_pb2 import Any as Payload

from worldloom.protos.cogment.api import agent_pb2, data_pb2, environment_pb2, hooks_pb2, orchestrator_pb2
from worldloom.protos.cogment.api.agent_pb2_grpc import AgentServicer, add_AgentServicer_to_server
from worldloom.protos.cogment.api.common_pb2 import Feedback, Message, ObservationData, TrialParams, VersionInfo
from worldloom.protos.cogment.api.data_pb2_grpc import LogExporterServicer, add_LogExporterServicer_to_server
from worldloom.protos.cogment.api.environment_pb2_grpc import EnvironmentServicer, add_EnvironmentServicer_to_server
from worldloom.protos.cogment.api.hooks_pb2_grpc import TrialHooksServicer, add_TrialHooksServicer_to_server
from worldloom.protos.cogment.api.orchestrator_pb2_grpc import TrialStub, add_TrialServicer_to_server
from worldloom.server.cogment.orchestrator import trials as trials_module
from worldloom.server.cogment.orchestrator.trials import Trials
from worldloom.server.cogment.services import TrialService
from worldloom.server.cogment.settings import BUILT_IN, HUMAN, TrialSettings
from worldloom.server.config import Limits
from worldloom.server.transports.grpc_streams import channel_options

TIMEOUT_S = 20.0
VERSION = VersionInfo(versions=[VersionInfo.Version(name="fake", version="1.2.3")])
Code = grpc.StatusCode
PACKAGE = str(Path(trials_module.__file__).parents[1])


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario, and check that it leaves no task."""

    async def run_and_check() -> None:
        await asyncio.wait_for(scenario(), TIMEOUT_S)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:  # what servers were busy with when they stopped
            assert not (await asyncio.wait(others, timeout=TIMEOUT_S))[1]

    asyncio.run(run_and_check())


class LoggedCall(NamedTuple):
    service: str
    method: str
    request: Any


class CallLog:
    """Calls of all fake services, in order."""

    def __init__(self) -> None:
        self.logged: list[LoggedCall] = []
        self._changed = asyncio.Condition()

    async def add(self, service: str, method: str, request: Any) -> None:
        async with self._changed:
            self.logged.append(LoggedCall(service, method, request))
            self._changed.notify_all()

    async def until(self, service: str, method: str, count: int = 1) -> Any:
        """Wait for the n-th call of a method; return its request."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.of(service, method)) >= count)
        return self.of(service, method)[count - 1]

    def of(self, service: str, method: str) -> list[Any]:
        return [call.request for call in self.logged if call[:2] == (service, method)]

    def calls(self) -> list[str]:
        return [f"{call.service} {call.method}" for call in self.logged]


class FakeService:
    """Base of the fake services: logs calls, and answers as the test wants."""

    def __init__(self, name: str, call_log: CallLog) -> None:
        self.name = name
        self.call_log = call_log
        self.overrides: dict[str, Callable[[Any, Any], Awaitable[Any]]] = {}
        """Replacements by method, called with the request and the context."""
        self.delays: dict[str, Callable[[], Awaitable[Any]]] = {}
        """Waits by method, before it answers."""

    async def respond(self, method: str, request: Any, context: Any, reply: Any) -> Any:
        await self.call_log.add(self.name, method, request)
        if method in self.delays:
            await self.delays[method]()
        if method in self.overrides:
            return await self.overrides[method](request, context)
        return reply


def message(receiver: int, text: str, sender: int = 0) -> Message:
    return Message(sender_id=sender, receiver_id=receiver, payload=Payload(type_url="text", value=text.encode()))


async def hang(_request: Any, _context: Any) -> None:
    await asyncio.Event().wait()


class FakeAgent(FakeService, AgentServicer):
    """An agent service. Its action is `NAME.ACTOR@TICK`."""

    def __init__(self, name: str, call_log: CallLog) -> None:
        super().__init__(name, call_log)
        self.feedbacks: dict[int, list[Feedback]] = {}
        self.messages: dict[int, list[Message]] = {}
        """Feedback and messages that come with its action, by tick."""
        self.remarks: dict[tuple[int, int], list[tuple[Message, list[Feedback]]]] = {}
        """Messages with feedback, by actor and tick."""

    async def Start(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self.respond("Start", request, context, agent_pb2.AgentStartReply())

    async def End(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self.respond("End", request, context, agent_pb2.AgentEndReply())

    async def Decide(self, request: Any, context: Any) -> Any:  # noqa: N802
        tick = request.observation.tick_id
        reply = agent_pb2.AgentDecideReply(feedbacks=self.feedbacks.get(tick, ()), messages=self.messages.get(tick, ()))
        for letter, about in self.remarks.get((request.actor_id, tick), ()):
            reply.messages.append(letter)
            reply.feedbacks.extend(about)
        reply.action.content = f"{self.name}.{request.actor_id}@{tick}".encode()
        return await self.respond("Decide", request, context, reply)

    async def Reward(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self.respond("Reward", request, context, agent_pb2.AgentRewardReply())

    async def OnMessage(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self.respond("OnMessage", request, context, agent_pb2.AgentOnMessageReply())

    async def Version(self, request: Any, context: Any) -> Any:  # noqa: N802
        return VERSION


class FakeEnvironment(FakeService):
    """An environment: actor i observes `seen i@TICK`. The functions in `overrides` may raise errors."""

    def __init__(self, call_log: CallLog, name: str = "env") -> None:
        super().__init__(name, call_log)
        self.ends_at: int | None = None
        self.feedbacks: dict[int, list[Feedback]] = {}
        self.messages: dict[int, list[Message]] = {}
        """Feedback and messages that come with the observations of a tick."""
        self.trials: dict[str, tuple[int, int]] = {}
        """Tick and number of actors of each trial."""

    async def start(self, request: environment_pb2.EnvStartRequest, context: Any = None) -> Any:
        actors = sum(request.actor_counts)
        self.trials[request.trial_id] = (0, actors)
        reply = environment_pb2.EnvStartReply(observation_set=seen(0, actors))
        return await self.respond("Start", request, context, reply)

    async def update(self, request: environment_pb2.EnvUpdateRequest, context: Any = None) -> Any:
        tick, actors = self.trials[request.trial_id]
        tick += 1
        reply = environment_pb2.EnvUpdateReply(
            observation_set=seen(tick, actors),
            end_trial=tick == self.ends_at,
            feedbacks=self.feedbacks.get(tick, ()),
            messages=self.messages.get(tick, ()),
        )
        reply = await self.respond("Update", request, context, reply)
        self.trials[request.trial_id] = (tick, actors)
        return reply

    async def on_message(self, request: environment_pb2.EnvOnMessageRequest, context: Any = None) -> Any:
        return await self.respond("OnMessage", request, context, environment_pb2.EnvOnMessageReply())

    async def end(self, request: environment_pb2.EnvEndRequest, context: Any = None) -> Any:
        self.trials.pop(request.trial_id, None)
        return await self.respond("End", request, context, environment_pb2.EnvEndReply())


def seen(tick: int, actors: int) -> environment_pb2.ObservationSet:
    return environment_pb2.ObservationSet(
        tick_id=tick,
        timestamp=1_000_000_000 + tick,
        observations=[
            ObservationData(content=f"seen {actor}@{tick}".encode(), snapshot=True) for actor in range(actors)
        ],
        actors_map=range(actors),
    )


class FakeEnvironmentService(EnvironmentServicer):
    """A FakeEnvironment as a gRPC service."""

    def __init__(self, environment: FakeEnvironment) -> None:
        self._environment = environment

    async def Start(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._environment.start(request, context)

    async def Update(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._environment.update(request, context)

    async def OnMessage(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._environment.on_message(request, context)

    async def End(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._environment.end(request, context)

    async def Version(self, request: Any, context: Any) -> Any:  # noqa: N802
        return VERSION


class FakeHook(FakeService, TrialHooksServicer):
    """A hook that changes parameters with `change`."""

    def __init__(self, name: str, call_log: CallLog, change: Callable[[TrialParams], None]) -> None:
        super().__init__(name, call_log)
        self._change = change

    async def PreTrial(self, request: Any, context: Any) -> Any:  # noqa: N802
        reply = hooks_pb2.TrialContext()
        reply.CopyFrom(request)
        self._change(reply.params)
        return await self.respond("PreTrial", request, context, reply)

    async def Version(self, request: Any, context: Any) -> Any:  # noqa: N802
        return VERSION


class FakeExporter(FakeService, LogExporterServicer):
    """A log exporter that keeps all messages."""

    def __init__(self, name: str, call_log: CallLog) -> None:
        super().__init__(name, call_log)
        self.logs: list[list[data_pb2.DatalogMsg]] = []

    async def Log(self, requests: Any, context: Any) -> Any:  # noqa: N802
        if "Log" in self.overrides:
            return await self.respond("Log", requests, context, None)
        log: list[data_pb2.DatalogMsg] = []
        async for message in requests:
            log.append(message)
        self.logs.append(log)
        return await self.respond("Log", None, context, data_pb2.LogReply())


@contextlib.asynccontextmanager
async def listening(servicer: Any, limits: Limits | None = None) -> AsyncIterator[tuple[str, grpc.aio.Server]]:
    """Serve a service; yield its endpoint and the server."""
    add: dict[Any, Any] = {
        AgentServicer: add_AgentServicer_to_server,
        EnvironmentServicer: add_EnvironmentServicer_to_server,
        TrialHooksServicer: add_TrialHooksServicer_to_server,
        LogExporterServicer: add_LogExporterServicer_to_server,
        TrialService: add_TrialServicer_to_server,
    }
    server = grpc.aio.server(options=channel_options(limits or Limits()))
    for kind, add_servicer in add.items():
        if isinstance(servicer, kind):
            add_servicer(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"grpc://127.0.0.1:{port}", server
    finally:
        await server.stop(None)


@dataclass
class TrialHost:
    """A Trial service under test, with the fake services of its trials."""

    stub: TrialStub
    trials: Trials
    call_log: CallLog
    environment: FakeEnvironment
    agents: dict[str, FakeAgent] = field(default_factory=dict)
    servers: dict[str, grpc.aio.Server] = field(default_factory=dict)
    endpoints: dict[str, str] = field(default_factory=dict)

    async def start(self, user_id: str = "", config: bytes | None = None) -> orchestrator_pb2.TrialStartReply:
        request = orchestrator_pb2.TrialStartRequest(user_id=user_id)
        if config is not None:
            request.config.content = config
        reply: orchestrator_pb2.TrialStartReply = await self.stub.Start(request)
        return reply

    def act(self, trial_id: str, actor_id: int = 0, content: bytes = b"act") -> Any:
        """Start an Action call and return it."""
        request = orchestrator_pb2.TrialActionRequest(trial_id=trial_id, actor_id=actor_id)
        request.action.content = content
        return self.stub.Action(request)

    async def acted(self, trial_id: str, actor_id: int = 0) -> None:
        """Wait until an action has reached its trial."""
        while self.trials._running[trial_id]._run.humans._humans[actor_id].action is None:
            await asyncio.sleep(0)

    async def end(self, trial_id: str) -> None:
        await self.stub.End(orchestrator_pb2.TrialEndRequest(trial_id=trial_id))

    async def all_gone(self) -> None:
        """Wait until all trials have ended their agents and environments."""
        while self.trials._tasks:
            await asyncio.wait(self.trials._tasks)


@contextlib.asynccontextmanager
async def trial_host(
    actors: Sequence[str] = (HUMAN,),
    *,
    remote_environment: bool = False,
    params: TrialParams | None = None,
    limits: Limits | None = None,
    **settings: Any,
) -> AsyncIterator[TrialHost]:
    """Serve trials with these actors: HUMAN, or the name of an agent service.

    Actors are of the class `player`, unless their name has a class before it: `seeker:a`.
    """
    call_log = CallLog()
    params = params or TrialParams()
    async with contextlib.AsyncExitStack() as stack:
        agents, servers, endpoints = {}, {}, {}
        names = [name.rpartition(":")[2] for name in actors]
        for name in sorted({*names} - {HUMAN}):
            agents[name] = FakeAgent(name, call_log)
            endpoints[name], servers[name] = await stack.enter_async_context(listening(agents[name]))
        environment = FakeEnvironment(call_log)
        params.environment.endpoint = BUILT_IN
        if remote_environment:
            service = FakeEnvironmentService(environment)
            endpoints["env"], servers["env"] = await stack.enter_async_context(listening(service))
            params.environment.endpoint = endpoints["env"]
        for name, given in zip(names, actors, strict=True):
            actor_class = given.rpartition(":")[0] or "player"
            params.actors.add(actor_class=actor_class, endpoint=endpoints.get(name, HUMAN))
        settings.setdefault("actor_classes", ("player",))
        trials = Trials(TrialSettings(params=params, **settings), environment, limits or Limits())
        endpoint, _ = await stack.enter_async_context(listening(TrialService(trials), limits))
        target = endpoint.removeprefix("grpc://")
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(target))
        yield TrialHost(TrialStub(channel), trials, call_log, environment, agents, servers, endpoints)
        await trials.close()
        assert trials.running_count == 0
        assert not trials._tasks
        assert not trials._channels._open
        assert environment.trials == {}
        if tasks := _tasks_of_ours():  # calls that were just cut off
            assert not (await asyncio.wait(tasks, timeout=TIMEOUT_S / 2))[1]


def let_time_pass(host: TrialHost, trial_id: str) -> None:
    """Let all humans of a trial have been inactive for an hour."""
    humans = host.trials._running[trial_id].state.humans
    humans._last_active_s -= 3600
    humans._has_acted.set()  # it looks at the time again


def _tasks_of_ours() -> set["asyncio.Task[Any]"]:
    """Return the tasks that the server's code has created; handlers of calls are created by gRPC."""
    coroutines = {task: task.get_coro() for task in asyncio.all_tasks()}
    return {task for task, one in coroutines.items() if PACKAGE in getattr(one, "cr_code", run.__code__).co_filename}


async def status_of(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    """Return the status code and text that a call ends with."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return Code.OK, ""
