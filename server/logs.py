"""Logs on stderr: an event of a word or two, then names and values, as text or as JSON.

    log = Log("engine")
    log.info("joined", stream="s3", world="maze-9f2c", agent=0)

    2026-05-04T10:11:12.345Z INFO joined stream=s3 world=maze-9f2c agent=0
    {"time": "2026-05-04T10:11:12.345Z", "level": "INFO", "event": "joined", "stream": "s3", …}

Built on the standard library's logging, so that programs with the engine in their own process can handle its events as
usual. One event is one line, whatever its values contain; only a traceback takes more, in text.
"""

import json
import logging
import re
import sys
import time
from typing import Literal, TextIO

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

_ROOT = "worldloom"
_MAX_LENGTH = 2000
"""Maximum length of a value in a line; clients choose some of them."""
_PLAIN = re.compile(r"[\w.,:;/@+*<>()\[\]-]+", re.ASCII)
"""Values that need no quotes to be one word of a line."""


class Event:
    """The message of a log record: `event name=value …` as text."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: dict[str, object]) -> None:
        self.name = name
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{name}={_one_word(value)}" for name, value in self.fields.items())])


class Log:
    """The logger of one part of the server. Events below the log level cost next to nothing."""

    def __init__(self, part: str) -> None:
        self._logger = logging.getLogger(f"{_ROOT}.{part}")

    def debug(self, event: str, /, **fields: object) -> None:
        """Log a detail for debugging."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """Log an ordinary event."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Log a problem that does not stop the server."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """Log an error; within an `except`, with its traceback."""
        self._write(logging.ERROR, event, fields, with_traceback=sys.exc_info()[0] is not None)

    def _write(self, level: int, event: str, fields: dict[str, object], with_traceback: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, Event(event, fields), exc_info=with_traceback)


def set_up_logs(level: LogLevel, log_format: LogFormat, out: TextIO | None = None) -> None:
    """Write logs to stderr: worldloom's from this level on, warnings and errors of other libraries."""
    handler = logging.StreamHandler(out)
    handler.setFormatter(_Json() if log_format == "json" else _Text())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(_ROOT).setLevel(level.upper())


class _Text(logging.Formatter):
    """Formatter of text lines: `time LEVEL event name=value …`, with a traceback below if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.msg if isinstance(record.msg, Event) else Event(*_of_others(record))
        line = f"{_time(record)} {record.levelname} {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    """Formatter of JSON, one object a line."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.msg if isinstance(record.msg, Event) else Event(*_of_others(record))
        head = {"time": _time(record), "level": record.levelname, "event": message.name}
        tail = {"traceback": self.formatException(record.exc_info)} if record.exc_info else {}
        fields = {name: _shorten(value) if isinstance(value, str) else value for name, value in message.fields.items()}
        return json.dumps({**head, **fields, **head, **tail}, default=str)


def _of_others(record: logging.LogRecord) -> tuple[str, dict[str, object]]:
    """Return the event and fields of a record of another library."""
    return "message", {"logger": record.name, "text": record.getMessage()}


def _time(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"


def _one_word(value: object) -> str:
    text = _shorten(str(value))
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}… ({len(text)} characters)"
