"""Whether cameras are what kernels take for granted."""

from worldloom.kernels.compiling import kernel
from worldloom.kernels.tables import F32


@kernel
def first_crooked(camera: F32, tolerance: float) -> int:
    """The first view whose camera has axes that are not square and of unit length, or a number not finite; else -1."""
    for view in range(camera.shape[0]):
        for i in range(3):
            for j in range(i, 3):
                product = 0.0
                for k in range(3):
                    product += camera[view, k, i] * camera[view, k, j]
                # Phrased so that NaN fails it.
                if not abs(product - (1.0 if i == j else 0.0)) <= tolerance:
                    return view
            if not abs(camera[view, i, 3]) < 3.5e38:
                return view
    return -1
