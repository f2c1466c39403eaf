"""Settings of worlds: tables of `Setting`, and the functions that check values against them.

A table is the only definition of a family's settings: values are checked against it, and `worldloom describe`, the
properties of a server and docs/worlds.md are derived from it.
"""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Value: TypeAlias = int | float | bool | str | bytes

_TYPE_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "a text", bytes: "bytes"}

_MAX_SHOWN = 100
"""Most characters of a value that an error message repeats."""


class SettingError(ValueError):
    """A setting that was rejected; the message gives its name, the value and what was expected."""


class SettingNotAllowedError(SettingError):
    """A setting that the operator of the server does not allow; the message names the option that would."""


class SettingTooLargeError(SettingError):
    """A setting that takes more memory or time than the server gives; the message names the limit."""


@dataclass(frozen=True)
class Setting:
    """Name, default, description and range of a setting. Its type is the type of its default."""

    name: str
    default: Value
    text: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def type_name(self) -> str:
        """Name of its type: int, float, bool, str or bytes."""
        return type(self.default).__name__

    @property
    def expected(self) -> str:
        """Description of the values that are accepted, for error messages."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        words = _TYPE_WORDS[type(self.default)]
        if self.minimum is not None and self.maximum is not None:
            return f"{words} from {format_number(self.minimum)} to {format_number(self.maximum)}"
        if self.minimum is not None:
            return f"{words} of {format_number(self.minimum)} or more"
        return f"{words} of {format_number(self.maximum)} or less" if self.maximum is not None else words

    def parse(self, given: object) -> Value:
        """Return a value in this setting's type; raise SettingError if it does not fit.

        An integer may be of any integer type, a float of any integer or float type; arrays of one element count as it.
        Bytes may be an array of uint8.
        """
        if type(self.default) is bytes:
            return self._parse_bytes(given)
        value: Any = given.item() if isinstance(given, np.generic | np.ndarray) and np.size(given) == 1 else given
        expected_type: Any = type(self.default)
        if expected_type is float and type(value) is int and abs(value) < 2**1023:
            value = float(value)
        fits = (
            type(value) is expected_type
            and (not self.choices or value in self.choices)
            and (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (expected_type is not float or np.isfinite(value))
        )
        if not fits:
            raise SettingError(f"setting {self.name!r} is {abbreviate(given)}: expected {self.expected}")
        parsed: Value = expected_type(value)
        return parsed

    def _parse_bytes(self, given: object) -> bytes:
        if isinstance(given, np.ndarray) and given.dtype == np.uint8 and given.ndim == 1:
            return given.tobytes()
        if not isinstance(given, bytes | bytearray | memoryview):
            raise SettingError(
                f"setting {self.name!r} is {abbreviate(given)}: expected bytes, a list of uint8 in a message"
            )
        return bytes(given)  # the same object if it is bytes: these may be many

    def parse_text(self, text: str) -> Value:
        """Return the value that a text on a command line stands for; raise SettingError if it does not fit."""
        if isinstance(self.default, bytes):
            raise SettingError(f"setting {self.name!r} is for bytes: expected none on a command line; use a client")
        value: object = text
        try:
            if type(self.default) is bool:
                value = {"true": True, "false": False}.get(text.lower(), text)
            elif not isinstance(self.default, str):
                value = type(self.default)(text)
        except ValueError:
            pass  # no number: `parse` rejects the text, and its message shows it
        return self.parse(value)


def abbreviate(given: object) -> str:
    """Return the repr of a value for an error message, cut to 100 characters: a value may be megabytes long."""
    is_long = isinstance(given, str | bytes | bytearray) and len(given) > _MAX_SHOWN
    text = repr(given[: _MAX_SHOWN + 1] if is_long else given)  # type: ignore[index]
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def format_number(number: float) -> str:
    """Return a number as text: an integer with all its digits, a float with up to six significant ones."""
    return str(number) if isinstance(number, int) else f"{number:g}"


def parse_settings(
    table: Sequence[Setting], given: Mapping[str, object], elsewhere: Mapping[str, str] | None = None
) -> dict[str, Value]:
    """Return the value of every setting of a table, given or default; raise SettingError for one that does not fit.

    `elsewhere` has settings of other requests, name -> request, so that an error can say where they belong.
    """
    known = {setting.name: setting for setting in table}
    for name in given:
        if name not in known:
            names = ", ".join(known) or "none"
            raise SettingError(f"{_explain_unknown(name, known, elsewhere or {})}: expected some of {names}")
    return {name: setting.parse(given.get(name, setting.default)) for name, setting in known.items()}


def _explain_unknown(name: str, known: Collection[str], elsewhere: Mapping[str, str]) -> str:
    if name in elsewhere:
        similar = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        hint = f" (or did you mean {similar[0]!r}?)" if similar else ""
        return f"setting {name!r} is one of {elsewhere[name]}, to be given there{hint}"
    nearest = difflib.get_close_matches(name, [*known, *elsewhere], n=1, cutoff=0.5)
    place = f" of {elsewhere[nearest[0]]}" if nearest and nearest[0] in elsewhere else ""
    hint = f" (did you mean {nearest[0]!r}{place}?)" if nearest else ""
    return f"unknown setting {abbreviate(name)}{hint}"


def parse_assignments(table: Sequence[Setting], words: Sequence[str]) -> dict[str, Value]:
    """Return the settings that words such as `size=9` assign, and only these."""
    known = {setting.name: setting for setting in table}
    given: dict[str, object] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise SettingError(f"setting {word!r}: expected NAME=VALUE, such as {_example(table)}")
        if name in given:
            raise SettingError(f"setting {name!r} is given twice: expected it once")
        given[name] = known[name].parse_text(text) if name in known else text
    values = parse_settings(table, given)  # raises for unknown names
    return {name: values[name] for name in given}


def _example(table: Sequence[Setting]) -> str:
    return f"{table[0].name}={table[0].default!s}" if table else "none: there are no settings"
