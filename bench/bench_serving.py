"""Cost of serving beyond gRPC itself: the same clients with our server and with one that only echoes.

Client and server are in different processes. Both servers are there all the time; rounds alternate between them.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from statistics import median, quantiles

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
from worldloom.bench.measuring import Report

ROUNDS = 7
ROUND_S = 0.6


@contextlib.contextmanager
def both(
    streams: int, connections: int, family: str, observations: list[str], lanes: int | None = None
) -> Iterator[tuple[Streams, Streams]]:
    """Open the same streams to our server and to an echo server with replies of the same size."""
    loop = asyncio.new_event_loop()
    with worldloom_process() as server:
        ours = connect(loop, server.address, connections)
        open_worlds(ours, streams, family, observations, lanes)
        with echo_process(ours.reply_bytes) as echo_server:
            echo = connect(loop, echo_server.address, connections)
            open_echo(echo, streams, ours.requests[0])
            echo.run(0.3)
            ours.run(0.3)
            yield ours, echo
            echo.close()
            ours.close()
    loop.close()


def in_turn(ours: Streams, echo: Streams) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return the rates of each round and all times, of ours and of the echo server."""
    our_rates, echo_rates = [], []
    our_times: list[float] = []
    echo_times: list[float] = []
    for _ in range(ROUNDS):
        rate, times = echo.run(ROUND_S)
        echo_rates.append(rate)
        echo_times += times
        rate, times = ours.run(ROUND_S)
        our_rates.append(rate)
        our_times += times
    return our_rates, echo_rates, our_times, echo_times


def bench_latency_of_one_stream(report: Report) -> None:
    with both(1, 1, "cartpole", []) as (ours, echo):
        _, _, our_times, echo_times = in_turn(ours, echo)
        report.seconds(lambda: ours.run(0.1), rounds=1)
    for name, our_s, echo_s in (
        ("median", median(our_times), median(echo_times)),
        ("99th percentile", quantiles(our_times, n=100)[98], quantiles(echo_times, n=100)[98]),
    ):
        report.row(
            f"one stream, steps without frames against an echo: {name}",
            f"{our_s / echo_s:.2f} × ({1e6 * our_s:.0f} µs)",
            "≤ 2 ×",
            our_s <= 2 * echo_s,
        )


@pytest.mark.parametrize("family", ["cartpole", "catch", "maze"])
@pytest.mark.parametrize(
    ("streams", "connections", "lanes", "what", "least"),
    [
        (64, 4, None, "64 streams of one 64² rgb frame each", 0.6),
        (2, 2, 256, "two streams of 256 lanes each over TCP, 64² rgb", 0.5),
    ],
    ids=["many", "vector"],
)
def bench_against_an_echo(
    report: Report, family: str, streams: int, connections: int, lanes: int | None, what: str, least: float
) -> None:
    with both(streams, connections, family, ["eye.rgb"], lanes) as (ours, echo):
        our_rates, echo_rates, _, _ = in_turn(ours, echo)
        report.seconds(lambda: ours.run(0.1), rounds=1)
    ratio = median(our_rates) / median(echo_rates)
    report.row(
        f"{family}, {what}, against an echo of the same size",
        f"{ratio:.2f} × ({(lanes or 1) * median(our_rates):,.0f} frames/s)",
        f"≥ {least} ×",
        ratio >= least,
    )


@pytest.mark.parametrize("family", ["cartpole", "catch", "maze"])
def bench_templates_against_objects(report: Report, family: str) -> None:
    loop = asyncio.new_event_loop()
    with worldloom_process() as server, objects_process() as objects_server:
        ours, objects = connect(loop, server.address, 2), connect(loop, objects_server.address, 2)
        for one in (ours, objects):
            open_worlds(one, 2, family, ["eye.rgb"], lanes=256)
        our_rates, objects_rates, _, _ = in_turn(ours, objects)
        report.seconds(lambda: ours.run(0.1), rounds=1)
        objects.close()
        ours.close()
    loop.close()
    ratio = median(our_rates) / median(objects_rates)
    report.row(
        f"{family}, two streams of 256 lanes each over TCP, 64² rgb, against replies built as protobuf objects",
        f"{ratio:.2f} ×",
        "≥ 2 ×",
        ratio >= 2,
    )
