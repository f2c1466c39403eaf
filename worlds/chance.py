"""Chance that depends on a seed and a counter alone: the same number whatever was drawn before, or beside it."""

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]


def mix(seed: U64, counter: U64 | int) -> U64:
    """A new seed for each pair, as random as splitmix64 makes it; elementwise. `kernels/chance.py` does the same."""
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
