"""Delivery of replies from the engine's thread to the transports and trials that wait for them.

Every transport registers once and gets a route. During a tick, replies are collected by route; at the end of the tick
each route's function is called once with all of them, so that one tick costs an event loop one wake-up, however many
streams it answers.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

Replies: TypeAlias = list[tuple[Any, Any]]
"""(receiver, reply) pairs. Receiver and reply are what the transport makes of them; for streams a reply is bytes."""


class Receiver(Protocol):
    """An object on an event loop that waits for a reply."""

    def deliver(self, reply: Any, /) -> None:
        """Take the reply."""


class ReplyRoute:
    """The replies of one transport in the current tick. Used by the engine's thread only."""

    def __init__(self, deliver: Callable[[Replies], None]) -> None:
        self.deliver = deliver
        self.replies: Replies = []

    def send(self, receiver: Any, reply: Any) -> None:
        """Deliver a reply at the end of the tick."""
        self.replies.append((receiver, reply))


class ReplyRouter:
    """All routes of an engine."""

    def __init__(self) -> None:
        self._routes: list[ReplyRoute] = []

    def register(self, deliver: Callable[[Replies], None]) -> ReplyRoute:
        """Add a route; `deliver` is called on the engine's thread with the replies of each tick."""
        route = ReplyRoute(deliver)
        self._routes.append(route)
        return route

    def deliver(self) -> bool:
        """Deliver the replies of this tick; return whether there were any."""
        has_delivered = False
        for route in self._routes:
            if route.replies:
                replies, route.replies = route.replies, []
                route.deliver(replies)
                has_delivered = True
        return has_delivered


def deliver_on_loop(loop: asyncio.AbstractEventLoop, replies: Replies) -> None:
    """Have an event loop, on another thread, hand each reply to its receiver."""
    with contextlib.suppress(RuntimeError):  # the loop is closed: there is no receiver left
        loop.call_soon_threadsafe(_deliver_each, replies)


def _deliver_each(replies: Replies) -> None:
    for receiver, reply in replies:
        receiver.deliver(reply)
