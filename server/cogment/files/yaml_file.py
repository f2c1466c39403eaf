"""YAML that remembers its lines, so that every mistake in a file can be told by where it is.

Files are read as PyYAML's graph of nodes and only what is asked for becomes a value. Nothing in a file makes objects,
and an alias costs no more than it is long.
"""

import difflib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from worldloom.server.options import ConfigError
from worldloom.worlds.settings import abbreviate, format_number

MOST_BYTES = 1 << 20
_KINDS = {"tag:yaml.org,2002:null": "nothing", "tag:yaml.org,2002:binary": "bytes"}

T = TypeVar("T")


class YamlError(ConfigError):
    """A mistake in a file; the text begins with FILE:LINE."""


class Entry:
    """A value somewhere in a file. `called` is its place in words, such as `trial_params.actors[1].endpoint`."""

    def __init__(self, file: str, called: str, node: yaml.Node) -> None:
        self.called = called
        self._file, self._node = file, node

    @property
    def is_nothing(self) -> bool:
        """Its key is there, but no value."""
        return isinstance(self._node, yaml.ScalarNode) and _kind(self._node) == "nothing"

    def fail(self, problem: str) -> NoReturn:
        """Raise what is wrong here."""
        raise _error(self._file, self._node.start_mark, problem)

    def refuse(self, expected: str) -> NoReturn:
        """Raise that something else was expected here."""
        self.fail(f"{self.called or 'the file'} is {self._shown}: expected {expected}")

    def section(self, known: Collection[str], required: Collection[str] = ()) -> "dict[str, Entry]":
        """The values of a mapping with these keys, of which the required ones must be there."""
        found = self.mapping()
        for name, (key, _) in found.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                key.fail(f"unknown key {abbreviate(name)}{hint}{self._where}: expected some of {', '.join(known)}")
        for name in required:
            if name not in found or found[name][1].is_nothing:
                self.fail(f"key {name!r} is missing{self._where}: expected it there")
        return {name: value for name, (_, value) in found.items() if not value.is_nothing}

    def mapping(self) -> "dict[str, tuple[Entry, Entry]]":
        """Every key and value of a mapping, by the keys' texts."""
        if self.is_nothing:
            return {}
        if not isinstance(self._node, yaml.MappingNode):
            self.refuse("a mapping")
        found: dict[str, tuple[Entry, Entry]] = {}
        for key_node, value_node in self._node.value:
            key = Entry(self._file, f"a key{self._where}", key_node)
            name = key.text()
            if name in found:
                key.fail(f"key {abbreviate(name)} is there twice{self._where}: expected it once")
            called = f"{self.called}.{name}" if self.called else name
            found[name] = (key, Entry(self._file, called, value_node))
        return found

    def items(self) -> "list[Entry]":
        """The values of a list."""
        if self.is_nothing:
            return []
        if not isinstance(self._node, yaml.SequenceNode):
            self.refuse("a list")
        return [Entry(self._file, f"{self.called}[{n}]", node) for n, node in enumerate(self._node.value)]

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return isinstance(self._node, yaml.SequenceNode)

    def scalar(self, expected: str = "a single value") -> Any:
        """Its value: a text, a number, true or false, bytes, None, or whatever else YAML has."""
        if not isinstance(self._node, yaml.ScalarNode):
            self.refuse(expected)
        constructor = yaml.constructor.SafeConstructor()
        try:
            return constructor.construct_object(self._node, deep=True)
        except (yaml.YAMLError, ValueError, ArithmeticError, LookupError):  # what it was tagged as, it is not
            self.refuse(expected)

    def text(self) -> str:
        """A text that is not empty."""
        return self._take(str, "a text", bool)

    def whole(self, least: int, most: int) -> int:
        """A whole number in a range."""
        return self._take(int, f"a whole number from {least} to {most}", lambda value: least <= value <= most)

    def seconds(self, most: float) -> float:
        """A number of seconds above 0."""
        expected = f"a number of seconds above 0, {format_number(most)} at most"
        value = self.scalar(expected)
        if type(value) not in (int, float) or not 0 < value <= most:
            self.refuse(expected)
        return float(value)

    def flag(self) -> bool:
        """True or false."""
        return self._take(bool, "true or false")

    def choice(self, names: Collection[str]) -> str:
        """One of some texts."""
        return self._take(str, f"one of {', '.join(names)}", names.__contains__)

    def data(self) -> bytes:
        """Bytes, which a file gives in base64."""
        return self._take(bytes, "bytes in base64, such as !!binary CgR0ZXN0: types of others' messages are not known")

    def _take(self, kind: type[T], expected: str, fits: Callable[[T], bool] = lambda _: True) -> T:
        value = self.scalar(expected)
        if type(value) is not kind or not fits(value):
            self.refuse(expected)
        return value

    @property
    def _where(self) -> str:
        return f" in {self.called}" if self.called else ""

    @property
    def _shown(self) -> str:
        if isinstance(self._node, yaml.ScalarNode):
            return _kind(self._node) or abbreviate(self._node.value)
        kind = "mapping" if isinstance(self._node, yaml.MappingNode) else "list"
        return f"a {kind}" if self._node.value else f"an empty {kind}"


def read_yaml(path: Path, flag: str) -> Entry:
    """The whole of a file that was named by a flag."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{flag} {path} cannot be read: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise ConfigError(f"{flag} {path} is longer than {MOST_BYTES} bytes: expected a shorter file")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise YamlError(f"{path}:{line}: not UTF-8: expected text in UTF-8") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, file: str) -> Entry:
    """The whole of a text that came from a file."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _error(file, mark, f"not YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlError(f"{file}:{line}: not YAML: {error.reason}") from None
    except RecursionError:
        raise YamlError(f"{file}:1: nested too deep: expected a few levels") from None
    if node is None:
        raise YamlError(f"{file}:1: the file is empty: expected actor_classes and trial_params")
    return Entry(file, "", node)


def _kind(node: yaml.ScalarNode) -> str | None:
    """What a value is that is not told by its text."""
    return _KINDS.get(node.tag)


def _error(file: str, mark: yaml.Mark | None, problem: str) -> YamlError:
    return YamlError(f"{file}:{1 if mark is None else mark.line + 1}: {problem}")
