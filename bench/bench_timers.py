"""Cost of the timers: an engine that measures its stages against one that does not, and the marks by themselves."""

from statistics import median
from time import perf_counter

import pytest

from worldloom.bench.measuring import Report
from worldloom.render.cpu import CPURenderer
from worldloom.server.config import Limits
from worldloom.server.dm_env_rpc.step_layout import step_layout
from worldloom.server.engine.engine import Engine
from worldloom.server.engine.timing import Counters, NoTimer, StageTimer
from worldloom.server.engine.world import Agent, Step

ROUNDS = 301
TICK = ("decode", "simulate", "plan", "draw", "fill", "send")
MARKED = 20
"""Ticks at a time, so that the clock around them does not count."""
CASES = [(1, []), (1, ["eye.rgb"]), (64, ["eye.rgb"])]


class Player:
    """An engine with one world, ticked by hand, with and without a timer in turn."""

    def __init__(self, lanes: int, names: list[str]) -> None:
        self.engine = Engine(CPURenderer, Limits())
        self.engine.open()
        world = self.engine.directory.create({"family": "catch", "lanes": lanes, "seed": 0})
        joining = {"observations": ["reward", *names]}
        self.agent: Agent = self.engine.directory.join(world, joining, self.engine.layout_cache(step_layout))
        self.request = self.agent.specs.request(list(self.agent.specs.observations))
        self.watches = (self.engine.timer, NoTimer())
        self.took_s: tuple[list[float], list[float]] = ([], [])

    def tick_often(self) -> None:
        """Ticks with one and with the other, one at a time: whatever else the machine does happens to both.

        Python is quicker where it always meets the same kind of thing, so this makes the timers look a bit worse.
        """
        for number in range(ROUNDS):
            for which in (0, 1) if number % 2 else (1, 0):
                self.engine.timer = self.watches[which]
                began = perf_counter()
                self.engine.tick([self._step])
                self.took_s[which].append(perf_counter() - began)

    def _step(self) -> None:
        self.engine.step(Step(self.agent, {}, self.request, _ignore, _ignore))


def _ignore(_: object) -> None:
    """Nobody waits for it."""


def _seconds_of_marks(watch: NoTimer, counters: Counters) -> float:
    """Return the median time of the marks of one tick, by themselves."""
    took_s = []
    for _ in range(ROUNDS):
        began = perf_counter()
        for _ in range(MARKED):
            watch.begin()
            for stage in TICK:
                watch.mark(stage)
            counters.steps += 1
        took_s.append((perf_counter() - began) / MARKED)
    return median(took_s)


@pytest.mark.parametrize(("lanes", "names"), CASES)
def bench_timers(report: Report, lanes: int, names: list[str]) -> None:
    player = Player(lanes, names)
    report.seconds(player.tick_often, rounds=9)
    player.engine.close()
    counters = Counters()
    marks_s = [_seconds_of_marks(watch, counters) for watch in (StageTimer(counters), NoTimer())]
    on_s, off_s = (median(took_s) for took_s in player.took_s)
    what = f"catch, a tick of {lanes} lane{'s' if lanes > 1 else ''} {'at 64² rgb' if names else 'without frames'}"
    report.row(
        f"{what}, timers on against off",
        f"{on_s / off_s:.3f} × ({1e6 * off_s:.0f} µs)",
        "≤ 1.01 ×" if lanes > 1 else "",
        lanes == 1 or on_s <= 1.01 * off_s,
    )
    for how, seconds, most in (("on", marks_s[0], 0.01), ("off", marks_s[1], 0.003)):
        report.row(
            f"{what}, its marks alone with timers {how}, as a part of it",
            f"{100 * seconds / off_s:.2f} % ({1e6 * seconds:.1f} µs)",
            f"≤ {100 * most:g} %" if names else "",
            not names or seconds <= most * off_s,
        )
