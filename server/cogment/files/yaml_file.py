"""YAML files whose values know their line, so that errors can name it.

A file is read as PyYAML's graph of nodes, and only values that are asked for are constructed. So tags in a file cannot
create objects, and nested aliases are not expanded.
"""

import difflib
import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from worldloom.server.options import ConfigError
from worldloom.worlds.settings import abbreviate, format_number

_MAX_BYTES = 1 << 20
_TAG_NAMES = {"tag:yaml.org,2002:null": "nothing", "tag:yaml.org,2002:binary": "bytes"}

T = TypeVar("T")


class YamlError(ConfigError):
    """An error in a file; the text begins with FILE:LINE."""


class Entry:
    """A value in a file. `path` leads to it from the top, for example `trial_params.actors[1].endpoint`."""

    def __init__(self, file: str, path: str, node: yaml.Node) -> None:
        self.path = path
        self._file, self._node = file, node

    @property
    def is_empty(self) -> bool:
        """Return whether there is a key without a value."""
        return isinstance(self._node, yaml.ScalarNode) and _tag_name(self._node) == "nothing"

    def fail(self, problem: str) -> NoReturn:
        """Raise YamlError with the line of this value."""
        raise _error(self._file, self._node.start_mark, problem)

    def raise_expected(self, expected: str) -> NoReturn:
        """Raise YamlError with this value and what was expected instead."""
        self.fail(f"{self.path or 'the file'} is {self._shown}: expected {expected}")

    def section(self, known: Collection[str], required: Collection[str] = ()) -> "dict[str, Entry]":
        """Return the values of a mapping; raise YamlError for unknown keys and missing required ones."""
        found = self.mapping()
        for name, (key, _) in found.items():
            if name not in known:
                nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
                key.fail(f"unknown key {abbreviate(name)}{hint}{self._where}: expected some of {', '.join(known)}")
        for name in required:
            if name not in found or found[name][1].is_empty:
                self.fail(f"key {name!r} is missing{self._where}: expected a value for it")
        return {name: value for name, (_, value) in found.items() if not value.is_empty}

    def mapping(self) -> "dict[str, tuple[Entry, Entry]]":
        """Return the keys and values of a mapping, by key."""
        if self.is_empty:
            return {}
        if not isinstance(self._node, yaml.MappingNode):
            self.raise_expected("a mapping")
        found: dict[str, tuple[Entry, Entry]] = {}
        for key_node, value_node in self._node.value:
            key = Entry(self._file, f"a key{self._where}", key_node)
            name = key.text()
            if name in found:
                key.fail(f"key {abbreviate(name)} occurs twice{self._where}: expected it once")
            path = f"{self.path}.{name}" if self.path else name
            found[name] = (key, Entry(self._file, path, value_node))
        return found

    def items(self) -> "list[Entry]":
        """Return the values of a list."""
        if self.is_empty:
            return []
        if not isinstance(self._node, yaml.SequenceNode):
            self.raise_expected("a list")
        return [Entry(self._file, f"{self.path}[{n}]", node) for n, node in enumerate(self._node.value)]

    @property
    def is_mapping(self) -> bool:
        """Return whether the value is a mapping."""
        return isinstance(self._node, yaml.MappingNode)

    def plain(self) -> Any:
        """Return the value as plain dicts, lists and scalars."""
        constructor = yaml.constructor.SafeConstructor()
        try:
            return constructor.construct_document(self._node)
        except (yaml.YAMLError, ValueError, ArithmeticError, LookupError) as error:
            self.fail(f"{self.path} cannot be read: {error}")

    @property
    def is_list(self) -> bool:
        """Return whether the value is a list."""
        return isinstance(self._node, yaml.SequenceNode)

    def scalar(self, expected: str = "a single value") -> Any:
        """Return a value that is neither a mapping nor a list, as the type that YAML gives it."""
        if not isinstance(self._node, yaml.ScalarNode):
            self.raise_expected(expected)
        constructor = yaml.constructor.SafeConstructor()
        try:
            return constructor.construct_object(self._node, deep=True)
        except (yaml.YAMLError, ValueError, ArithmeticError, LookupError):  # the text does not fit its tag
            self.raise_expected(expected)

    def text(self) -> str:
        """Return a string that is not empty."""
        return self._parse(str, "a text", bool)

    def integer(self, minimum: int, maximum: int) -> int:
        """Return an integer in a range."""
        return self._parse(
            int, f"a whole number from {minimum} to {maximum}", lambda value: minimum <= value <= maximum
        )

    def seconds(self, maximum: float) -> float:
        """Return a positive number of seconds."""
        expected = f"a number of seconds above 0, {format_number(maximum)} at most"
        value = self.scalar(expected)
        if type(value) not in (int, float) or not 0 < value <= maximum:
            self.raise_expected(expected)
        return float(value)

    def weight(self) -> float:
        """Return a finite number, 0 or more."""
        expected = "a finite number, 0 or more"
        value = self.scalar(expected)
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            self.raise_expected(expected)
        return float(value)

    def flag(self) -> bool:
        """Return a bool."""
        return self._parse(bool, "true or false")

    def choice(self, names: Collection[str]) -> str:
        """Return one of the names."""
        return self._parse(str, f"one of {', '.join(names)}", names.__contains__)

    def data(self) -> bytes:
        """Return bytes, written in base64."""
        return self._parse(bytes, "a mapping, or bytes in base64, such as !!binary CgR0ZXN0")

    def _parse(self, kind: type[T], expected: str, is_valid: Callable[[T], bool] = lambda _: True) -> T:
        value = self.scalar(expected)
        if type(value) is not kind or not is_valid(value):
            self.raise_expected(expected)
        return value

    @property
    def _where(self) -> str:
        return f" in {self.path}" if self.path else ""

    @property
    def _shown(self) -> str:
        if isinstance(self._node, yaml.ScalarNode):
            return _tag_name(self._node) or abbreviate(self._node.value)
        kind = "mapping" if isinstance(self._node, yaml.MappingNode) else "list"
        return f"a {kind}" if self._node.value else f"an empty {kind}"


def read_yaml(path: Path, option: str) -> Entry:
    """Read a file that a command-line option names."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{option} {path} cannot be read: {error.strerror or error}") from None
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{option} {path} is longer than {_MAX_BYTES} bytes: expected a shorter file")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise YamlError(f"{path}:{line}: not UTF-8: expected text in UTF-8") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, file: str) -> Entry:
    """Parse the text of a file."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _error(file, mark, f"not YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlError(f"{file}:{line}: not YAML: {error.reason}") from None
    except RecursionError:
        raise YamlError(f"{file}:1: nested too deeply: expected a few levels") from None
    if node is None:
        raise YamlError(f"{file}:1: the file is empty: expected actor_classes and trial_params")
    return Entry(file, "", node)


def _tag_name(node: yaml.ScalarNode) -> str | None:
    """Return the name of a value that its text does not show: "nothing" or "bytes"."""
    return _TAG_NAMES.get(node.tag)


def _error(file: str, mark: yaml.Mark | None, problem: str) -> YamlError:
    return YamlError(f"{file}:{1 if mark is None else mark.line + 1}: {problem}")
