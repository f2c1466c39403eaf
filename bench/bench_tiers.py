"""Cost of the transports to a learner: an engine in its process, or a server in another by shared memory, unix or TCP.

All envs of a comparison are there at once and take their steps in turn, round by round.
"""

import contextlib
import itertools
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from worldloom.bench.load import worldloom_process
from worldloom.bench.measuring import Report
from worldloom.client import VectorEnv
from worldloom.render.arena import allocate_arena
from worldloom.render.cpu import CPURenderer
from worldloom.server.config import Limits
from worldloom.server.dm_env_rpc.step_layout import step_layout
from worldloom.server.engine.engine import Engine
from worldloom.server.engine.stages import fill_replies, write_scene
from worldloom.server.engine.world import Step

FAMILIES = ["cartpole", "catch", "maze"]
TIERS = ["local", "shm", "unix", "tcp"]
ROUNDS = 7
ROUND_S = 0.4
LANES_ENOUGH = 1024
"""Lanes from which on shared memory has targets."""
TIMES = 20
_DIFFERENT_ACTIONS = 16


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, tuple[str, str]]]:
    """By tier: where the server is, and the transport."""
    with tempfile.TemporaryDirectory() as folder:
        socket = f"unix:{Path(folder) / 'worldloom'}"
        with worldloom_process("--listen", socket) as server:
            yield {
                "local": ("local", "auto"),
                "shm": (server.address, "shm"),
                "unix": (socket, "grpc"),
                "tcp": (server.address, "grpc"),
            }


class Player:
    """An env with actions sampled beforehand."""

    def __init__(
        self, where: tuple[str, str], family: str, lanes: int, settings: Mapping[str, Any] | None = None
    ) -> None:
        address, transport = where
        how: dict[str, Any] = {"transport": transport, "settings": settings}
        self.env = VectorEnv(address, family, lanes, **how)
        self.lanes = lanes
        self.env.reset(seed=0)
        self.env.action_space.seed(0)
        self.actions = itertools.cycle([self.env.action_space.sample() for _ in range(_DIFFERENT_ACTIONS)])
        self.rates: list[float] = []
        self.play(0.1)
        self.rates.clear()

    def play(self, seconds: float) -> None:
        """Step for `seconds`, and record the frames a second."""
        began = time.perf_counter()
        steps = 0
        while time.perf_counter() < began + seconds or not steps:
            self.env.step(next(self.actions))
            steps += 1
        self.rates.append(steps * self.lanes / (time.perf_counter() - began))


@contextlib.contextmanager
def players(addresses: dict[str, tuple[str, str]], family: str, lanes: int) -> Iterator[dict[str, Player]]:
    """Make a player for each tier."""
    made = {tier: Player(addresses[tier], family, lanes) for tier in TIERS}
    yield made
    for player in made.values():
        player.env.close()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("lanes", [256, 1024])
def bench_shared_memory(report: Report, addresses: dict[str, tuple[str, str]], family: str, lanes: int) -> None:
    """With few lanes a step is mostly the round trip, which is the same for shared memory and TCP."""
    with players(addresses, family, lanes) as made:
        for _ in range(ROUNDS):
            for player in made.values():
                player.play(ROUND_S)
        report.seconds(lambda: made["shm"].play(0.01), rounds=1)
        rates = {tier: median(player.rates) for tier, player in made.items()}
    for other, least in (("local", 0.8), ("tcp", 1.5)):
        ratio = rates["shm"] / rates[other]
        what = f"{family}, {lanes} lanes, 64² rgb, shared memory against {other}"
        value = f"{ratio:.2f} × ({rates['shm']:,.0f} frames/s)"
        if lanes < LANES_ENOUGH:
            report.row(what, value)
        else:
            report.row(what, value, f"≥ {least} ×", ratio >= least)


@pytest.mark.parametrize("family", FAMILIES)
def bench_every_tier(report: Report, addresses: dict[str, tuple[str, str]], family: str) -> None:
    for lanes in (1, 16, 256, 1024, 4096):
        with players(addresses, family, lanes) as made:
            for _ in range(3):
                for player in made.values():
                    player.play(0.15)
            said = ", ".join(f"{tier} {median(player.rates):,.0f}" for tier, player in made.items())
        report.row(f"{family}, {lanes} lanes, 64² rgb, frames/s", said)
    report.seconds(lambda: None, rounds=1)


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
