"""Memory of frames that are handed out: used again as soon as nobody refers to the arrays any more.

Fresh memory is zeroed page by page when it is first written to, which for small frames takes a good part of the time
that drawing them takes. So arrays that a program has dropped are handed out again.
"""

import sys
from collections.abc import Mapping

import numpy as np

_MAX_KEPT_BYTES = 256 << 20
"""Memory that is kept for arrays to come, beside that of arrays in use."""
_OWN_REFERENCES = 2
"""References to an array that nobody else has: of the list, and of the call that counts them."""


class FrameMemory:
    """Arrays for frames, handed out as views of memory that is kept."""

    def __init__(self) -> None:
        self._kept: list[np.ndarray] = []
        """Flat arrays of bytes, the last used last."""

    def take(self, specs: Mapping[str, tuple[tuple[int, ...], np.dtype]]) -> dict[str, np.ndarray]:
        """Return uninitialised arrays of these shapes and dtypes, by name."""
        return {name: self._take(shape, dtype) for name, (shape, dtype) in specs.items()}

    def _take(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
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
