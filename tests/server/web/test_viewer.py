"""The protocol of the live view: each message, each error, and all else, which changes nothing and ends nothing."""

import json
import math
import re
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.raw_web import BINARY, RawSocket, ask, frame, viewing
from tests.support.served_page import ServedPage, running_engine, served_page, wait_for
from worldloom.server.config import WebOptions
from worldloom.server.engine.engine import Engine
from worldloom.server.web import viewer as viewer_module
from worldloom.server.web.playing import OwnWorld

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


def test_hello(page: ServedPage) -> None:
    with RawSocket(page.url) as viewer:
        assert viewer.upgrade().status == 101
        hello = viewer.next("hello")
    assert hello["server"] == "127.0.0.1:9000"
    assert (hello["renderer"], hello["can_control"], hello["has_trials"]) == ("cpu", True, False)
    assert (hello["max_tiles"], hello["max_rate"], hello["max_size"]) == (16, 20, 512)
    assert hello["playable"] == ["cartpole", "catch", "maze"]
    states = ["not_begun", "running", "ended", "not_drawable", "gone", "postponed"]
    assert hello["states"] == states


def test_topics(viewer: RawSocket) -> None:
    viewer.send_json({"type": "subscribe", "topics": ["worlds"]})
    assert viewer.next("worlds") == {"type": "worlds", "changed": [], "removed": [], "is_complete": True}
    with viewing_of(viewer) as player:
        player.send_json(MAZE)
        playing = player.next("playing")
        (row,) = viewer.next("worlds")["changed"]
    assert (row["id"], row["family"], row["lanes"], row["seed"]) == (playing["world"], "maze", 1, "3")
    assert row["settings"]["size"] == "5"
    assert row["joined"] == [{"agent": 0, "owner": row["stream"], "width": 64, "height": 64}]
    assert row["actions"] == playing["actions"]
    assert viewer.next("worlds") == {"type": "worlds", "changed": [], "removed": [row["id"]], "is_complete": True}


def viewing_of(viewer: RawSocket) -> Any:
    return viewing(f"http://{viewer.host}/")


def test_settings_are_shown_as_texts(page: ServedPage, viewer: RawSocket) -> None:
    """Also those that would be markup, and long ones only in part."""
    hostile = "</script><img src=x onerror=alert(1)>"
    about, text = viewer.refused({**MAZE, "settings": {hostile: 1}})
    assert about == "play"
    assert hostile in text
    assert hostile not in ask(page.url, "/").text
    assert hostile not in ask(page.url, "/metrics").text


def test_only_settings_that_are_taken_are_offered(viewer: RawSocket) -> None:
    about, text = viewer.refused({**MAZE, "settings": {"foo": 1}})
    assert (about, text.split(": ")[0]) == ("play", "unknown setting 'foo'")
    offered = text.partition("expected some of ")[2].split(", ")
    assert {"size", "goals", "action_repeat", "vary_seed"} < set(offered)
    for name in ("lanes", "first_lane", "autoreset", "family", "seed"):
        _, text = viewer.refused({**MAZE, "settings": {name: 1}})
        assert re.match(f"setting '{name}' (of a world to play in: expected none|is given beside)", text)
        assert name not in offered


def test_pictures(viewer: RawSocket) -> None:
    viewer.send_json(MAZE)
    world = viewer.next("playing")["world"]
    views = [[world, 0, 0, "", "rgb"], [world, 0, 0, "map", "depth"], [world, 7, 0, "", "rgb"], ["no", 0, 0, "", ""]]
    views += [[world, 0, 9, "", "rgb"], [world, 0, 0, "no", "rgb"], [world, 0, 0, "eye", "gray"]]
    viewer.send_json({"type": "watch", "number": 5, "views": views, "size": 16, "follow": [world, 0, 0]})
    header, payload = viewer.next_picture()
    assert (header["watch"], header["size"], header["format"]) == (5, 16, "raw")
    assert [one[:2] for one in header["frames"]] == [[0, 1], [1, 1], [2, 4], [3, 4], [4, 4], [5, 3], [6, 1]]
    places = [one[4] for one in header["frames"]]
    assert [place >= 0 for place in places] == [True, True, False, False, False, False, True]
    depth = np.frombuffer(payload, "<f4", 256, places[1])
    assert 0 < depth.min() < depth.max() < 1e6
    assert np.frombuffer(payload, np.uint8, 768, places[0]).std() > 1
    assert len(payload) == 256 * (3 + 4 + 1)  # the frames and nothing else
    viewer.send_json({"type": "watch", "number": 6, "views": views[:1] * 3, "size": 32, "format": "jpeg"})
    while (picture := viewer.next_picture())[0]["watch"] != 6:
        pass
    header, payload = picture
    assert (header["format"], [one[4] for one in header["frames"]]) == ("jpeg", [0, 1, 2])
    assert payload[:2] == b"\xff\xd8"


def test_a_picture_has_nothing_of_the_one_before(viewer: RawSocket) -> None:
    """Its memory is used again, also for fewer frames, and for frames that end between two multiples of 64."""
    viewer.send_json(MAZE)
    world = viewer.next("playing")["world"]
    views = [[world, 0, 0, "", "rgb"], [world, 0, 0, "", "gray"], [world, 5, 0, "", "rgb"], [world, 0, 0, "", "depth"]]
    for number, (count, size) in enumerate(((4, 64), (4, 9), (1, 9))):
        viewer.send_json({"type": "watch", "number": number, "views": views[:count], "size": size})
        while (picture := viewer.next_picture())[0]["watch"] != number:
            pass
        header, payload = picture
        places = [one[4] for one in header["frames"]]
        assert places == [0, 3 * size**2, -1, 4 * size**2][:count]
        assert len(payload) == (8 if count == 4 else 3) * size**2


def test_followed_steps_tell_their_lane(viewer: RawSocket) -> None:
    """They are sent once, with whatever picture comes next, and are numbered."""
    viewer.send_json(MAZE)
    world = viewer.next("playing")["world"]
    views, follow = [[world, 0, 0, "", "rgb"]], [world, 0, 0]
    taken: list[dict[str, Any]] = []
    with viewing_of(viewer) as other:
        for number in range(3):
            message = {"type": "watch", "number": number, "views": views, "size": 8, "rate": 20, "follow": follow}
            other.send_json(message)
            while other.next_picture()[0]["watch"] != number:
                pass
            viewer.send_json({"type": "act", "number": number, "actions": {"turn": 0.5 * number}})
            viewer.next("acted")
            while not (followed := other.next_picture()[0]["followed"])["steps"]:
                assert (followed["lane"], followed["dropped"], followed["first"]) == (follow, 0, number)
            taken.append(followed)
    assert [one["first"] for one in taken] == [0, 1, 2]
    assert [[step[:2] for step in one["steps"]] for one in taken] == [[[0, 1]], [[0, 2]], [[0, 3]]]
    assert [one["actions"]["turn"] for one in taken] == [[0.0], [0.5], [1.0]]


def test_two_pictures_are_under_way(viewer: RawSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    viewer.send_json({"type": "watch", "number": 1, "views": [["no", 0, 0, "", "rgb"]], "rate": 1000})
    numbers = [json.loads(data[4:])["picture"] for data in (next_picture(viewer), next_picture(viewer))]
    assert numbers == [1, 2]
    for shown in (-5, 0):
        viewer.send_json({"type": "shown", "picture": shown})
    assert viewer.refused({"type": "shown", "picture": "2"})[0] == "message"  # no picture came before it
    viewer.send_json({"type": "shown", "picture": 999})
    assert json.loads(next_picture(viewer)[4:])["picture"] == 3
    assert json.loads(next_picture(viewer)[4:])["picture"] == 4


def next_picture(viewer: RawSocket) -> bytes:
    opcode, data = viewer.receive()
    assert opcode == BINARY, data
    (size,) = struct.unpack("<I", data[:4])
    assert len(data) == 4 + size
    return data


def test_playing(viewer: RawSocket, page: ServedPage, empty: dict[str, int]) -> None:
    viewer.send_json({"type": "act", "number": 1, "actions": {}})
    assert viewer.next("error")["text"] == "act without a game: expected play before it"
    viewer.send_json(MAZE)
    playing = viewer.next("playing")
    assert (playing["lane"], playing["agent"], playing["trial"]) == (0, 0, "")
    assert [one["name"] for one in playing["actions"]] == ["move", "turn"]
    viewer.send_json({"type": "act", "number": 41, "actions": {"move": [0.5, 0.0], "turn": 0.1}})
    acted = viewer.next("acted")
    assert (acted["number"], acted["state"], acted["step_type"]) == (41, "running", 1)
    for actions, problem in (
        ({"move": [77, 0]}, "action 'move' is 77.0 at [0]: expected a finite number from -1 to 1"),
        ({"move": [1e300, 0]}, "action 'move' is inf at [0]: expected a finite number from -1 to 1"),
        ({"move": [math.nan, 0]}, "action 'move' is nan at [0]: expected a finite number from -1 to 1"),
        ({"move": 1}, "action 'move' is 1: expected float32 numbers of shape [2]"),
        ({"turn": [1, 2, 3]}, "action 'turn' is [1, 2, 3]: expected float32 numbers of shape []"),
        ({"turn": 10**400}, f"action 'turn' is 1{'0' * 99}…: expected float32 numbers of shape []"),
        ({"no": 1}, "action 'no': expected some of move, turn"),
    ):
        assert viewer.refused({"type": "act", "number": 1, "actions": actions}) == ("act", problem)
    viewer.send_json({"type": "act", "number": 42})  # the game goes on
    assert viewer.next("acted")["number"] == 42
    viewer.send_json({**MAZE, "family": "catch", "settings": {}})
    assert viewer.next("play_ended")["reason"] == "another was begun"
    assert viewer.next("playing")["world"].startswith("catch-")
    viewer.send_json({"type": "stop"})
    assert viewer.next("play_ended")["reason"] == "stopped"
    viewer.close()
    page.wait_until_left(empty)


@pytest.mark.parametrize(
    ("message", "about", "problem"),
    [
        ("", "message", "not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("{", "message", "not JSON: "),
        ("[" * 60_000, "message", "brackets within brackets: expected a few at most"),
        ('{"type":' * 8000, "message", "brackets within brackets: expected a few at most"),
        ('{"type":"shown","picture":' + "9" * 5000 + "}", "message", "a number with thousands of digits"),
        ("[]", "message", "expected an object with a type"),
        ({}, "message", "expected an object with a type"),
        ({"type": 1}, "message", "expected an object with a type"),
        ({"type": "no\ud800"}, "message", "type 'no\\ud800': expected subscribe, watch, shown, play, act or stop"),
        ({"type": "shown", "picture": 1.5}, "message", "picture is 1.5: expected a whole number from "),
        ({"type": "shown", "picture": [[]]}, "message", "picture is a list: expected a whole number"),
        ({"type": "shown", "picture": True}, "message", "picture is true: expected a whole number"),
        ({"type": "shown", "picture": 2**63}, "message", f"picture is {2**63}: expected a whole number"),
        ({"type": "subscribe"}, "message", "topics: expected a list with some of worlds, stats, trials"),
        ({"type": "subscribe", "topics": ["worlds", {}]}, "message", "topics: expected a list with"),
        ({"type": "subscribe", "topics": "worlds"}, "message", "topics: expected a list with"),
        ({"type": "watch"}, "watch", "views: expected a list of 16 at most (--web-tiles)"),
        ({"type": "watch", "views": [0] * 17}, "watch", "views: expected a list of 16 at most"),
        ({"type": "watch", "views": [0] * 20_000}, "watch", "views: expected a list of 16 at most"),
        ({"type": "watch", "views": [0]}, "watch", "a view: expected [world, lane, agent, camera, output], lane"),
        ({"type": "watch", "views": [["w", 0.5, 0, "", ""]]}, "watch", "a view: expected"),
        ({"type": "watch", "views": [["w", True, 0, "", ""]]}, "watch", "a view: expected"),
        ({"type": "watch", "views": [["w", 10**30, 0, "", ""]]}, "watch", "a view: expected"),
        ({"type": "watch", "views": [["w", 0, 0, "", "x"]]}, "watch", "a view: expected"),
        *(
            (
                {"type": "watch", "views": [], "size": size},
                "watch",
                f"size is {shown}: expected a whole number from 8 to",
            )
            for size, shown in ((0, 0), (-1, -1), (7, 7), (513, 513), (10**9, 10**9), (math.nan, "NaN"), (None, "null"))
        ),
        (
            {"type": "watch", "views": [["w", 0, 0, "", ""]] * 16, "size": 513},
            "watch",
            "size is 513: expected a whole number from 8 to 512",
        ),
        *(
            ({"type": "watch", "views": [], "rate": rate}, "watch", f"rate is {shown}: expected a number of pictures")
            for rate, shown in ((0, 0), (-1, -1), (math.nan, "NaN"), (math.inf, "Infinity"), ("4", '"4"'))
        ),
        ({"type": "watch", "views": [], "format": "png"}, "watch", 'format is "png": expected raw or jpeg'),
        ({"type": "watch", "views": [], "format": []}, "watch", "format is a list: expected raw or jpeg"),
        ({"type": "watch", "views": [], "follow": 1}, "watch", "a view: expected"),
        ({"type": "watch", "views": [], "follow": ["w", 0]}, "watch", "a view: expected"),
        ({"type": "watch", "views": [], "number": "7"}, "watch", 'number is "7": expected a whole number'),
        ({"type": "play"}, "play", "family is null: expected a text of 1000 characters at most"),
        ({"type": "play", "family": "no"}, "play", "family 'no' cannot be played: expected cartpole, catch, maze"),
        ({"type": "play", "family": "gym"}, "play", "family 'gym' cannot be played: expected cartpole, catch, maze"),
        ({"type": "play", "family": "\udfff"}, "play", 'family is "\\udfff": expected a text'),
        ({"type": "play", "trial": ""}, "play", "this server has no trials: expected one that was started with"),
        ({"type": "play", "trial": [1]}, "play", "trial is a list: expected a text"),
        ({**MAZE, "seed": 0.5}, "play", "seed is 0.5: expected a whole number"),
        ({**MAZE, "settings": []}, "play", "settings is a list: expected an object"),
        (
            {**MAZE, "settings": {"size": []}},
            "play",
            'setting "size" is a list: expected a text, or a number of 64 bits',
        ),
        ({**MAZE, "settings": {"size": 2**63}}, "play", f'setting "size" is {2**63}: expected a text, or'),
        ({**MAZE, "settings": {"\ud800": 1}}, "play", 'a name of settings is "\\ud800": expected a text'),
        ({**MAZE, "settings": {"size": "x" * 1001}}, "play", 'setting "size" is "xxx'),
        ({**MAZE, "settings": {"size": -1}}, "play", "setting 'size' is -1: expected"),
        (
            {**MAZE, "settings": {"lanes": 2}},
            "play",
            "setting 'lanes' of a world to play in: expected none, it has one",
        ),
        ({"type": "act", "actions": []}, "act", "actions is a list: expected an object"),
        (
            {"type": "act", "actions": {"a": "x"}},
            "act",
            'action "a" is "x": expected a number, or a list of up to 1024',
        ),
        ({"type": "act", "actions": {"a": [[1]]}}, "act", 'action "a" is a list: expected a number, or a list of'),
        ({"type": "act", "actions": {"a": [0] * 1025}}, "act", 'action "a" is a list: expected a number, or a list'),
        ({"type": "act", "number": {}, "actions": {}}, "act", "number is an object: expected a whole number"),
    ],
    ids=lambda value: str(value)[:40] if not isinstance(value, dict) else str(value.get("type")),
)
def test_errors(
    message: object, about: str, problem: str, viewer: RawSocket, page: ServedPage, empty: dict[str, int]
) -> None:
    kind, text = viewer.refused(message)
    assert kind == about
    assert text.startswith(problem)
    assert len(text) < 400
    # The world of a game that cannot begin is destroyed in the engine's next tick.
    wait_for(lambda: page.left()["worlds"] == page.left()["requests"] == 0, lambda: str(page.left()))


def test_pictures_that_are_too_large(engine: Engine) -> None:
    with served_page(engine) as page, viewing(page.url) as viewer:
        views = [["w", 0, 0, "", "rgb"]] * 17
        text = "17 views of 512 × 512: expected 4194304 pixels at most"
        assert viewer.refused({"type": "watch", "views": views, "size": 512}) == ("watch", text)


def test_a_page_that_only_shows(engine: Engine) -> None:
    with served_page(engine) as page, viewing(page.url) as viewer:
        for message in (MAZE, {"type": "act", "actions": {}}, {"type": "stop"}, {"type": "play", "trial": ""}):
            assert viewer.refused(message)[1] == NOT_STARTED
        assert engine.directory.worlds == {}


def test_a_failure_of_ours_is_told(page: ServedPage, viewer: RawSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer_module, "parse_topics", lambda _: 1 / 0)
    viewer.send_json({"type": "subscribe", "topics": []})
    assert viewer.close_code() == 1011
    with viewing(page.url) as other:
        monkeypatch.setattr(OwnWorld, "begin", lambda *_: 1 / 0)
        assert other.refused(MAZE) == ("play", "the server failed: its log says where")
        assert other.refused("x")[0] == "message"


def test_nothing_is_left_of_viewers(page: ServedPage, empty: dict[str, int]) -> None:
    """Viewers end it or vanish while they play, follow, wait for a picture or for a world."""
    for number in range(30):
        viewer = RawSocket(page.url)
        assert viewer.upgrade().status == 101
        viewer.send_json({"type": "subscribe", "topics": ["worlds", "stats", "trials"]})
        if number % 3:
            viewer.send_json(MAZE)
        if number % 3 == 2:
            world = viewer.next("playing")["world"]
            views = [[world, 0, 0, "", "rgb"]]
            viewer.send_json({"type": "watch", "views": views, "rate": 20, "follow": [world, 0, 0]})
            if number % 2:
                viewer.next_picture()
        if number % 4 == 0:
            viewer.send(frame(8, b"\x03\xe8"))
            assert viewer.close_code() == 1000
        viewer.close()
    page.wait_until_left(empty)


def test_the_end_of_the_page(engine: Engine, empty: dict[str, int]) -> None:
    with served_page(engine, CONTROL) as page:
        viewer = RawSocket(page.url)
        viewer.upgrade()
        viewer.send_json(MAZE)
        viewer.next("playing")
    assert viewer.close_code() == 1001
    viewer.close()
    wait_for(lambda: not engine.directory.worlds, lambda: "a world is left")
