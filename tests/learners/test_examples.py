"""The examples with learning libraries run as their page says, in short."""

import re
from pathlib import Path

import pytest
from stable_baselines3 import PPO

from learning_curves import RUNS
from tests.examples.test_examples import run


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # tests share two cores


def test_sb3_trains_and_is_evaluated(tmp_path: Path) -> None:
    printed = run("sb3_catch.py", "--lanes", "1", "--steps", "1", "--out", tmp_path, warnings="default")
    found = re.fullmatch(r"mean return (-?\d\.\d\d)", printed.splitlines()[-1])
    assert found
    assert -1.0 <= float(found[1]) <= 1.0
    [point] = RUNS["sb3-catch"].read(tmp_path / "progress.csv")
    assert point["steps"] == 2048
    assert point["seconds"] > 0
    assert f"{point['mean_return']:.2f}" == found[1]
    assert PPO.load(tmp_path / "best_model").num_timesteps == 2048


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_sb3_learns_catch_with_its_own_defaults(tmp_path: Path) -> None:
    printed = run("sb3_catch.py", "--seed", "1", "--out", tmp_path, warnings="default", timeout_s=3500.0)
    assert float(printed.split()[-1]) >= 0.9


def test_torchrl_collects(server_address: str) -> None:
    printed = run(
        "torchrl_collector.py", "--lanes", "8", "--batches", "2", "--address", server_address, warnings="default"
    )
    assert re.fullmatch(r"[1-9][\d,]* transitions a second; sample: \(256, 32, 32, 3\)", printed.splitlines()[-1])


def test_ppo_has_a_command_line() -> None:
    assert "dmc-DOMAIN-TASK" in run("ppo.py", "--help", warnings="default")
