"""A short run of many trials; `python -m scripts.trials` is the long one."""

import pytest

from scripts import trials
from scripts.report import Report


def test_many_trials_while_agents_and_clients_are_killed(capsys: pytest.CaptureFixture[str]) -> None:
    code = trials.main(["--trials", "60", "--at-once", "20", "--ticks", "8"])
    told = capsys.readouterr().out
    assert code == 0, told
    assert "60 trials of 8 ticks, 20 at once" in told
    assert "0 trials, 0 trials_played, 0 worlds, 0 lanes, 1 streams" in told


def test_what_is_wrong_is_told() -> None:
    """The judges: trials that went differently, one that failed, and agents that were killed and not named."""
    report = Report()
    trials.judge({"told": [[1, 8, 5], [2, 8, 6], [1, 8, 7]], "problems": ["one failed"]}, 4, report)
    assert report.problems == [
        "one failed",
        "3 trials went well: expected 4",
        "trials of the seeds [1] went differently: expected the same",
    ]
    report = Report()
    named = "trial 1 of doomed: UNAVAILABLE: agent 1 (agent) at grpc://a:1: Decide answered"
    trials.judge_unlucky({"problems": [named, "something"], "endings": {"UNAVAILABLE": 1, "UNKNOWN": 1}}, report)
    assert report.problems == [
        "something",
        f"trials whose agents were killed ended with {{'UNKNOWN'}}: expected {trials.WHEN_AGENTS_DIE}",
    ]
    report = Report()
    trials.judge_unlucky({"problems": [], "endings": {}}, report)
    assert report.problems == ["no trial noticed that its agent was killed"]
