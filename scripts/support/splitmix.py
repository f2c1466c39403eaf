"""splitmix64 in plain integers, for the models: the random numbers that worlds should get."""

WORD = 2**64


def mix(seed: int, counter: int) -> int:
    """Return a new seed for a seed and a counter."""
    z = (seed + (counter + 1) * 0x9E3779B97F4A7C15) % WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB % WORD
    return z ^ z >> 31


def uniform(seed: int, counter: int) -> float:
    """Return a number in 0..1, without 1."""
    return (mix(seed, counter) >> 11) / 2**53
