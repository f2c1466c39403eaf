"""The inbox of an engine's thread: calls of other threads, and events of files that the thread itself reads.

The thread waits for both at once. So a transport whose sockets are watched here needs no thread of its own: a request
is read where it is handled, and its reply is sent from there. Handing each over between two threads took longer than
the whole round trip through a Unix socket (33 µs instead of 14).
"""

import os
import select
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from worldloom.protos.spinning import Spinner

Call: TypeAlias = Callable[[], None]
READABLE, WRITABLE, HUNG_UP = select.EPOLLIN, select.EPOLLOUT, select.EPOLLHUP | select.EPOLLERR
"""Events of watched files."""
INPUT_ENDED = select.EPOLLRDHUP
"""Event of sockets: the other side will send nothing more."""
URGENT = select.EPOLLPRI
"""Event of sockets: there is a byte out of band."""
ONLY_CHANGES = select.EPOLLET
"""Report an event once when it comes, instead of for as long as it lasts."""


class Inbox:
    """Calls and events for one thread. Other threads may use `put` and `len` only."""

    def __init__(self) -> None:
        self._calls: deque[Call | None] = deque()
        self._is_waiting = False
        """The thread waits, or is about to: it has to be woken."""
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._poller: select.epoll | None = None
        self._spinner = Spinner()
        self._has_events = False
        """There were events of watched files the last time."""
        self._alarm = -1
        """A file that becomes readable to wake the thread."""

    def __len__(self) -> int:
        return len(self._calls)

    def open(self) -> None:
        """Get ready to wait."""
        self._alarm = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(self, os.close, self._alarm)  # not before: a late `put` may be about to write to it
        self._poller = select.epoll()
        self._poller.register(self._alarm, READABLE)

    def close(self) -> None:
        """Watch no more files. Calls may still be put, and are not taken any more."""
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.close()

    def put(self, call: Call | None) -> None:
        """Add a call, from any thread; None asks the thread to end."""
        self._calls.append(call)
        if self._is_waiting:
            self._is_waiting = False
            os.eventfd_write(self._alarm, 1)

    def take(self, timeout_s: float) -> list[Call | None]:
        """Wait until there are calls or events, and return all of them as calls; none if there are none in time.

        An inbox that was not opened waits for nothing.
        """
        poller = self._poller
        events: list[tuple[int, int]] = []
        if poller is not None and self._has_events and not self._calls and timeout_s:
            # Clients that watched files belong to often answer within microseconds.
            self._spinner.wait(lambda: self._has_more(events), lambda: self._sleep(events, timeout_s))
        elif poller is not None:
            self._sleep(events, timeout_s)
        self._has_events = False
        calls = [self._calls.popleft() for _ in range(len(self._calls))]
        for file, event in events:
            if file == self._alarm:
                os.eventfd_read(self._alarm)
            elif (handler := self._handlers.get(file)) is not None:
                self._has_events = True
                calls.append(partial(handler, event))
        return calls

    def _has_more(self, events: list[tuple[int, int]]) -> bool:
        """Return whether there are calls or events; add the events to a list."""
        if not self._calls and self._poller is not None:
            events += self._poller.poll(0)
        return bool(self._calls or events)

    def _sleep(self, events: list[tuple[int, int]], timeout_s: float) -> None:
        """Wait until there are calls or events, and add the events to a list."""
        assert self._poller is not None
        self._is_waiting = True
        # After the flag is set: a call is either seen here, or its sender sees the flag and wakes the thread.
        events += self._poller.poll(0 if self._calls else timeout_s)
        self._is_waiting = False

    def watch(self, file: int, events: int, handler: Callable[[int], None]) -> None:
        """Call a function with the events of a file, in the ticks in which there are some; replaces an earlier one."""
        assert self._poller is not None, "an inbox is opened before files are watched"
        if file in self._handlers:
            self._poller.modify(file, events)
        else:
            self._poller.register(file, events)
        self._handlers[file] = handler

    def unwatch(self, file: int) -> None:
        """Report no more events of a file, which must still be open."""
        if self._handlers.pop(file, None) is not None and self._poller is not None:
            self._poller.unregister(file)
