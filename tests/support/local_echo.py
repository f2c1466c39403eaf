"""A local socket with a stand-in for the engine behind it, and a client that may send any bytes."""

import contextlib
import gc
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from google.rpc import status_pb2

from tests.support.echo_engine import TIMEOUT_S, EchoEngine, EchoSession, Send
from worldloom.client.socket_connection import SocketConnection
from worldloom.protos.addresses import UnixAddress
from worldloom.protos.local_frames import (
    END,
    HEADER,
    HELLO,
    MESSAGE,
    WELCOME,
    Hello,
    LocalAddress,
    pack_frame,
    socket_name,
)
from worldloom.server.config import Limits
from worldloom.server.engine.inbox import Inbox
from worldloom.server.transports.listening import listen_locally
from worldloom.server.transports.local_peers import AllowedUsers
from worldloom.server.transports.local_socket import LocalSocket
from worldloom.server.transports.open_streams import OpenStreams

ADDRESS = UnixAddress(Path("/run/test.sock"))


def connect(local: LocalAddress, token: str | None = None, timeout_s: float = 10.0) -> SocketConnection:
    """Connect to a local socket, as the client of a server at some address."""
    return SocketConnection(ADDRESS, local, token, timeout_s)


def ask(connection: SocketConnection, request: bytes) -> bytes:
    """Send a request and take its reply."""
    connection.send(request)
    reply = connection.receive()
    connection.taken += 1
    connection.release()
    return reply


class LocalEchoEngine(EchoEngine):
    """The stand-in, with the inbox of a real engine."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox = Inbox()
        self.inbox.open()
        self.files: list[int] = []
        """Descriptors that go with the next replies of all sessions."""

    def post(self, call: Callable[[], None]) -> None:
        self.inbox.put(call)

    def stop(self) -> None:
        self.inbox.put(None)
        self._thread.join(TIMEOUT_S)

    def local_session(self, name: str, send: Send, share_file: Callable[[int], None]) -> EchoSession:
        def send_with_file(data: bytes) -> None:
            if self.files:
                share_file(self.files.pop())
            send(data)

        return self.session(name, send_with_file)

    def _run(self) -> None:
        while None not in (calls := self.inbox.take(timeout_s=1.0)):
            for call in calls:
                assert call is not None
                call()
            self.router.deliver()


@contextlib.contextmanager
def local_echo(
    limits: Limits | None = None,
    token: str | None = None,
    users: tuple[str, ...] = (),
    path: Path | None = None,
) -> Iterator[tuple[LocalSocket, LocalEchoEngine]]:
    """A local socket whose sessions echo."""
    given, allowed = limits or Limits(), AllowedUsers.parse(users)
    engine = LocalEchoEngine()
    with ExitStack() as at_the_end:
        listener, address = listen_locally(path, allowed.has_others, at_the_end)
        local = LocalSocket(listener, address, engine, engine.local_session, given, OpenStreams(given), allowed, token)
        engine.start()
        local.start()
        try:
            yield local, engine
        finally:
            local.drain()
            engine.release()
            with contextlib.suppress(TimeoutError):
                local.has_ended.result(TIMEOUT_S)
            engine.stop()


class RawClient:
    """A connection on which anything can be sent, as long as somebody reads it."""

    def __init__(self, local: LocalAddress, token: str | None = None, is_greeting: bool = True) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(socket_name(local.address))  # before the timeout, with which it would not wait for room
        self.socket.settimeout(TIMEOUT_S)
        if is_greeting:
            hello = Hello.make(local.key, token)
            self.send(HELLO, hello.pack())
            kind, content = self.read()
            assert kind == WELCOME, content
            assert hello.is_welcomed(content, local.key)

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, kind: int, content: bytes) -> None:
        """Send a frame."""
        self.socket.sendall(pack_frame(kind, content))

    def read(self) -> tuple[int, bytes]:
        """Return kind and content of the next frame."""
        size_bytes, kind = HEADER.unpack(self._read(HEADER.size))
        return kind, self._read(size_bytes)

    def ask(self, request: bytes) -> bytes:
        """Send a request and return its reply."""
        self.send(MESSAGE, request)
        kind, reply = self.read()
        assert kind == MESSAGE, reply
        return reply

    def read_end(self) -> status_pb2.Status:
        """Return the status with which the server ends the connection, which is then closed."""
        kind, content = self.read()
        assert kind == END, (kind, content)
        assert self.is_closed()
        return status_pb2.Status.FromString(content)

    def is_closed(self) -> bool:
        """Wait for the end of the connection; return whether nothing came before it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _read(self, size_bytes: int) -> bytes:
        data = b""
        while len(data) < size_bytes:
            piece = self.socket.recv(size_bytes - len(data))
            assert piece, "the server closed the connection"
            data += piece
        return data


def open_files() -> int:
    """Return the number of descriptors of this process, without those that only wait to be collected."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    waiting = threading.Event()
    for _ in range(int(TIMEOUT_S * 200)):
        if condition():
            return
        waiting.wait(0.005)
    raise AssertionError("it did not come to that in time")
