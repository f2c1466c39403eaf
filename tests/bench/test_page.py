"""Tables come out as Markdown has them, and go into pages without touching a word around them."""

import argparse
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.bench import measuring as machine
from worldloom.bench.measuring import (
    BEGIN,
    END,
    above_zero,
    at_least_one,
    measure_in_turn,
    medians,
    ratio,
    replace_between_marks,
    table,
    write_page,
)
from worldloom.profiler.results import processor

ROOT = Path(__file__).parents[2]
WORDS = st.text(st.characters(blacklist_characters="\r\n<", blacklist_categories=["Cs"]), max_size=20)


@given(st.lists(WORDS), st.lists(WORDS), st.lists(WORDS), st.lists(WORDS))
def test_what_is_between_the_marks_is_replaced(
    before: list[str], old: list[str], new: list[str], after: list[str]
) -> None:
    page = "\n".join([*before, BEGIN, *old, END, *after])
    written = replace_between_marks(page, new)
    assert written == "\n".join([*before, BEGIN, *new, END, *after])
    assert replace_between_marks(written, new) == written


@pytest.mark.parametrize("text", ["", BEGIN, END + BEGIN, f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_page_without_marks_is_left_alone(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(ValueError, match="no marks for a table"):
        write_page(page, ["|"])
    assert page.read_text() == text


@pytest.mark.parametrize("name", ["docs/ablation", "docs/peers", "docs/mujoco", "README", "bench/RESULTS"])
def test_the_pages_have_a_place_for_their_tables(name: str) -> None:
    assert replace_between_marks((ROOT / f"{name}.md").read_text(), ["| here |"]).count("| here |") == 1


def test_a_table() -> None:
    assert table(["", "rate"], [["a|b", "1,200"], ["c", "3.4 ×"]]) == [
        "|  | rate |",
        "|---|---:|",
        "| a\\|b | 1,200 |",
        "| c | 3.4 × |",
    ]
    with pytest.raises(ValueError, match="expected 2, one for each head"):
        table(["a", "b"], [["1"]])


def test_ratios_in_words() -> None:
    assert [ratio(value, 10.0) for value in (1234.0, 99.0, 20.0, 19.0, 3.0)] == [
        "123 ×",
        "9.9 ×",
        "2.0 ×",
        "1.90 ×",
        "0.30 ×",
    ]
    assert ratio(5.0, None) == ""


def test_rounds_go_from_one_to_the_next() -> None:
    played: list[tuple[str, float]] = []

    def player(name: str, rate: float) -> Callable[[float], float]:
        def play(seconds: float) -> float:
            played.append((name, seconds))
            return rate * len(played)

        return play

    rates = measure_in_turn({"a": player("a", 1.0), "b": player("b", 10.0)}, rounds=2, seconds=3.0)
    assert played == [("a", 1.0), ("b", 1.0), *[("a", 3.0), ("b", 3.0)] * 2], "the first of each is short"
    assert rates == {"a": [3.0, 5.0], "b": [40.0, 60.0]}, "and does not count"
    assert medians(rates) == {"a": 4.0, "b": 50.0}


@given(st.text(max_size=8))
def test_options_are_numbers(word: str) -> None:
    for read, least in ((at_least_one, 1.0), (above_zero, 0.0)):
        with contextlib.suppress(argparse.ArgumentTypeError):
            value = read(word)
            assert value == float(word)
            assert value >= least


@given(st.integers(1, 10**6), st.floats(0.001, 3599))
def test_sensible_options_are_taken(count: int, seconds: float) -> None:
    assert at_least_one(str(count)) == count
    assert above_zero(str(seconds)) == seconds


def test_no_more_cores_than_there_are() -> None:
    with pytest.raises(ValueError, match="--cores is 100000: expected 1 to "):
        machine.limit_cores(100_000)


def test_circumstances_name_what_was_measured_on() -> None:
    said = machine.describe_conditions(["numpy"])
    assert said.startswith(processor())
    assert " in use; Python 3." in said
    assert ", numpy " in said
