"""Logs on stderr: an event in a word or two, then names and values, as text for people or JSON for programs.

    log = Log("engine")
    log.info("joined", stream="s3", world="maze-9f2c", agent=0)

    2026-05-04T10:11:12.345Z INFO joined stream=s3 world=maze-9f2c agent=0
    {"time": "2026-05-04T10:11:12.345Z", "level": "INFO", "event": "joined", "stream": "s3", …}

Built on the standard library's logging, so that whoever has the engine in their own process sees and steers its events
in their usual way. One event is one line, whatever its values hold; only a traceback takes more, in text.
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
_PLAIN = re.compile(r"[\w.,:;/@+*<>()\[\]-]+", re.ASCII)
"""What needs no quotes to be one word of a line."""


class Event:
    """What a log record holds as its message; as text it is `event name=value …`."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: dict[str, object]) -> None:
        self.name = name
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{name}={_one_word(value)}" for name, value in self.fields.items())])


class Log:
    """Where a part of the server tells what happens. An event that nobody wants to see costs next to nothing."""

    def __init__(self, part: str) -> None:
        self._logger = logging.getLogger(f"{_ROOT}.{part}")

    def debug(self, event: str, /, **fields: object) -> None:
        """Something for whoever looks for a bug."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """Something that happens in the ordinary course."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Something that somebody should look at some day."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """Something that went wrong. Within an `except` its traceback comes along."""
        self._write(logging.ERROR, event, fields, with_traceback=sys.exc_info()[0] is not None)

    def _write(self, level: int, event: str, fields: dict[str, object], with_traceback: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, Event(event, fields), exc_info=with_traceback)


def set_up_logs(level: LogLevel, log_format: LogFormat, out: TextIO | None = None) -> None:
    """Write this process's logs to stderr: our own from that level on, warnings and worse of everyone else."""
    handler = logging.StreamHandler(out)
    handler.setFormatter(_Json() if log_format == "json" else _Text())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(_ROOT).setLevel(level.upper())


class _Text(logging.Formatter):
    """`time LEVEL event name=value …`, and a traceback below where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.msg if isinstance(record.msg, Event) else Event(*_of_others(record))
        line = f"{_time(record)} {record.levelname} {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.msg if isinstance(record.msg, Event) else Event(*_of_others(record))
        head = {"time": _time(record), "level": record.levelname, "event": message.name}
        tail = {"traceback": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps({**head, **message.fields, **head, **tail}, default=str)


def _of_others(record: logging.LogRecord) -> tuple[str, dict[str, object]]:
    """The event and fields of a record that another library made."""
    return "message", {"logger": record.name, "text": record.getMessage()}


def _time(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"


def _one_word(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
