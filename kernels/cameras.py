"""Whether cameras are what kernels take for granted."""

from worldloom.kernels.compiling import brief, inlined
from worldloom.kernels.tables import F32


@inlined
def is_crooked(camera: F32, view: int, tolerance: float) -> bool:
    """Whether a camera has axes that are not square and of unit length, or a number not finite."""
    for i in range(3):
        for j in range(i, 3):
            product = 0.0
            for k in range(3):
                product += camera[view, k, i] * camera[view, k, j]
            # Phrased so that NaN fails it.
            if not abs(product - (1.0 if i == j else 0.0)) <= tolerance:
                return True
        if not abs(camera[view, i, 3]) < 3.5e38:
            return True
    return False


@brief
def first_crooked(camera: F32, tolerance: float) -> int:
    """The first view whose camera is crooked; else -1."""
    for view in range(camera.shape[0]):
        if is_crooked(camera, view, tolerance):
            return view
    return -1
