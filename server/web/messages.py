"""Messages of the page that ask for pictures and topics, parsed and checked."""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from worldloom.kernels.outputs import DEFAULT_OUTPUT_NAMES, OUTPUTS
from worldloom.server.engine.picture_requests import WatchedView
from worldloom.server.web.pictures import PictureFormat

MAX_MESSAGE_BYTES = 1 << 16
TOPICS = ("worlds", "stats", "trials")
MAX_SIZE = 512
"""Largest width and height of a picture's frames."""
_MIN_SIZE = 8
MAX_PICTURE_PIXELS = 1 << 22
"""Largest number of pixels in one picture, over all its frames."""
_LARGE_PICTURE_PIXELS = 1 << 20
"""Number of pixels above which the next picture waits until the last one was shown."""
_MAX_UNSHOWN = 2
"""Pictures under way to a page."""
_FORMATS = ("raw", "jpeg")
_OUTPUTS = ("", *DEFAULT_OUTPUT_NAMES)
_PIXEL_BYTES = {output.name: output.pixel_bytes for output in OUTPUTS}
"""Bytes of a pixel, by output."""
_MAX_TEXT = 1000
_MAX_SHOWN = 100
_MAX_ACTION_NUMBERS = 1024


class MessageError(ValueError):
    """A message of the page that cannot be used; the text says what was expected."""


class Watch(NamedTuple):
    """Pictures that a page asks for, as its message `watch` describes them."""

    number: int = 0
    views: tuple[WatchedView, ...] = ()
    size: int = 64
    rate: float = 1.0
    format: PictureFormat = "raw"
    follow: tuple[str, int, int] | None = None
    """World, lane and agent."""

    @property
    def shows_something(self) -> bool:
        """There are frames, or steps of a lane, to be sent."""
        return bool(self.views) or self.follow is not None

    @property
    def frame_bytes(self) -> int:
        """Bytes of the frames of one picture."""
        return sum(_PIXEL_BYTES[view.output] for view in self.views) * self.size**2

    @property
    def max_unshown(self) -> int:
        """Pictures that may be under way to the page: one of those that take megabytes."""
        return 1 if len(self.views) * self.size**2 > _LARGE_PICTURE_PIXELS else _MAX_UNSHOWN


class Play(NamedTuple):
    """A request to play, in a trial or in a world of the page's own."""

    trial: str | None = None
    """Id of a trial to join, "" for a new one; None for a world of one's own."""
    family: str = ""
    settings: Mapping[str, str | int | float] = {}
    seed: int = 0


class Act(NamedTuple):
    """Actions of somebody who plays."""

    number: int
    actions: Mapping[str, float | list[float]]


def parse_message(data: str) -> dict[str, Any]:
    """Return a message of the page, which has a type; MessageError if it is none."""
    try:
        given = json.loads(data)
    except RecursionError:
        raise MessageError("brackets within brackets: expected a few at most") from None
    except json.JSONDecodeError as error:
        raise MessageError(f"not JSON: {error}") from None
    except ValueError:
        raise MessageError("a number with thousands of digits: expected fewer") from None
    if not isinstance(given, dict) or not isinstance(given.get("type"), str):
        raise MessageError("expected an object with a type")
    return given


def whole(given: dict[str, Any], name: str, default: int, least: int = -(2**63), most: int = 2**63 - 1) -> int:
    """Return a whole number of a message."""
    value = given.get(name, default)
    if type(value) is not int or not least <= value <= most:
        raise MessageError(f"{name} is {_shown(value)}: expected a whole number from {least} to {most}")
    return value


def parse_topics(given: dict[str, Any]) -> frozenset[str]:
    """Return the topics that a page subscribes to."""
    topics = given.get("topics")
    if not isinstance(topics, list) or not all(topic in TOPICS for topic in topics):
        raise MessageError(f"topics: expected a list with some of {', '.join(TOPICS)}")
    return frozenset(topics)


def parse_watch(given: dict[str, Any], max_tiles: int, max_rate: int) -> Watch:
    """Return what a page wants to watch; MessageError if it is not allowed."""
    views, wanted, follow = given.get("views"), given.get("format", "raw"), given.get("follow")
    if not isinstance(views, list) or len(views) > max_tiles:
        raise MessageError(f"views: expected a list of {max_tiles} at most (--web-tiles)")
    size = whole(given, "size", 64, _MIN_SIZE, MAX_SIZE)
    parsed = tuple(_parse_view(view) for view in views)
    if len(parsed) * size * size > MAX_PICTURE_PIXELS:
        raise MessageError(f"{len(parsed)} views of {size} × {size}: expected {MAX_PICTURE_PIXELS} pixels at most")
    rate = given.get("rate", 1)
    if type(rate) not in (int, float) or not 0 < rate < math.inf:
        raise MessageError(f"rate is {_shown(rate)}: expected a number of pictures a second, above 0")
    if wanted not in _FORMATS:
        raise MessageError(f"format is {_shown(wanted)}: expected {' or '.join(_FORMATS)}")
    if follow is not None:
        lane = _parse_view([*follow, "", ""] if isinstance(follow, list) else follow)
        follow = (lane.world, lane.lane, lane.agent)
    return Watch(whole(given, "number", 0), parsed, size, float(min(rate, max_rate)), wanted, follow)


def parse_play(given: dict[str, Any]) -> Play:
    """Return what a page wants to play."""
    if "trial" in given:
        return Play(trial=_text(given["trial"], "trial"))
    settings = given.get("settings", {})
    if not isinstance(settings, dict):
        raise MessageError(f"settings is {_shown(settings)}: expected an object")
    checked: dict[str, str | int | float] = {}
    for name, value in settings.items():
        what = f"setting {_shown(_text(name, 'a name of settings'))}"
        if isinstance(value, str):
            checked[name] = _text(value, what)
        elif isinstance(value, float) or (isinstance(value, int) and -(2**63) <= value < 2**63):
            checked[name] = value
        else:
            raise MessageError(f"{what} is {_shown(value)}: expected a text, or a number of 64 bits")
    return Play(None, _text(given.get("family"), "family"), checked, whole(given, "seed", 0))


def parse_act(given: dict[str, Any]) -> Act:
    """Return the step that a page wants to take."""
    actions = given.get("actions", {})
    if not isinstance(actions, dict):
        raise MessageError(f"actions is {_shown(actions)}: expected an object")
    for name, value in actions.items():
        numbers = value if isinstance(value, list) else [value]
        if len(numbers) > _MAX_ACTION_NUMBERS or not all(isinstance(one, int | float) for one in numbers):
            raise MessageError(
                f"action {_shown(name)} is {_shown(value)}: expected a number, or a list of up to {_MAX_ACTION_NUMBERS}"
            )
    return Act(whole(given, "number", 0), actions)


def _text(value: object, what: str) -> str:
    """Return a text that can be sent on: JSON has escapes for halves of characters, which UTF-8 has not."""
    if not isinstance(value, str) or len(value) > _MAX_TEXT or any("\ud800" <= one <= "\udfff" for one in value):
        raise MessageError(f"{what} is {_shown(value)}: expected a text of {_MAX_TEXT} characters at most")
    return value


def _shown(value: object) -> str:
    """Return a value of JSON for an error, shortened."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _parse_view(view: object) -> WatchedView:
    match view:
        case [str(world), int(lane), int(agent), str(camera), str(output)]:
            if (
                type(lane) is type(agent) is int
                and 0 <= min(lane, agent) <= max(lane, agent) < 2**31
                and output in _OUTPUTS
            ):
                return WatchedView(world, lane, agent, camera, output or "rgb")
    raise MessageError(
        "a view: expected [world, lane, agent, camera, output], lane and agent from 0 on, and an output of "
        f"{', '.join(DEFAULT_OUTPUT_NAMES)}"
    )
