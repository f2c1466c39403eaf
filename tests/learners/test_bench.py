"""The benchmark of the adaptors runs, and writes what it measured."""

import json
import os
from pathlib import Path

import pytest

from worldloom.bench import learners


def test_it_measures_every_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cores = os.sched_getaffinity(0)
    try:
        small = ["--lanes", "2", "--size", "8", "--rounds", "1", "--seconds", "0.02", "--cores", "1", "--no-peers"]
        assert learners.main([*small, "--json", str(tmp_path / "out/learners.json")]) == 0
    finally:
        os.sched_setaffinity(0, cores)
    rates = json.loads((tmp_path / "out/learners.json").read_text())["frames_per_s"]
    ways = ["next_step", "same_step", "SB3", "TorchRL, same_step", "TorchRL, disabled"]
    assert list(rates) == [f"{family}: {way}" for family in ("catch", "maze") for way in ways]
    assert all(len(values) == 1 and values[0] > 0 for values in rates.values())
    printed = capsys.readouterr().out
    assert "| catch | SB3 | 2 |" in printed


def test_without_envpool_it_says_so_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    cores = os.sched_getaffinity(0)
    with pytest.raises(SystemExit) as exit_info:
        learners.main(["--cores", "1"])
    assert exit_info.value.code == 2
    assert "EnvPool is not installed here: run `make bench-learners`" in capsys.readouterr().err
    assert os.sched_getaffinity(0) == cores
