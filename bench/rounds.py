"""Rounds in turn: everything that is compared is there at once, and each plays for a moment, again and again.

What else the machine does in the meantime then falls on all of them alike.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from statistics import median
from typing import TypeAlias

Play: TypeAlias = Callable[[float], float]
"""Plays for so many seconds; its frames a second."""


def play_in_turn(plays: Mapping[str, Play], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Frames a second of each in each round, after a short one that does not count."""
    rates: dict[str, list[float]] = {name: [] for name in plays}
    for number in range(-1, rounds):
        for name, play in plays.items():
            rate = play(seconds if number >= 0 else seconds / 3)
            if number >= 0:
                rates[name].append(rate)
        if number >= 0:
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return rates


def medians(rates: Mapping[str, list[float]]) -> dict[str, float]:
    """The middle of each."""
    return {name: median(values) for name, values in rates.items()}


def add_options(parser: argparse.ArgumentParser, seconds: float) -> None:
    """How long, how often, and on what."""
    parser.add_argument("--rounds", type=at_least_one, default=7, help="rounds of each (%(default)s)")
    parser.add_argument("--seconds", type=above_zero, default=seconds, help="length of a round (%(default)s)")
    parser.add_argument("--cores", type=at_least_one, default=2, help="cores for all together (%(default)s)")


def at_least_one(word: str) -> int:
    """An option that counts something."""
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r}: expected a number, 1 or more")
    return int(word)


def above_zero(word: str) -> float:
    """An option in seconds."""
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0 < value < 3600:
        raise argparse.ArgumentTypeError(f"{word!r}: expected seconds, more than 0 and less than an hour")
    return value
