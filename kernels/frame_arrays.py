"""Arrays at the border to programs that draw: read from any library without a copy; memory of frames, used again.

Fresh memory is zeroed page by page when it is first written to, which for small frames takes a good part of the time
that drawing them takes. So arrays that a program has dropped are handed out again.

Clients and renderers use this module, so it imports NumPy alone.
"""

import sys
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

Forms: TypeAlias = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""Shape and dtype of arrays, by name."""
_MAX_KEPT_BYTES = 256 << 20
"""Memory that is kept for arrays to come, beside that of arrays in use."""
_OWN_REFERENCES = 2
"""References to an array that nobody else has: of the list, and of the call that counts them."""


class FrameMemory:
    """Arrays for frames, handed out as views of memory that is kept."""

    def __init__(self) -> None:
        self._kept: list[np.ndarray] = []
        """Flat arrays of bytes, the last used last."""

    def take(self, forms: Forms) -> dict[str, np.ndarray]:
        """Return uninitialised arrays of these shapes and dtypes, by name."""
        return {name: self._take(shape, dtype) for name, (shape, dtype) in forms.items()}

    def _take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        size_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        memory = self._find(size_bytes)
        if memory is None:
            memory = np.empty(size_bytes, np.uint8)
        self._keep(memory)
        return memory[:size_bytes].view(dtype).reshape(shape)

    def _find(self, size_bytes: int) -> np.ndarray | None:
        """Remove and return memory of about this size that nobody uses, or None."""
        for k in range(len(self._kept)):
            is_unused = sys.getrefcount(self._kept[k]) == _OWN_REFERENCES
            if is_unused and size_bytes <= self._kept[k].size <= 2 * size_bytes:
                return self._kept.pop(k)
        return None

    def _keep(self, memory: np.ndarray) -> None:
        """Remember memory that is handed out; forget the oldest if it would be too much."""
        self._kept.append(memory)
        kept_bytes = sum(one.size for one in self._kept)
        while kept_bytes > _MAX_KEPT_BYTES and self._kept:
            kept_bytes -= self._kept.pop(0).size


def check_out(out: Mapping[str, np.ndarray], forms: Forms) -> dict[str, np.ndarray]:
    """Return the arrays of `out`; ValueError unless frames of these forms can be drawn into them."""
    if not isinstance(out, Mapping):
        raise TypeError(f"out is a {type(out).__name__}: expected a dict of arrays, by {', '.join(forms)}")
    if out.keys() != forms.keys():
        raise ValueError(f"out has {', '.join(out) or 'nothing'}: expected {', '.join(forms)}")
    for name, (shape, dtype) in forms.items():
        array: Any = out[name]
        if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
            came = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
            raise ValueError(f"out[{name!r}] is {came}: expected an array of {dtype} {list(shape)}")
        if not array.flags.c_contiguous or not array.flags.writeable:
            raise ValueError(f"out[{name!r}] is not C-contiguous or not writable: expected both")
    arrays = list(out.items())
    for k, (name, array) in enumerate(arrays):
        for other, second in arrays[:k]:
            if np.may_share_memory(array, second):  # exact, as both are contiguous
                raise ValueError(f"out[{other!r}] and out[{name!r}] overlap in memory: expected arrays of their own")
    return dict(out)


def read_array(name: str, value: Any) -> np.ndarray:
    """Return an array of any library as NumPy's, without a copy if it is in the memory of the CPU; else ValueError."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        tensor = value.detach() if getattr(value, "requires_grad", False) else value
        if hasattr(tensor, "resolve_neg"):  # torch: memory that has the numbers negated is not marked as such by DLPack
            tensor = tensor.resolve_neg()
        try:
            return np.from_dlpack(tensor)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise ValueError(
                f"{name} is a {kind} that NumPy cannot read ({error}): expected numbers in the memory of the CPU, of "
                "a dtype that NumPy has; convert it first, for instance by .cpu(), .float() or jax.device_get"
            ) from error
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} is no array ({error}): expected numbers, a row for each state") from error
