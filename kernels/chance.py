"""Chance inside kernels: a seed and a counter make a number, as `worlds/chance.py` does for arrays."""

import numpy as np

from worldloom.kernels.compiling import inlined


@inlined
def scalar_mix(seed: np.uint64, counter: int) -> np.uint64:
    """A new seed for each pair (splitmix64)."""
    z = np.uint64(seed + (np.uint64(counter) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    z = np.uint64((z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9))
    z = np.uint64((z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB))
    return z ^ (z >> np.uint64(31))


@inlined
def scalar_uniform(seed: np.uint64, counter: int) -> float:
    """A number in 0..1 (without 1)."""
    return np.float64(scalar_mix(seed, counter) >> np.uint64(11)) * 2.0**-53


@inlined
def scalar_integer(seed: np.uint64, counter: int, below: int) -> int:
    """An integer in 0..below - 1."""
    return np.int64(scalar_uniform(seed, counter) * below)
