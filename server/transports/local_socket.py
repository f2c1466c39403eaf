"""dm_env_rpc streams over a Unix socket, for clients on the same machine.

    socket ─read─► LocalStream ─► session.receive … session sends ─router─► LocalStream.deliver ─write─► socket

Everything here runs on the engine's thread, which watches the sockets while it waits for calls (`engine.inbox`). So a
request is read by the thread that handles it, and its reply is written from there: between the client's write and the
reply no other thread has to wake up.

`worldloom.protos.local_frames` has the wire format. A connection of a user who may connect is a LocalStream from the
moment it is accepted. Its session begins when its HELLO has shown that the client was let in at another address of the
server, where it read the key among the properties, and that it knows the token.
"""

import asyncio
import concurrent.futures
import functools
import secrets
import socket
from collections.abc import Callable
from typing import Protocol

from worldloom.protos.errors import InvalidArgument, RequestError, Unauthenticated, Unavailable
from worldloom.protos.local_frames import Hello, LocalAddress
from worldloom.server.config import Limits
from worldloom.server.engine.engine import SHUTTING_DOWN
from worldloom.server.engine.inbox import READABLE, Inbox
from worldloom.server.engine.router import Replies, ReplyRouter
from worldloom.server.logs import Log
from worldloom.server.transports.grpc_streams import Session
from worldloom.server.transports.local_peers import (
    HEARTBEAT_S,
    MAX_STOPPED_BEATS,
    AllowedUsers,
    Peer,
    PeerState,
    RefusalLog,
)
from worldloom.server.transports.local_stream import LocalStream, send_end
from worldloom.server.transports.open_streams import OpenStreams
from worldloom.server.transports.security import token_problem

log = Log("local-socket")

_MAX_ACCEPTED = 2
"""Connections that are accepted in one tick; the others wait, so that a flood of them costs steps little."""
_STOPPED_S = f"{(MAX_STOPPED_BEATS - 1) * HEARTBEAT_S:.0f} to {MAX_STOPPED_BEATS * HEARTBEAT_S:.0f} seconds"
_MAX_GREETINGS = 64
"""Connections at a time that have not sent their HELLO yet; beyond it the oldest is closed."""


class Engine(Protocol):
    """The interface of the engine that local sockets use."""

    inbox: Inbox
    router: ReplyRouter

    def reject_stream(self) -> None:
        """Count a stream that was not accepted. Called on the engine's thread."""

    def post(self, call: Callable[[], None], /) -> None:
        """Have the engine's thread make a call."""


class MakeSession(Protocol):
    """A function that makes the session of a stream."""

    def __call__(self, name: str, send: Callable[[bytes], None], share_file: Callable[[int], None], /) -> Session:
        """Make a session. `share_file` sends a copy of a descriptor with the next reply."""


class LocalSocket:
    """The local socket of a server, and its streams. Other threads may call start, drain and beat only."""

    def __init__(
        self,
        listener: socket.socket,
        address: str,
        engine: Engine,
        make_session: MakeSession,
        limits: Limits,
        open_streams: OpenStreams,
        users: AllowedUsers,
        token: str | None,
    ) -> None:
        """Take over a socket that listens at an address."""
        self.address = LocalAddress(address, secrets.token_hex(16))
        self.engine = engine
        self.limits = limits
        self.open_streams = open_streams
        self.make_session = make_session
        self.route = engine.router.register(_deliver)
        self.is_draining = False
        self.has_ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        """Done when it is draining and no stream is left."""
        self._listener = listener
        self._listener.setblocking(False)
        self._is_listening = False
        self._users = users
        self._token = token
        self._refusals = RefusalLog()
        self._greetings: dict[LocalStream, None] = {}
        """Connections without a session, oldest first."""
        self._streams: set[LocalStream] = set()
        self._stopped_beats: dict[LocalStream, int] = {}
        """Heartbeats in a row at which the peer of a stream was stopped."""

    @property
    def waiting_requests(self) -> int:
        """Number of requests whose reply is not written yet; any thread may read it."""
        return sum(stream.is_waiting for stream in list(self._streams))

    def start(self) -> None:
        """Accept connections."""
        self.engine.post(self._listen)

    def drain(self) -> None:
        """Accept no more connections and requests; each stream ends when it has been answered."""
        self.engine.post(self._drain)

    async def send_heartbeats(self) -> None:
        """Look at the processes of all clients from time to time, until cancelled."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self.beat()

    def beat(self) -> None:
        """End the streams of processes that are gone, or were stopped for too long."""
        if not self.is_draining:
            self.engine.post(self._listen)  # it may have paused
        self.engine.post(self._refusals.flush)
        before, self._stopped_beats = self._stopped_beats, {}
        for stream in list(self._streams):
            state = stream.peer.state
            if state is PeerState.STOPPED:
                self._stopped_beats[stream] = before.get(stream, 0) + 1
            if state is PeerState.GONE or self._stopped_beats.get(stream, 0) >= MAX_STOPPED_BEATS:
                reason = "is gone" if state is PeerState.GONE else f"has been stopped for {_STOPPED_S}"
                text = f"{stream.peer}, which opened the stream, {reason}: expected it to run; connect again"
                log.warning("ended by the heartbeat", stream=stream.name, reason=text)
                self.engine.post(functools.partial(stream.end, Unavailable(text)))

    def greet(self, stream: LocalStream, content: bytes) -> tuple[str, bytes]:
        """Check the HELLO of a connection; return the name of its stream and the content of WELCOME, or raise."""
        try:
            hello = Hello.parse(content)
        except ValueError as error:
            raise InvalidArgument(f"a connection that begins with something else: {error}") from None
        if not hello.has_key(self.address.key):
            raise Unauthenticated(
                "the key of another server: expected the property server.local_socket_key of the server that listens "
                "on this socket"
            )
        if self._token is not None and not hello.has_token(self._token):
            raise Unauthenticated(token_problem(bool(hello.token), "a proof, `token` in HELLO, of knowing the token"))
        if self.is_draining:
            raise Unavailable(SHUTTING_DOWN)
        name = self.open_streams.open()
        stream.peer = stream.peer.with_start()
        self._greetings.pop(stream, None)
        self._streams.add(stream)
        return name, hello.welcome(self.address.key)

    def note_refusal(self, peer: Peer, error: RequestError) -> None:
        """Count a connection that gets no session, and log it unless there are many."""
        self.engine.reject_stream()
        self._refusals.add(peer, error)

    def forget(self, stream: LocalStream) -> None:
        """Forget a connection that has been closed."""
        self._greetings.pop(stream, None)
        self._streams.discard(stream)
        self._check_ended()

    def _listen(self) -> None:
        if not (self._is_listening or self.is_draining):
            self._is_listening = True
            self.engine.inbox.watch(self._listener.fileno(), READABLE, self._accept)

    def _stop_listening(self) -> None:
        if self._is_listening:
            self._is_listening = False
            self.engine.inbox.unwatch(self._listener.fileno())

    def _accept(self, _events: int) -> None:
        for _ in range(_MAX_ACCEPTED):
            if not (self._is_listening and self._accept_one()):
                return

    def _accept_one(self) -> bool:
        """Accept a connection; return whether there was one."""
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            # Too many open files, say. The connection stays in the queue, so that trying at once would never end.
            log.warning("cannot accept a connection: will try again", reason=error, in_s=HEARTBEAT_S)
            self._stop_listening()
            return False
        connection.setblocking(False)
        peer = Peer.of(connection)
        try:
            self._users.check(peer)
        except RequestError as error:
            self.note_refusal(peer, error)
            send_end(connection, error)
            connection.close()
            return True
        stream = LocalStream(self, connection, peer)
        self._greetings[stream] = None
        while len(self._greetings) > _MAX_GREETINGS:
            next(iter(self._greetings)).close()
        stream.watch()
        return True

    def _drain(self) -> None:
        self._stop_listening()
        self.is_draining = True
        self._listener.close()
        for stream in [*self._greetings, *self._streams]:
            stream.advance()
        self._check_ended()

    def _check_ended(self) -> None:
        if self.is_draining and not (self._greetings or self._streams) and not self.has_ended.done():
            self.has_ended.set_result(None)


def _deliver(replies: Replies) -> None:
    for stream, reply in replies:
        stream.deliver(reply)
