"""The examples with learning libraries run as their page says, in short."""

import csv
import re
from pathlib import Path

import pytest

from tests.examples.test_examples import run


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # tests share two cores


def test_sb3_trains_and_is_evaluated(tmp_path: Path) -> None:
    printed = run("sb3_catch.py", "--lanes", "1", "--steps", "1", "--out", tmp_path, warnings="default")
    found = re.fullmatch(r"mean return (-?\d\.\d\d)", printed.splitlines()[-1])
    assert found
    assert -1.0 <= float(found[1]) <= 1.0
    with (tmp_path / "progress.csv").open() as file:
        [row] = csv.DictReader(file)
    assert int(row["time/total_timesteps"]) == 2048
    assert -1.0 <= float(row["rollout/ep_rew_mean"]) <= 1.0


def test_torchrl_collects(server_address: str) -> None:
    printed = run(
        "torchrl_collector.py", "--lanes", "8", "--batches", "2", "--address", server_address, warnings="default"
    )
    assert re.fullmatch(r"[1-9][\d,]* transitions a second; sample: \(256, 32, 32, 3\)", printed.splitlines()[-1])


def test_ppo_has_a_command_line() -> None:
    assert "dmc-DOMAIN-TASK" in run("ppo.py", "--help", warnings="default")
