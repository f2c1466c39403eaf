"""Viewers who send or read slowly, or not at all: they are ended after a time, a short one here, and nobody waits."""

import os
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.support.raw_web import RawConnection, RawSocket, ask, request_bytes, viewing
from tests.support.served_page import ServedPage, running_engine, served_page, wait_for
from worldloom.server.config import WebOptions
from worldloom.server.engine.engine import Engine
from worldloom.server.engine.picture_requests import PictureRequest
from worldloom.server.engine.watching import WatchedBatch, Watching
from worldloom.server.web import access, app, http_server, viewer

ALL = {"type": "subscribe", "topics": ["worlds", "stats", "trials"]}
LARGE = 16
"""Tiles of 512 × 512, three bytes each: more than sockets hold."""


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine() as made:
        yield made


@pytest.fixture(scope="module")
def page(engine: Engine) -> Iterator[ServedPage]:
    with served_page(engine, WebOptions(web_control=True)) as made:
        yield made


@pytest.fixture
def world(page: ServedPage) -> Iterator[str]:
    with viewing(page.url) as player:
        player.send_json({"type": "play", "family": "maze", "settings": {"size": 5}})
        yield player.next("playing")["world"]
    wait_for(lambda: page.server.viewers == 0, lambda: "viewers are left")


def never_reads(page: ServedPage, world: str) -> RawSocket:
    """A viewer that asks for all that there is."""
    viewer = RawSocket(page.url, receive_buffer=4096)
    assert viewer.upgrade().status == 101
    viewer.send_json(ALL)
    views = [[world, 0, 0, "", "rgb"]] * LARGE
    viewer.send_json({"type": "watch", "views": views, "size": 512, "rate": 30, "follow": [world, 0, 0]})
    return viewer


def check_ended(page: ServedPage, ended: RawSocket, descriptors: int) -> None:
    """Only the player is left, and of the other no descriptor, though it still holds its end."""
    wait_for(lambda: page.server.viewers == 1, lambda: f"{page.server.viewers} viewers")
    wait_for(lambda: len(os.listdir("/proc/self/fd")) <= descriptors + 1, lambda: "a connection is left")
    ended.close()


def test_pictures_that_nobody_reads(page: ServedPage, world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer, "_SEND_TIMEOUT_S", 1.0)
    before = len(os.listdir("/proc/self/fd"))
    silent = never_reads(page, world)
    began_s = time.monotonic()
    with viewing(page.url) as other:
        other.send_json({"type": "watch", "number": 1, "views": [[world, 0, 0, "", "rgb"]], "rate": 20})
        assert [other.next_picture()[0]["picture"] for _ in range(3)] == [1, 2, 3]
    check_ended(page, silent, before)
    assert 1.0 <= time.monotonic() - began_s < 8.0


def test_pings_that_nobody_answers(page: ServedPage, world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_HEARTBEAT_S", 0.4)
    before = len(os.listdir("/proc/self/fd"))
    silent = never_reads(page, world)
    quiet = RawSocket(page.url)
    assert quiet.upgrade().status == 101
    check_ended(page, quiet, before + 1)
    check_ended(page, silent, before)


def test_slow_requests(page: ServedPage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then, of the first headers, of the next, or of a body."""
    monkeypatch.setattr(http_server, "_IDLE_TIMEOUT_S", 1.0)
    monkeypatch.setattr(http_server, "_LINGER_S", 0.5)
    monkeypatch.setattr(access, "_BODY_TIMEOUT_S", 1.0)
    slow = [RawConnection(page.url) for _ in range(4)]
    assert slow[1].request("/healthz").status == 200
    slow[2].send(request_bytes("localhost", "/login", {"Content-Length": "900"}, "POST"))
    slow[3].send(request_bytes("localhost", "/healthz", {"Content-Length": "900"}, "DELETE"))
    closed_s: list[float] = []
    began_s = time.monotonic()

    def drip(connection: RawConnection) -> None:
        try:
            for byte in b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 100:
                connection.send(bytes([byte]))
                time.sleep(0.05)
        except ConnectionError:
            closed_s.append(time.monotonic() - began_s)

    threads = [threading.Thread(target=drip, args=(one,)) for one in slow]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        asked_s = time.monotonic()
        assert ask(page.url, "/").status == 200
        assert time.monotonic() - asked_s < 0.5
        time.sleep(0.05)
    for one in slow:
        one.close()
    assert len(closed_s) == len(slow)
    assert all(0.4 < seconds < 4.0 for seconds in closed_s), closed_s


def test_no_step_waits_for_whoever_reads_slowly(page: ServedPage, world: str) -> None:
    """Replies to a client come while a viewer has two pictures unread."""
    silent = never_reads(page, world)
    wait_for(lambda: page.engine.watching.pictures > 0, lambda: "no picture was drawn")
    with viewing(page.url) as player:
        message: dict[str, Any] = {"type": "play", "family": "catch"}
        player.send_json(message)
        player.next("playing")
        for number in range(50):
            asked_s = time.monotonic()
            player.send_json({"type": "act", "number": number, "actions": {"paddle": 1}})
            assert player.next("acted")["number"] == number
            assert time.monotonic() - asked_s < 1.0
    silent.close()


def test_a_tick_draws_for_some_viewers_only(page: ServedPage, world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask at a time, and also of those who have gone since: clients' steps wait for that tick."""
    batches: list[list[int]] = []

    def note(batch: WatchedBatch, owner: Watching, requests: Iterable[PictureRequest]) -> None:
        found = list(requests)
        batches.append([len(one.views) * one.size**2 for one in found])
        made(batch, owner, found)

    made = WatchedBatch.__init__
    monkeypatch.setattr(WatchedBatch, "__init__", note)
    for _ in range(3):
        greedy = [never_reads(page, world) for _ in range(6)]
        for one in greedy:
            one.close()
    small = [["no", 0, 0, "", "rgb"]] * 64
    with viewing(page.url) as one, viewing(page.url) as other:
        for viewer in (one, other):
            viewer.send_json({"type": "watch", "number": 1, "views": small, "size": 64, "rate": 30})
        for _ in range(5):
            assert one.next_picture()[0]["watch"] == other.next_picture()[0]["watch"] == 1
    assert max(map(sum, batches)) <= LARGE * 512**2
    assert all(len(batch) == 1 for batch in batches if max(batch) == LARGE * 512**2)
    assert max(map(len, batches)) == 2  # small ones are drawn together


def test_memory_of_pictures_that_nobody_reads(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten pictures of 12 MiB, twice each, would be 240 MiB. Small ones wait for none, nor does whoever comes later."""
    monkeypatch.setattr(app, "_PICTURE_BYTES", 64 << 20)
    with served_page(engine, WebOptions(web_control=True)) as page, viewing(page.url) as player:
        player.send_json({"type": "play", "family": "maze", "settings": {"size": 5}})
        world = player.next("playing")["world"]
        views = [[world, 0, 0, "", "rgb"]]
        player.send_json({"type": "watch", "number": 1, "views": views, "size": 64, "rate": 30})
        player.next_picture()
        before = page.server.process_bytes
        silent = [never_reads(page, world) for _ in range(10)]
        largest = 0
        for _ in range(60):
            player.next_picture()
            largest = max(largest, page.server.process_bytes)
        assert 20 << 20 < largest - before < 96 << 20
        for one in silent:
            one.close()
        player.send_json({"type": "watch", "number": 2, "views": views * LARGE, "size": 512, "rate": 30})
        while (picture := player.next_picture())[0]["watch"] != 2:
            pass
        assert len(picture[1]) == LARGE * 512**2 * 3
