"""Conversion of Tensor messages to NumPy arrays and back.

What a client sends is compared with what is expected before anything is allocated: a shape in a message never reserves
memory by itself. Errors quote at most one line of what was sent.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np
from dm_env_rpc.v1.dm_env_rpc_pb2 import Tensor

from worldloom.kernels.wire import read_varints
from worldloom.protos.errors import InvalidArgument
from worldloom.protos.wire import field_header, has_more_fields
from worldloom.server.dm_env_rpc.specs import BYTE_DTYPES, PAYLOADS, bounds, element_bounds
from worldloom.worlds.family import Bound, Spec
from worldloom.worlds.settings import format_number

MAX_SETTINGS = 256
MAX_SETTING_ELEMENTS = 65_536
MAX_NAME_LENGTH = 256
MAX_TEXT_LENGTH = 1 << 16
"""Characters of a text in a list of them. A single one may be as long as a request."""
MAX_TEXT_TOTAL = 1 << 20
"""Elements times the longest of them in an array of texts: NumPy stores each with the length of the longest."""

_DTYPE_OF = {payload: dtype for dtype, payload in PAYLOADS.items()}
INTEGER_DTYPES = frozenset({"int32", "int64", "uint32"})
"""Dtypes that are varints on the wire, and whose values int64 can hold."""
MAX_DIMENSIONS = 64
"""Dimensions of a tensor that is looked at; NumPy has as many."""
MAX_FIELDS = 8192
"""Fields of a message that is parsed, if it is large."""
LARGE_BYTES = 1 << 16
"""Size of a message above which its fields are counted before it is parsed."""
_FEW = 48
"""Number of elements below which a list converts faster to an array."""
_AS_IN_MEMORY = frozenset({"float32", "float64", "bool"})
"""Dtypes of repeated fields that are the same bytes on the wire as in memory."""
_QUOTED = 80


class TensorReader:
    """A reader of tensors of one dtype, shape and range.

    One dimension of the shape may be negative: its length varies. `also` names dtypes whose payloads are accepted as
    well, and converted if every value can be.
    """

    def __init__(
        self,
        what: str,
        dtype: str,
        shape: Sequence[int],
        minimum: Bound = None,
        maximum: Bound = None,
        also: Sequence[str] = (),
    ) -> None:
        if dtype not in PAYLOADS:
            raise ValueError(f"{what} has dtype {dtype!r}: expected one of {', '.join(PAYLOADS)}")
        self.what = what
        self.dtype = dtype
        self.shape = tuple(shape)
        self.also = tuple(also)
        self._np_dtype = np.dtype(dtype)
        self._payload = PAYLOADS[dtype]
        self._in_bytes = dtype in BYTE_DTYPES
        self._is_text = dtype == "str"
        self._dimensions = list(self.shape)
        self._varies = any(size < 0 for size in self.shape)
        self._size = -1 if self._varies else prod(self.shape)
        self._array_shape = self.shape
        self._is_number = self._np_dtype.kind in "fiu"
        self._low: float | None = None
        self._high: float | None = None
        self._least: Any = -np.inf
        self._most: Any = np.inf
        self._each = isinstance(minimum, tuple) or isinstance(maximum, tuple)
        self._of_dtype: tuple[Any, Any] = -np.inf, np.inf
        """The least and the greatest finite number of the dtype."""
        if self._is_number:
            info: Any = np.finfo(dtype) if self._np_dtype.kind == "f" else np.iinfo(dtype)
            self._of_dtype = np.asarray(info.min).item(), np.asarray(info.max).item()
        if isinstance(minimum, tuple) or isinstance(maximum, tuple):
            least, most = element_bounds(dtype, shape, minimum, maximum)
            self._least, self._most = np.maximum(least, self._of_dtype[0]), np.minimum(most, self._of_dtype[1])
        elif self._is_number:
            self._low, self._high = bounds(dtype, minimum, maximum)
            self._least = self._of_dtype[0] if self._low is None else self._low
            self._most = self._of_dtype[1] if self._high is None else self._high
        # Infinity is an error like NaN, with or without a range.
        has_range = self._each or self._low is not None or self._high is not None
        self._checked = self._np_dtype.kind == "f" or has_range

    def read(self, tensor: Tensor) -> np.ndarray:
        """Return the values, C-contiguous and of exactly the dtype; the array may be read-only."""
        if len(tensor.shape) > MAX_DIMENSIONS:
            raise InvalidArgument(
                f"{self.what} has {len(tensor.shape)} dimensions: expected {len(self.shape)}, and never more than "
                f"{MAX_DIMENSIONS}"
            )
        payload = tensor.WhichOneof("payload")
        if payload != self._payload:
            return self._read_other(tensor, payload)
        array = getattr(tensor, payload).array
        count = len(array)
        shape = self._array_shape
        if count != self._size or tensor.shape != self._dimensions:
            shape = self._fit(tensor.shape[:], count)
        if self._in_bytes:
            values = np.frombuffer(array, self._np_dtype)
        elif count < _FEW or self._is_text:
            if self._is_text:
                self._limit_texts(array)
            values = np.array(array[:], self._np_dtype)
        else:
            values = np.array(array, self._np_dtype)
        if self._checked:
            self._check(values, shape, values)
        return np.full(shape, values[0]) if count == 1 < self._size else values.reshape(shape)

    def _read_other(self, tensor: Tensor, payload: str | None) -> np.ndarray:
        """Return values that were sent as another dtype."""
        array: Any = getattr(tensor, payload).array if payload else ()
        if not array and self._varies:  # a client cannot know the type of an empty list
            return np.zeros(self._fit(tensor.shape[:], 0), self._np_dtype)
        dtype = _DTYPE_OF.get(payload or "", "")
        if dtype not in self.also:
            others = "".join(f", {PAYLOADS[other]}" for other in self.also)
            raise InvalidArgument(f"{self.what} came as {payload or 'no payload'}: expected {self._payload}{others}")
        shape = self._fit(tensor.shape[:], len(array))
        values = came = np.frombuffer(array, dtype) if dtype in BYTE_DTYPES else np.array(array[:], dtype)
        if self._np_dtype.kind == "f":
            with np.errstate(over="ignore"):  # values too large for the dtype become infinite, which is an error
                values = came.astype(self._np_dtype)
        self._check(values, shape, came)
        values = values.astype(self._np_dtype, copy=False)
        return np.full(shape, values[0]) if len(values) == 1 < self._size else values.reshape(shape)

    def _check(self, values: np.ndarray, shape: tuple[int, ...], came: np.ndarray) -> None:
        """Raise InvalidArgument for values out of range; NaN fails every comparison, and min() returns it."""
        if not self._are_in_range(values):
            self._raise_out_of_range(values, shape, came)

    def _are_in_range(self, values: np.ndarray) -> bool:
        least, most = self._least, self._most
        if self._each:
            return bool(((values >= least) & (values <= most)).all())
        if len(values) < _FEW:
            for value in values.tolist():  # noqa: SIM110 (a generator takes longer than the few values)
                if not least <= value <= most:
                    return False
            return True
        return bool(least <= values.min().item() and values.max().item() <= most)

    def _fit(self, sent: list[int], count: int) -> tuple[int, ...]:
        """Return the shape of the array for a tensor with this shape and number of elements."""
        shape = self.shape
        if self._varies:
            rest = prod(size for size in shape if size >= 0)
            shape = tuple(count // max(rest, 1) if size < 0 else size for size in shape)
        matches = (
            len(sent) == len(shape)
            and sum(came < 0 for came in sent) <= 1
            and all(came < 0 or came == size for came, size in zip(sent, shape, strict=True))
        )
        one_for_all = count == 1 and self._size > 0
        if (matches and (count == prod(shape) or one_for_all)) or (one_for_all and not sent):
            return shape if self._varies else self._array_shape
        elements = "" if self._varies else f" and {_elements(self._size)}"
        if self._size > 1:
            elements += ", or one for all of them"
        raise InvalidArgument(
            f"{self.what} has shape {_shown_shape(sent)} and {_elements(count)}: "
            f"expected shape {list(self.shape)}{elements}"
        )

    def _limit_texts(self, texts: Sequence[str]) -> None:
        longest = max(map(len, texts), default=0)
        if len(texts) * longest > MAX_TEXT_TOTAL:
            raise InvalidArgument(
                f"{self.what} has {_elements(len(texts))} of up to {longest} characters: "
                f"expected {MAX_TEXT_TOTAL} characters at most, each element counted as long as the longest"
            )

    def _raise_out_of_range(self, values: np.ndarray, shape: tuple[int, ...], came: np.ndarray) -> NoReturn:
        """Raise InvalidArgument that names the first value out of range."""
        inside = (values >= self._least) & (values <= self._most)
        first = int(np.argmin(inside))
        index = [int(place) for place in np.unravel_index(first, shape)] if len(inside) > 1 else []
        where = f" at {index[-len(self.shape) :]}" if index else ""
        if self._each:
            low, high = self._least[first].item(), self._most[first].item()
            expected = f"{self._kind_in_words} from {format_number(low)} to {format_number(high)}"
        else:
            expected = self.range_in_words
        raise InvalidArgument(f"{self.what} is {came[first % len(came)]}{where}: expected {expected}")

    @property
    def _kind_in_words(self) -> str:
        return "a finite number" if self._np_dtype.kind == "f" else "an integer"

    @property
    def range_in_words(self) -> str:
        """The range of values that is accepted."""
        words = self._kind_in_words
        low, high = self._low, self._high
        if self._np_dtype.kind != "f":
            low, high = self._least, self._most
        if low is not None and high is not None:
            return f"{words} from {format_number(low)} to {format_number(high)}"
        if low is not None:
            return f"{words} of {format_number(low)} or more"
        return f"{words} of {format_number(high)} or less" if high is not None else words


class ActionReader(TensorReader):
    """A reader of one action of an agent, as [lanes, *shape]; one lane where the world is no vector world."""

    def __init__(self, spec: Spec, lanes: int | None) -> None:
        shape = spec.shape if lanes is None else (lanes, *spec.shape)
        super().__init__(f"action {spec.name!r}", spec.dtype, shape, spec.minimum, spec.maximum)
        self.name = spec.name
        self._array_shape = (lanes or 1, *spec.shape)
        self._is_flat = len(self._array_shape) == 1

    @property
    def elements(self) -> int:
        """Number of values."""
        return self._size

    @property
    def size_bytes(self) -> int:
        """Bytes of all values in memory."""
        return self._size * self._np_dtype.itemsize

    def read_in_place(self, data: bytes, start: int, end: int) -> np.ndarray | None:
        """Return the values in these bytes of a message, without a copy where they are as in memory.

        None if one is out of range, or if integers are not as many as the action has elements.
        """
        if self.dtype in INTEGER_DTYPES:
            wide = np.empty(self._size, np.int64)
            on_wire = np.frombuffer(data, np.uint8, end - start, start)
            least, most = self._of_dtype if self._each else (self._least, self._most)
            if read_varints(on_wire, least, most, wide) != self._size:
                return None
            if self._each and not self._are_in_range(wide):
                return None
            values = wide.astype(self._np_dtype, copy=False)
        else:
            values = np.frombuffer(data, self._np_dtype, self._size, start)
            if self._checked and not self._are_in_range(values):
                return None
        return values if self._is_flat else values.reshape(self._array_shape)


def pack(tensor: Tensor, value: np.ndarray) -> None:
    """Fill an empty Tensor message with an array of any strides."""
    dtype = "str" if value.dtype.kind == "U" else value.dtype.name
    if dtype not in PAYLOADS:
        raise ValueError(f"an array of {value.dtype}: expected one of {', '.join(PAYLOADS)}")
    payload = getattr(tensor, PAYLOADS[dtype])
    payload.SetInParent()  # an array without elements has a type, too
    if dtype in BYTE_DTYPES:
        payload.array = value.tobytes()
    elif dtype in _AS_IN_MEMORY and value.size >= _FEW:
        data = value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
        payload.MergeFromString(field_header(1, len(data)) + data)  # as `array` lies on the wire
    else:
        payload.array.extend(value.ravel().tolist())
    tensor.shape.extend(value.shape)


def settings_from(tensors: Mapping[str, Tensor]) -> dict[str, object]:
    """Return settings as Python values: a single value where the shape is empty, else a list, bytes for uint8."""
    if len(tensors) > MAX_SETTINGS:
        raise InvalidArgument(f"{len(tensors)} settings came: expected {MAX_SETTINGS} at most")
    # In order of their names: of several errors, the same one is always reported.
    return {name: _setting(name, tensor) for name, tensor in sorted(tensors.items())}


def check_field_count(data: bytes, descriptor: Any) -> None:
    """Raise InvalidArgument for a large message with so many fields that parsing it would hold up other clients."""
    if len(data) > LARGE_BYTES and has_more_fields(data, descriptor, MAX_FIELDS):
        raise InvalidArgument(
            f"a message of {len(data)} bytes with more than {MAX_FIELDS} fields: expected fewer; divide it"
        )


def _setting(name: str, tensor: Tensor) -> object:
    what = f"setting {shown(name)}"
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidArgument(f"{what} has a name of {len(name)} characters: expected {MAX_NAME_LENGTH} at most")
    payload = tensor.WhichOneof("payload")
    if payload not in _DTYPE_OF:
        raise InvalidArgument(f"{what} has {payload or 'no payload'}: expected numbers, bools or strings")
    array = getattr(tensor, payload).array
    count = len(array)
    if len(tensor.shape) > 1:
        raise InvalidArgument(f"{what} has shape {_shown_shape(tensor.shape[:9])}: expected a single value or a list")
    length = tensor.shape[0] if tensor.shape else 1
    if payload == "uint8s" and tensor.shape and (length < 0 or length == count):
        return bytes(array)
    if not count:
        raise InvalidArgument(f"{what} is empty: expected a value, or a list of them")
    if max(count, length) > MAX_SETTING_ELEMENTS:
        raise InvalidArgument(f"{what} has {max(count, length)} elements: expected {MAX_SETTING_ELEMENTS} at most")
    if length == 0 or (length > 0 and count not in (1, length)):
        raise InvalidArgument(
            f"{what} has shape {_shown_shape(tensor.shape[:])} and {_elements(count)}: expected a shape that fits"
        )
    values = np.frombuffer(array, np.int8).tolist() if payload == "int8s" else list(array)
    if payload == "strings" and tensor.shape and max(map(len, values)) > MAX_TEXT_LENGTH:
        raise InvalidArgument(
            f"{what} has a text of {max(map(len, values))} characters: expected {MAX_TEXT_LENGTH} at most"
        )
    if not tensor.shape:
        return values[0]
    return values * length if count == 1 and length > 0 else values


def shown(text: str) -> str:
    """Quote a text that a client sent, shortened to one line."""
    quoted = repr(text[:_QUOTED])
    return quoted if len(text) <= _QUOTED and len(quoted) <= _QUOTED + 2 else f"{quoted[:_QUOTED]}…'"


def _shown_shape(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape[:8]))}{', …' if len(shape) > 8 else ''}]"


def _elements(count: int) -> str:
    return f"{count} element{'' if count == 1 else 's'}"
