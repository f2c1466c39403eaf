"""Spinner, with a clock that the test moves: answers come after a time that depends on the way to wait."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.protos.spinning import SPIN_S, Spinner

ASK_S = 1e-6
"""Time of one poll."""


class Waits:
    """Waits of one end, and the ways in which they were made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.spinner = Spinner(clock=lambda: self.now_s)
        self.polled: list[bool] = []
        """For each wait whether it began with polling."""
        monkeypatch.setattr("os.sched_yield", self._yield)

    def wait(self, polling_s: float, sleeping_s: float) -> float:
        """Wait for an answer that takes so long if polled for, and so long otherwise; return the time it took."""
        began_s = self.now_s
        self.polled.append(False)

        def is_there() -> bool:
            return self.polled[-1] and self.now_s >= began_s + polling_s

        def sleep() -> None:
            after_s = polling_s + SPIN_S if self.polled[-1] else sleeping_s
            self.now_s = max(self.now_s, began_s + after_s)

        self.spinner.wait(is_there, sleep)
        return self.now_s - began_s

    def run(self, count: int, polling_s: float, sleeping_s: float) -> float:
        """Make so many waits; return the share of them that polled."""
        for _ in range(count):
            self.wait(polling_s, sleeping_s)
        return sum(self.polled[-count:]) / count

    def _yield(self) -> None:
        self.polled[-1] = True
        self.now_s += ASK_S


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    return Waits(monkeypatch)


def test_an_answer_that_is_there_is_not_waited_for(waits: Waits) -> None:
    def fail() -> None:
        raise AssertionError("it sleeps")

    waits.spinner.wait(lambda: True, fail)
    assert waits.now_s == 0


def test_polls_where_that_is_shorter_and_tries_the_other_way_seldom(waits: Waits) -> None:
    waits.run(2000, 50e-6, 120e-6)
    assert waits.run(5000, 50e-6, 120e-6) > 0.98


@pytest.mark.parametrize("polling_s", [119e-6, 150e-6, 290e-6, 1e-3])
def test_sleeps_where_polling_gains_nothing(waits: Waits, polling_s: float) -> None:
    """Polling that gains nothing would only take a core from others."""
    waits.run(2000, polling_s, 120e-6)
    assert waits.run(5000, polling_s, 120e-6) < 0.02


def test_long_waits_are_slept_through(waits: Waits) -> None:
    waits.run(2000, 5e-3, 5e-3)
    assert waits.run(5000, 5e-3, 5e-3) < 0.02


def test_follows_a_change_of_load(waits: Waits) -> None:
    for polling_s, sleeping_s, expected in itertools.islice(
        itertools.cycle([(50e-6, 120e-6, 1.0), (400e-6, 200e-6, 0.0)]), 6
    ):
        waits.run(1100, polling_s, sleeping_s)  # the longest time between two trials
        assert abs(waits.run(200, polling_s, sleeping_s) - expected) < 0.2


@given(times=st.lists(st.tuples(st.floats(1e-6, 2e-3), st.floats(1e-6, 2e-3)), max_size=300))
def test_every_wait_ends_with_its_answer(times: list[tuple[float, float]]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        waits = Waits(monkeypatch)
        for polling_s, sleeping_s in times:
            took_s = waits.wait(polling_s, sleeping_s)
            limit_s = polling_s + SPIN_S if waits.polled[-1] else sleeping_s
            assert min(polling_s, sleeping_s) <= took_s + ASK_S <= limit_s + 3 * ASK_S


def test_a_wait_that_fails_is_not_counted(waits: Waits) -> None:
    def fail() -> None:
        waits.now_s += 60.0
        raise BlockingIOError

    waits.polled.append(False)
    for _ in range(100):
        with pytest.raises(BlockingIOError):
            waits.spinner.wait(lambda: False, fail)
    waits.run(2000, 50e-6, 120e-6)
    assert waits.run(5000, 50e-6, 120e-6) > 0.98
