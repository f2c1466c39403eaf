"""Chance that depends on a seed and a counter alone: the same number whatever was drawn before, or beside it.

Chance inside kernels: a seed and a counter make a number, as `worlds/random.py` does for arrays.
"""

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.compiling import inlined

U64 = NDArray[np.uint64]


def mix(seed: U64, counter: U64 | int) -> U64:
    """A new seed for each pair, as random as splitmix64 makes it; elementwise. `worlds/random.py` does the same."""
    with np.errstate(over="ignore"):
        turns = np.asarray(counter, np.uint64) + np.uint64(1)
        z = np.asarray(seed, np.uint64) + turns * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)), np.uint64)


def uniform(seed: U64, counter: U64 | int) -> NDArray[np.float64]:
    """A number in 0..1 (without 1) for each pair."""
    return np.asarray((mix(seed, counter) >> np.uint64(11)) * 2.0**-53, np.float64)


def normal(seed: U64, counter: U64 | int) -> NDArray[np.float64]:
    """A number from the normal distribution for each pair, by the method of Box and Muller."""
    pairs = 2 * np.asarray(counter, np.uint64)
    radius = np.sqrt(-2.0 * np.log1p(-uniform(seed, pairs)))
    return np.asarray(radius * np.cos(2.0 * np.pi * uniform(seed, pairs + np.uint64(1))), np.float64)


def integer(seed: U64, counter: U64 | int, below: int) -> NDArray[np.int64]:
    """An integer in 0..below - 1 for each pair."""
    return np.asarray(uniform(seed, counter) * below, np.int64)


def lane_seeds(world_seed: int, lanes: int) -> U64:
    """The seeds of a world's lanes: a function of the world's seed and the lane's place in that world."""
    return mix(np.full(lanes, world_seed % 2**64, np.uint64), np.arange(lanes, dtype=np.uint64))


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
