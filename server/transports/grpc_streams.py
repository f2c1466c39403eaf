"""Streams: between gRPC's event loop, which moves bytes, and the engine's thread, where sessions live.

    gRPC ──read──► take_requests ──post──► session.receive … engine.send ──wake──► answer ──write──► gRPC

Each stream has two coroutines. One takes requests as they come and hands the engine one at a time; the other writes the
reply of each. So a client that stops reading holds up nobody but itself, and the engine works on a stream's next
request while the last reply is being written.

What gRPC is told about its connections.
"""

import asyncio
import contextlib
import functools
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import grpc

from worldloom.protos.errors import ResourceExhausted
from worldloom.server.config import Limits
from worldloom.server.dm_env_rpc.session import error_reply
from worldloom.server.engine.engine import SHUTTING_DOWN, Batch
from worldloom.server.logs import Log

log = Log("streams")


class Session(Protocol):
    """What a stream needs of its session. All of it is called on the engine's thread."""

    def open(self) -> None:
        """The stream is there."""

    def receive(self, data: bytes, /) -> None:
        """Take a request; exactly one reply is sent for it, some time."""

    def close(self) -> None:
        """The stream is gone."""


class Refused:
    """Requests in a row that are answered with an error from here. Of the requests themselves nothing is kept."""

    __slots__ = ("count", "is_taken", "reply")

    def __init__(self, reply: bytes, is_taken: bool) -> None:
        self.reply = reply
        self.is_taken = is_taken
        """Whether it counts among the unanswered."""
        self.count = 1


class Stream:
    """One stream, and what the engine sends replies to. Lives on the event loop."""

    receive: Callable[[bytes], None]
    """Of its session, which is made after it."""

    def __init__(self, context: Any, post: Callable[[Callable[[], None]], None], limits: Limits) -> None:
        self._context = context
        self._post = post
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes | Refused] = deque()
        """What came while the engine was busy with this stream, in order."""
        self._queued_bytes = 0
        self._is_busy = False
        """Whether the engine has a request of ours."""
        self._reply: bytes | None = None
        """What it answered, until it is written."""
        self._unanswered = 0
        """Requests that were taken and whose reply is not written."""
        self._has_ended = False
        """Whether the client will send nothing more."""
        self._is_draining = False
        self._work: asyncio.Future[None] | None = None
        """What `answer` waits for."""
        self._room: asyncio.Future[None] | None = None
        """What `take_requests` waits for while too much is queued."""

    async def take_requests(self) -> None:
        """Read until the client ends the stream."""
        read, end = self._context.read, grpc.aio.EOF
        most_waiting, most_bytes = self._limits.max_waiting_requests, self._limits.max_message_bytes
        while (request := await read()) is not end:
            if self._is_draining:
                continue  # the stream is about to end, and says why
            if self._unanswered >= most_waiting:
                self._refuse_one_more()
            elif len(request) > most_bytes:
                self._unanswered += 1
                self._refuse(Refused(_too_large(len(request), most_bytes), is_taken=True))
            elif self._is_busy or self._queue:
                self._unanswered += 1
                self._queue.append(request)
                self._queued_bytes += len(request)
                if self._queued_bytes >= most_bytes:
                    await self._wait_for_room()
            else:
                self._unanswered += 1
                self._is_busy = True
                self._post(functools.partial(self.receive, request))
            del request  # it may be large, and the next may be long in coming
        self._has_ended = True
        self._wake()

    async def answer(self) -> None:
        """Write replies in order until there is nothing more to say; a draining stream is ended here."""
        try:
            await self._write_replies()
            if not self._has_ended:
                await self._context.abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN)
        except grpc.aio.BaseError:
            pass  # the client is gone, or the stream was ended: the reading side learns of it by itself
        finally:
            self._is_draining = True
            self._make_room()

    async def _write_replies(self) -> None:
        write = self._context.write
        while True:
            if self._reply is not None:
                reply, self._reply = self._reply, None
                self._is_busy = False
                self._unanswered -= 1
                self._post_next()
            elif self._queue and not self._is_busy:
                reply = self._next_refusal()
            elif self._is_busy or not (self._has_ended or self._is_draining):
                self._work = self._loop.create_future()
                await self._work
                continue
            else:
                return
            await write(reply)
            del reply  # the engine uses its memory again once nobody holds it

    def deliver(self, reply: bytes) -> None:
        """Take the engine's answer to the request it has."""
        self._reply = reply
        self._wake()

    def drain(self) -> None:
        """Answer what has come, take nothing more, and end the stream."""
        self._is_draining = True
        self._wake()

    def _post_next(self) -> None:
        """Hand the engine the next request, if that is what comes next."""
        request = self._queue[0] if self._queue else None
        if isinstance(request, bytes):
            self._queue.popleft()
            self._queued_bytes -= len(request)
            if self._queued_bytes < self._limits.max_message_bytes:
                self._make_room()
            self._is_busy = True
            self._post(functools.partial(self.receive, request))

    def _refuse(self, refused: Refused) -> None:
        self._queue.append(refused)
        self._wake()

    def _refuse_one_more(self) -> None:
        last = self._queue[-1] if self._queue else None
        if isinstance(last, Refused) and not last.is_taken:
            last.count += 1
        else:
            self._refuse(Refused(_too_many(self._limits.max_waiting_requests), is_taken=False))

    def _next_refusal(self) -> bytes:
        refused = self._queue[0]
        assert isinstance(refused, Refused)
        self._unanswered -= refused.is_taken
        refused.count -= 1
        if refused.count == 0:
            self._queue.popleft()
            self._post_next()
        return refused.reply

    def _wake(self) -> None:
        if self._work is not None and not self._work.done():
            self._work.set_result(None)

    async def _wait_for_room(self) -> None:
        """Read no further: what the client sends now waits in its own buffers."""
        self._room = self._loop.create_future()
        await self._room

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)


class Streams:
    """All streams of a server."""

    def __init__(
        self,
        post: Callable[[Callable[[], None]], None],
        make_session: Callable[[str, Stream], Session],
        limits: Limits,
    ) -> None:
        self._post = post
        self._make_session = make_session
        self._limits = limits
        self._open: set[Stream] = set()
        self._names = itertools.count(1)
        self._is_draining = False
        self._has_none = asyncio.Event()
        self._has_none.set()
        self._loop: asyncio.AbstractEventLoop

    def handler(self, service: str) -> grpc.GenericRpcHandler:
        """For the gRPC server on the running loop. Requests and replies stay the bytes they are."""
        self._loop = asyncio.get_running_loop()
        process = grpc.stream_stream_rpc_method_handler(self._process)
        return grpc.method_handlers_generic_handler(service, {"Process": process})

    async def _process(self, _requests: object, context: Any) -> None:
        """Serve one stream from its beginning to its end, however it ends."""
        if self._is_draining:
            await context.abort(grpc.StatusCode.UNAVAILABLE, SHUTTING_DOWN)
        if len(self._open) >= self._limits.max_streams:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _too_many_streams(self._limits.max_streams))
        name = f"s{next(self._names)}"
        stream = Stream(context, self._post, self._limits)
        session = self._make_session(name, stream)
        stream.receive = session.receive
        self._open.add(stream)
        self._has_none.clear()
        log.info("stream opened", stream=name, peer=context.peer())
        self._post(session.open)
        answering = self._loop.create_task(stream.answer())
        try:
            await stream.take_requests()
            await answering
        finally:
            # A write after the handler's end would touch a call that is no more; a cancelled task makes none.
            answering.cancel()
            self._post(session.close)
            self._open.discard(stream)
            if not self._open:
                self._has_none.set()
            log.info("stream closed", stream=name)

    def wake(self, batch: Batch) -> None:
        """Deliver the replies of a tick. Called on the engine's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is nobody left to hear it
            self._loop.call_soon_threadsafe(_deliver, batch)

    def drain(self) -> None:
        """Take nothing more; each stream ends when it has been answered."""
        self._is_draining = True
        for stream in self._open:
            stream.drain()

    async def have_ended(self) -> None:
        """Wait until there are none."""
        await self._has_none.wait()


def _deliver(batch: Batch) -> None:
    for stream, reply in batch:
        stream.deliver(reply)


@functools.cache
def _too_many(most: int) -> bytes:
    return error_reply(
        ResourceExhausted(
            f"{most} requests of this stream wait for their answer: expected no more at a time; read the answers first,"
            " or start the server with a larger --max-waiting-requests"
        )
    )


def _too_large(size_bytes: int, most_bytes: int) -> bytes:
    return error_reply(
        ResourceExhausted(
            f"a request of {size_bytes} bytes: expected at most {most_bytes}; ask for less at a time, or start the"
            " server with a larger --max-message-bytes"
        )
    )


def _too_many_streams(most: int) -> str:
    return (
        f"{most} streams are open: expected no more at a time; close one first, or start the server with a larger"
        " --max-streams"
    )


_LEAST_RECEIVED_BYTES = 64 << 20
_LARGEST = 2**31 - 1
_QUIET_MS = 20_000
"""After so long without a word a client is asked whether it is there."""
_PATIENCE_MS = 20_000
"""So long it may take to answer."""


def channel_options(limits: Limits) -> list[tuple[str, int]]:
    """Options for a server."""
    return [
        # Else a second server on the same port would silently get half of the clients.
        ("grpc.so_reuseport", 0),
        # gRPC ends the whole stream over a request above this; ours ends with an error in its place, so it comes first.
        ("grpc.max_receive_message_length", receive_limit_bytes(limits)),
        ("grpc.max_send_message_length", -1),
        # Machines that vanished without a word are noticed, and their streams leave their worlds.
        ("grpc.keepalive_time_ms", _QUIET_MS),
        ("grpc.keepalive_timeout_ms", _PATIENCE_MS),
        ("grpc.http2.ping_timeout_ms", _PATIENCE_MS),  # the timeout above counts only while nothing can be sent
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # Clients may ask as often as they like whether we are there; by default that ends their connection.
        ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
        ("grpc.http2.max_ping_strikes", 0),
    ]


def receive_limit_bytes(limits: Limits) -> int:
    """The largest request that is answered at all."""
    return min(max(4 * limits.max_message_bytes, _LEAST_RECEIVED_BYTES), _LARGEST)
