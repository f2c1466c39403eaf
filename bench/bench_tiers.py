"""Cost of the transports to a learner: an engine in its process, or a server in another, by socket or by gRPC.

All envs of a comparison are there at once and take their steps in turn, round by round.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

from worldloom.bench.load import worldloom_process
from worldloom.bench.measuring import RateFunction, Report, measure_in_turn, medians
from worldloom.bench.players import LOCAL, SAME_MACHINE, Player
from worldloom.render.arena import allocate_arena
from worldloom.render.cpu import CPURenderer
from worldloom.server.config import Limits
from worldloom.server.dm_env_rpc.step_layout import step_layout
from worldloom.server.engine.engine import Engine
from worldloom.server.engine.stages import fill_replies, write_scene
from worldloom.server.engine.timing import STAGES
from worldloom.server.engine.world import Step

FAMILIES = ["cartpole", "catch", "maze"]
TIERS = ["local", SAME_MACHINE, "shm", "unix", "tcp"]
ROUND_S = 0.6
LANES_ENOUGH = 1024
"""Lanes from which on a step on the same machine has to be faster than over TCP."""
TIMES = 20

Runs: TypeAlias = dict[str, RateFunction]
"""By tier: steps an env for some seconds and returns its frames a second."""


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, tuple[str, str]]]:
    """By tier: where the server is, and the transport."""
    with tempfile.TemporaryDirectory() as folder:
        socket = f"unix:{Path(folder) / 'worldloom'}"
        with worldloom_process("--listen", socket) as server:
            yield {
                "local": LOCAL,
                SAME_MACHINE: (server.address, SAME_MACHINE),
                "shm": (server.address, "shm"),
                "unix": (socket, "grpc"),
                "tcp": (server.address, "grpc"),
            }


@contextlib.contextmanager
def players(addresses: dict[str, tuple[str, str]], tiers: Sequence[str], family: str, lanes: int) -> Iterator[Runs]:
    """Make an env for each tier; yield the functions that step them."""
    with contextlib.ExitStack() as cleanup:
        runs: Runs = {}
        for tier in tiers:
            player = Player(addresses[tier], family, lanes)
            cleanup.callback(player.env.close)
            runs[tier] = player.play
        yield runs


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("lanes", "least"), [(1, 0.4), (16, 0.6), (256, 0.9), (1024, 0.95)])
def bench_same_machine(
    report: Report, addresses: dict[str, tuple[str, str]], family: str, lanes: int, least: float
) -> None:
    with players(addresses, ["local", SAME_MACHINE, "tcp"], family, lanes) as runs:
        rounds = report.in_turn(runs, ROUND_S, compared=(SAME_MACHINE, "local"))
    what = f"{family}, {lanes} lane{'s' if lanes > 1 else ''}, 64² rgb, {SAME_MACHINE}"
    rate = f"{rounds.rate(SAME_MACHINE):,.0f} against"
    local, tcp = rounds.rate("local"), rounds.rate("tcp")
    report.ratio_row(
        f"{what} against local", rounds.ratio(SAME_MACHINE, "local"), f"{rate} {local:,.0f} frames/s", at_least=least
    )
    report.ratio_row(
        f"{what} against tcp",
        rounds.ratio(SAME_MACHINE, "tcp"),
        f"{rate} {tcp:,.0f} frames/s",
        at_least=1.5 if lanes >= LANES_ENOUGH else None,
    )


@pytest.mark.parametrize(("lanes", "least"), [(1, 0.15), (16, 0.3)])
def bench_beside_other_programs(
    report: Report, addresses: dict[str, tuple[str, str]], lanes: int, least: float
) -> None:
    """Every core has a program of its own to run. An end that polls then takes time from the end that it waits for."""
    with contextlib.ExitStack() as cleanup:
        for _ in os.sched_getaffinity(0):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            cleanup.callback(busy.wait)
            cleanup.callback(busy.kill)
        runs = cleanup.enter_context(players(addresses, ["local", SAME_MACHINE], "catch", lanes))
        rounds = report.in_turn(runs, ROUND_S, compared=(SAME_MACHINE, "local"))
    report.ratio_row(
        f"catch, {lanes} lane{'s' if lanes > 1 else ''}, 64² rgb, beside a busy program for each core, {SAME_MACHINE} "
        "against local",
        rounds.ratio(SAME_MACHINE, "local"),
        f"{rounds.rate(SAME_MACHINE):,.0f} against {rounds.rate('local'):,.0f} frames/s",
        at_least=least,
    )


@pytest.mark.parametrize("family", FAMILIES)
def bench_every_tier(report: Report, addresses: dict[str, tuple[str, str]], family: str) -> None:
    for lanes in (1, 16, 256, 1024, 4096):
        with players(addresses, TIERS, family, lanes) as runs:
            rates = medians(measure_in_turn(runs, rounds=3, seconds=0.15))
        report.row(
            f"{family}, {lanes} lane{'s' if lanes > 1 else ''}, 64² rgb, frames/s",
            ", ".join(f"{tier} {rate:,.0f}" for tier, rate in rates.items()),
            figures={f"{family}, {lanes} lanes, {tier}": rate for tier, rate in rates.items()},
        )
    report.seconds(lambda: None, rounds=1)


@pytest.mark.parametrize("lanes", [16, 256, 1024])
def bench_stages_of_a_step(report: Report, addresses: dict[str, tuple[str, str]], lanes: int) -> None:
    """Time of each stage on the engine's thread. It waits while the client works, and for either to wake up."""
    with contextlib.ExitStack() as cleanup:
        of_tiers = {tier: Player(addresses[tier], "catch", lanes) for tier in ("local", SAME_MACHINE)}
        for player in of_tiers.values():
            cleanup.callback(player.env.close)
        found: dict[str, list[np.ndarray]] = {tier: [] for tier in of_tiers}

        def play_round() -> None:
            for tier, player in of_tiers.items():
                before_s, steps = _stage_seconds(player), len(player.times_s)
                player.play(ROUND_S)
                found[tier].append((_stage_seconds(player) - before_s) / (len(player.times_s) - steps))

        report.seconds(play_round, rounds=5)
    for tier, rounds in found.items():
        stages_us = dict(zip(STAGES, 1e6 * np.median(rounds[1:], axis=0), strict=True))
        each = ", ".join(f"{stage} {time_us:.0f}" for stage, time_us in stages_us.items() if time_us >= 0.5)
        report.row(f"catch, {lanes} lanes, 64² rgb, {tier}, µs of a step by stage", each)


def _stage_seconds(player: Player) -> np.ndarray:
    world = player.env._streams.first_world
    return np.asarray(world.read_property("timers.stage_s"))


def bench_filling_a_template(report: Report, cpu: CPURenderer) -> None:
    """Everything of a reply but its pixels, against a copy of the pixels, which writing in place saves."""
    engine = Engine(lambda: cpu, Limits())
    engine.open()
    directory = engine.directory
    world = directory.create({"family": "catch", "lanes": 256, "seed": 0})
    names = ["eye.rgb", "reward", "discount", "step_type", "ball", "paddle"]
    agent = directory.join(world, {"observations": names}, engine.layout_cache(step_layout))
    request = agent.specs.request(list(agent.specs.observations))

    def ignore(_: object) -> None:
        """Nobody waits for it."""

    step = Step(agent, {}, request, ignore, ignore)
    engine.step(step)
    engine.tick([])
    groups = write_scene([step], directory.scene)
    frames, other = allocate_arena(256 * 64 * 64 * 3), allocate_arena(256 * 64 * 64 * 3)

    def fill_often() -> None:
        for _ in range(TIMES):
            fill_replies(groups)

    def copy_often() -> None:
        for _ in range(TIMES):
            np.copyto(other, frames)

    ratio = report.ratio(fill_often, copy_often)
    report.row(
        "filling a template of 256 lanes with all numbers of catch, against a copy of its frames",
        f"{ratio:.2f} ×",
        "≤ 1.3 ×",
        ratio <= 1.3,
    )
