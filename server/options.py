"""Options from a dataclass: its fields make the command line and the keys of the TOML file, so that there is one table.

A field's type says what it takes, its default what it is otherwise, the text below it what it is for. A field that is
itself such a dataclass stands for its fields. `max_worlds` is the flag `--max-worlds` and the key `max-worlds`.
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
    """A configuration that cannot be; the text names the flag or key, what was expected and what came."""


@dataclass(frozen=True)
class Option:
    """One flag, and key of the file."""

    field: str
    kind: type
    """Of a value, or of each where it may be given again: str, int, float, bool or Path."""
    default: Any
    text: str
    minimum: int
    choices: tuple[str, ...]
    is_repeatable: bool
    metavar: str
    """What the command line's help shows in a value's place."""

    @property
    def name(self) -> str:
        """As it is written in the file; the flag has two dashes in front."""
        return self.field.replace("_", "-")

    @property
    def expected(self) -> str:
        """What it takes, in words."""
        if self.choices:
            one = f"one of {', '.join(self.choices)}"
        elif self.kind is int:
            one = f"a whole number of {self.minimum} or more"
        else:
            path = "a directory" if self.metavar == "DIRECTORY" else "a file"
            one = {float: "a number of seconds above 0", bool: "true or false", str: "a text", Path: path}[self.kind]
        return f"a list, each {one}" if self.is_repeatable else one

    def take(self, given: object, called: str) -> Any:
        """The given value in this option's type, or ConfigError that says what it is called."""
        if self.is_repeatable:
            if not isinstance(given, list | tuple) or (not given and self.default):
                raise self._refusal(given, called)
            return tuple(self._take_one(each, given, called) for each in given)
        return given if given is None and self.default is None else self._take_one(given, given, called)

    def read(self, text: str) -> Any:
        """The value that a word of the command line stands for."""
        value: object = text
        with contextlib.suppress(ValueError):  # no number: refused as the text that it is
            value = self.kind(text)
        return self._take_one(value, text, f"--{self.name}")

    def _take_one(self, value: Any, given: object, called: str) -> Any:
        if self.kind is float and type(value) is int:
            value = float(value)
        if self.kind is Path and isinstance(value, str | Path):
            value = Path(value) if str(value) else None  # Path("") would be this folder
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
    """Every option of a dataclass, in order."""
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
    """The text below each field. Python does not keep these, so they are read from the source."""
    body = ast.parse(inspect.getsource(config)).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for line, below in zip(body.body, body.body[1:], strict=False):
        match line, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = " ".join(text.split())
    return texts


def add_flags(parser: argparse.ArgumentParser, options: tuple[Option, ...]) -> None:
    """Declare the flags. Those that are not given leave nothing in the namespace: the file may say something else."""
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
    """What a TOML file gives, by field."""
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
    """The known name that was most likely meant."""
    return next(
        iter(difflib.get_close_matches(name.removeprefix("--").replace("_", "-"), known, n=1, cutoff=0.5)), None
    )
