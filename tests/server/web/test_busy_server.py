"""The live view of a server that is busy, fails in part, stops, or has worlds that cannot be listed."""

import asyncio
import errno
import gc
import json
import time
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.support.raw_web import RawSocket, ask, viewing
from tests.support.served_page import ServedPage, running_engine, served_page, wait_for
from worldloom.protos.addresses import TcpAddress
from worldloom.server.config import WebOptions
from worldloom.server.engine.engine import Engine
from worldloom.server.web import http_server, viewer, watched_server, world_list
from worldloom.server.web import hub as hub_module
from worldloom.server.web.history import History
from worldloom.server.web.http_server import WebAddress
from worldloom.server.web.hub import Hub, ListedServer
from worldloom.server.web.page_lookup import ServerAccess
from worldloom.server.web.playing import OwnWorld

MAZE: dict[str, Any] = {"type": "play", "family": "maze", "settings": {"size": 5}}
CATCH: dict[str, Any] = {"type": "play", "family": "catch"}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine() as made:
        yield made


@pytest.fixture
def page(engine: Engine) -> Iterator[ServedPage]:
    with served_page(engine, WebOptions(web_control=True)) as made:
        yield made


@pytest.fixture
def player(page: ServedPage) -> Iterator[RawSocket]:
    with viewing(page.url) as made:
        yield made
    wait_for(lambda: not page.engine.directory.worlds, lambda: "worlds are left")


async def _never(_: OwnWorld, given: Mapping[str, object]) -> dict[str, object]:
    """Take the first step, which begins a game, and wait for ever with the next."""
    if given:
        await asyncio.Event().wait()
    return {}


def test_another_game_begins_while_a_step_waits(
    page: ServedPage, player: RawSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OwnWorld, "act", _never)
    player.send_json(MAZE)
    first = player.next("playing")["world"]
    player.send_json({"type": "act", "number": 1, "actions": {"turn": 0.5}})
    assert (
        player.refused({"type": "act", "number": 2})[1] == "the last step is not answered yet: expected to wait for it"
    )
    player.send_json(CATCH)
    assert player.next("play_ended")["reason"] == "another was begun"
    second = player.next("playing")["world"]
    assert second != first
    wait_for(lambda: len(page.engine.directory.worlds) == 1, lambda: "the first world is left")
    assert page.server.open_streams._count == 1


def test_a_game_begins_while_the_last_one_ends(player: RawSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = OwnWorld.stop

    async def stop_slowly(game: OwnWorld) -> None:
        await asyncio.sleep(0.3)
        await stop(game)

    monkeypatch.setattr(OwnWorld, "stop", stop_slowly)
    player.send_json(MAZE)
    player.next("playing")
    for message in ({"type": "stop"}, CATCH, MAZE, {"type": "stop"}, CATCH):
        player.send_json(message)
    told = next(one for one in player.messages() if isinstance(one, dict) and one["type"] in ("playing", "error"))
    assert told["type"] == "playing"
    assert told["world"].startswith("catch-")


def test_a_server_that_stops_ends_games(page: ServedPage, player: RawSocket) -> None:
    player.send_json(MAZE)
    player.next("playing")
    page.page.is_ready = False
    assert player.next("play_ended")["reason"] == "the server is shutting down"
    wait_for(lambda: page.server.open_streams._count == 0, lambda: "a stream is open")
    assert player.refused(CATCH)[1].startswith("the server is shutting down")


def test_statistics_of_an_engine_that_takes_no_samples(
    page: ServedPage, player: RawSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages go on though nothing is new, and though the list of worlds waits for the engine."""
    monkeypatch.setattr(viewer, "_SIGN_OF_LIFE_S", 0.3)
    page.engine.post(lambda: time.sleep(2.5))
    page.engine.directory.changes += 1
    began_s = time.monotonic()
    player.send_json({"type": "subscribe", "topics": ["worlds", "stats"]})
    while player.next("stats")["samples"]:
        pass
    player.next("stats")
    assert time.monotonic() - began_s < 2.0


def test_work_in_the_background_goes_on_after_an_error(page: ServedPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_RESTART_PAUSE_S", 0.1)
    failed: list[int] = []
    update = History.update

    def fail_twice(history: History) -> None:
        if len(failed) < 2:
            failed.append(1)
            raise OSError(errno.EMFILE, "no descriptors")
        update(history)

    monkeypatch.setattr(History, "update", fail_twice)
    wait_for(lambda: len(failed) == 2, lambda: "the work was not begun again")
    count = page.page._shared.history._count
    wait_for(lambda: page.page._shared.history._count > count, lambda: "no row was added")


def test_a_page_of_several_servers_goes_on_after_an_error(page: ServedPage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of servers fails once: the server keeps its path, and is looked at again."""
    monkeypatch.setattr(http_server, "_RESTART_PAUSE_S", 0.1)
    monkeypatch.setattr(hub_module, "POLL_S", 0.1)
    asked: list[int] = []

    async def find() -> str:
        asked.append(1)
        return page.url

    def list_servers() -> list[ListedServer]:
        if hub.first_problems.done() and not failed:
            failed.append(len(asked))
            raise OSError(errno.EMFILE, "no descriptors")
        return [ListedServer("one", find)]

    failed: list[int] = []
    hub = Hub(WebAddress(TcpAddress("127.0.0.1", 0)), ServerAccess(), list_servers)
    url = hub.start()
    try:
        assert hub.first_problems.result(20) == {"one": ""}
        wait_for(lambda: bool(failed), lambda: "the list was not asked for again")
        page.page.stop()
        wait_for(lambda: len(asked) > failed[0], lambda: "the server was not looked at again")
        (entry,) = json.loads(ask(url, "/api/servers").text)["servers"]
        assert (entry["name"], entry["path"]) == ("one", "/servers/0")
    finally:
        hub.stop()


def test_memory_that_cannot_be_read(page: ServedPage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "no descriptors")

    assert page.server.process_bytes > 1 << 20
    monkeypatch.setattr(watched_server, "open", fail, raising=False)
    assert page.server.process_bytes == 0


def test_a_world_that_cannot_be_listed_is_left_out(
    page: ServedPage, player: RawSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_row = world_list._family_row
    monkeypatch.setattr(world_list, "_family_row", lambda family: 1 / 0 if family.name == "catch" else make_row(family))
    player.send_json({"type": "subscribe", "topics": ["worlds"]})
    with viewing(page.url) as other, viewing(page.url) as sound:
        other.send_json(CATCH)
        other.next("playing")
        sound.send_json(MAZE)
        world = sound.next("playing")["world"]
        while not (rows := player.next("worlds")["changed"]):
            pass
        assert [row["id"] for row in rows] == [world]


def test_worlds_are_not_kept_after_the_last_viewer(page: ServedPage) -> None:
    with viewing(page.url) as player:
        player.send_json({"type": "subscribe", "topics": ["worlds"]})
        player.send_json(MAZE)
        player.next("playing")
        while not player.next("worlds")["changed"]:
            pass
        (world,) = page.engine.directory.worlds.values()
        left = weakref.ref(world)
        del world
        worlds = page.page._shared.worlds
        assert len(worlds._facts) == len(worlds._families) == 1
    wait_for(lambda: page.server.viewers == 0 and not page.engine.directory.worlds, lambda: str(page.left()))
    assert (worlds.rows, worlds._facts, len(worlds._families)) == ({}, {}, 0)
    wait_for(lambda: gc.collect() >= 0 and left() is None, lambda: "the world is kept")
