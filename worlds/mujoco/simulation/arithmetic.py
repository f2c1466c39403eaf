"""Arithmetic on arrays with the bits that NumPy gives single numbers and single vectors.

NumPy raises a single number to a power with the C library's pow, but squares an array by multiplication, or with its
own vector code on processors with AVX-512; the three differ in the last bit now and then. Norms of a vector go through
BLAS.
"""

import numpy as np

from worldloom.kernels.compiling import kernel_holding_gil
from worldloom.kernels.tables import F64


@kernel_holding_gil
def pow_each(x: F64, exponent: float, out: F64) -> None:
    """Raise each element to a power with the C library's pow, as Python and NumPy do with a single number.

    The exponent is an argument, since a constant one would be compiled into multiplications.
    """
    for k in range(x.size):
        out[k] = x[k] ** exponent


def norm(vectors: F64) -> F64:
    """Return the lengths of vectors [n, k], as `numpy.linalg.norm` does for each."""
    return np.asarray(np.sqrt(np.vecdot(vectors, vectors)))
