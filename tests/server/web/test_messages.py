"""The parsers of the page's messages, compared with the rules of the protocol written down once more."""

import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from worldloom.kernels.outputs import DEFAULT_OUTPUT_NAMES
from worldloom.server.web.messages import MessageError, parse_act, parse_message, parse_play, parse_watch

T = TypeVar("T")

numbers = st.one_of(
    st.integers(-3, 600),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.sampled_from([2**31, 2**63, -(2**63)]),
)
texts = st.one_of(st.sampled_from(["", "rgb", "depth", "raw", "jpeg", "png", "maze"]), st.text(max_size=5))
values = st.recursive(
    st.one_of(numbers, texts), lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=3)
)
views = st.one_of(
    st.tuples(
        texts, st.integers(-2, 2**32), st.integers(-2, 9), texts, st.sampled_from(["", *DEFAULT_OUTPUT_NAMES])
    ).map(list),
    st.lists(st.one_of(texts, numbers), min_size=4, max_size=6),
    values,
)
watches = st.fixed_dictionaries(
    {"views": st.one_of(st.lists(views, max_size=6), values)},
    optional={
        "size": numbers,
        "rate": numbers,
        "format": values,
        "number": numbers,
        "follow": st.one_of(st.none(), st.tuples(texts, st.integers(0, 3), st.integers(0, 3)).map(list), values),
    },
)


def is_whole(value: object, least: float, most: float) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_view(value: object, length: int = 5) -> bool:
    if not isinstance(value, list) or len(value) != length:
        return False
    world, lane, agent, camera, output = [*value, "", ""][:5]
    has_numbers = all(is_whole(one, 0, 2**31 - 1) for one in (lane, agent))
    is_output = isinstance(output, str) and output in ["", *DEFAULT_OUTPUT_NAMES]
    return isinstance(world, str) and has_numbers and isinstance(camera, str) and is_output


def is_watch(message: dict[str, Any]) -> bool:
    given = {"size": 64, "rate": 1, "format": "raw", "number": 0, "follow": None, **message}
    rate, size = given["rate"], given["size"]
    return (
        isinstance(given["views"], list)
        and len(given["views"]) <= 5
        and all(map(is_view, given["views"]))
        and is_whole(size, 8, 512)
        and isinstance(rate, int | float)
        and not isinstance(rate, bool)
        and rate > 0
        and rate != math.inf
        and given["format"] in ["raw", "jpeg"]
        and is_whole(given["number"], -(2**63), 2**63 - 1)
        and (given["follow"] is None or is_view(given["follow"], 3))
    )


def taken(parse: Callable[..., T], *given: object) -> T | None:
    """Result of a parser for this, or None if it refuses it, in a text that can be sent and read."""
    try:
        return parse(*given)
    except MessageError as error:
        text = str(error)
    assert 0 < len(text) < 400
    assert text.encode()
    return None


@settings(max_examples=100)
@given(watches)
def test_watches_by_another_rule(message: dict[str, Any]) -> None:
    parsed = taken(parse_watch, message, 5, 30)
    assert (parsed is not None) == is_watch(message)
    if parsed is None:
        return
    assert [list(view) for view in parsed.views] == [[*view[:4], view[4] or "rgb"] for view in message["views"]]
    assert parsed.rate == min(message.get("rate", 1), 30)


@settings(max_examples=150)
@given(st.one_of(values, st.fixed_dictionaries({"type": texts}, optional={"number": numbers, "actions": values})))
def test_any_json_is_taken_or_refused(message: object) -> None:
    """By all parsers; what they take has the types that it is used by, and what they refuse is told in a short text."""
    given = taken(parse_message, json.dumps(message))
    assert (given is not None) == (isinstance(message, dict) and isinstance(message.get("type"), str))
    if given is not None:
        taken(parse_act, given)
        taken(parse_play, {"family": "maze", **given})
        taken(parse_watch, given, 5, 30)
