"""Ratios, targets, and what is told of things that cannot be measured here."""

import math
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.bench import bench_local, bench_peers
from worldloom.bench.measuring import Report, Rounds, Row, combined_rate
from worldloom.bench.previous_version import COMMIT, HistoryError

RATES = st.floats(1e-3, 1e9)


class NoBenchmark:
    """The fixture of pytest-benchmark, as far as it matters here: it calls."""

    def pedantic(self, run: Callable[[], object], rounds: int, warmup_rounds: int = 0, **_: Any) -> None:
        """Call as often as the fixture would."""
        for _round in range(rounds + warmup_rounds):
            run()


@pytest.fixture
def rows() -> list[Row]:
    return []


@pytest.fixture
def report(rows: list[Row]) -> Report:
    return Report(NoBenchmark(), rows.append, lambda text: None)


@given(RATES, RATES)
def test_two_parts_of_a_step_take_the_time_of_both(first: float, second: float) -> None:
    # One step of each part, one after the other; a division and a sum round by an ulp each.
    assert math.isclose(1 / combined_rate(first, second), 1 / first + 1 / second, rel_tol=1e-14)


@given(st.lists(st.tuples(RATES, RATES), min_size=1, max_size=7))
def test_a_ratio_is_the_median_over_rounds(pairs: list[tuple[float, float]]) -> None:
    rounds = Rounds({"a": [a for a, _ in pairs], "b": [b for _, b in pairs]})
    assert rounds.ratio("a", "b") == median(a / b for a, b in pairs)
    assert rounds.rate("a") == median(a for a, _ in pairs)


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_targets_are_met_or_missed(value: float, target: float) -> None:
    rows: list[Row] = []
    report = Report(NoBenchmark(), rows.append, lambda text: None)
    report.ratio_row("least", value, at_least=target)
    report.ratio_row("most", value, at_most=target)
    report.ratio_row("none", value)
    assert [row.met for row in rows] == [value >= target, value <= target, True]
    assert [row.target[:1] for row in rows] == ["≥", "≤", ""]
    assert [row.cells()[2].endswith("**missed**") for row in rows] == [not row.met for row in rows]


def test_rounds_alternate_and_are_noted(rows: list[Row]) -> None:
    notes: list[str] = []
    played: list[str] = []

    def player(name: str, rate: float) -> Callable[[float], float]:
        def play(seconds: float) -> float:
            assert seconds == 0.25
            played.append(name)
            return rate

        return play

    report = Report(NoBenchmark(), rows.append, notes.append)
    rounds = report.in_turn({"a": player("a", 6.0), "b": player("b", 2.0)}, 0.25, rounds=2, compared=("a", "b"))
    assert played == ["a", "b"] * 3
    assert rounds.rates == {"a": [6.0, 6.0], "b": [2.0, 2.0]}, "the first round does not count"
    assert notes == ["round 1 of 2, 3 × so far", "round 2 of 2, 3 × so far"]


def test_without_other_environments_the_table_says_how_to_get_them(
    report: Report, rows: list[Row], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench_peers, "PYTHON", tmp_path / "none")
    bench_peers.bench_other_environments(report, ("vizdoom", "vizdoom-few"))
    assert [row.measured for row in rows] == ["not measured: `make peers` sets the other environments up"] * 2
    assert all(row.met for row in rows)


def test_without_history_the_table_says_so(report: Report, rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    def extract(commit: str) -> Path:
        raise HistoryError(f"the history here has no commit {commit}")

    monkeypatch.setattr(bench_local, "extract", extract)
    bench_local.bench_local_against_the_version_before(report)
    assert [row.measured for row in rows] == [f"not measured: the history here has no commit {COMMIT}"]
