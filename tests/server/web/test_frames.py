"""Frames of a WebSocket: those that end the connection by RFC 6455, and all others, which change nothing."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.raw_web import BINARY, PING, PONG, TEXT, RawSocket, ask, frame, viewing
from tests.support.served_page import ServedPage, running_engine, served_page
from worldloom.server.config import WebOptions
from worldloom.server.engine.engine import Engine
from worldloom.server.web import viewer as viewer_module

MAZE: dict[str, Any] = {"type": "play", "family": "maze", "settings": {"size": 5}, "seed": 3}
CONTROL = WebOptions(web_control=True, web_tiles=16, web_rate=20)
NOT_STARTED = "this page only shows: expected a server that was started with --web-control"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine() as made:
        yield made


@pytest.fixture(scope="module")
def page(engine: Engine) -> Iterator[ServedPage]:
    with served_page(engine, CONTROL) as made:
        yield made


@pytest.fixture
def empty(page: ServedPage) -> dict[str, int]:
    """Counts without viewers. Tasks: the thread's own, one that accepts, one for the history, the count itself."""
    nothing = dict.fromkeys(page.left(), 0)
    return {**nothing, "tasks": 4, "routes": len(page.engine.router._routes)}


@pytest.fixture
def viewer(page: ServedPage) -> Iterator[RawSocket]:
    with viewing(page.url) as made:
        yield made


def viewing_of(viewer: RawSocket) -> Any:
    return viewing(f"http://{viewer.host}/")


def test_frames_that_end_the_connection(page: ServedPage, empty: dict[str, int]) -> None:
    """By RFC 6455: 1002 for what is no frame, 1007 for what is no text, 1009 for what is too large."""
    cases = [
        (1009, frame(TEXT, size=1 << 16)),
        (1009, frame(TEXT, size=(1 << 63) - 1)),
        (1009, frame(TEXT, size=(1 << 64) - 1)),
        (1009, frame(TEXT, b"x" * 40_000, fin=False) + frame(0, size=40_000)),
        (1002, frame(TEXT, b"{}", reserved=4)),
        (1002, frame(TEXT, b"{}", reserved=1)),
        (1002, frame(3, b"")),
        (1002, frame(0, b"x")),
        (1002, frame(TEXT, b"x", fin=False) + frame(TEXT, b"y")),
        (1002, frame(PING, b"x" * 126)),
        (1002, frame(PING, fin=False)),
        (1002, frame(8, b"\x03")),
        (1002, frame(8, b"\x00\x01")),
        (1007, frame(TEXT, b"\xff\xfe")),
        (1007, frame(TEXT, b"\xed\xa0\x80")),
    ]
    for code, data in cases:
        with viewing(page.url) as viewer:
            viewer.send(data)
            assert viewer.close_code() == code, data[:20]
    page.wait_until_left(empty)


def test_frames_that_are_taken(viewer: RawSocket) -> None:
    """Fragments with a ping between them, any mask, and an empty text, which is an error and no end."""
    text = json.dumps({"type": "subscribe", "topics": ["worlds"]}).encode()
    viewer.send(frame(TEXT, text[:9], fin=False) + frame(PING, b"now") + frame(0, b"", fin=False) + frame(0, text[9:]))
    assert viewer.receive() == (PONG, b"now")
    assert viewer.next("worlds")["is_complete"]
    assert viewer.refused("") == ("message", "not JSON: Expecting value: line 1 column 1 (char 0)")
    viewer.send(frame(BINARY, b"\0" * 1000))
    assert viewer.next("error")["text"] == "a binary message: expected a text in JSON"


def test_pings_count_as_messages(viewer: RawSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer_module, "_MESSAGES_A_SECOND", 1 << 30)
    viewer.send(frame(PING, b"a") * 2 + frame(PONG))
    assert [viewer.receive(), viewer.receive()] == [(PONG, b"a")] * 2
    began_s = time.monotonic()
    with viewing_of(viewer) as limited:
        monkeypatch.setattr(viewer_module, "_MESSAGES_A_SECOND", 5)
        limited.send(frame(PING) * 13)
        for _ in range(13):
            assert limited.receive() == (PONG, b"")
        assert time.monotonic() - began_s >= 2  # five in each second


json_values = st.recursive(
    st.one_of(st.integers(), st.floats(), st.booleans(), st.none(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@settings(max_examples=40)
@given(st.lists(st.one_of(st.text(), st.binary(max_size=50), json_values), min_size=1, max_size=10))
def test_nothing_random_ends_a_connection(messages: list[Any]) -> None:
    page = _PAGES[0]
    with viewing(page.url) as viewer:
        for message in messages:
            if isinstance(message, bytes):
                viewer.send(frame(BINARY, message))
            elif isinstance(message, str) and not any("\ud800" <= one <= "\udfff" for one in message):
                viewer.send_text(message)
            else:
                viewer.send_json(message)
        errors = 0
        while errors < len(messages):
            assert viewer.next("error")["about"] == "message"
            errors += 1
        assert viewer.refused("the last")[1].startswith("not JSON")
    assert page.engine.directory.worlds == {}


_PAGES: list[ServedPage] = []


@pytest.fixture(scope="module", autouse=True)
def _served(page: ServedPage) -> Iterator[None]:
    """For examples, which take no fixtures."""
    _PAGES.append(page)
    yield
    _PAGES.clear()


@settings(max_examples=40)
@given(st.binary(max_size=200))
def test_random_bytes_harm_nobody_else(data: bytes) -> None:
    page = _PAGES[0]
    with RawSocket(page.url) as viewer:
        viewer.upgrade()
        viewer.send(data)
    with RawSocket(page.url) as other:
        other.send(data)
    assert page.engine.directory.worlds == {}
    assert ask(page.url, "/healthz").text == "ok\n"
