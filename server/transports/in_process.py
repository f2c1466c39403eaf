"""An engine on the calling thread, and dm_env_rpc streams to it, without a server.

Requests and replies are the same bytes as over gRPC, but for steps with lanes: these may be given as arrays
(`ArrayStep`). The engine reads the arrays of actions, and the observations are the arrays that it has drawn into.
"""

import functools
from collections import deque
from collections.abc import Callable
from typing import Any

from worldloom.protos.errors import FailedPrecondition, Internal, RequestError
from worldloom.render.choose import make_renderer
from worldloom.server.config import Limits
from worldloom.server.dm_env_rpc.session import ArrayStep, Session
from worldloom.server.engine.engine import Engine
from worldloom.server.engine.replies import array_buffer
from worldloom.server.engine.router import Replies

_NO_LIMITS = Limits(
    max_worlds=2**31 - 1,
    max_lanes=2**31 - 1,
    max_view_pixels=2**31 - 1,
    max_reply_bytes=2**31 - 1,
)
"""Limits of an engine with one user, who may use all that the machine has."""
_MAX_IDLE_TICKS = 4
"""Ticks without a reply, one after the other, after which nothing is left to do for the requests that wait."""


class InProcess:
    """An engine for one program. It must be used by the thread that creates it."""

    array_step = ArrayStep
    """The class of steps with arrays."""
    array_buffer = staticmethod(array_buffer)
    """The function that makes the buffer of a step of a client's own arrays."""

    def __init__(self, renderer: str = "auto", timers: bool = True) -> None:
        self.engine = Engine(functools.partial(make_renderer, renderer), _NO_LIMITS, timers)
        self.engine.open()
        self._streams: list[InProcessStream] = []
        self._opened = 0
        self._when_closed: list[Callable[[], None]] = []
        self.route = self.engine.router.register(_deliver)

    def offer_model(self, model: Any) -> str:
        """Have worlds use an MjModel until this is closed, and return its name for the setting `model` of `mujoco`."""
        from worldloom.worlds.mujoco.models.files import offer_model, withdraw_model  # which needs an extra

        name = offer_model(model)
        self._when_closed.append(functools.partial(withdraw_model, name))
        return name

    def open_stream(self) -> "InProcessStream":
        """Open a stream, which has a session of its own."""
        self._opened += 1
        stream = InProcessStream(self, f"local-{self._opened}")
        self._streams.append(stream)
        self.engine.tick([stream.session.open])
        return stream

    def tick(self) -> bool:
        """Run the engine once, on the next request of each stream; return whether there was a request or a reply."""
        calls = [call for stream in self._streams if (call := stream.next_call()) is not None]
        return self.engine.tick(calls) or bool(calls)

    def close_stream(self, stream: "InProcessStream") -> None:
        """Leave the stream's world."""
        if stream in self._streams:
            self._streams.remove(stream)
            self.engine.tick([stream.session.close])

    def close(self) -> None:
        """Leave all worlds, and release the renderer."""
        for stream in list(self._streams):
            self.close_stream(stream)
        self.engine.close()
        for call in self._when_closed:
            call()


class _Inbox:
    """Replies to a stream that have not been released. The engine's session refers to this, and not to the stream."""

    def __init__(self) -> None:
        self.replies: dict[int, Any] = {}
        """By number, counted from 0."""
        self.is_expecting = False
        """The engine has a request of the stream that it has not answered."""
        self._answered = 0

    def deliver(self, reply: Any) -> None:
        """Take a reply from the engine."""
        self.is_expecting = False
        self.replies[self._answered] = reply
        self._answered += 1


class InProcessStream:
    """A stream of requests and replies. As over gRPC, a request waits until the one before it has been answered."""

    def __init__(self, server: InProcess, name: str) -> None:
        self._server = server
        self._requests: deque[bytes | ArrayStep] = deque()
        self._inbox = _Inbox()
        self.session = Session(server.engine, name, functools.partial(server.route.send, self._inbox))

    def send(self, request: bytes | ArrayStep) -> None:
        """Queue a request; the engine works on it when someone waits for a reply."""
        self._requests.append(request)

    def next_call(self) -> Callable[[], None] | None:
        """Return the call that hands the next request to the session, if that can take one."""
        if self._inbox.is_expecting or not self._requests:
            return None
        self._inbox.is_expecting = True
        request = self._requests.popleft()
        if isinstance(request, ArrayStep):
            return functools.partial(self.session.step, request)
        return functools.partial(self.session.receive, request)

    def has_reply(self, number: int) -> bool:
        """Return whether the reply to the request with this number is there."""
        return number in self._inbox.replies

    def receive(self, number: int) -> Any:
        """Run the engine until there is the reply to the request with this number, counted from 0, and return it.

        It is bytes, or for an ArrayStep without an error a dict of arrays.
        """
        replies = self._inbox.replies
        if number not in replies:
            self._server.tick()  # which is enough but for large worlds, and for those that wait for others
            if number not in replies:
                self.run_until(lambda: number in replies)
        return replies[number]

    def release(self, number: int) -> None:
        """Release a reply. Its bytes are reused for another once nothing else refers to them."""
        self._inbox.replies.pop(number, None)

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Run the engine, on the requests of all streams, until a condition is true."""
        idle_ticks = 0
        while not condition():
            idle_ticks = 0 if self._server.tick() else idle_ticks + 1
            if idle_ticks > _MAX_IDLE_TICKS:
                raise self._explain_silence()

    def _explain_silence(self) -> RequestError:
        """Return the error for a request that the engine cannot answer yet."""
        agent = self.session.agent
        count = 0 if agent is None else len(agent.world.agents)
        if agent is not None and count > 1:
            return FailedPrecondition(
                f"no answer for agent {agent.index}: its world waits for the steps of all its {count} agents; expected "
                "all to be sent before the first is received"
            )
        return Internal("the engine gave no answer; its log says why")

    def close(self) -> None:
        """Leave the world."""
        self._server.close_stream(self)


def _deliver(replies: Replies) -> None:
    for inbox, reply in replies:
        inbox.deliver(reply)
