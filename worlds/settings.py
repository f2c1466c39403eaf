"""Settings of a world: one table of them drives validation, `worldloom describe` and the documents."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Value: TypeAlias = int | float | bool | str

_KINDS = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}


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
            return f"{words} from {self.minimum:g} to {self.maximum:g}"
        if self.minimum is not None:
            return f"{words} of {self.minimum:g} or more"
        return f"{words} of {self.maximum:g} or less" if self.maximum is not None else words

    def take(self, given: object) -> Value:
        """The given value in this setting's type: integers from any integer, numbers from any number."""
        value: Any = given.item() if isinstance(given, np.generic | np.ndarray) and np.size(given) == 1 else given
        wanted: Any = type(self.default)
        if wanted is float and type(value) is int:
            value = float(value)
        fits = (
            type(value) is wanted
            and (not self.choices or value in self.choices)
            and (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (wanted is not float or np.isfinite(value))
        )
        if not fits:
            raise SettingError(f"setting {self.name!r} is {given!r}: expected {self.expected}")
        taken: Value = wanted(value)
        return taken


def take_settings(table: Sequence[Setting], given: Mapping[str, object]) -> dict[str, Value]:
    """Every setting of the table, with the given value or its default."""
    known = {setting.name: setting for setting in table}
    for name in given:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            raise SettingError(f"unknown setting {name!r}{hint}: expected some of {', '.join(known) or 'none'}")
    return {name: setting.take(given.get(name, setting.default)) for name, setting in known.items()}
