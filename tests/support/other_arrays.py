"""Arrays of other libraries, as torch and JAX have them."""

from typing import Any

import numpy as np


class OtherArray:
    """An array of another library: all that it has is DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **arguments: Any) -> Any:
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class OnCard(OtherArray):
    """An array in the memory of a graphics card."""

    def __dlpack__(self, **arguments: Any) -> Any:
        raise BufferError("on a card")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0
