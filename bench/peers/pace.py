"""What all programs here have in common: they make environments, say so, and step them for as long as they are told.

On stdout goes one line of JSON when everything is ready, with versions and what a frame includes, and then one for each
line of stdin, which is a number of seconds. In between a program does nothing.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO


@dataclass(frozen=True)
class Player:
    """Environments that are ready."""

    step: Callable[[], int]
    """Steps all of them once; how many frames that made, each in memory as an array."""
    about: dict[str, str] = field(default_factory=dict)
    """Versions and circumstances."""


def options(description: str, width: int, height: int) -> argparse.ArgumentParser:
    """What every program takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--envs", type=int, default=64, help="environments (%(default)s)")
    parser.add_argument("--width", type=int, default=width, help="of a frame, in pixels (%(default)s)")
    parser.add_argument("--height", type=int, default=height, help="of a frame, in pixels (%(default)s)")
    parser.add_argument("--core", type=int, help="which of its cores to run on, counted from 0 (all)")
    return parser


def run(parser: argparse.ArgumentParser, make: Callable[[argparse.Namespace], Player], words: Sequence[str]) -> int:
    """Make environments as the words say, and step them as stdin says."""
    chosen = parser.parse_args(words)
    check(parser, chosen)
    if chosen.core is not None:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[chosen.core]})
    replies = _take_stdout()
    player = make(chosen)
    player.step()
    _say(replies, player.about)
    for line in sys.stdin:
        began, frames = time.perf_counter(), 0
        while time.perf_counter() < began + float(line) or not frames:
            frames += player.step()
        _say(replies, {"frames": frames, "seconds": time.perf_counter() - began})
    return 0


def check(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> None:
    """End with a word of what is wrong, if something is."""
    for name in ("envs", "width", "height"):
        if not 1 <= getattr(chosen, name) <= 65_536:
            parser.error(f"--{name} is {getattr(chosen, name)}: expected 1 to 65536")
    cores = len(os.sched_getaffinity(0))
    if chosen.core is not None and not 0 <= chosen.core < cores:
        parser.error(f"--core is {chosen.core}: expected 0 to {cores - 1}")


def _take_stdout() -> TextIO:
    """Stdout for us alone: some libraries print there when they feel like it."""
    ours = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return ours


def _say(replies: TextIO, what: Mapping[str, object]) -> None:
    replies.write(json.dumps(what) + "\n")
    replies.flush()
