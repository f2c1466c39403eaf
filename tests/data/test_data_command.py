"""`worldloom data`: what it prints and writes, and how it ends."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from scripts.collect_faults import make_flip_targets
from scripts.support.server_process import WORLDLOOM
from tests.data.test_collector import read_all, read_tree
from worldloom.data.check import check_dataset
from worldloom.data.collector import Collector
from worldloom.data.export import export_dataset
from worldloom.data.whole import WholeDataset
from worldloom.server import cli


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datasets")
    make_flip_targets(folder)
    return folder


def read_whole(directory: Path) -> dict[str, np.ndarray]:
    """Return the columns [lanes, steps, ...] of a dataset with its parts."""
    whole = WholeDataset(directory)
    names = [column.name for column in whole.description.columns]
    return whole.read(names, slice(0, whole.description.lanes), slice(0, whole.steps))


def test_info_tells_what_it_is(datasets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "info", str(datasets / "parquet")]) == 0
    told = capsys.readouterr().out
    assert "catch, 120 rows of 4 lanes" in " ".join(told.split())
    for line in (
        "state     complete",
        "policy    random",
        "seed      1",
        "shadows   not drawn",
        "eye.rgb     uint8    8 × 8 × 3  observation, raw",
    ):
        assert line in told
    assert "worldloom collect catch --lanes 4" in " ".join(told.split())
    assert cli.main(["data", "info", str(datasets / "incomplete")]) == 0
    assert "incomplete: " in capsys.readouterr().out


@pytest.mark.parametrize("name", ["npy", "parts", "incomplete"])
def test_info_as_json_has_the_figures_of_the_rows(
    datasets: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["data", "info", "--json", str(datasets / name)]) == 0
    told = json.loads(capsys.readouterr().out)
    rows = read_whole(datasets / name)
    ended = rows["terminated"] | rows["truncated"]
    numbers = rows["episode"][ended]
    assert told["is_complete"] == (name != "incomplete")
    assert told["rows"] == rows["reward"].size
    assert told["episodes"] == ended.sum()
    assert told["mean_return"] == np.mean([rows["reward"][rows["episode"] == one].sum() for one in numbers])
    assert told["size_bytes"] == sum(
        path.stat().st_size for path in (datasets / name).rglob("shards/**/*") if path.is_file()
    )
    assert told["description"]["family"] == "catch"


def test_check_ends_with_1_if_something_is_damaged(
    datasets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(datasets / "npy", tmp_path / "copy")
    assert cli.main(["data", "check", str(copy)]) == 0
    assert "copy is good: " in capsys.readouterr().out
    path = copy / "shards" / "00000" / "rows.npy"
    data = bytearray(path.read_bytes())
    data[5000] ^= 4
    path.write_bytes(data)
    assert cli.main(["data", "check", str(copy)]) == 1
    told = capsys.readouterr().out
    assert "damaged: shards/00000/rows.npy is damaged, its checksum differs: restore it from a copy" in told
    assert "copy is damaged: 1 problem in " in told
    assert cli.main(["data", "check", str(datasets / "incomplete")]) == 0
    assert "; incomplete, " in capsys.readouterr().out
    assert cli.main(["data", "check", str(tmp_path)]) == 1
    assert "expected the directory of a dataset" in capsys.readouterr().err


def test_damage_is_not_exported(datasets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(datasets / "parquet", tmp_path / "copy")
    shard = tmp_path / "copy" / "shards" / "00000.parquet"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert cli.main(["data", "export", str(tmp_path / "copy"), "--to", "npy", "-o", str(tmp_path / "npy")]) == 1
    assert "is damaged: " in capsys.readouterr().err
    assert not (tmp_path / "npy").exists()


def test_show_prints_rows(datasets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, rows = read_all(datasets / "parquet")
    assert cli.main(["data", "show", str(datasets / "parquet"), "--episode", "6"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["episode", "lane", "step", "action", "reward", "terminated", "truncated", "last"]
    steps, lanes = np.nonzero(rows["episode"] == 6)
    assert len(lines) == 1 + len(steps)
    for line, step, lane in zip(lines[1:], steps, lanes, strict=True):
        values = [rows[name][step, lane] for name in lines[0].split()[:5]]
        assert [float(one) for one in line.split()[:5]] == values
    assert lines[-1].split()[-1] == "yes"
    assert cli.main(["data", "show", str(datasets / "parts"), "--lane", "7", "--rows", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[1:3]] == ["7", "7"]
    assert lines[3] == "… 28 more rows of this lane"


@pytest.mark.parametrize("name", ["images", "parts", "incomplete"])
@pytest.mark.parametrize("words", [["--episode", "1"], ["--lane", "2"], []])
def test_show_saves_pictures(datasets: Path, name: str, words: list[str], tmp_path: Path) -> None:
    for file in ("sheet.png", "film.gif"):
        assert cli.main(["data", "show", str(datasets / name), *words, "--rows", "0", "-o", str(tmp_path / file)]) == 0
        with Image.open(tmp_path / file) as image:
            assert image.size[0] > 90
            assert getattr(image, "n_frames", 1) > 1 or file == "sheet.png"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["show", "npy", "--episode", "4001"], "there is no episode 4001: expected 1 to "),
        (["show", "npy", "--episode", "-1"], "there is no episode -1"),
        (["show", "npy", "--lane", "4"], "--lane is 4: expected 0 to 3"),
        (["show", "npy", "--rows", "-2"], "--rows is -2"),
        (["show", "npy", "-o", "film.mp4"], "expected a name that ends with .png or .gif"),
        (["show", "npy", "-o", "nowhere/film.gif"], "nowhere is no directory"),
        (["show", "nothing"], "nothing has no dataset.json"),
        (["info", "nothing"], "nothing has no dataset.json"),
        (["export", "npy", "--to", "parquet"], "--to parquet without --out"),
        (["export", "npy", "--to", "minari"], "--to minari without --id"),
        (["export", "npy", "--to", "minari", "--id", "a-v0", "-o", "x"], "--to minari with --out: expected none"),
        (["export", "npy", "--to", "minari", "--id", "a-v0", "--pictures", "png"], "--to minari with --pictures"),
        (["export", "npy", "--to", "minari", "--id", "a"], "expected (NAMESPACE/)NAME-vVERSION"),
        (["export", "npy", "--to", "npy", "-o", "x", "--id", "a-v0"], "--to npy with --id: expected none"),
        (["export", "npy", "--to", "npy", "-o", "x", "--pictures", "png"], "expected raw, or the format parquet"),
        (["export", "npy", "--to", "parquet", "-o", "x", "--pictures", "gif"], "expected one of raw, zstd"),
        (["export", "npy", "--to", "parquet", "-o", "parquet"], "parquet exists: expected a new directory"),
        (["export", "incomplete", "--to", "npy", "-o", "x"], "incomplete is incomplete: expected a complete dataset"),
    ],
)
def test_errors_are_one_line_and_change_nothing(
    datasets: Path, words: list[str], text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(datasets)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(datasets / "minari"))
    before = read_tree(datasets)
    assert cli.main(["data", *words]) == 1
    told = capsys.readouterr().err
    assert text in told
    assert told.startswith("worldloom data: ")
    assert told.count("\n") == 1
    assert read_tree(datasets) == before


@settings(max_examples=8)
@given(
    source=st.sampled_from(["parquet", "npy", "images", "parts"]),
    target=st.sampled_from([("npy", None), ("parquet", "raw"), ("parquet", "zstd:7"), ("parquet", "png:9")]),
)
def test_exports_have_the_same_rows(datasets: Path, source: str, target: tuple[Any, Any]) -> None:
    out = datasets / "exported"
    shutil.rmtree(out, ignore_errors=True)
    told: list[float] = []
    assert export_dataset(datasets / source, out, *target, on_progress=told.append) == out
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert check_dataset(out).problems == check_dataset(out).notes == []
    assert check_dataset(out).is_complete
    expected, found = read_whole(datasets / source), read_whole(out)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    one, other = WholeDataset(datasets / source), WholeDataset(out)
    assert other.index.end is not None
    assert one.index.end is not None
    assert other.index.end.return_sum == one.index.end.return_sum
    assert other.index.end.episodes == one.index.end.episodes
    shutil.rmtree(out)


def test_an_export_is_what_would_have_been_collected(datasets: Path, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"lanes": 4, "steps": 120, "width": 8, "height": 8, "seed": 1, "shard_mb": 0.01}
    Collector(tmp_path / "collected", "catch", pictures="zstd:3", **sizes).run()
    words = ["data", "export", str(datasets / "npy"), "--to", "parquet", "--pictures", "zstd:3", "-o"]
    assert cli.main([*words, str(tmp_path / "exported")]) == 0
    collected, exported = read_tree(tmp_path / "collected"), read_tree(tmp_path / "exported")
    differing = {name for name in collected if collected[name] != exported[name]}
    assert differing <= {"index.jsonl"}  # which has the states of the generator


def test_an_export_from_lossy_frames_says_so(datasets: Path, tmp_path: Path) -> None:
    export_dataset(datasets / "npy", tmp_path / "jpeg", "parquet", "jpeg:50")
    export_dataset(tmp_path / "jpeg", tmp_path / "npy", "npy")
    assert WholeDataset(tmp_path / "npy").description.lossy_pictures == "jpeg:50"
    assert "`jpeg:50` before this dataset was exported" in (tmp_path / "npy" / "README.md").read_text()
    assert "exported" not in (tmp_path / "jpeg" / "README.md").read_text()


def test_export_to_minari(datasets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import minari

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    words = ["data", "export", str(datasets / "parts"), "--to", "minari", "--id", "catch/parts-v1", "--author", "Ada"]
    assert cli.main([*words, "--cut-episodes"]) == 0
    dataset = minari.load_dataset("catch/parts-v1")
    assert dataset.total_episodes == len(np.unique(read_whole(datasets / "parts")["episode"]))
    assert dataset.storage.metadata["author"] == {"Ada"}


def test_an_interrupted_export_leaves_nothing(tmp_path: Path) -> None:
    Collector(tmp_path / "d", "catch", lanes=64, steps=6_400, seed=1, pictures="raw", shard_mb=1).run()
    words = [str(WORLDLOOM), "data", "export", str(tmp_path / "d"), "--to", "parquet", "--pictures", "zstd:15", "-o"]
    with subprocess.Popen([*words, str(tmp_path / "out")], stderr=subprocess.PIPE, text=True) as export:
        while not list(tmp_path.glob(".out.tmp/shards/*.parquet")):
            assert export.poll() is None
            time.sleep(0.01)
        assert not (tmp_path / "out").exists()
        export.send_signal(signal.SIGINT)
        _, told = export.communicate(timeout=60)
    assert export.returncode == cli.EXIT_INTERRUPTED
    assert told == "stopped; nothing was exported\n"
    assert os.listdir(tmp_path) == ["d"]
