"""An engine and one dm_env_rpc stream on the calling thread: the same bytes as over gRPC, without a server."""

import functools

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
_MAX_TICKS = 4
"""Ticks after which a request is answered, since there are no other agents to wait for."""


class InProcess:
    """An engine for one client. It must be used by the thread that creates it."""

    def __init__(self, renderer: str = "auto", timers: bool = True) -> None:
        self._engine = Engine(functools.partial(make_renderer, renderer), _NO_LIMITS, timers)
        self._engine.open()
        self._replies: Replies = []
        route = self._engine.router.register(self._replies.extend)
        self._session = Session(self._engine, "local", functools.partial(route.send, None))
        self._engine.tick([self._session.open])

    def answer(self, request: bytes) -> bytes:
        """Return the reply to a request. Its bytes are reused for another once nothing refers to them."""
        self._engine.tick([functools.partial(self._session.receive, request)])
        for _ in range(_MAX_TICKS):
            if self._replies:
                reply: bytes
                _, reply = self._replies.pop()
                return reply
            self._engine.tick([])
        raise Internal("the engine gave no answer; its log says why")

    def close(self) -> None:
        """Leave the world, and release the renderer."""
        self._engine.tick([self._session.close])
        self._engine.close()
