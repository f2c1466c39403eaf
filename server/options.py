"""Options derived from a dataclass: its fields define the command line and the keys of the TOML file.

A field has a type, a default and a docstring, which becomes the help. A field that is itself such a dataclass is
replaced by its fields. The field `max_worlds` is the option `--max-worlds` and the key `max-worlds`.
"""

import argparse
import ast
import contextlib
import dataclasses
import difflib
import inspect
import math
import tomllib
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal

_METAVARS = {str: "TEXT", int: "N", float: "S", Path: "FILE", bool: ""}


class ConfigError(ValueError):
    """An invalid configuration. The text names the option or key, what was expected and what was given."""


@dataclass(frozen=True)
class Option:
    """One option of the command line, and key of the TOML file."""

    field: str
    kind: type
    """Type of the value, or of each value of an option that may be given again: str, int, float, bool or Path."""
    default: Any
    text: str
    minimum: int
    choices: tuple[str, ...]
    is_repeatable: bool
    metavar: str
    """Placeholder of the value in the help."""

    @property
    def name(self) -> str:
        """Key in the file; the option of the command line has two dashes in front."""
        return self.field.replace("_", "-")

    @property
    def expected(self) -> str:
        """Description of the values that are accepted."""
        if self.choices:
            one = f"one of {', '.join(self.choices)}"
        elif self.kind is int:
            one = f"a whole number of {self.minimum} or more"
        else:
            path = "a directory" if self.metavar == "DIRECTORY" else "a file"
            one = {float: "a number of seconds above 0", bool: "true or false", str: "a text", Path: path}[self.kind]
        return f"a list, each {one}" if self.is_repeatable else one

    def take(self, given: object, called: str) -> Any:
        """Return the given value converted to this option's type, or raise ConfigError that names it."""
        if self.is_repeatable:
            if not isinstance(given, list | tuple) or (not given and self.default):
                raise self._refusal(given, called)
            return tuple(self._take_one(each, given, called) for each in given)
        return given if given is None and self.default is None else self._take_one(given, given, called)

    def read(self, text: str) -> Any:
        """Return the value of a command-line argument."""
        value: object = text
        with contextlib.suppress(ValueError):  # not a number: the error then quotes the text
            value = self.kind(text)
        return self._take_one(value, text, f"--{self.name}")

    def _take_one(self, value: Any, given: object, called: str) -> Any:
        if self.kind is float and type(value) is int:
            value = float(value)
        if self.kind is Path and isinstance(value, str | Path):
            value = Path(value) if str(value) else None  # Path("") would be the current directory
        fits = isinstance(value, self.kind) and (self.kind is bool or not isinstance(value, bool))
        if fits and self.choices:
            fits = value in self.choices
        if fits and self.kind is int:
            fits = value >= self.minimum
        if fits and self.kind is float:
            fits = math.isfinite(value) and value > 0
        if not fits:
            raise self._refusal(given, called)
        return value

    def _refusal(self, given: object, called: str) -> ConfigError:
        hint = f" (did you mean {near!r}?)" if (near := nearest(str(given), self.choices)) else ""
        return ConfigError(f"{called} is {given!r}{hint}: expected {self.expected}")


def options_of(config: type) -> tuple[Option, ...]:
    """Return the options of a dataclass, in order."""
    return tuple(_options(config))


def _options(config: type) -> Iterator[Option]:
    texts, hints = _texts(config), typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            yield from _options(hint)
            continue
        if isinstance(hint, UnionType):  # such as int | None
            hint = next(kind for kind in typing.get_args(hint) if kind is not NoneType)
        repeatable = typing.get_origin(hint) is tuple
        if repeatable:
            hint = typing.get_args(hint)[0]
        choices = typing.get_args(hint) if typing.get_origin(hint) is Literal else ()
        kind = str if choices else hint
        yield Option(
            field=field.name,
            kind=kind,
            default=field.default,
            text=texts[field.name],
            minimum=field.metadata.get("minimum", 1),
            choices=choices,
            is_repeatable=repeatable,
            metavar=field.metadata.get("metavar") or "|".join(choices) or _METAVARS[kind],
        )


def _texts(config: type) -> dict[str, str]:
    """Return the docstring below each field. Python discards these, so they are read from the source."""
    body = ast.parse(inspect.getsource(config)).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for line, below in zip(body.body, body.body[1:], strict=False):
        match line, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = " ".join(text.split())
    return texts


def add_flags(parser: argparse.ArgumentParser, options: tuple[Option, ...]) -> None:
    """Add the options to a parser. Those that are not given are absent from the namespace, so that the file applies."""
    for option in options:
        parser.add_argument(
            f"--{option.name}", dest=option.field, default=argparse.SUPPRESS, help=_help(option), **_how_to_read(option)
        )


def _how_to_read(option: Option) -> dict[str, Any]:
    if option.kind is bool:
        return {"action": argparse.BooleanOptionalAction}

    def read(text: str) -> Any:
        try:
            return option.read(text)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error).removeprefix(f"--{option.name} ")) from None

    return {"type": read, "metavar": option.metavar, "action": "append" if option.is_repeatable else "store"}


def _help(option: Option) -> str:
    text = option.text.replace("%", "%%")
    shown = " ".join(map(str, option.default)) if option.is_repeatable else option.default
    return text if shown in (None, False, "") else f"{text} (default: {shown})"


def read_file(path: Path, options: tuple[Option, ...]) -> dict[str, Any]:
    """Return the values in a TOML file, by field."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--config {path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # not TOML, or not even UTF-8
        raise ConfigError(f"--config {path} is not TOML: {error}") from None
    return _take_all(given, options, path)


def _take_all(given: Mapping[str, object], options: tuple[Option, ...], path: Path) -> dict[str, Any]:
    known = {option.name: option for option in options}
    for name in given:
        if name not in known:
            hint = f" (did you mean {near!r}?)" if (near := nearest(name, tuple(known))) else ""
            raise ConfigError(f"unknown key {name!r} in {path}{hint}: expected some of {', '.join(known)}")
    return {known[name].field: known[name].take(value, f"{name} in {path}") for name, value in given.items()}


def nearest(name: str, known: tuple[str, ...]) -> str | None:
    """Return the known name that is most similar, as a hint."""
    return next(
        iter(difflib.get_close_matches(name.removeprefix("--").replace("_", "-"), known, n=1, cutoff=0.5)), None
    )
