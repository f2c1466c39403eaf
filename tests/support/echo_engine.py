"""A stand-in for the engine: a thread with the same inbox, whose sessions echo, hold back, or answer at length."""

import contextlib
import queue
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import grpc

from worldloom.server.config import Limits
from worldloom.server.engine.router import ReplyRouter
from worldloom.server.transports.grpc_streams import Streams, channel_options

TIMEOUT_S = 10.0
METHOD = "/test.Echo/Process"
LONG = 1 << 20
Send: TypeAlias = Callable[[bytes], None]


class EchoEngine:
    """The thread."""

    def __init__(self) -> None:
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.router = ReplyRouter()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._changed = threading.Condition()
        self.events: list[tuple[str, object]] = []
        """What sessions were told, in order: the name of the stream, and `open`, `close` or a request."""
        self.held: list[tuple[Send, bytes]] = []
        """Requests that are not answered until they are released."""

    def start(self) -> None:
        self._thread.start()

    def post(self, call: Callable[[], None]) -> None:
        self._inbox.put(call)

    def stop(self) -> None:
        self._inbox.put(None)
        self._thread.join(TIMEOUT_S)

    def reject_stream(self) -> None:
        self.note("", "rejected")

    def session(self, name: str, send: Send) -> "EchoSession":
        def send_from_thread(data: bytes) -> None:
            assert threading.current_thread() is self._thread
            send(data)

        return EchoSession(self, name, send_from_thread)

    def note(self, name: str, event: object) -> None:
        with self._changed:
            self.events.append((name, event))
            self._changed.notify_all()

    def release(self) -> None:
        """Answer all that was held back."""
        self.post(self._release)

    def wait_for(self, *events: tuple[str, object]) -> None:
        """Wait until all these have happened."""
        with self._changed:
            happened = self._changed.wait_for(lambda: all(one in self.events for one in events), TIMEOUT_S)
        assert happened, f"{events} did not all happen: {self.events[-20:]}"

    def _release(self) -> None:
        for send, data in self.held:
            send(echo(data))
        self.held.clear()

    def _run(self) -> None:
        while True:
            calls = [self._inbox.get()]
            calls += [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]
            for call in calls:
                if call is None:
                    return
                call()
            self.router.deliver()


class EchoSession:
    """Answers `hold…` when it is released, `long…` with a mebibyte, anything else with itself."""

    def __init__(self, engine: EchoEngine, name: str, send: Send) -> None:
        self._engine, self._name, self._send = engine, name, send

    def open(self) -> None:
        self._engine.note(self._name, "open")

    def receive(self, data: bytes) -> None:
        if data.startswith(b"hold"):
            self._engine.held.append((self._send, data))
        else:
            self._send(echo(data))
        self._engine.note(self._name, data)

    def reject(self) -> None:
        self._engine.note(self._name, "rejected")

    def close(self) -> None:
        self._engine.note(self._name, "close")


def echo(data: bytes) -> bytes:
    return data.ljust(LONG, b".") if data.startswith(b"long") else data


@contextlib.asynccontextmanager
async def serving(
    limits: Limits | None = None, changes: Mapping[str, int] = MappingProxyType({})
) -> AsyncIterator[tuple[str, EchoEngine, Streams]]:
    """A gRPC server with the stand-in behind it: its address, the stand-in, and its streams.

    `changes` are to gRPC's options.
    """
    options = dict(channel_options(limits or Limits()))
    assert options.keys() >= changes.keys()
    engine = EchoEngine()
    streams = Streams(engine, engine.session, limits or Limits())
    server = grpc.aio.server(options=list({**options, **changes}.items()))
    server.add_generic_rpc_handlers([streams.handler("test.Echo")])
    port = server.add_insecure_port("127.0.0.1:0")
    engine.start()
    await server.start()
    try:
        yield f"127.0.0.1:{port}", engine, streams
    finally:
        await server.stop(None)
        await streams.have_ended()
        engine.stop()
