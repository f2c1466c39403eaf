"""A server's trials on a real socket, with everyone who takes part in them: each notes in one book what it is told.

All of it runs on the test's event loop. A test ends with the check that nothing of its trials is left.
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
    """Play a scenario, after which no task is left."""

    async def play_and_look() -> None:
        await asyncio.wait_for(scenario(), TIMEOUT_S)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:  # what servers were busy with when they stopped
            assert not (await asyncio.wait(others, timeout=TIMEOUT_S))[1]

    asyncio.run(play_and_look())


class Note(NamedTuple):
    who: str
    what: str
    request: Any


class Book:
    """Who was told what, in order."""

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self._changed = asyncio.Condition()

    async def note(self, who: str, what: str, request: Any) -> None:
        async with self._changed:
            self.notes.append(Note(who, what, request))
            self._changed.notify_all()

    async def until(self, who: str, what: str, count: int = 1) -> Any:
        """Wait for the n-th such note: its request."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.of(who, what)) >= count)
        return self.of(who, what)[count - 1]

    def of(self, who: str, what: str) -> list[Any]:
        return [note.request for note in self.notes if note[:2] == (who, what)]

    def calls(self) -> list[str]:
        return [f"{note.who} {note.what}" for note in self.notes]


class Party:
    """What all who take part have in common: a book, and a way to do otherwise in a call."""

    def __init__(self, name: str, book: Book) -> None:
        self.name = name
        self.book = book
        self.instead: dict[str, Callable[[Any, Any], Awaitable[Any]]] = {}
        """By method; gets the request and the context."""
        self.before: dict[str, Callable[[], Awaitable[Any]]] = {}
        """By method; what it waits for before it answers."""

    async def told(self, what: str, request: Any, context: Any, reply: Any) -> Any:
        await self.book.note(self.name, what, request)
        if what in self.before:
            await self.before[what]()
        if what in self.instead:
            return await self.instead[what](request, context)
        return reply


def message(receiver: int, text: str, sender: int = 0) -> Message:
    return Message(sender_id=sender, receiver_id=receiver, payload=Payload(type_url="text", value=text.encode()))


async def hang(_request: Any, _context: Any) -> None:
    await asyncio.Event().wait()


class FakeAgent(Party, AgentServicer):
    """An agent service. Its action is `NAME.ACTOR@TICK`."""

    def __init__(self, name: str, book: Book) -> None:
        super().__init__(name, book)
        self.feedbacks: dict[int, list[Feedback]] = {}
        self.messages: dict[int, list[Message]] = {}
        """What it says besides, by tick."""
        self.remarks: dict[tuple[int, int], list[tuple[Message, list[Feedback]]]] = {}
        """The same by actor and tick."""

    async def Start(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self.told("Start", request, context, agent_pb2.AgentStartReply())

    async def End(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self.told("End", request, context, agent_pb2.AgentEndReply())

    async def Decide(self, request: Any, context: Any) -> Any:  # noqa: N802
        tick = request.observation.tick_id
        reply = agent_pb2.AgentDecideReply(feedbacks=self.feedbacks.get(tick, ()), messages=self.messages.get(tick, ()))
        for letter, about in self.remarks.get((request.actor_id, tick), ()):
            reply.messages.append(letter)
            reply.feedbacks.extend(about)
        reply.action.content = f"{self.name}.{request.actor_id}@{tick}".encode()
        return await self.told("Decide", request, context, reply)

    async def Reward(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self.told("Reward", request, context, agent_pb2.AgentRewardReply())

    async def OnMessage(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self.told("OnMessage", request, context, agent_pb2.AgentOnMessageReply())

    async def Version(self, request: Any, context: Any) -> Any:  # noqa: N802
        return VERSION


class FakeEnvironment(Party):
    """Worlds of trials: actor i sees `seen i@TICK`. Refusals are raised by what `instead` holds."""

    def __init__(self, book: Book, name: str = "env") -> None:
        super().__init__(name, book)
        self.ends_at: int | None = None
        self.feedbacks: dict[int, list[Feedback]] = {}
        self.messages: dict[int, list[Message]] = {}
        """What comes with the observations of a tick."""
        self.trials: dict[str, tuple[int, int]] = {}
        """Their tick and number of actors."""

    async def start(self, request: environment_pb2.EnvStartRequest, context: Any = None) -> Any:
        actors = sum(request.actor_counts)
        self.trials[request.trial_id] = (0, actors)
        reply = environment_pb2.EnvStartReply(observation_set=seen(0, actors))
        return await self.told("Start", request, context, reply)

    async def update(self, request: environment_pb2.EnvUpdateRequest, context: Any = None) -> Any:
        tick, actors = self.trials[request.trial_id]
        tick += 1
        reply = environment_pb2.EnvUpdateReply(
            observation_set=seen(tick, actors),
            end_trial=tick == self.ends_at,
            feedbacks=self.feedbacks.get(tick, ()),
            messages=self.messages.get(tick, ()),
        )
        reply = await self.told("Update", request, context, reply)
        self.trials[request.trial_id] = (tick, actors)
        return reply

    async def on_message(self, request: environment_pb2.EnvOnMessageRequest, context: Any = None) -> Any:
        return await self.told("OnMessage", request, context, environment_pb2.EnvOnMessageReply())

    async def end(self, request: environment_pb2.EnvEndRequest, context: Any = None) -> Any:
        self.trials.pop(request.trial_id, None)
        return await self.told("End", request, context, environment_pb2.EnvEndReply())


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
    """The same behind a socket."""

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


class FakeHook(Party, TrialHooksServicer):
    """Changes parameters with `change`."""

    def __init__(self, name: str, book: Book, change: Callable[[TrialParams], None]) -> None:
        super().__init__(name, book)
        self._change = change

    async def PreTrial(self, request: Any, context: Any) -> Any:  # noqa: N802
        reply = hooks_pb2.TrialContext()
        reply.CopyFrom(request)
        self._change(reply.params)
        return await self.told("PreTrial", request, context, reply)

    async def Version(self, request: Any, context: Any) -> Any:  # noqa: N802
        return VERSION


class FakeExporter(Party, LogExporterServicer):
    """Takes the datalogs of trials."""

    def __init__(self, name: str, book: Book) -> None:
        super().__init__(name, book)
        self.logs: list[list[data_pb2.DatalogMsg]] = []

    async def Log(self, requests: Any, context: Any) -> Any:  # noqa: N802
        if "Log" in self.instead:
            return await self.told("Log", requests, context, None)
        log: list[data_pb2.DatalogMsg] = []
        async for message in requests:
            log.append(message)
        self.logs.append(log)
        return await self.told("Log", None, context, data_pb2.LogReply())


@contextlib.asynccontextmanager
async def listening(servicer: Any, limits: Limits | None = None) -> AsyncIterator[tuple[str, grpc.aio.Server]]:
    """A service at an endpoint."""
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
class Play:
    """A server whose trials a test looks at."""

    stub: TrialStub
    trials: Trials
    book: Book
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
        """The call, which is under way."""
        request = orchestrator_pb2.TrialActionRequest(trial_id=trial_id, actor_id=actor_id)
        request.action.content = content
        return self.stub.Action(request)

    async def acted(self, trial_id: str, actor_id: int = 0) -> None:
        """Wait until an action that is under way has reached its trial."""
        while self.trials._running[trial_id]._run.humans._humans[actor_id].action is None:
            await asyncio.sleep(0)

    async def end(self, trial_id: str) -> None:
        await self.stub.End(orchestrator_pb2.TrialEndRequest(trial_id=trial_id))

    async def all_gone(self) -> None:
        """Wait until nobody has to be told anything any more."""
        while self.trials._tasks:
            await asyncio.wait(self.trials._tasks)


@contextlib.asynccontextmanager
async def play(
    actors: Sequence[str] = (HUMAN,),
    *,
    remote_environment: bool = False,
    params: TrialParams | None = None,
    limits: Limits | None = None,
    **settings: Any,
) -> AsyncIterator[Play]:
    """Trials with these actors, all of the class `player`: humans, and agents by the name of their service. With a
    colon in front of it a name has a class: `seeker:a`."""
    book = Book()
    params = params or TrialParams()
    async with contextlib.AsyncExitStack() as stack:
        agents, servers, endpoints = {}, {}, {}
        names = [name.rpartition(":")[2] for name in actors]
        for name in sorted({*names} - {HUMAN}):
            agents[name] = FakeAgent(name, book)
            endpoints[name], servers[name] = await stack.enter_async_context(listening(agents[name]))
        environment = FakeEnvironment(book)
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
        yield Play(TrialStub(channel), trials, book, environment, agents, servers, endpoints)
        await trials.close()
        assert trials.running_count == 0
        assert not trials._tasks
        assert not trials._channels._open
        assert environment.trials == {}
        if tasks := _tasks_of_ours():  # calls that were just cut off
            assert not (await asyncio.wait(tasks, timeout=TIMEOUT_S / 2))[1]


def _tasks_of_ours() -> set["asyncio.Task[Any]"]:
    """Those that the server's code has made, but for the handlers of calls, which gRPC makes."""
    coroutines = {task: task.get_coro() for task in asyncio.all_tasks()}
    return {task for task, one in coroutines.items() if PACKAGE in getattr(one, "cr_code", run.__code__).co_filename}


async def status_of(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    """The status that a call ends with."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return Code.OK, ""
