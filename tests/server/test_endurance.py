"""A short run of what takes minutes; `python -m scripts.endurance` is the long one."""

import pytest

from scripts import endurance


def test_a_short_run(capsys: pytest.CaptureFixture[str]) -> None:
    code = endurance.main(["--minutes", "0.1"])
    told = capsys.readouterr().out
    assert code == 0, told
    assert "1 streams, 0 worlds, 0 lanes, 0 shared bytes, 0 reply slots, 0 segments" in told
