"""One event is one line, in text and in JSON, whatever its values hold."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.server.logs import Log, LogFormat, set_up_logs

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
values = st.text() | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False, allow_infinity=False)


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("worldloom")
    before = root.handlers[:], root.level, ours.level
    root.handlers.clear()
    yield
    root.handlers[:], level, our_level = before
    root.setLevel(level)
    ours.setLevel(our_level)


def written(log_format: LogFormat, event: str, fields: dict[str, object]) -> str:
    out = io.StringIO()
    set_up_logs("info", log_format, out)
    Log("test").info(event, **fields)
    return out.getvalue()


def test_a_line_of_text() -> None:
    line = written("text", "joined", {"stream": "s3", "world": "maze-9f2c", "agent": 0, "peer": "ipv6:[::1]:50"})
    assert re.fullmatch(TIME + r" INFO joined stream=s3 world=maze-9f2c agent=0 peer=ipv6:\[::1\]:50\n", line)


def test_a_line_of_json() -> None:
    line = json.loads(written("json", "joined", {"stream": "s3", "agent": 0, "level": "mine"}))
    assert re.fullmatch(TIME, line.pop("time"))
    assert line == {"level": "INFO", "event": "joined", "stream": "s3", "agent": 0}


@given(st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), values))
def test_text_is_always_one_line_of_words(fields: dict[str, object]) -> None:
    text = written("text", "met", fields)
    assert text.endswith("\n")
    assert len(text.splitlines()) == 1
    assert text.isascii()
    found = re.findall(r' ([a-z_]+)=("(?:[^"\\]|\\.)*"|[^" ]+)(?= |\n)', text)
    assert {name: json.loads(word) if word[0] == '"' else word for name, word in found} == {
        name: str(value) for name, value in fields.items()
    }


@given(st.dictionaries(st.text(), values))
def test_json_is_always_one_line_with_all_values(fields: dict[str, object]) -> None:
    text = written("json", "met", fields)
    assert len(text.splitlines()) == 1
    line = json.loads(text)
    assert {name: line[name] for name in fields if name not in ("time", "level", "event")} == {
        name: value for name, value in fields.items() if name not in ("time", "level", "event")
    }


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_an_error_brings_its_traceback(log_format: LogFormat) -> None:
    out = io.StringIO()
    set_up_logs("info", log_format, out)
    try:
        raise KeyError("lost")
    except KeyError:
        Log("test").error("failed", stream="s1")
    Log("test").error("failed", stream="s2")
    assert out.getvalue().count("KeyError: 'lost'") == 1
    if log_format == "json":
        first, second = map(json.loads, out.getvalue().splitlines())
        assert "KeyError: 'lost'" in first["traceback"]
        assert "traceback" not in second


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_long_value_is_cut(log_format: LogFormat) -> None:
    line = written(log_format, "joined", {"user": "x" * 1_000_000, "agent": 0})
    assert len(line) < 2200
    assert "(1000000 characters)" in line


def test_levels() -> None:
    out = io.StringIO()
    set_up_logs("warning", "text", out)
    log = Log("test")
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    logging.getLogger("another.library").info("not from others")
    logging.getLogger("another.library").warning("seen %d times", 2)
    events = [line.split(" ", 2)[1:] for line in out.getvalue().splitlines()]
    assert events == [
        ["WARNING", "c"],
        ["ERROR", "d"],
        ["WARNING", 'message logger=another.library text="seen 2 times"'],
    ]


def test_without_setting_up_events_go_the_usual_way(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger().addHandler(caplog.handler)
    Log("test").warning("reaped", world="w 1")
    assert caplog.messages == ['reaped world="w 1"']
