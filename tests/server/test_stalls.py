"""A short run of `python -m scripts.stalls`, which is the long one."""

import pytest

from scripts import stalls


def test_no_step_waits_for_what_is_not_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    """In CI other tests run beside it: the limit is wide, but far from the seconds that all of it takes at once."""
    code = stalls.main(["--lanes", "8192", "--model-lanes", "16", "--most-s", "1"])
    told = capsys.readouterr().out
    assert code == 0, told
    assert told.count("steps of another client") == 13
