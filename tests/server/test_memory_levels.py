"""A short run of what takes minutes; `python -m scripts.memory_levels` is the long one."""

import pytest

from scripts import memory_levels


def test_a_short_run(capsys: pytest.CaptureFixture[str]) -> None:
    code = memory_levels.main(["--worlds", "2", "--lanes", "2"])
    told = capsys.readouterr().out
    assert code == 0, told
    assert told.count("when destroyed") == 2
