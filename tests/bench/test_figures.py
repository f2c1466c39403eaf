"""Figures of runs go into the pages that quote them, all or none."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.bench import figures
from worldloom.bench.measuring import BEGIN, END
from worldloom.bench.peers.comparisons import COMPARISONS
from worldloom.bench.players import SAME_MACHINE

PAGE = f"before\n{BEGIN}\nold\n{END}\nafter\n"


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """Files of three runs, and pages without figures; returns the arguments that name them."""
    tiers = {
        f"{family}, {lanes} lanes, {tier}": 1000.0 * lanes + number
        for number, family in enumerate(figures.FAMILIES)
        for lanes in (1, 16, 256, 1024)
        for tier in ("local", SAME_MACHINE, "tcp")
    }
    streams = {f"{family}, 64 streams": 3210.0 for family in figures.FAMILIES}
    kinds = ("few", "local", SAME_MACHINE, "default", "plain")
    tasks = {f"{task}, {kind}": 4321.0 for task in figures.TASKS for kind in kinds}
    rows = [{"what": "", "figures": part} for part in (tiers, streams, tasks)]
    (tmp_path / "bench.json").write_text(json.dumps({"rows": rows}))
    naive = {family: {"naive, gl": [300.0, 370.9, 400.0]} for family in figures.FAMILIES}
    (tmp_path / "ablation.json").write_text(json.dumps({"frames_per_s": naive}))
    for comparison in COMPARISONS:
        sides = [{"name": one.name, "frames_per_s": [5678.0]} for one in comparison.implementations]
        (tmp_path / f"{comparison.name}.json").write_text(json.dumps({"sides": sides}))
    (tmp_path / "docs").mkdir()
    for page in ("README.md", "docs/mujoco.md"):
        (tmp_path / page).write_text(PAGE)
    names = ("--bench", tmp_path / "bench.json", "--ablation", tmp_path / "ablation.json", "--peers", tmp_path)
    return [*map(str, names), "--root", str(tmp_path)]


def test_pages_get_the_figures_of_the_runs(runs: list[str], tmp_path: Path) -> None:
    assert figures.main(runs) == 0
    readme, mujoco = (tmp_path / "README.md").read_text(), (tmp_path / "docs/mujoco.md").read_text()
    assert "| in process, 1 lane | 1,000 | 1,000 | 1,000 |" in readme
    assert "| TCP, 1024 lanes | 1,020,000 |" in readme
    assert "| a naive dm_env_rpc server, 64 streams | 371 | 371 | 371 |" in readme
    assert "| the same with two of each | 5,680 | 5,680 |" in readme
    assert "| walker walk | 4,320 | 4,320 | 4,320 | 4,320 | 4,320 |" in mujoco
    for text in (readme, mujoco):
        assert text.startswith(f"before\n{BEGIN}\n\n|")
        assert text.endswith(f"|\n\n{END}\nafter\n")


@pytest.mark.parametrize(
    ("name", "said"),
    [("bench", "`make bench` writes it"), ("ablation", "`make ablation`"), ("vizdoom", "`make bench-peers`")],
)
def test_a_run_that_is_missing(
    runs: list[str], tmp_path: Path, name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / f"{name}.json").unlink()
    assert figures.main(runs) == 2
    assert said in capsys.readouterr().err
    assert (tmp_path / "README.md").read_text() == (tmp_path / "docs/mujoco.md").read_text() == PAGE


def test_a_figure_that_is_missing(runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bench.json").write_text(json.dumps({"rows": []}))
    assert figures.main(runs) == 2
    assert "the figure 'catch, 1 lanes, local' is missing in the runs" in capsys.readouterr().err
    assert (tmp_path / "README.md").read_text() == PAGE


@given(st.floats(1, 1e9))
def test_three_digits_are_kept(value: float) -> None:
    shown = float(figures.round_figure(value).replace(",", ""))
    # Half of the third digit, and below 100 half of 1: rates are whole numbers.
    assert abs(shown - value) <= max(value * 0.005, 0.5) * (1 + 1e-12)
