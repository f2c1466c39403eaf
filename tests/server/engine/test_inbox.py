"""Calls of any number of threads come in order, and none is slept through; files are watched meanwhile."""

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from worldloom.server.engine.inbox import HUNG_UP, ONLY_CHANGES, READABLE, Inbox

LONG_S = 60.0


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    made = Inbox()
    made.open()
    yield made
    made.close()


def test_no_call_is_slept_through(inbox: Inbox) -> None:
    """Each is put when the one before has been taken, so that every one of them has to wake the thread."""
    taken = threading.Semaphore(0)
    seen: list[int] = []

    def put() -> None:
        for number in range(2000):
            inbox.put(lambda number=number: seen.append(number))  # type: ignore[misc]
            assert taken.acquire(timeout=LONG_S)
        inbox.put(None)

    thread = threading.Thread(target=put)
    thread.start()
    while None not in (calls := inbox.take(LONG_S)):
        for call in calls:
            assert call is not None
            call()
            taken.release()
    thread.join(LONG_S)
    assert seen == list(range(2000))


def test_many_threads(inbox: Inbox) -> None:
    seen: list[tuple[int, int]] = []

    def put(thread: int) -> None:
        for number in range(300):
            inbox.put(lambda pair=(thread, number): seen.append(pair))  # type: ignore[misc]

    threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    while len(seen) < 8 * 300:
        for call in inbox.take(LONG_S):
            assert call is not None
            call()
    for number, thread in enumerate(threads):
        thread.join(LONG_S)
        assert [each for of, each in seen if of == number] == list(range(300))


def test_nothing_in_time(inbox: Inbox) -> None:
    assert inbox.take(0.0) == []
    assert inbox.take(0.001) == []
    inbox.put(lambda: None)
    assert len(inbox) == 1
    assert len(inbox.take(LONG_S)) == 1
    assert len(inbox) == 0


def test_an_inbox_that_is_not_open() -> None:
    closed = Inbox()
    closed.put(lambda: None)
    assert len(closed.take(0.0)) == 1
    assert closed.take(0.0) == []


def test_watched_files(inbox: Inbox) -> None:
    ours, theirs = socket.socketpair()
    events: list[int] = []
    inbox.watch(ours.fileno(), READABLE | ONLY_CHANGES, events.append)
    theirs.send(b"x")
    for call in inbox.take(LONG_S):
        assert call is not None
        call()
    assert events == [READABLE]
    assert inbox.take(0.0) == [], "only changes are told"
    inbox.watch(ours.fileno(), READABLE, events.append)
    assert len(inbox.take(0.0)) == len(inbox.take(0.0)) == 1, "told for as long as it lasts"
    theirs.close()
    (call,) = inbox.take(LONG_S)
    assert call is not None
    call()
    assert events[-1] & HUNG_UP
    inbox.unwatch(ours.fileno())
    inbox.unwatch(ours.fileno())
    assert inbox.take(0.0) == []
    ours.close()


def test_calls_come_before_events_and_both_at_once(inbox: Inbox) -> None:
    reader, writer = os.pipe()
    seen: list[str] = []
    inbox.watch(reader, READABLE, lambda _: seen.append("event"))
    os.write(writer, b"x")
    inbox.put(lambda: seen.append("call"))
    for call in inbox.take(LONG_S):
        assert call is not None
        call()
    assert seen == ["call", "event"]
    inbox.unwatch(reader)
    os.close(reader)
    os.close(writer)
