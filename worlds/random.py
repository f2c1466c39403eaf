"""Random numbers as functions of a seed and a counter, for arrays and for use inside kernels.

There is no generator with a state: the k-th number of a seed is always the same, whatever was asked for before it and
in whichever lane, batch or process. So a lane's randomness depends on its own seed alone, and nothing needs to be
stored to draw a number again.

`mix`, `uniform`, `normal` and `integers` work on arrays, element by element. Those whose names begin with `scalar_` are
device functions that compute the same numbers, to the bit, for one seed and one counter.
"""

import math

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.compiling import inlined

U64 = NDArray[np.uint64]


def mix(seed: U64, counter: U64 | int) -> U64:
    """Return a new seed for each pair of seed and counter: element `counter` of the splitmix64 sequence of `seed`."""
    with np.errstate(over="ignore"):
        turns = np.asarray(counter, np.uint64) + np.uint64(1)
        z = np.asarray(seed, np.uint64) + turns * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)), np.uint64)


def uniform(seed: U64, counter: U64 | int) -> NDArray[np.float64]:
    """Return a number of the interval [0, 1) for each pair of seed and counter."""
    return np.asarray((mix(seed, counter) >> np.uint64(11)) * 2.0**-53, np.float64)


def normal(seed: U64, counter: U64 | int) -> NDArray[np.float64]:
    """Return a number from the standard normal distribution for each pair of seed and counter (Box-Muller)."""
    pairs = 2 * np.asarray(counter, np.uint64)
    radius = np.sqrt(-2.0 * np.log1p(-uniform(seed, pairs)))
    return np.asarray(radius * np.cos(2.0 * np.pi * uniform(seed, pairs + np.uint64(1))), np.float64)


def integers(seed: U64, counter: U64 | int, below: int) -> NDArray[np.int64]:
    """Return an integer from 0 to below - 1 for each pair of seed and counter."""
    return np.asarray(uniform(seed, counter) * below, np.int64)


def lane_seeds(world_seed: int | U64, lanes: int | U64) -> U64:
    """Return a seed for each lane of a world; it depends on the world's seed and the lane's number in that world.

    `lanes` are the numbers, or how many there are: then they are counted from 0. Each lane may have its own
    `world_seed`.
    """
    seeds = np.uint64(world_seed % 2**64) if isinstance(world_seed, int) else world_seed
    numbers = np.arange(lanes, dtype=np.uint64) if isinstance(lanes, int) else lanes
    return mix(np.broadcast_to(seeds, numbers.shape), numbers)


@inlined
def scalar_mix(seed: np.uint64, counter: int) -> np.uint64:
    """Return a new seed, as `mix` does."""
    z = np.uint64(seed + (np.uint64(counter) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    z = np.uint64((z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9))
    z = np.uint64((z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB))
    return z ^ (z >> np.uint64(31))


@inlined
def scalar_uniform(seed: np.uint64, counter: int) -> float:
    """Return a number of the interval [0, 1), as `uniform` does."""
    return np.float64(scalar_mix(seed, counter) >> np.uint64(11)) * 2.0**-53


@inlined
def scalar_integer(seed: np.uint64, counter: int, below: int) -> int:
    """Return an integer from 0 to below - 1, as `integers` does."""
    return np.int64(scalar_uniform(seed, counter) * below)


@inlined
def scalar_normal(seed: np.uint64, counter: int) -> float:
    """Return a number from the standard normal distribution, as `normal` does but for rounding."""
    radius = math.sqrt(-2.0 * math.log1p(-scalar_uniform(seed, 2 * counter)))
    return radius * math.cos(2.0 * math.pi * scalar_uniform(seed, 2 * counter + 1))
