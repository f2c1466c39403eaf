"""Common part of all programs here: make environments, report that they are ready, and step them on request.

A program writes one line of JSON to stdout when it is ready, with its versions. Each line of stdin is a number of
seconds to step for, answered by a line of JSON with frames and seconds. In between it is idle.
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
class Stepper:
    """Environments that are ready to be stepped."""

    step: Callable[[], int]
    """Steps some of them once; returns the number of frames, each in memory as an array."""
    about: dict[str, str] = field(default_factory=dict)
    """Versions and describe_conditions."""


def options(description: str, width: int, height: int) -> argparse.ArgumentParser:
    """Return a parser with the options that every program has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--envs", type=int, default=64, help="environments (%(default)s)")
    parser.add_argument("--width", type=int, default=width, help="of a frame, in pixels (%(default)s)")
    parser.add_argument("--height", type=int, default=height, help="of a frame, in pixels (%(default)s)")
    parser.add_argument("--core", type=int, help="which of its cores to run on, counted from 0 (all)")
    return parser


def run(
    parser: argparse.ArgumentParser, make_envs: Callable[[argparse.Namespace], Stepper], arguments: Sequence[str]
) -> int:
    """Make environments by the arguments, and step them as stdin requests."""
    args = parser.parse_args(arguments)
    check(parser, args)
    if args.core is not None:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[args.core]})
    replies = _reserve_stdout()
    stepper = make_envs(args)
    stepper.step()
    _write(replies, stepper.about)
    for line in sys.stdin:
        began, frames = time.perf_counter(), 0
        while time.perf_counter() < began + float(line) or not frames:
            frames += stepper.step()
        _write(replies, {"frames": frames, "seconds": time.perf_counter() - began})
    return 0


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Exit with a message if an option is out of range."""
    for name in ("envs", "width", "height"):
        if not 1 <= getattr(args, name) <= 65_536:
            parser.error(f"--{name} is {getattr(args, name)}: expected 1 to 65536")
    cores = len(os.sched_getaffinity(0))
    if args.core is not None and not 0 <= args.core < cores:
        parser.error(f"--core is {args.core}: expected 0 to {cores - 1}")


def _reserve_stdout() -> TextIO:
    """Return a stream to stdout, and let whatever else is printed go to stderr: some libraries print."""
    ours = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return ours


def _write(replies: TextIO, content: Mapping[str, object]) -> None:
    replies.write(json.dumps(content) + "\n")
    replies.flush()
