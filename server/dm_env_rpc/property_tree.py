"""The properties extension of dm_env_rpc: a tree of named values that clients list, read and write.

The dots of a key are the tree: `limits.max_worlds` is in the group `limits`. Groups can be listed, values can be read
and some of them written; nothing is both a group and a value.
"""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from dm_env_rpc.v1.dm_env_rpc_pb2 import Tensor
from dm_env_rpc.v1.extensions import properties_pb2
from numpy.typing import ArrayLike

from worldloom.protos.errors import InvalidArgument, NotFound, PermissionDenied
from worldloom.server.dm_env_rpc.specs import tensor_spec
from worldloom.server.dm_env_rpc.tensors import TensorReader, pack, shown

_INTEGERS = ("int8", "int32", "int64", "uint8", "uint32", "uint64")
_ALSO = {
    **dict.fromkeys(_INTEGERS, _INTEGERS),
    **dict.fromkeys(("float32", "float64"), ("float32", "float64", *_INTEGERS)),
}
"""Other dtypes that a value is accepted in: clients send the integers and floats of their own language."""


def requested_key(request: properties_pb2.PropertyRequest) -> str:
    """Return the key that a request is about; empty if it has none."""
    asked = request.WhichOneof("payload")
    return "" if asked is None else str(getattr(request, asked).key)


@dataclass(frozen=True)
class Property:
    """A named value."""

    key: str
    text: str
    dtype: str
    read: Callable[[], ArrayLike]
    write: Callable[[np.ndarray], None] | None = None
    """Called with a value of this dtype and shape, in range. None: the property is read-only."""
    shape: tuple[int, ...] = ()
    """One dimension may be -1: its length varies."""
    minimum: float | None = None
    maximum: float | None = None

    def __post_init__(self) -> None:
        if not all(self.key.split(".")):
            raise ValueError(f"property {self.key!r}: expected words with dots between them")


@dataclass(frozen=True)
class Group:
    """A group with a description. Other groups are described by listing what is in them."""

    key: str
    text: str


class PropertyTree:
    """Properties that a stream sees, which answers its property requests."""

    def __init__(self, entries: Iterable[Property | Group]) -> None:
        self._properties: dict[str, Property] = {}
        self._children: dict[str, list[str]] = {"": []}
        self._texts: dict[str, str] = {}
        for entry in entries:
            self._add(entry)

    def handle(self, request: properties_pb2.PropertyRequest) -> properties_pb2.PropertyResponse:
        """Answer a request. A write that raises RequestError has changed nothing."""
        response = properties_pb2.PropertyResponse()
        asked = request.WhichOneof("payload")
        if asked == "read_property":
            self._read(request.read_property.key, response.read_property.value)
        elif asked == "write_property":
            self._write(request.write_property.key, request.write_property.value)
            response.write_property.SetInParent()
        elif asked == "list_property":
            response.list_property.values.extend(self._list(request.list_property.key))
            response.list_property.SetInParent()
        else:
            raise InvalidArgument("an empty property request: expected read_property, write_property or list_property")
        return response

    def _add(self, entry: Property | Group) -> None:
        if entry.key in self._properties:
            raise ValueError(f"property {entry.key!r} is there twice: expected it once")
        words = entry.key.split(".")
        keys = ["", *(".".join(words[: depth + 1]) for depth in range(len(words)))]
        is_value = isinstance(entry, Property)
        both = [key for key in keys if key in (self._children if is_value and key == entry.key else self._properties)]
        if both:
            raise ValueError(f"property {both[0]!r} is a group and a value: expected one of them")
        for parent, child in pairwise(keys):
            siblings = self._children.setdefault(parent, [])
            if child not in siblings:
                siblings.append(child)
        if isinstance(entry, Property):
            self._properties[entry.key] = entry
        else:
            self._children.setdefault(entry.key, [])
            self._texts[entry.key] = entry.text

    def _read(self, key: str, value: Tensor) -> None:
        entry = self._value(key, "read")
        pack(value, np.asarray(entry.read(), entry.dtype))

    def _write(self, key: str, value: Tensor) -> None:
        entry = self._value(key, "written")
        if entry.write is None:
            raise PermissionDenied(f"property {key!r} cannot be written: it can be read")
        also = [dtype for dtype in _ALSO.get(entry.dtype, ()) if dtype != entry.dtype]
        reader = TensorReader(f"property {key!r}", entry.dtype, entry.shape, entry.minimum, entry.maximum, also)
        entry.write(reader.read(value))

    def _list(self, key: str) -> list[properties_pb2.PropertySpec]:
        if key in self._properties:
            can = "read" if self._properties[key].write is None else "read and written"
            raise PermissionDenied(f"property {key!r} cannot be listed, since it is a value: it can be {can}")
        if key not in self._children:
            raise self._not_found(key)
        return [self._spec(child) for child in self._children[key]]

    def _spec(self, key: str) -> properties_pb2.PropertySpec:
        entry = self._properties.get(key)
        if entry is None:
            names = ", ".join(child.rpartition(".")[2] for child in self._children[key])
            spec = properties_pb2.PropertySpec(is_listable=True, description=self._texts.get(key, f"Group of {names}."))
            spec.spec.name = key
            return spec
        return properties_pb2.PropertySpec(
            spec=tensor_spec(key, entry.dtype, entry.shape, entry.minimum, entry.maximum),
            is_readable=True,
            is_writable=entry.write is not None,
            description=entry.text,
        )

    def _value(self, key: str, done: str) -> Property:
        """Return the property of a key; `done` says in an error what it was to be."""
        if key in self._properties:
            return self._properties[key]
        if key in self._children:
            raise PermissionDenied(f"property {key!r} cannot be {done}, since it is a group: it can be listed")
        raise self._not_found(key)

    def _not_found(self, key: str) -> NotFound:
        known = [*self._properties, *self._children]
        longest = max(map(len, known))
        nearest = difflib.get_close_matches(key[: 2 * longest], filter(None, known), n=1, cutoff=0.5)
        hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
        return NotFound(f"no property {shown(key)}{hint}: expected a key that listing shows")
