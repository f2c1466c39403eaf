"""An engine and its dm_env_rpc streams on the calling thread: the same bytes as over gRPC, without a server."""

import functools
from collections import deque

from worldloom.protos.errors import Internal
from worldloom.render.choose import make_renderer
from worldloom.server.config import Limits
from worldloom.server.dm_env_rpc.session import Session
from worldloom.server.engine.engine import Engine
from worldloom.server.engine.router import Replies

_NO_LIMITS = Limits(
    max_worlds=2**31 - 1,
    max_lanes=2**31 - 1,
    max_view_pixels=2**31 - 1,
    max_reply_bytes=2**31 - 1,
)
"""Limits of an engine with one user, who may use all that the machine has."""
_MAX_TICKS = 5
"""Ticks after which a request is answered, since there are no agents of others to wait for."""


class InProcess:
    """An engine for one client, with any number of streams. It must be used by the thread that creates it."""

    def __init__(self, renderer: str = "auto", timers: bool = True) -> None:
        self._engine = Engine(functools.partial(make_renderer, renderer), _NO_LIMITS, timers)
        self._engine.open()
        self._route = self._engine.router.register(_deliver)
        self._streams: list[InProcessStream] = []
        self.is_closed = False

    def open_stream(self) -> "InProcessStream":
        """Open a stream. The engine is closed with the last of them."""
        stream = InProcessStream(self)
        stream.session = Session(self._engine, f"local-{id(stream)}", functools.partial(self._route.send, stream))
        self._streams.append(stream)
        self._engine.tick([stream.session.open])
        return stream

    def answer(self, stream: "InProcessStream") -> bytes:
        """Return the reply to the oldest request of a stream. Requests of other streams are worked on, too.

        An agent's step is answered when all agents of its world have stepped, so all streams take part in a tick. The
        bytes of a reply are reused for another once nothing refers to them.
        """
        for _ in range(_MAX_TICKS):
            if stream.replies:
                return stream.replies.popleft()
            ready = [one for one in self._streams if one.is_ready]
            self._engine.tick([functools.partial(one.session.receive, one.take()) for one in ready])
        if stream.replies:
            return stream.replies.popleft()
        raise Internal("the engine gave no answer; its log says why, or other agents of the world have not stepped")

    def close_stream(self, stream: "InProcessStream") -> None:
        """Leave the world of a stream; close the engine if it was the last one."""
        if self.is_closed or stream not in self._streams:
            return
        self._streams.remove(stream)
        self._engine.tick([stream.session.close])
        if not self._streams:
            self.close()

    def close(self) -> None:
        """Close all streams, and release the renderer. Closing twice does nothing."""
        if self.is_closed:
            return
        self.is_closed = True
        self._engine.tick([stream.session.close for stream in self._streams])
        self._engine.close()


class InProcessStream:
    """Requests of one stream that wait, and replies that have not been received."""

    session: Session

    def __init__(self, server: InProcess) -> None:
        self.server = server
        self.requests: deque[bytes] = deque()
        self.replies: deque[bytes] = deque()
        self._is_waiting = False
        """True while the engine works on a request: a session takes one at a time."""

    @property
    def is_ready(self) -> bool:
        """True if a request can be handed to the session."""
        return bool(self.requests) and not self._is_waiting

    def take(self) -> bytes:
        """Take the oldest request, to hand it to the session."""
        self._is_waiting = True
        return self.requests.popleft()

    def deliver(self, reply: bytes) -> None:
        """Take the reply to the request that the session has worked on."""
        self._is_waiting = False
        self.replies.append(reply)


def _deliver(replies: Replies) -> None:
    for stream, reply in replies:
        stream.deliver(reply)
