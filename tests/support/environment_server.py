"""The Environment service on an engine's thread and a real socket, all in this process."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import grpc

from tests.support.trial_engine import actor_class, config
from worldloom.protos.cogment.api import environment_pb2 as api
from worldloom.protos.cogment.api.environment_pb2_grpc import EnvironmentStub, add_EnvironmentServicer_to_server
from worldloom.render.cpu import CPURenderer
from worldloom.server.cogment.environments.environment import EngineEnvironment
from worldloom.server.cogment.services import EnvironmentService
from worldloom.server.config import Limits
from worldloom.server.engine.engine import Engine

TIMEOUT_S = 30.0
LIMITS = Limits(max_message_bytes=100_000)
DEFAULTS = config(actor_class("player", "goals_left"), family="maze", seed=1)


class EngineThread:
    """An engine on its thread."""

    def __init__(self) -> None:
        self.engine = Engine(lambda: CPURenderer(threads=1), LIMITS)
        self.engine.start()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the engine's thread busy meanwhile."""
        entered, gate = threading.Event(), threading.Event()
        self.engine.post(partial(_wait, entered, gate))
        assert entered.wait(TIMEOUT_S)
        try:
            yield
        finally:
            gate.set()


def _wait(entered: threading.Event, gate: threading.Event) -> None:
    entered.set()
    assert gate.wait(TIMEOUT_S)


class ObservedEnvironment(EngineEnvironment):
    """An EngineEnvironment that records which calls were cancelled."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, DEFAULTS)
        self.cancelled: list[str] = []

    async def start(self, request: api.EnvStartRequest) -> api.EnvStartReply:
        with self._watched("start"):
            return await super().start(request)

    async def update(self, request: api.EnvUpdateRequest) -> api.EnvUpdateReply:
        with self._watched("update"):
            return await super().update(request)

    @contextmanager
    def _watched(self, name: str) -> Iterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise


class EnvironmentServer:
    """A running Environment service and a channel to it."""

    def __init__(self, running: EngineThread, environment: ObservedEnvironment, channel: grpc.aio.Channel) -> None:
        self.running = running
        self.engine = running.engine
        self.environment = environment
        self.channel = channel
        self.stub = EnvironmentStub(channel)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Run other tasks until a condition holds."""
        end_s = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < end_s
            await asyncio.sleep(0)


@asynccontextmanager
async def serving(running: EngineThread) -> AsyncIterator[EnvironmentServer]:
    environment = ObservedEnvironment(running.engine)
    server = grpc.aio.server()
    add_EnvironmentServicer_to_server(EnvironmentService(environment, LIMITS), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield EnvironmentServer(running, environment, channel)
    finally:
        await server.stop(grace=None)
