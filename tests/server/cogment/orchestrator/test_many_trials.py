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
    """Trials of one seed that differ, one that failed, and killed agents that the error does not name."""
    report = Report()
    trials.check_steady({"finished": [[1, 8, 5], [2, 8, 6], [1, 8, 7]], "problems": ["one failed"]}, 4, report)
    assert report.problems == [
        "one failed",
        "3 trials finished: expected 4",
        "trials of the seeds [1] differ: expected the same",
    ]
    report = Report()
    named = "trial 1 of doomed: UNAVAILABLE: agent 1 (agent) at grpc://a:1: Decide answered"
    trials.check_doomed({"problems": [named, "something"], "endings": {"UNAVAILABLE": 1, "UNKNOWN": 1}}, report)
    assert report.problems == [
        "something",
        f"trials whose agents were killed ended with {{'UNKNOWN'}}: expected {trials.WHEN_AGENTS_DIE}",
    ]
    report = Report()
    trials.check_doomed({"problems": [], "endings": {}}, report)
    assert report.problems == ["no trial ended because its agent was killed"]
