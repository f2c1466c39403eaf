"""Settings of a world: one table of them drives validation, `worldloom describe` and the documents."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Value: TypeAlias = int | float | bool | str

_KINDS = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}

_LONGEST_SHOWN = 100


class SettingError(ValueError):
    """A setting that cannot be taken; the text says which, what was expected and what came."""


@dataclass(frozen=True)
class Setting:
    """One setting: its type is that of its default."""

    name: str
    default: Value
    text: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Its type, as users write it."""
        return type(self.default).__name__

    @property
    def expected(self) -> str:
        """What it takes, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        words = _KINDS[type(self.default)]
        if self.minimum is not None and self.maximum is not None:
            return f"{words} from {plain(self.minimum)} to {plain(self.maximum)}"
        if self.minimum is not None:
            return f"{words} of {plain(self.minimum)} or more"
        return f"{words} of {plain(self.maximum)} or less" if self.maximum is not None else words

    def take(self, given: object) -> Value:
        """The given value in this setting's type: integers from any integer, numbers from any number."""
        value: Any = given.item() if isinstance(given, np.generic | np.ndarray) and np.size(given) == 1 else given
        wanted: Any = type(self.default)
        if wanted is float and type(value) is int and abs(value) < 2**1023:
            value = float(value)
        fits = (
            type(value) is wanted
            and (not self.choices or value in self.choices)
            and (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (wanted is not float or np.isfinite(value))
        )
        if not fits:
            raise SettingError(f"setting {self.name!r} is {shortened(given)}: expected {self.expected}")
        taken: Value = wanted(value)
        return taken

    def read(self, text: str) -> Value:
        """The value that a text stands for, as it is written on a command line."""
        value: object = text
        try:
            if type(self.default) is bool:
                value = {"true": True, "false": False}.get(text.lower(), text)
            elif type(self.default) is not str:
                value = type(self.default)(text)
        except ValueError:
            pass  # the text itself is no number, and is refused as such
        return self.take(value)


def shortened(given: object) -> str:
    """A value as it is written in an error: whoever sent a megabyte does not get it back."""
    text = repr(given)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def plain(number: float) -> str:
    """A number as people write it: integers in full."""
    return str(number) if isinstance(number, int) else f"{number:g}"


def take_settings(table: Sequence[Setting], given: Mapping[str, object]) -> dict[str, Value]:
    """Every setting of the table, with the given value or its default."""
    known = {setting.name: setting for setting in table}
    for name in given:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            came = f"unknown setting {shortened(name)}{hint}"
            raise SettingError(f"{came}: expected some of {', '.join(known) or 'none'}")
    return {name: setting.take(given.get(name, setting.default)) for name, setting in known.items()}


def read_settings(table: Sequence[Setting], words: Sequence[str]) -> dict[str, Value]:
    """The settings that words such as `size=9` give; none of the others."""
    known = {setting.name: setting for setting in table}
    given: dict[str, object] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise SettingError(f"setting {word!r}: expected NAME=VALUE, such as {_example(table)}")
        if name in given:
            raise SettingError(f"setting {name!r} is given twice: expected it once")
        given[name] = known[name].read(text) if name in known else text
    taken = take_settings(table, given)  # speaks up for names that are not there
    return {name: taken[name] for name in given}


def _example(table: Sequence[Setting]) -> str:
    return f"{table[0].name}={table[0].default}" if table else "none: there are no settings"
