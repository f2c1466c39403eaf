"""The example of robustness: an agent that was saved plays what it was trained with, and other pictures of the same."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import ppo
import robustness

SMALL = replace(ppo.find_task(robustness.TASK), lanes=2, random_episodes=2, rollout=125, minibatches=2, samples=1)


def test_agents_are_saved_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(robustness, "find_task", lambda _: SMALL)
    monkeypatch.setattr(robustness, "EPISODES", 3)
    for distraction in (robustness.PLAIN, "dcs-easy"):
        words = ["train", "--steps", "4000", "--distraction", distraction, "--out", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", ["robustness.py", *words])
        robustness.main()
    saved = torch.load(tmp_path / "none-0.pt", weights_only=True)
    assert saved["steps"] == 4000
    assert saved["network"]["mean_frame"].mean() > 1  # it is part of the agent
    plain, hard = (robustness.evaluate_agent(tmp_path / "none-0.pt", name) for name in ("none", "dcs-hard"))
    assert plain == robustness.evaluate_agent(tmp_path / "none-0.pt", "none")  # nothing random is left
    assert 0 < plain <= 1000
    assert plain != hard
    monkeypatch.setattr(sys, "argv", ["robustness.py", "evaluate", "--out", str(tmp_path)])
    capsys.readouterr()
    robustness.main()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["agent", "none", "dcs-hard"]
    assert [row[0] for row in rows[1:]] == ["dcs-easy-0", "none-0"]
    assert rows[2][1:] == [f"{plain:.0f}", "(100%)", f"{hard:.0f}", f"({hard / plain:.0%})"]
    assert np.isfinite([plain, hard]).all()


def test_without_agents(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no agents: expected files of `train`"):
        robustness.evaluate(tmp_path, ["none"])
