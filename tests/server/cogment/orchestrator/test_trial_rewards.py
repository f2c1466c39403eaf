"""A short run of trials of all endings; `python -m scripts.trial_rewards` is the long one."""

import asyncio

from scripts import trial_rewards
from scripts.report import Report
from scripts.trial_rewards_services import TrialLog


def test_rewards_add_up_to_the_worlds_however_trials_end() -> None:
    report = asyncio.run(trial_rewards.run(trials=30, at_once=10))
    assert report.problems == []
    ends = {"killed", *trial_rewards.ENDS, trial_rewards.STOPS, "all"}
    # In so short a run it may happen that no trial is under way when its agent or its environment is killed.
    assert ends - {name for name, _ in report.rows} <= {"agent_killed", "environment_killed"}


def test_what_is_wrong_is_told() -> None:
    log = TrialLog()
    log.ways["t"] = "client"
    log.started.add("t")
    log.start(("t", 1))
    log.reward(("t", 1), 0, 1.0)
    log.reward(("t", 1), 2, 1.0)
    log.end(("t", 1))
    log.end(("t", 1))
    log.humans["t"] = 0.5
    report = Report()
    trial_rewards.check(log, {"t": [1.0, 1.0, 0.0]}, report)
    assert report.problems[:3] == [
        "('t', 1) got the reward of tick 2: expected 1",
        "('t', 1) got End: expected Start before it, and one End",
        "client, trial t: rewards of {0: 0.5}: expected [1.0, 1.0, 0.0] of actors 0, 1, 2",
    ]
