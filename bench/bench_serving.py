"""Cost of serving beyond gRPC itself: the same clients with our server and with one that only echoes.

Client and server are in different processes. Both servers are there all the time; rounds alternate between them.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

import numpy as np
import pytest

from worldloom.bench.load import (
    Streams,
    connect,
    echo_process,
    objects_process,
    open_echo,
    open_worlds,
    worldloom_process,
)
from worldloom.bench.measuring import Report, combined_rate
from worldloom.bench.players import LOCAL, SAME_MACHINE, Player
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds
from worldloom.worlds.registry import find_family

FAMILIES = ["cartpole", "catch", "maze"]
ROUND_S = 0.8
STREAMS, CONNECTIONS = 64, 4
VECTORS, LANES = 2, 256
MOST_CPU_US = 30.0
"""Server CPU of a step beyond the echo's and painting."""


class Client:
    """Streams to a server, and the CPU time that it takes for each of their messages."""

    def __init__(self, streams: Streams, pid: int) -> None:
        self.streams = streams
        self._pid = pid
        self.times_s: list[float] = []
        """Round trips of all rounds."""
        self.cpu_us: list[float] = []
        """CPU time of the server for a message, in each round."""

    def play(self, seconds: float) -> float:
        """Exchange messages for `seconds` and return how many a second."""
        before_s = self._server_cpu_s()
        rate, times_s = self.streams.run(seconds)
        self.cpu_us.append(1e6 * (self._server_cpu_s() - before_s) / len(times_s))
        self.times_s += times_s
        return rate

    def _server_cpu_s(self) -> float:
        # After the name, which may have spaces in it: the state is field 3, user and system time are 14 and 15.
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def both(
    streams: int, connections: int, family: str, observations: list[str], lanes: int | None = None
) -> Iterator[tuple[Client, Client, str]]:
    """Open the same streams to our server and to an echo of replies of the same size; yield our address too."""
    loop = asyncio.new_event_loop()
    with worldloom_process() as server:
        ours = connect(loop, server.address, connections)
        open_worlds(ours, streams, family, observations, lanes)
        with echo_process(ours.reply_bytes) as echo_server:
            echo = connect(loop, echo_server.address, connections)
            open_echo(echo, streams, ours.requests[0])
            yield Client(ours, server.pid), Client(echo, echo_server.pid), server.address
            echo.close()
            ours.close()
    loop.close()


def bench_latency_of_one_stream(report: Report) -> None:
    with both(1, 1, "cartpole", []) as (ours, echo, address):
        near = Player((address, SAME_MACHINE), "cartpole", 1, observations=[])
        runs = {"ours": ours.play, "echo": echo.play, "near": near.play}
        report.in_turn(runs, ROUND_S, compared=("echo", "near"))
        near.env.close()
    for name, our_s, echo_s in (
        ("median", median(ours.times_s), median(echo.times_s)),
        ("99th percentile", quantiles(ours.times_s, n=100)[98], quantiles(echo.times_s, n=100)[98]),
    ):
        what = f"one stream, steps without frames against an echo: {name}"
        report.ratio_row(what, our_s / echo_s, f"{1e6 * our_s:.0f} µs", at_most=2)
    near_s, echo_s = median(near.times_s), median(echo.times_s)
    report.ratio_row(
        f"one lane, {SAME_MACHINE}, steps of VectorEnv without frames against a gRPC echo: median",
        near_s / echo_s,
        f"{1e6 * near_s:.0f} against {1e6 * echo_s:.0f} µs",
        at_most=0.35,
    )


class Painter:
    """One thread that paints the frames of worlds like those of the streams, and the CPU time of a frame."""

    def __init__(self, family: str, lanes: int) -> None:
        assets = AssetLibrary()
        self._pool = Pool(find_family(family)({}, assets), Scene(assets))
        self._lanes = self._pool.add(lane_seeds(0, lanes))
        self._actions: dict[str, np.ndarray] = {
            spec.name: np.zeros((lanes, self._pool.family.agents, *spec.shape), spec.dtype)
            for spec in self._pool.family.actions
        }
        self._renderer = CPURenderer(threads=1)
        self.cpu_us: list[float] = []
        """CPU time of a frame, in each round."""

    def play(self, seconds: float) -> float:
        """Step and paint for `seconds`, of which painting alone counts; return the frames a second."""
        until_s = time.perf_counter() + seconds
        painting_s, frames = 0.0, 0
        while time.perf_counter() < until_s or not frames:
            self._pool.step(self._lanes, self._actions)
            views = self._pool.views(self._lanes, "eye")
            offsets, size_bytes = lay_out(views)
            arena = allocate_arena(size_bytes)
            began_s = time.thread_time()
            self._renderer.draw(self._pool.scene, views, arena, offsets)
            painting_s += time.thread_time() - began_s
            frames += len(self._lanes)
        self.cpu_us.append(1e6 * painting_s / frames)
        return frames / painting_s

    def close(self) -> None:
        """Stop painting."""
        self._renderer.close()


@pytest.mark.parametrize("family", FAMILIES)
def bench_single_streams_against_an_echo(report: Report, family: str) -> None:
    painter = Painter(family, STREAMS)
    with both(STREAMS, CONNECTIONS, family, ["eye.rgb"]) as (ours, echo, _):
        runs = {"ours": ours.play, "echo": echo.play, "painting": painter.play}
        rounds = report.in_turn(runs, ROUND_S, compared=("ours", "echo"))
    painter.close()
    what = f"{family}, {STREAMS} streams of one 64² rgb frame each"
    rate = rounds.rate("ours")
    report.ratio_row(
        f"{what}, against an echo of the same size",
        rounds.ratio("ours", "echo"),
        f"{rate:,.0f} frames/s",
        at_least=0.7,
        figures={f"{family}, {STREAMS} streams": rate},
    )
    parts = [one.cpu_us[1:] for one in (ours, echo, painter)]  # without the first round, which warms up
    beyond_us = median(our_us - echo_us - paint_us for our_us, echo_us, paint_us in zip(*parts, strict=True))
    our_us, echo_us, paint_us = map(median, parts)
    report.row(
        f"{what}, server CPU of a step beyond the echo's and painting",
        f"{beyond_us:.0f} µs ({our_us:.0f}, echo {echo_us:.0f}, painting {paint_us:.0f})",
        f"≤ {MOST_CPU_US:g} µs",
        beyond_us <= MOST_CPU_US,
    )


@pytest.mark.parametrize("family", FAMILIES)
def bench_vector_worlds_over_tcp(report: Report, family: str) -> None:
    """A step takes at least as long as its bytes take to an echo, and as long as it takes in process."""
    with both(VECTORS, VECTORS, family, ["eye.rgb"], LANES) as (ours, echo, _):
        local = Player(LOCAL, family, VECTORS * LANES, is_still=True)
        runs = {
            "ours": lambda seconds: LANES * ours.play(seconds),
            "echo": lambda seconds: LANES * echo.play(seconds),
            "local": local.play,
        }
        rounds = report.in_turn(runs, ROUND_S, compared=("ours", "echo"))
        local.env.close()
    rounds.rates["possible"] = [
        combined_rate(*both) for both in zip(rounds.rates["echo"], rounds.rates["local"], strict=True)
    ]
    report.ratio_row(
        f"{family}, {VECTORS} streams of {LANES} lanes each over TCP, 64² rgb, against 1/(1/echo + 1/local)",
        rounds.ratio("ours", "possible"),
        f"{', '.join(f'{name} {rounds.rate(name):,.0f}' for name in runs)} frames/s; "
        f"{rounds.ratio('ours', 'echo'):.2f} of the echo",
        at_least=0.9,
    )


@pytest.mark.parametrize("family", FAMILIES)
def bench_templates_against_objects(report: Report, family: str) -> None:
    loop = asyncio.new_event_loop()
    with worldloom_process() as server, objects_process() as objects_server:
        ours, objects = (connect(loop, one.address, VECTORS) for one in (server, objects_server))
        for one in (ours, objects):
            open_worlds(one, VECTORS, family, ["eye.rgb"], lanes=LANES)
        runs = {"ours": lambda seconds: ours.run(seconds)[0], "objects": lambda seconds: objects.run(seconds)[0]}
        rounds = report.in_turn(runs, ROUND_S, compared=("ours", "objects"))
        objects.close()
        ours.close()
    loop.close()
    what = f"{family}, {VECTORS} streams of {LANES} lanes each over TCP, 64² rgb"
    report.ratio_row(f"{what}, against replies built as protobuf objects", rounds.ratio("ours", "objects"), at_least=2)
