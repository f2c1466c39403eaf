"""A short soak; `python -m scripts.soak` is the long one."""

from itertools import islice

import numpy as np
import pytest

from scripts import soak
from scripts.report import Report
from scripts.soak_course import KINDS, Step, course, digest, kind_of, world_seed


def test_a_short_soak(capsys: pytest.CaptureFixture[str]) -> None:
    code = soak.main(["--streams", "64", "--seconds", "8", "--compare", "7"])
    told = capsys.readouterr().out
    assert code == 0, told
    assert "64 for 8 s" in told


def test_what_is_wrong_is_told() -> None:
    """The judges: one who is left behind, and one who was told something else."""
    report = Report()
    soak.judge_shares({0: 100, 1: 100, 2: 49}, streams=3, seconds=1.0, report=report)
    assert report.problems == ["stream 2 made 0.49 of the median's steps"]
    report = Report()
    soak.judge_shares({0: 100, 1: 100, 2: 51}, streams=4, seconds=1.0, report=report)
    assert report.problems == ["3 streams reported their steps: expected 4"]

    report = Report()
    soak.compare({stream: [1, 2, 3] for stream in range(len(KINDS))}, 7, report)
    assert len(report.problems) == len(KINDS) - 1
    assert "stream 0 (catch) had another reply at step 0" in report.problems


def test_answers_that_differ_have_different_digests() -> None:
    seen: dict[str, np.ndarray] = {"a": np.arange(3), "b": np.zeros(2, np.float32)}
    same = digest(1, dict(reversed(seen.items())))
    assert digest(1, seen) == same
    others = [
        digest(2, seen),
        digest(1, {"a": seen["a"]}),
        digest(1, {"a": seen["b"], "b": seen["a"]}),
        digest(1, {**seen, "a": np.array([0, 1, 3])}),
    ]
    assert len({same, *others}) == 5


def test_courses_can_be_run_again() -> None:
    for stream in range(len(KINDS)):
        first, again = (list(islice(course(stream), 300)) for _ in range(2))
        assert [_plain(deed) for deed in first] == [_plain(deed) for deed in again]
        assert any(isinstance(deed, Step) and "eye.rgb" in deed.see for deed in first)
    assert kind_of(6).agents == kind_of(7).agents == 2
    assert world_seed(6) == world_seed(7) != world_seed(14)


def _plain(deed: Step | str) -> object:
    return deed if isinstance(deed, str) else (deed.see, {name: value.tolist() for name, value in deed.actions.items()})
