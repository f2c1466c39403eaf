"""The files that a Step passes from the socket to the renderer are few, and those of docs/architecture.md."""

import asyncio
import functools
import threading

import grpc

from scripts.support.stream_client import StreamClient
from tests.support.call_path import documented_path, recorded_threads
from worldloom.render.choose import make_renderer
from worldloom.server.config import Limits
from worldloom.server.dm_env_rpc.session import Session
from worldloom.server.engine.engine import Engine
from worldloom.server.transports.grpc_streams import Streams

MAX_FILES = 12


class ThreadedServer:
    """A gRPC server on an event loop in a thread of this process."""

    def __init__(self) -> None:
        self.engine = Engine(functools.partial(make_renderer, "cpu"), Limits())
        self.streams = Streams(self.engine, functools.partial(Session, self.engine), Limits())
        self.engine.start()
        self._is_ready, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),), daemon=True)
        self._thread.start()
        assert self._is_ready.wait(60)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = grpc.aio.server()
        server.add_generic_rpc_handlers([self.streams.handler("dm_env_rpc.v1.Environment")])
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        self._is_ready.set()
        await self._stop.wait()
        await server.stop(None)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        self.engine.stop()


def test_a_step_passes_the_files_of_the_drawing() -> None:
    with recorded_threads("server/transports/grpc_streams.py") as path:
        server = ThreadedServer()
        with StreamClient(server.address) as client:
            client.join(client.create("catch", seed=1, lanes=4))
            for _ in range(3):  # a first step computes layouts and writes what stands still
                client.step("eye.rgb", "reward", paddle=[1] * 4)
            path.is_recording = True
            client.step("eye.rgb", "reward", paddle=[1] * 4)  # as before: it is not parsed
            path.is_recording = False
        server.stop()
    files = path.until("render/cpu.py")
    assert files == documented_path("Data flow of a step")
    assert len(files) <= MAX_FILES
