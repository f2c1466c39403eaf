"""An engine and one stream of it on the calling thread: the same bytes in, the same bytes out, and nothing between."""

import functools

from worldloom.protos.errors import Internal
from worldloom.render.choose import make_renderer
from worldloom.server.config import Limits
from worldloom.server.dm_env_rpc.session import Session
from worldloom.server.engine.engine import Engine

_NO_LIMITS = Limits(
    max_worlds=2**31 - 1,
    max_lanes=2**31 - 1,
    max_view_pixels=2**31 - 1,
    max_reply_bytes=2**31 - 1,
)
"""Whoever has the engine to themselves may ask for all that their machine can hold."""
_ENOUGH_TICKS = 4
"""Nobody else is there to wait for, so an answer is there after so many."""


class InProcess:
    """A server for one client in the same thread. The thread that makes it is the one that must use it."""

    def __init__(self, renderer: str = "auto", timers: bool = True) -> None:
        self._engine = Engine(functools.partial(make_renderer, renderer), _NO_LIMITS, timers)
        self._engine.open()
        self._session = Session(self._engine, "local", None)
        self._engine.tick([self._session.open])

    def answer(self, request: bytes) -> bytes:
        """The reply to a request. Its bytes are used again for another once nobody holds on to them."""
        replies = self._engine.tick([functools.partial(self._session.receive, request)])
        for _ in range(_ENOUGH_TICKS):
            if replies:
                reply: bytes = replies[0][1]
                return reply
            replies = self._engine.tick([])
        raise Internal("the engine gave no answer; its log says why")

    def close(self) -> None:
        """Leave, and give everything back."""
        self._engine.tick([self._session.close])
        self._engine.close()
