"""`worldloom collect` in processes of its own: arguments, signals, kills, a lost server, a full disk."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
import pytest

from scripts import collect_faults
from scripts.support.server_process import WORLDLOOM, serving
from worldloom.data import Dataset
from worldloom.data.collect_command import describe_progress
from worldloom.data.collection import Progress
from worldloom.data.collector import Collector
from worldloom.data.console import format_bytes, format_seconds
from worldloom.server import cli
from worldloom.worlds.gym import permissions

SMALL = ("--lanes", "8", "--size", "12", "--seed", "3")


def read_tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_the_command_does_what_the_class_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "collect",
        "catch",
        "rows=6",
        *SMALL,
        "--steps",
        "400",
        "--observations",
        "eye.rgb,ball",
        "--shard-mb",
        "0.05",
        "--shadows",
    )
    assert cli.main([*words, "-o", str(tmp_path / "a")]) == 0
    told = capsys.readouterr()
    assert "400 rows at" in told.out
    assert "contact_sheet.png" in told.out
    Collector(
        tmp_path / "b", "catch", settings={"rows": 6}, lanes=8, width=12, height=12, seed=3, steps=400,
        observations=["eye.rgb", "ball"], shard_mb=0.05, shadows=True,
    ).run()  # fmt: skip
    assert read_tree(tmp_path / "a") == read_tree(tmp_path / "b")
    assert cli.main(["data", "info", str(tmp_path / "a")]) == 0
    assert "shadows   drawn" in capsys.readouterr().out


def test_a_dataset_for_minari_can_be_asked_for_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    words = ("collect", "catch", *SMALL, "--steps", "400", "--minari", "tests/catch-v0", "-o", str(tmp_path / "d"))
    assert cli.main(list(words)) == 0
    assert "tests/catch-v0 for Minari" in capsys.readouterr().out
    dataset = minari.load_dataset("tests/catch-v0")
    rows = Dataset(tmp_path / "d").episodes(whole_only=True)
    assert dataset.total_episodes == len(rows) > 0
    assert cli.main([*words, "--resume"]) == 0  # which finds all of it done


def test_a_server_gives_the_same_bytes(tmp_path: Path) -> None:
    words = ("collect", "catch", *SMALL, "--steps", "400", "--shard-mb", "0.05")
    assert cli.main([*words, "-o", str(tmp_path / "here")]) == 0
    with serving() as server:
        assert cli.main([*words, "--server", server.address, "-o", str(tmp_path / "there")]) == 0
    assert read_tree(tmp_path / "here") == read_tree(tmp_path / "there")


LAMP = """
import gymnasium
import numpy as np


class Lamp(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"]}
    observation_space = action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode=None, brightness=255):
        self.render_mode, self.brightness, self.is_on = render_mode, brightness, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.is_on = int(self.np_random.integers(2))
        return self.is_on, {}

    def step(self, action):
        self.is_on ^= int(action)
        return self.is_on, float(self.is_on), False, False, {}

    def render(self):
        return np.full((16, 16, 3), self.is_on * self.brightness, np.uint8)


gymnasium.register("mine/CollectedLamp-v0", f"{__name__}:Lamp", max_episode_steps=5)
"""


def test_environments_of_ones_own_are_collected_in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(permissions, "_more_arguments", set())
    monkeypatch.setattr(permissions, "_id_patterns", [])
    (tmp_path / "collected_lamps.py").write_text(LAMP)
    words = [
        "collect",
        "gym",
        "id=mine/CollectedLamp-v0",
        'kwargs={"brightness": 90}',
        "--observations",
        "eye.rgb,observation",
    ]
    words += ["--lanes", "2", "--steps", "40", "--size", "16", "--seed", "1", "-o", "lamps"]
    options = ["--gym-import", "collected_lamps", "--gym-id", "mine/*", "--gym-kwarg", "brightness"]
    assert cli.main([*words, "--server", "127.0.0.1:1", *options]) == 1
    assert "--gym-id with --server: expected one of them" in capsys.readouterr().err
    assert cli.main(words) == 1
    assert "--gym-id PATTERN" in capsys.readouterr().err
    assert not (tmp_path / "lamps").exists()
    assert cli.main([*words, *options]) == 0
    rows = Dataset("lamps").rows(["eye.rgb", "observation"]).batch(range(40))
    assert set(rows["observation"].tolist()) == {0, 1}
    np.testing.assert_array_equal(rows["eye.rgb"].max(axis=(1, 2, 3)), rows["observation"].reshape(-1) * 90)
    del gymnasium.registry["mine/CollectedLamp-v0"]


def test_a_stopped_run_tells_the_options_to_go_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(self: Collector) -> None:
        (tmp_path / "d").mkdir()
        (tmp_path / "d/dataset.json").touch()
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Collector, "run", stop)
        words = ["collect", "catch", "--model-dir", str(tmp_path), "-o", str(tmp_path / "d")]
        assert cli.main(words) == cli.EXIT_INTERRUPTED
    told = capsys.readouterr().err
    assert f"go on with: worldloom collect --resume --model-dir {tmp_path} -o {tmp_path / 'd'}" in told


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["mase"], "did you mean 'maze'"),
        (["catch", "colour=red"], "unknown setting 'colour'"),
        (["rows=6"], "the setting 'rows=6' without a family"),
        ([], "has no dataset: expected a family"),
        (["--resume"], "has no dataset to resume"),
        (["catch", "--lanes", "0"], "lanes is 0: expected an integer from 1"),
        (["catch", "--pictures", "gif"], "expected one of raw, zstd"),
        (["catch", "--renderer", "cpu", "--server", "127.0.0.1:1"], "expected one of them"),
        (["catch", "--token-file", "token"], "expected --server ADDRESS with it"),
        (["catch", "--own-directories"], "expected --fleet with it"),
        (["catch", "--server", "127.0.0.1:1"], "no server at 127.0.0.1:1"),
        (["catch", "--policy", "nowhere:act"], "there is no module 'nowhere'"),
        (["catch", "--minari", "no version"], "no version"),
        (["catch", "--observations", "eye.rbg"], "did you mean 'eye.rgb'"),
        (["catch", "--observations", "eye.rgb,reward"], "which are columns anyway"),
    ],
)
def test_wrong_words_are_explained_and_leave_nothing(
    words: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["collect", *words, "-o", str(tmp_path / "d")]) in (1, 2)
    told = capsys.readouterr().err
    assert text in told
    assert "Traceback" not in told
    assert not (tmp_path / "d").exists()


def start(*words: str, directory: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [WORLDLOOM, "collect", *words, "-o", str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_a_shard(directory: Path, process: "subprocess.Popen[str]") -> None:
    index, deadline_s = directory / "index.jsonl", time.monotonic() + 60
    while not (index.exists() and b'"shard"' in index.read_bytes()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_and_resume_goes_on(number: int, tmp_path: Path) -> None:
    words = ("catch", *SMALL, "--steps", "40000", "--shard-mb", "0.25")
    process = start(*words, directory=tmp_path / "d")
    wait_for_a_shard(tmp_path / "d", process)
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 128 + number, told
    assert f"stopped; go on with: worldloom collect --resume -o {tmp_path / 'd'}" in told
    assert cli.main(["collect", "--resume", "-o", str(tmp_path / "d")]) == 0
    assert cli.main(["collect", *words, "-o", str(tmp_path / "whole")]) == 0
    assert read_tree(tmp_path / "d") == read_tree(tmp_path / "whole")


def test_kills_of_collector_and_server_change_nothing() -> None:
    """The short form of `python -m scripts.collect_faults --kills 200`."""
    assert collect_faults.run_kills(4, 3000, seed=1).total() == 4


def test_a_full_disk_keeps_what_is_complete() -> None:
    """On a small tmpfs, in a mount namespace of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "scripts.collect_faults", "--full-disk"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(collect_faults.__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stdout
    assert "the same dataset after --resume" in done.stdout


def test_progress_reads_well() -> None:
    sums: dict[str, Any] = {"episodes": 1234, "return_sum": 617.0, "size_bytes": 12_500_000_000}
    now = Progress(rows=400_000, all_rows=1_000_000, first_rows=0, drawn_rows=500_000, elapsed_s=10.0, **sums)
    assert describe_progress(now) == "50,000 frames/s, 1,234 episodes, mean return 0.5, 12.5 GB, 10 s left"
    assert [format_seconds(one) for one in (59.4, 61, 7500)] == ["59 s", "1 min 1 s", "2 h 5 min"]
    assert [format_bytes(one) for one in (12, 3_400, 2e12)] == ["12 bytes", "3.4 kB", "2 TB"]
