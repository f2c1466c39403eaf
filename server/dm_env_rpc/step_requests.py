"""Reading of Step requests that repeat, without a protobuf message for each.

An agent asks for the same observations at every step, and sends its actions in the same form: two of its requests
differ in the values of actions alone, if at all. So the first requests are parsed as messages, and remembered: short
ones as a whole, since an integer action has few values; others as a template, which is the bytes around the values of
actions, and the places of the values. Those must be on the wire as in memory, or integers in as many bytes as the last
time: clients that write many at once give each the same number of bytes.

A request that is not the same as one remembered, or whose values are not valid, is left to the message parser, which
has the errors. So both ways give the same steps.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc

from worldloom.kernels.wire import VARINT_BYTES
from worldloom.protos.wire import WireError, read_fields
from worldloom.server.dm_env_rpc.specs import PAYLOADS
from worldloom.server.dm_env_rpc.tensors import INTEGER_DTYPES, ActionReader

_MAX_TEMPLATES = 4
"""Templates of an agent, each of another length: no more are tried, so that no client is slowed down by it."""
_MAX_CONSTANT_BYTES = 1024
"""Bytes of a template around the values, if all actions are sent."""
_MAX_KNOWN = 32
"""Requests remembered as a whole."""
_MAX_KNOWN_BYTES = 256
"""Length of a request that is remembered as a whole."""
_MAX_ACTION_BYTES = 4096
"""Arrays of its actions, which are larger where one value is for all lanes."""
_AS_IN_MEMORY = frozenset({"float32", "float64", "int8", "uint8"})
"""Dtypes of actions whose values are the same bytes in a request as in memory. Bools are not: on the wire any number
other than 0 is true."""


def _number(message: type, name: str) -> int:
    """Return the number of a field of a protobuf message."""
    return int(message.DESCRIPTOR.fields_by_name[name].number)  # type: ignore[attr-defined]


_STEP = _number(rpc.EnvironmentRequest, "step")
_ACTIONS = _number(rpc.StepRequest, "actions")
_PAYLOAD_NUMBERS = {dtype: _number(rpc.Tensor, PAYLOADS[dtype]) for dtype in _AS_IN_MEMORY | INTEGER_DTYPES}
_SHAPE = _number(rpc.Tensor, "shape")
_KEY, _VALUE, _ARRAY = 1, 2, 1
"""Numbers of the fields of a map's entry, and of the values in a payload."""


class StepContent(NamedTuple):
    """The content of a Step request."""

    uids: tuple[int, ...]
    """Requested observations."""
    actions: Mapping[str, np.ndarray]
    """[lanes, *shape] by name; the arrays are read-only."""


class Values(NamedTuple):
    """Values of one action in the bytes of a request."""

    reader: ActionReader
    start: int
    end: int


Constants: TypeAlias = Sequence[tuple[int, int, bytes]]
"""Start, end and content of the bytes around values."""


class StepTemplate:
    """Requests of one length that differ in the values of actions only."""

    def __init__(self, data: bytes, uids: tuple[int, ...], values: Sequence[Values]) -> None:
        self._uids = uids
        self._values = sorted(values, key=lambda one: one.start)
        starts, ends = [0, *(one.end for one in self._values)], [*(one.start for one in self._values), len(data)]
        self._constants: Constants = [
            (start, end, data[start:end]) for start, end in zip(starts, ends, strict=True) if start < end
        ]

    def read(self, data: bytes) -> StepContent | None:
        """Return the content of a request of the same length; None if it has another form, or an invalid value."""
        for start, end, constant in self._constants:
            if data[start:end] != constant:
                return None
        actions = {}
        for reader, start, end in self._values:
            values = reader.read_in_place(data, start, end)
            if values is None:
                return None
            actions[reader.name] = values
        return StepContent(self._uids, actions)


class RepeatedSteps:
    """The requests of one agent that are remembered, for as long as it has the same specs."""

    def __init__(self, readers: Mapping[int, ActionReader]) -> None:
        self._readers = readers
        sizes = [VARINT_BYTES * reader.elements + reader.size_bytes for reader in readers.values()]
        self._max_template_bytes = _MAX_CONSTANT_BYTES + sum(sizes)
        self._templates: dict[int, StepTemplate | None] = {}
        """By length of the request; None where requests of that length have no template."""
        self._known: dict[bytes, StepContent] = {}

    def read(self, data: bytes) -> StepContent | None:
        """Return the content of a request that repeats one before; None for others."""
        size_bytes = len(data)
        template = self._templates.get(size_bytes)
        if template is not None:
            return template.read(data)
        return self._known.get(data) if size_bytes <= _MAX_KNOWN_BYTES else None

    def remember(self, data: bytes, uids: Sequence[int], actions: Mapping[str, np.ndarray]) -> None:
        """Remember a request that was parsed, and whose actions were read and valid."""
        size_bytes = len(data)
        if size_bytes not in self._templates and len(self._templates) < _MAX_TEMPLATES:
            values = _find_values(data, self._readers) if size_bytes <= self._max_template_bytes else []
            if size_bytes <= _MAX_KNOWN_BYTES and any(one.reader.dtype in INTEGER_DTYPES for one in values):
                values = []  # looking for the whole is faster
            self._templates[size_bytes] = StepTemplate(data, tuple(uids), values) if values else None
        if size_bytes <= _MAX_KNOWN_BYTES and self._templates.get(size_bytes) is None:
            if sum(action.nbytes for action in actions.values()) > _MAX_ACTION_BYTES:
                return
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            for action in actions.values():
                action.flags.writeable = False  # shared by all steps that send the same
            self._known[data] = StepContent(tuple(uids), actions)


def _find_values(data: bytes, readers: Mapping[int, ActionReader]) -> list[Values]:
    """Return the places of the values of all actions in a valid request.

    The list is empty if there are none, or if they are not in the one form that a template can tell: each message and
    field once, and as many values as the action has elements.
    """
    found: dict[int, Values] = {}
    try:
        for number, start, end in read_fields(data, *_places(data, 0, len(data), _STEP)[0]):
            if number == _ACTIONS:
                (uid, key_end), tensor = _places(data, start, end, _KEY, _VALUE)
                if uid in found or key_end >= 0:  # sent again, or no varint
                    return []
                found[uid] = _find_array(data, *tensor, readers[uid])
    except (WireError, KeyError):
        return []
    return list(found.values())


def _find_array(data: bytes, start: int, end: int, reader: ActionReader) -> Values:
    """Return the place of the values in a Tensor; KeyError if it has another form."""
    number = _PAYLOAD_NUMBERS[reader.dtype]
    has_shape = any(found == _SHAPE for found, _, _ in read_fields(data, start, end))
    payload = _places(data, start, end, number, *[_SHAPE] * has_shape)[0]
    first, last = _places(data, *payload, _ARRAY)[0]
    if reader.dtype not in INTEGER_DTYPES and last - first != reader.size_bytes:
        raise KeyError(reader.name)
    return Values(reader, first, last)


def _places(data: bytes, start: int, end: int, *numbers: int) -> list[tuple[int, int]]:
    """Return the places of these fields of a message; KeyError unless it has each of them once and no others."""
    fields = [(number, (first, last)) for number, first, last in read_fields(data, start, end)]
    if len(fields) != len(numbers):
        raise KeyError(numbers)
    places = dict(fields)
    return [places[number] for number in numbers]
