"""The words of the command line that stand for several values: `16,64,256`."""

import argparse
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from worldloom.kernels.tables import OUTPUTS

MOST_LANES, MOST_SIDE, MOST_SECONDS = 65_536, 4096, 3600.0

T = TypeVar("T")


def several(read: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """A list with commas between; a value that is there twice counts once."""

    def parse(text: str) -> tuple[T, ...]:
        return tuple(dict.fromkeys(read(word.strip()) for word in text.split(",")))

    return parse


def a_number_of_lanes(text: str) -> int:
    """One value of --lanes."""
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MOST_LANES:
        raise argparse.ArgumentTypeError(f"expected whole numbers from 1 to {MOST_LANES}, got {text!r}")
    return int(text)


def a_size(text: str) -> tuple[int, int]:
    """One value of --size: 64, or 160x120."""
    sides = text.lower().replace("×", "x").split("x")
    if len(sides) > 2 or not all(side.isdecimal() and 1 <= int(side[:9]) <= MOST_SIDE for side in sides):
        raise argparse.ArgumentTypeError(
            f"expected sizes such as 64 or 160x120, each side from 1 to {MOST_SIDE} pixels, got {text!r}"
        )
    return int(sides[0]), int(sides[-1])


def some_outputs(text: str) -> tuple[str, ...]:
    """One value of --outputs: rgb, or rgb+depth."""
    names = text.split("+")
    if not all(name in OUTPUTS for name in names):
        raise argparse.ArgumentTypeError(
            f"expected some of {', '.join(OUTPUTS)}, with + between those of one picture, got {text!r}"
        )
    return tuple(output for output in OUTPUTS if output in names)


def one_of(choices: Sequence[str]) -> Callable[[str], str]:
    """A value among few."""

    def parse(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(choices)}, got {text!r}")
        return text

    return parse


def seconds(text: str) -> float:
    """The value of --seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"expected a number above 0, at most {MOST_SECONDS:.0f}, got {text!r}")
    return number
