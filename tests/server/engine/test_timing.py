"""Stages add up to the time that passed, the last ticks are remembered, and without timers nobody asks for the time."""

import statistics
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.support.engine_streams import EngineHarness, Stream
from worldloom.render.cpu import CPURenderer
from worldloom.server.engine import timing as stopwatch
from worldloom.server.engine.timing import MIN_KEPT_SPANS, STAGES, Counters, StageTimer
from worldloom.server.transports.in_process import InProcess


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What time it is, for a stopwatch: the one number in it."""
    now = [100.0]
    monkeypatch.setattr(stopwatch, "perf_counter", lambda: now[0])
    return now


def tick(watch: StageTimer, clock: list[float], stages: list[tuple[str, float]], wait_s: float) -> None:
    clock[0] += wait_s
    watch.begin()
    for stage, seconds in stages:
        clock[0] += seconds
        watch.mark(stage)


SECONDS = st.integers(0, 1000).map(lambda thousandths: thousandths / 1024)  # sums of these are exact
ROUNDS = st.lists(
    st.tuples(SECONDS, st.lists(st.tuples(st.sampled_from(STAGES[1:]), SECONDS), min_size=1, max_size=12)), max_size=8
)


@given(rounds=ROUNDS)
def test_stages_get_the_time_before_their_marks(rounds: list[tuple[float, list[tuple[str, float]]]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        now = [0.0]
        patch.setattr(stopwatch, "perf_counter", lambda: now[0])
        counters = Counters()
        watch = StageTimer(counters)
        for wait_s, stages in rounds:
            tick(watch, now, stages, wait_s)
        watch.begin()
        expected = dict.fromkeys(STAGES, 0.0)
        for wait_s, stages in rounds:
            expected["wait"] += wait_s
            for stage, seconds in stages:
                expected[stage] += seconds
        assert watch.stage_s == expected
        assert sum(watch.stage_s.values()) == now[0]
        spans = watch.spans()
        assert all(before.end_s == after.start_s for before, after in pairwise(spans))


def test_ticks_are_remembered_with_their_sizes(clock: list[float]) -> None:
    counters = Counters()
    watch = StageTimer(counters)
    tick(watch, clock, [("decode", 0.5)], 1.0)  # answers no step, and is no tick to tell of
    tick(watch, clock, [("decode", 0.25), ("draw", 2.0), ("send", 0.25)], 1.0)
    counters.steps, counters.lane_steps, counters.views = 3, 30, 20
    tick(watch, clock, [("decode", 0.5)], 4.0)
    counters.steps, counters.lane_steps, counters.views = 4, 31, 20
    watch.begin()
    assert watch.ticks() == [(102.5, 105.0, 3, 30, 20), (109.0, 109.5, 1, 1, 0)]


def test_little_is_remembered(clock: list[float]) -> None:
    counters = Counters()
    watch = StageTimer(counters)
    rounds = MIN_KEPT_SPANS
    for number in range(rounds):
        tick(watch, clock, [("decode", 1.0), ("draw", 1.0)], 1.0)
        counters.steps += number
        counters.views += 2 * number
        assert len(watch._stages) <= 2 * MIN_KEPT_SPANS + 3
    watch.begin()
    assert MIN_KEPT_SPANS <= len(watch.spans()) <= 2 * MIN_KEPT_SPANS + 3
    assert watch.stage_s["draw"] == rounds, "what is not remembered counts all the same"
    last = watch.ticks()[-MIN_KEPT_SPANS // 4 :]
    assert [(one.steps, one.views) for one in last] == [(n, 2 * n) for n in range(rounds - len(last), rounds)]
    assert all(one.end_s - one.start_s == 2.0 for one in last)


def test_what_was_before_the_first_tick_does_not_count(clock: list[float]) -> None:
    counters = Counters()
    watch = StageTimer(counters)
    clock[0] += 60.0
    watch.restart()
    tick(watch, clock, [("decode", 1.0)], 1.0)
    watch.begin()
    assert sum(watch.stage_s.values()) == 2.0


def joined(harness: EngineHarness) -> Stream:
    stream = harness.stream()
    stream.join(stream.create("maze", lanes=32))
    stream.step("eye.rgb")
    return stream


def test_the_stages_of_ticks_are_the_time_that_passed(harness: EngineHarness) -> None:
    """Measured from outside with a clock of our own; what passes between ticks is left out on both sides.

    The median of many ticks: in any one of them the process may have to wait for a processor between two clocks.
    """
    stream = joined(harness)
    shares = []
    for _ in range(41):
        stream.post_step("eye.rgb")
        [call], harness._calls = harness._calls, []
        before = harness.engine.timer.stage_s
        began_s = time.perf_counter()
        if harness.engine.tick([call]):
            harness.engine.timer.mark("send")  # as the engine's thread does
        took_s = time.perf_counter() - began_s
        after = harness.engine.timer.stage_s
        shares.append(sum(after[stage] - before[stage] for stage in STAGES if stage != "wait") / took_s)
    assert 0.95 <= statistics.median(shares) <= 1.001


def test_clients_read_the_timers(harness: EngineHarness) -> None:
    stream = joined(harness)
    assert stream.read("timers.is_on")
    assert stream.read("timers.stages").split() == list(STAGES)
    totals = stream.read("timers.stage_s")
    assert totals.shape == (len(STAGES),)
    assert totals[STAGES.index("draw")] == stream.read("counters.stage_s.draw") > 0
    spans, ticks = stream.read("timers.spans"), stream.read("timers.ticks")
    assert (spans[:, 2] >= spans[:, 1]).all()
    assert set(spans[:, 0]) <= set(range(len(STAGES)))
    assert ticks[:, 2:].tolist() == [[1, 32, 32]]
    assert set(stream.list_properties("counters.stage_s")) == {f"counters.stage_s.{stage}" for stage in STAGES}


def test_without_timers_nobody_asks_for_the_time(cpu: CPURenderer, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden() -> float:
        raise AssertionError("someone asked for the time")

    monkeypatch.setattr(stopwatch, "perf_counter", forbidden)
    harness = EngineHarness(cpu, timers=False)
    stream = joined(harness)
    assert not stream.read("timers.is_on")
    assert not stream.read("timers.stage_s").any()
    assert stream.read("timers.spans").shape == (0, 3)
    assert stream.read("timers.ticks").shape == (0, 5)
    InProcess("cpu", timers=False).close()
