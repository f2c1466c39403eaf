"""Cost of the live view to clients: a server that is watched, one that nobody watches, and one without a page."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from worldloom.bench.load import worldloom_process
from worldloom.bench.measuring import Report
from worldloom.bench.players import SAME_MACHINE, Player
from worldloom.server.engine.timing import Counters, StageTimer

LANES, TILES = 256, 64
ROUND_S = 2.0
FIRST_PICTURE_S = 1.0
"""Target for the time from the connection of a page to its first picture."""
_TICKS = 2000
"""Ticks of a busy server in a second."""
_STAGES = ("decode", "simulate", "plan", "draw", "fill", "send")


@contextlib.contextmanager
def page_reader(url: str) -> "Iterator[subprocess.Popen[str]]":
    """Run `worldloom.bench.page_reader`: a page that shows tiles, as far as they are asked for by its input."""
    process = subprocess.Popen(
        [sys.executable, "-m", "worldloom.bench.page_reader", url, str(TILES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def say(process: "subprocess.Popen[str]", word: str) -> str:
    """Give the reader a command, and return its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


@pytest.mark.parametrize("family", ["maze", "catch"])
def bench_watching(report: Report, family: str) -> None:
    """Three servers take turns; the reader shows tiles of the third while it is stepped, and none meanwhile."""
    web = ("--web", "127.0.0.1:0")
    with (
        worldloom_process() as plain,
        worldloom_process(*web) as unwatched,
        worldloom_process(*web) as watched,
        page_reader(watched.page) as reader,
    ):
        players = {
            name: Player((server.address, SAME_MACHINE), family, LANES)
            for name, server in (("plain", plain), ("unwatched", unwatched), ("watched", watched))
        }
        first_s: list[float] = []
        pictures: list[float] = []

        def play_watched(seconds: float) -> float:
            first_s.append(float(say(reader, "watch")))
            try:
                return players["watched"].play(seconds)
            finally:
                pictures.append(float(say(reader, "pause")) / seconds)

        runs = {name: player.play for name, player in players.items()} | {"watched": play_watched}
        try:
            rounds = report.in_turn(runs, ROUND_S, rounds=7, compared=("watched", "plain"))
        finally:
            for player in players.values():
                player.env.close()
    what = f"{family}, {LANES} lanes, 64² rgb, socket"
    for name, how, target in (
        ("watched", f"{TILES} tiles on a page, against a server without a page", 0.95),
        ("unwatched", "nobody watches the page, against a server without one", 0.98),
    ):
        report.ratio_row(
            f"{what}: {how}",
            rounds.ratio(name, "plain"),
            f"{rounds.rate(name):,.0f} against {rounds.rate('plain'):,.0f} frames/s",
            at_least=target,
        )
    report.row(f"{what}: pictures of {TILES} tiles", f"{sorted(pictures)[len(pictures) // 2]:.1f} a second")
    slowest_s = max(first_s)
    report.row(
        f"{what}: first picture after the page has connected, slowest of {len(first_s)}",
        f"{slowest_s:.2f} s",
        f"≤ {FIRST_PICTURE_S:g} s",
        slowest_s <= FIRST_PICTURE_S,
    )


def bench_samples(report: Report) -> None:
    """The work of an engine once a second for metrics: it adds up the times of all ticks since the last."""
    counters = Counters()
    timer = StageTimer(counters)

    def tick_often() -> None:
        for _ in range(_TICKS):
            timer.begin()
            for stage in _STAGES:
                timer.mark(stage)
            counters.count_steps([1])

    took_s = report.seconds(lambda: (timer.histograms, timer.stage_s), rounds=15, before=tick_often)
    report.row(
        f"adding up {_TICKS:,} ticks for metrics: stages, and histograms of tick times and batches",
        f"{1000 * took_s:.1f} ms once a second",
        "≤ 10 ms",
        took_s <= 0.01,
    )
