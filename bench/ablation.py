"""What each thing brings, measured by itself: from a naive server to ours, one thing at a time.

    python -m worldloom.bench.ablation [--family maze catch cartpole] [--page docs/ablation.md]

Every server is a process of its own and there all the time; the rounds go from one to the next. Single streams have the
same clients, connections and requests whatever serves them.
"""

import argparse
import asyncio
import json
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np

from worldloom.bench.load import connect, naive_process, objects_process, open_worlds, worldloom_process
from worldloom.bench.measuring import (
    Play,
    add_options,
    at_least_one,
    circumstances,
    graphics,
    medians,
    play_in_turn,
    ratio,
    table,
    take_cores,
    write_page,
)
from worldloom.client import VectorEnv

FAMILIES = ("maze", "catch", "cartpole")
CONNECTIONS = 4
"""Of all single streams to one server."""
ACTION = 1
"""What every agent does all the time: in every family that is a move."""
_PACKAGES = ("worldloom", "numba", "grpcio", "protobuf", "moderngl")
_SERVERS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "naive gl": lambda: naive_process("gl"),
    "naive cpu": lambda: naive_process("cpu"),
    "objects": lambda: objects_process("--renderer", "cpu"),
    "ours": lambda: worldloom_process("--renderer", "cpu"),
    "ours gl": lambda: worldloom_process("--renderer", "gl"),
}


@dataclass(frozen=True)
class Rung:
    """One way to get frames."""

    name: str
    includes: str
    server: str
    """A name in _SERVERS; `local` for none."""
    transport: Literal["streams", "lanes", "grpc", "shm", "auto"]
    """`streams`: single streams; `lanes`: a vector world with the client of those; else how pictures come to a
    VectorEnv, which wants a server of ours."""
    beside: str | None = None
    """What it is compared with; in the ladder that is the rung before."""


LADDER = (
    Rung(
        "naive, gl",
        "a thread a stream, each view drawn with OpenGL and read back by itself, protobuf objects",
        "naive gl",
        "streams",
    ),
    Rung("naive, cpu", "the same, drawn by our rasteriser", "naive cpu", "streams"),
    Rung("+ batches", "one engine simulates and draws what all streams ask for together", "objects", "streams"),
    Rung(
        "+ painting in place",
        "replies are templates that pixels are painted into, in place of protobuf objects",
        "ours",
        "streams",
    ),
    Rung("+ a vector world", "one stream with many lanes in place of many streams, over TCP", "ours", "grpc"),
    Rung("+ shared memory", "frames do not pass through gRPC", "ours", "shm"),
    Rung("in process", "no server: the engine runs in the client's process", "local", "auto"),
)
"""Each has what the one before it has, and one thing more or other."""
ASIDE = (
    Rung(
        "batches, where OpenGL draws",
        "our server with --renderer gl, single streams",
        "ours gl",
        "streams",
        LADDER[0].name,
    ),
    Rung("a vector world, naive, gl", "lanes one after the other", "naive gl", "lanes", LADDER[0].name),
    Rung("a vector world, naive, cpu", "lanes one after the other", "naive cpu", "lanes", LADDER[1].name),
    Rung("a vector world, protobuf objects", "our engine, replies built as objects", "objects", "grpc", LADDER[4].name),
)
"""The same things in another order."""


@dataclass(frozen=True)
class Load:
    """How much of it."""

    family: str
    streams: int
    lanes: int


class Stage:
    """Servers, started when they are first asked for, and clients of theirs. All end with it."""

    def __init__(self, load: Load, loop: asyncio.AbstractEventLoop) -> None:
        self.load = load
        self._loop = loop
        self._ends = ExitStack()
        self._addresses: dict[str, str] = {}

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def play(self, rung: Rung) -> Play:
        """Clients that have everything ready."""
        if rung.transport == "streams":
            return self._streams(rung.server, self.load.streams, CONNECTIONS)
        if rung.transport == "lanes":
            return self._streams(rung.server, 1, 1, self.load.lanes)
        return self._vector(rung)

    def _address(self, server: str) -> str:
        if server not in self._addresses:
            self._addresses[server] = self._ends.enter_context(_SERVERS[server]())
        return self._addresses[server]

    def _streams(self, server: str, count: int, connections: int, lanes: int | None = None) -> Play:
        streams = connect(self._loop, self._address(server), connections)
        open_worlds(streams, count, self.load.family, ["eye.rgb"], lanes, ACTION)
        self._ends.callback(streams.close)
        return lambda seconds: (lanes or 1) * streams.run(seconds)[0]

    def _vector(self, rung: Rung) -> Play:
        address = "local" if rung.server == "local" else self._address(rung.server)
        how: dict[str, Any] = {"transport": rung.transport, "seed": 0}
        if address == "local":
            how["renderer"] = "cpu"
        env = VectorEnv(address, self.load.family, self.load.lanes, **how)
        self._ends.callback(env.close)
        env.reset()
        actions = {name: np.full(space.shape, ACTION, space.dtype) for name, space in _spaces(env).items()}

        def play(seconds: float) -> float:
            began, steps = perf_counter(), 0
            while perf_counter() < began + seconds or not steps:
                env.step(actions)
                steps += 1
            return steps * self.load.lanes / (perf_counter() - began)

        return play


def _spaces(env: VectorEnv) -> Mapping[str, Any]:
    spaces: Mapping[str, Any] = env.action_space  # type: ignore[assignment]  # a Dict, which is one
    return spaces


def measure(load: Load, loop: asyncio.AbstractEventLoop, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Frames a second of each rung in each round. gRPC wants one loop for as long as the process lives."""
    with Stage(load, loop) as stage:
        plays = {rung.name: stage.play(rung) for rung in (*LADDER, *ASIDE)}
        return play_in_turn(plays, rounds, seconds)


def report(load: Load, rates: Mapping[str, list[float]]) -> list[str]:
    """The tables of one family."""
    middle = medians(rates)
    first = middle[LADDER[0].name]
    before = [None, *(middle[rung.name] for rung in LADDER)]
    ladder = [
        [
            rung.name,
            rung.includes,
            _rate(middle[rung.name]),
            ratio(middle[rung.name], last),
            ratio(middle[rung.name], first),
        ]
        for rung, last in zip(LADDER, before, strict=False)
    ]
    aside = [
        [
            rung.name,
            rung.includes,
            _rate(middle[rung.name]),
            f"{ratio(middle[rung.name], middle[rung.beside])} {rung.beside}",
        ]
        for rung in ASIDE
        if rung.beside is not None
    ]
    return [
        f"### {load.family}",
        "",
        f"64 × 64 rgb; {load.streams} single streams over {CONNECTIONS} connections, or a vector world of {load.lanes} "
        "lanes over one.",
        "",
        *table(["", "what it includes", "frames/s", "to the row before", "to naive, gl"], ladder),
        "",
        "The same things in another order:",
        "",
        *table(["", "what it includes", "frames/s", "compared"], aside),
        "",
    ]


def _rate(value: float) -> str:
    return f"{value:,.0f}"


def options() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = argparse.ArgumentParser(
        prog="python -m worldloom.bench.ablation", description="What each thing brings, from a naive server to ours."
    )
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=["maze"], help="families (maze)")
    parser.add_argument("--streams", type=at_least_one, default=64, help="single streams (%(default)s)")
    parser.add_argument("--lanes", type=at_least_one, default=256, help="lanes of the vector world (%(default)s)")
    parser.add_argument("--page", type=Path, help="put the tables into this page, between its marks")
    parser.add_argument("--json", type=Path, help="write all rounds to this file")
    add_options(parser, seconds=0.7)
    return parser


def main(words: list[str]) -> int:
    """Measure, and tell."""
    chosen = options().parse_args(words)
    try:
        take_cores(chosen.cores)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    command = shlex.join(["python", "-m", "worldloom.bench.ablation", *words])
    conditions = f"{circumstances(_PACKAGES)}. OpenGL draws on {graphics()}."
    taken = f"Medians of {chosen.rounds} rounds of {chosen.seconds:g} s, in turn: `{command}`"
    lines = ["", conditions, taken, ""]
    loop = asyncio.new_event_loop()
    every: dict[str, dict[str, list[float]]] = {}
    for family in chosen.family:
        load = Load(family, chosen.streams, chosen.lanes)
        every[family] = measure(load, loop, chosen.rounds, chosen.seconds)
        lines += report(load, every[family])
    loop.close()
    print("\n".join(lines))
    if chosen.json is not None:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(
            json.dumps({"conditions": conditions, "command": command, "frames_per_s": every}, indent=1) + "\n"
        )
    if chosen.page is not None:
        write_page(chosen.page, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
