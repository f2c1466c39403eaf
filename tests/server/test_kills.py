"""A few kills; `python -m scripts.kills` is the long one."""

import pytest

from scripts import kills
from scripts.kills_client import STAGES
from scripts.report import Report


def test_a_client_killed_at_each_stage_and_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    code = kills.main(["--rounds", str(len(STAGES))])
    told = capsys.readouterr().out
    assert code == 0, told
    assert all(f"{stage} 1" in told for stage in STAGES)
    assert "servers killed          1," in told


def test_what_does_not_come_in_time_is_found_so() -> None:
    found, taken_s = kills.wait_for(lambda: {"streams": 2}, {"streams": 1}, timeout_s=0.05)
    assert found == {"streams": 2}
    assert taken_s > 0.05
    counts = iter([3, 2, 1, 0])
    assert kills.wait_for(lambda: {"streams": next(counts)}, {"streams": 1}, timeout_s=60.0)[0] == {"streams": 1}


def test_a_report_tells_its_problems(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    report.row("rounds", "3")
    report.expect(True, "never said")
    assert report.tell() == 0
    report.expect(False, "round 2 left 1 agent")
    assert report.tell() == 1
    assert capsys.readouterr().out == "rounds  3\nrounds  3\nWRONG: round 2 left 1 agent\n"
