"""dm_env_rpc streams over gRPC: bytes between the event loop of gRPC and the sessions on the engine's thread.

    gRPC ─read─► take_requests ─post─► session.receive … session sends ─router─► deliver ─► answer ─write─► gRPC

Each stream has two coroutines. One reads requests and hands the engine one at a time; the other writes the replies. So
a client that stops reading delays only itself, and the engine works on a stream's next request while the last reply is
being written.

The requests that one iteration of the event loop reads are posted to the engine together (RequestBatch). Both threads
run Python, so they take turns: the engine is woken once for all of them, and does not interrupt the loop for each.

A client may send requests before earlier ones are answered. When too many of them wait, or too many bytes, the server
stops reading that stream: what the client sends then fills the buffers of the connection, and its writes wait. So
nothing is refused, and memory stays bounded.
"""

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import grpc

from worldloom.protos.errors import ResourceExhausted, Unavailable
from worldloom.server.config import Limits
from worldloom.server.dm_env_rpc.session import error_reply
from worldloom.server.engine.engine import SHUTTING_DOWN
from worldloom.server.engine.router import Replies, ReplyRouter, deliver_on_loop
from worldloom.server.engine.world import FAILURES
from worldloom.server.logs import Log
from worldloom.server.transports.open_streams import OpenStreams, is_too_large, receive_limit_bytes, too_large

log = Log("streams")


class Session(Protocol):
    """The interface of a stream's session. All methods are called on the engine's thread."""

    def open(self) -> None:
        """Begin the session."""

    def receive(self, data: bytes, /) -> None:
        """Handle a request; exactly one reply is sent for it, at once or later."""

    def reject(self) -> None:
        """Count a request that was answered with an error before it reached the session."""

    def close(self) -> None:
        """End the session."""


class Engine(Protocol):
    """The interface of the engine that streams use."""

    router: ReplyRouter

    def reject_stream(self) -> None:
        """Count a stream that was not accepted. Called on the engine's thread."""

    def post(self, call: Callable[[], None], /) -> None:
        """Have the engine's thread make a call."""


class RequestBatch:
    """Requests of streams that are read in one iteration of the event loop, and posted to the engine together."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post
        self._requests: list[tuple[Callable[[bytes], None], bytes]] = []
        self.has_one_stream = False
        """There is nothing to wait for: requests are posted at once."""

    def add(self, receive: Callable[[bytes], None], request: bytes) -> None:
        """Have the engine's thread call `receive` with this request."""
        if self.has_one_stream:
            self._post(functools.partial(receive, request))
            return
        if not self._requests:
            asyncio.get_running_loop().call_soon(self.post)
        self._requests.append((receive, request))

    def post(self) -> None:
        """Post the requests so far."""
        if self._requests:
            self._post(functools.partial(_receive_each, self._requests))
            self._requests = []


def _receive_each(requests: list[tuple[Callable[[bytes], None], bytes]]) -> None:
    """Hand each request to its session, on the engine's thread. A session that fails does not affect the others."""
    for receive, request in requests:
        try:
            receive(request)
        except FAILURES:
            log.error("a request failed")


class ErrorReply(NamedTuple):
    """The reply to a request that is not handed to the engine, in the request's place in the queue."""

    data: bytes


class Stream:
    """One stream, on the event loop. The engine delivers replies to it."""

    receive: Callable[[bytes], None]
    """Method of its session, which is created after the stream."""
    reject: Callable[[], None]
    """Method of its session."""

    def __init__(
        self, context: Any, post: Callable[[Callable[[], None]], None], batch: RequestBatch, limits: Limits
    ) -> None:
        self._context = context
        self._post = post
        self._batch = batch
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes | ErrorReply] = deque()
        """Requests that came while the engine was busy with this stream, in order."""
        self._queued_bytes = 0
        self._is_busy = False
        """The engine has a request of this stream."""
        self._reply: bytes | None = None
        """The engine's reply, until it is written."""
        self._unanswered = 0
        """Requests whose reply is not written yet."""
        self._has_ended = False
        """The client will send nothing more."""
        self._is_draining = False
        self._work: asyncio.Future[None] | None = None
        """Future that `answer` waits for."""
        self._room: asyncio.Future[None] | None = None
        """Future that `take_requests` waits for while too much waits."""

    async def take_requests(self) -> None:
        """Read until the client ends the stream."""
        read, end, limits = self._context.read, grpc.aio.EOF, self._limits
        while (request := await read()) is not end:
            if self._is_draining:
                continue  # the stream is about to end, and says why
            self._unanswered += 1
            if len(request) > limits.max_message_bytes and is_too_large(request, limits):
                self._post(self.reject)
                self._queue.append(ErrorReply(error_reply(too_large(len(request), limits))))
                self._wake()
            elif self._is_busy or self._queue:
                self._queue.append(request)
                self._queued_bytes += len(request)
            else:
                self._is_busy = True
                self._batch.add(self.receive, request)
            del request  # it may be large, and the next may come late
            if not self._has_room:
                self._room = self._loop.create_future()
                await self._room  # what the client sends now waits in its own buffers
        self._has_ended = True
        self._wake()

    async def answer(self) -> None:
        """Write replies in order until the last; end a draining stream."""
        try:
            await self._write_replies()
            if not self._has_ended:
                await self._context.abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN)
        except grpc.aio.BaseError:
            pass  # the client is gone, or the stream was ended: the reading coroutine notices by itself
        finally:
            self._is_draining = True
            self._continue_reading()

    async def _write_replies(self) -> None:
        write = self._context.write
        while True:
            if self._reply is not None:
                reply, self._reply = self._reply, None
                self._is_busy = False
                self._post_next()
            elif self._queue and not self._is_busy:
                rejected = self._queue.popleft()
                assert isinstance(rejected, ErrorReply)
                reply = rejected.data
                self._post_next()
            elif self._is_busy or not (self._has_ended or self._is_draining):
                self._work = self._loop.create_future()
                await self._work
                continue
            else:
                return
            self._unanswered -= 1
            if self._has_room:
                self._continue_reading()
            await write(reply)
            del reply  # the engine reuses its memory once nothing refers to it

    def deliver(self, reply: bytes) -> None:
        """Take the engine's reply to the current request."""
        self._reply = reply
        self._wake()

    @property
    def waiting_requests(self) -> int:
        """Number of requests whose reply is not written yet."""
        return self._unanswered

    def drain(self) -> None:
        """Answer the requests so far, accept no more, and end the stream."""
        self._is_draining = True
        self._wake()

    def _post_next(self) -> None:
        """Hand the engine the next request, unless a rejected one comes first."""
        request = self._queue[0] if self._queue else None
        if isinstance(request, bytes):
            self._queue.popleft()
            self._queued_bytes -= len(request)
            self._is_busy = True
            self._batch.add(self.receive, request)

    def _wake(self) -> None:
        if self._work is not None and not self._work.done():
            self._work.set_result(None)

    @property
    def _has_room(self) -> bool:
        limits = self._limits
        return self._unanswered < limits.max_waiting_requests and self._queued_bytes < limits.max_message_bytes

    def _continue_reading(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)


class Streams:
    """All streams of a server."""

    def __init__(
        self,
        engine: Engine,
        make_session: Callable[[str, Callable[[bytes], None]], Session],
        limits: Limits,
        open_streams: OpenStreams | None = None,
    ) -> None:
        """Serve streams. `open_streams` also counts those of other transports."""
        self._post = engine.post
        self._batch = RequestBatch(engine.post)
        self._reject_stream = engine.reject_stream
        self._route = engine.router.register(self._deliver)
        self._make_session = make_session
        self._limits = limits
        self._open: set[Stream] = set()
        self._open_streams = OpenStreams(limits) if open_streams is None else open_streams
        self._is_draining = False
        self._has_none = asyncio.Event()
        self._has_none.set()
        self._loop: asyncio.AbstractEventLoop

    def handler(self, service: str) -> grpc.GenericRpcHandler:
        """Return the handler for a gRPC server on the running loop. Requests and replies stay bytes."""
        self._loop = asyncio.get_running_loop()
        process = grpc.stream_stream_rpc_method_handler(self._process)
        return grpc.method_handlers_generic_handler(service, {"Process": process})

    async def _process(self, _requests: object, context: Any) -> None:
        """Serve one stream from its beginning to its end, however it ends."""
        if self._is_draining:
            self._post(self._reject_stream)
            await context.abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN)
        try:
            name = self._open_streams.open()
        except (ResourceExhausted, Unavailable) as error:
            self._post(self._reject_stream)
            is_full = isinstance(error, ResourceExhausted)
            code = grpc.StatusCode.RESOURCE_EXHAUSTED if is_full else grpc.StatusCode.UNAVAILABLE
            await context.abort(code, str(error))
        stream = Stream(context, self._post, self._batch, self._limits)
        session = self._make_session(name, functools.partial(self._route.send, stream))
        stream.receive, stream.reject = session.receive, session.reject
        self._open.add(stream)
        self._batch.has_one_stream = len(self._open) == 1
        self._has_none.clear()
        log.info("stream opened", stream=name, peer=context.peer())
        self._post(session.open)
        answering = self._loop.create_task(stream.answer())
        try:
            await stream.take_requests()
            await answering
        finally:
            # A write after the end of the handler would use a call that has ended; a cancelled task makes none.
            answering.cancel()
            self._batch.post()  # in order: a request of this stream may be among them
            self._post(session.close)
            self._open_streams.close()
            self._open.discard(stream)
            self._batch.has_one_stream = len(self._open) == 1
            if not self._open:
                self._has_none.set()
            log.info("stream closed", stream=name)

    def _deliver(self, replies: Replies) -> None:
        """Deliver the replies of a tick. Called on the engine's thread."""
        deliver_on_loop(self._loop, replies)

    def drain(self) -> None:
        """Accept no more requests; each stream ends when it has been answered."""
        self._is_draining = True
        for stream in self._open:
            stream.drain()

    @property
    def waiting_requests(self) -> int:
        """Number of requests whose reply is not written yet; any thread may read it."""
        return sum(stream.waiting_requests for stream in list(self._open))

    async def have_ended(self) -> None:
        """Wait until no stream is left."""
        await self._has_none.wait()


_PING_AFTER_MS = 20_000
"""Time without traffic after which a client is pinged."""
_PING_TIMEOUT_MS = 20_000
"""Time that a client has to answer a ping."""


def channel_options(limits: Limits) -> list[tuple[str, int]]:
    """Return the gRPC options of a server."""
    return [
        # Otherwise a second server on the same port would silently get half of the clients.
        ("grpc.so_reuseport", 0),
        # gRPC ends the whole stream over a larger request. Our own limit is lower, and only answers with an error.
        ("grpc.max_receive_message_length", receive_limit_bytes(limits)),
        ("grpc.max_send_message_length", -1),
        # Clients whose machine has vanished are noticed, and their streams leave their worlds.
        ("grpc.keepalive_time_ms", _PING_AFTER_MS),
        ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
        ("grpc.http2.ping_timeout_ms", _PING_TIMEOUT_MS),  # the timeout above applies only while nothing can be sent
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # Clients may ping as often as they like; by default that ends their connection.
        ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
        ("grpc.http2.max_ping_strikes", 0),
    ]
