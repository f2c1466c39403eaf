"""Ablation: the throughput of variants from a naive server to worldloom, which differ by one technique each.

    python -m worldloom.bench.ablation [--family maze catch cartpole] [--page docs/ablation.md]

Every server runs in a process of its own during all rounds, and each round measures one after the other. Single streams
have the same clients, connections and requests for every server.
"""

import argparse
import asyncio
import json
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np

from worldloom.bench.load import connect, naive_process, objects_process, open_worlds, worldloom_process
from worldloom.bench.measuring import (
    RateFunction,
    add_options,
    at_least_one,
    describe_conditions,
    graphics,
    limit_cores,
    measure_in_turn,
    medians,
    ratio,
    table,
    write_page,
)
from worldloom.client import VectorEnv
from worldloom.server.launch import ServerProcess

FAMILIES = ("maze", "catch", "cartpole")
CONNECTIONS = 4
"""Connections that the single streams to one server share."""
ACTION = 1
"""Constant action of every agent: in every family it moves something."""
_PACKAGES = ("worldloom", "numba", "grpcio", "protobuf", "moderngl")
_SERVERS: dict[str, Callable[[], ServerProcess]] = {
    "naive gl": lambda: naive_process("gl"),
    "naive cpu": lambda: naive_process("cpu"),
    "objects": lambda: objects_process("--renderer", "cpu"),
    "ours": lambda: worldloom_process("--renderer", "cpu"),
    "ours gl": lambda: worldloom_process("--renderer", "gl"),
}


@dataclass(frozen=True)
class Variant:
    """A server and transport to get frames with."""

    name: str
    includes: str
    server: str
    """Name in _SERVERS, or `local` for none."""
    transport: Literal["streams", "lanes", "grpc", "shm", "socket", "auto"]
    """`streams`: single streams; `lanes`: a vector world with the client of single streams; else the transport of a
    VectorEnv, which needs a worldloom server."""
    compared_with: str | None = None
    """Variant it is compared with; None in VARIANTS, where it is the one before."""


VARIANTS = (
    Variant(
        "naive, gl",
        "a thread a stream, each view drawn with OpenGL and read back by itself, protobuf objects",
        "naive gl",
        "streams",
    ),
    Variant("naive, cpu", "the same, drawn by our rasteriser", "naive cpu", "streams"),
    Variant("+ batches", "one engine simulates and draws what all streams ask for together", "objects", "streams"),
    Variant(
        "+ writing in place",
        "replies are templates that pixels are written into, in place of protobuf objects",
        "ours",
        "streams",
    ),
    Variant("+ a vector world", "one stream with many lanes in place of many streams, over TCP", "ours", "grpc"),
    Variant("+ shared memory", "frames do not pass through gRPC", "ours", "shm"),
    Variant(
        "+ a local socket",
        "nothing passes through gRPC: actions and rewards go through a Unix socket",
        "ours",
        "socket",
    ),
    Variant("in process", "no server: the engine runs in the client's process", "local", "auto"),
)
"""Variants in order: each changes one thing of the one before it."""
SIDE_VARIANTS = (
    Variant(
        "batches, where OpenGL draws",
        "our server with --renderer gl, single streams",
        "ours gl",
        "streams",
        VARIANTS[0].name,
    ),
    Variant("a vector world, naive, gl", "lanes one after the other", "naive gl", "lanes", VARIANTS[0].name),
    Variant("a vector world, naive, cpu", "lanes one after the other", "naive cpu", "lanes", VARIANTS[1].name),
    Variant(
        "a vector world, protobuf objects", "our engine, replies built as objects", "objects", "grpc", VARIANTS[4].name
    ),
)
"""Variants that apply the same techniques in another order."""


@dataclass(frozen=True)
class Workload:
    """Family and amount of worlds."""

    family: str
    streams: int
    lanes: int


class VariantClients:
    """Clients of the variants and their servers, started when first needed. All end with its `with` block."""

    def __init__(self, workload: Workload, loop: asyncio.AbstractEventLoop) -> None:
        self.workload = workload
        self._loop = loop
        self._cleanup = ExitStack()
        self._addresses: dict[str, str] = {}

    def __enter__(self) -> "VariantClients":
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def connect(self, variant: Variant) -> RateFunction:
        """Connect the clients of a variant; return the function that measures it."""
        if variant.transport == "streams":
            return self._streams(variant.server, self.workload.streams, CONNECTIONS)
        if variant.transport == "lanes":
            return self._streams(variant.server, 1, 1, self.workload.lanes)
        return self._vector(variant)

    def _address(self, server: str) -> str:
        if server not in self._addresses:
            self._addresses[server] = self._cleanup.enter_context(_SERVERS[server]()).address
        return self._addresses[server]

    def _streams(self, server: str, count: int, connections: int, lanes: int | None = None) -> RateFunction:
        streams = connect(self._loop, self._address(server), connections)
        open_worlds(streams, count, self.workload.family, ["eye.rgb"], lanes, ACTION)
        self._cleanup.callback(streams.close)
        return lambda seconds: (lanes or 1) * streams.run(seconds)[0]

    def _vector(self, variant: Variant) -> RateFunction:
        address = "local" if variant.server == "local" else self._address(variant.server)
        how: dict[str, Any] = {"transport": variant.transport, "seed": 0}
        if address == "local":
            how["renderer"] = "cpu"
        env = VectorEnv(address, self.workload.family, self.workload.lanes, **how)
        self._cleanup.callback(env.close)
        env.reset()
        actions = {name: np.full(space.shape, ACTION, space.dtype) for name, space in _spaces(env).items()}

        def measure_rate(seconds: float) -> float:
            began, steps = perf_counter(), 0
            while perf_counter() < began + seconds or not steps:
                env.step(actions)
                steps += 1
            return steps * self.workload.lanes / (perf_counter() - began)

        return measure_rate


def _spaces(env: VectorEnv) -> Mapping[str, Any]:
    spaces: Mapping[str, Any] = env.action_space  # type: ignore[assignment]  # a Dict, which is one
    return spaces


def measure(workload: Workload, loop: asyncio.AbstractEventLoop, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Return frames a second of each variant in each round. gRPC needs one event loop for the whole process."""
    with VariantClients(workload, loop) as clients:
        runs = {variant.name: clients.connect(variant) for variant in (*VARIANTS, *SIDE_VARIANTS)}
        return measure_in_turn(runs, rounds, seconds)


def report(workload: Workload, rates: Mapping[str, list[float]]) -> list[str]:
    """Return the tables of one family as lines of Markdown."""
    middle = medians(rates)
    first = middle[VARIANTS[0].name]
    before = [None, *(middle[variant.name] for variant in VARIANTS)]
    ladder = [
        [
            variant.name,
            variant.includes,
            _rate(middle[variant.name]),
            ratio(middle[variant.name], last),
            ratio(middle[variant.name], first),
        ]
        for variant, last in zip(VARIANTS, before, strict=False)
    ]
    aside = [
        [
            variant.name,
            variant.includes,
            _rate(middle[variant.name]),
            f"{ratio(middle[variant.name], middle[variant.compared_with])} {variant.compared_with}",
        ]
        for variant in SIDE_VARIANTS
        if variant.compared_with is not None
    ]
    return [
        f"### {workload.family}",
        "",
        f"64 × 64 rgb; {workload.streams} single streams over {CONNECTIONS} connections, or a vector world of "
        f"{workload.lanes} lanes over one.",
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


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m worldloom.bench.ablation", description="What each thing brings, from a naive server to ours."
    )
    made.add_argument("--family", nargs="+", choices=FAMILIES, default=["maze"], help="families (maze)")
    made.add_argument("--streams", type=at_least_one, default=64, help="single streams (%(default)s)")
    made.add_argument("--lanes", type=at_least_one, default=256, help="lanes of the vector world (%(default)s)")
    made.add_argument("--page", type=Path, help="put the tables into this page, between its marks")
    made.add_argument("--json", type=Path, help="write all rounds to this file")
    add_options(made, seconds=0.7)
    return made


def main(arguments: list[str]) -> int:
    """Measure, print the tables, and write the files."""
    chosen = parser().parse_args(arguments)
    try:
        limit_cores(chosen.cores)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    command = shlex.join(["python", "-m", "worldloom.bench.ablation", *arguments])
    conditions = f"{describe_conditions(_PACKAGES)}. OpenGL draws on {graphics()}."
    taken = f"Medians of {chosen.rounds} rounds of {chosen.seconds:g} s, in turn: `{command}`"
    lines = ["", conditions, taken, ""]
    loop = asyncio.new_event_loop()
    every: dict[str, dict[str, list[float]]] = {}
    for family in chosen.family:
        workload = Workload(family, chosen.streams, chosen.lanes)
        every[family] = measure(workload, loop, chosen.rounds, chosen.seconds)
        lines += report(workload, every[family])
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
