"""The end of a collection: card, contact sheet and film, and runs that are stopped while these are written."""

import io
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from scripts.collect_faults import make_flip_targets
from tests.data.test_collector import Alternating, read_all, read_tree
from tests.support.image_files import read_gif
from worldloom.data.card import make_command
from worldloom.data.check import check_dataset
from worldloom.data.collector import Collector
from worldloom.data.files import replace_file
from worldloom.data.index import append_entry
from worldloom.data.layout import Column, Description
from worldloom.data.sheets import find_frames, make_dataset_film, make_dataset_sheet, make_lane_film, make_lane_sheet
from worldloom.data.whole import read_description
from worldloom.server import cli

SMALL: dict[str, Any] = {"lanes": 3, "steps": 90, "width": 9, "height": 8, "seed": 2, "shard_mb": 0.01}
GAP = 6


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("moment", range(4))
def test_a_run_that_is_killed_while_it_ends_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    Collector(tmp_path / "whole", "catch", policy=Alternating(), **SMALL).run()
    calls: list[object] = []

    def fail_at(function: Any) -> Any:
        def call(*args: Any) -> Any:
            calls.append(function)
            if len(calls) == moment + 1:
                raise Killed
            return function(*args)

        return call

    with monkeypatch.context() as patch:
        patch.setattr("worldloom.data.finish.replace_file", fail_at(replace_file))
        patch.setattr("worldloom.data.finish.append_entry", fail_at(append_entry))
        with pytest.raises(Killed):
            Collector(tmp_path / "killed", "catch", policy=Alternating(), **SMALL).run()
    found = check_dataset(tmp_path / "killed")
    assert (found.problems, found.is_complete, found.rows) == ([], False, 90)
    (tmp_path / "killed" / "README.md.tmp").write_bytes(b"half")
    Collector(tmp_path / "killed", policy=Alternating(), resume=True).run()
    assert read_tree(tmp_path / "killed") == read_tree(tmp_path / "whole")


def test_all_moments_of_the_end_are_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def note(path: Path, data: bytes) -> Any:
        written.append(path.name)
        return replace_file(path, data)

    monkeypatch.setattr("worldloom.data.finish.replace_file", note)
    Collector(tmp_path / "d", "catch", **SMALL).run()
    assert sorted(written) == ["README.md", "contact_sheet.png", "film.gif"]  # and then the index


def python_blocks(card: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", card, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("family", "arguments"),
    [
        ("catch", {"settings": {"rows": 8, "columns": 6}, "policy": "idle", "pictures": "jpeg:70"}),
        ("catch", {"shadows": True}),
        ("catch", {"format": "npy", "observations": ["ball", "eye.rgb"], "samples": 4}),
        ("cartpole", {"observations": ["eye.gray", "pose"], "action_repeat": 2, "pictures": "raw"}),
        ("maze", {"settings": {"textures": "random"}, "observations": ["eye.depth"], "shard_mb": 128}),
    ],
)
def test_the_command_on_the_card_makes_the_same_dataset_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, arguments: dict[str, Any]
) -> None:
    Collector(tmp_path / "first", family, **{**SMALL, **arguments}, env_arguments={"renderer": "cpu"}).run()
    card = (tmp_path / "first" / "README.md").read_text()
    command = re.search(r"^```sh\n(.*?)\n```$", card, re.MULTILINE)
    assert command is not None
    monkeypatch.chdir(tmp_path)
    assert cli.main(shlex.split(command[1])[1:]) == 0
    assert read_tree(tmp_path / family) == read_tree(tmp_path / "first")


@settings(max_examples=200)
@given(
    lanes=st.integers(1, 2000),
    row_bytes=st.integers(1, 10**6),
    steps=st.integers(2, 10**6),
    shard_mb=st.floats(1e-3, 2**20),
)
def test_the_size_of_shards_on_the_card_gives_the_same_shards(
    lanes: int, row_bytes: int, steps: int, shard_mb: float
) -> None:
    def steps_for(size: float) -> int:
        return max(1, min(int(size * 2**20) // (row_bytes * lanes), steps))

    description = describe(lanes, row_bytes, steps, steps_for(shard_mb))
    words = shlex.split(make_command(description) or "")
    found = float(words[words.index("--shard-mb") + 1]) if "--shard-mb" in words else 128.0
    assert found > 0
    assert steps_for(found) == description.shard_steps


def describe(lanes: int, row_bytes: int, steps: int, shard_steps: int) -> Description:
    return Description(
        family="catch",
        settings={},
        seed=1,
        lanes=lanes,
        first_lane=0,
        all_lanes=lanes,
        steps=steps,
        shard_steps=shard_steps,
        format="parquet",
        pictures="raw",
        policy="random",
        policy_hash="",
        arguments={},
        renderer="cpu: 2 threads",
        versions={},
        columns=[Column("eye.rgb", "observation", "uint8", (row_bytes,), "raw")],
    )


@pytest.mark.parametrize("name", ["parquet", "images", "npy", "parts"])
def test_the_code_on_the_card_runs(
    datasets: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "catch").symlink_to(datasets / name)
    monkeypatch.chdir(tmp_path)
    card = Path("catch/README.md").read_text()
    assert len(python_blocks(card)) == (2 if name == "npy" else 3)
    for code in python_blocks(card):
        values: dict[str, Any] = {}
        exec(code, values)
        if "frame" in values:
            rows = read_all(datasets / name)[1] if name != "parts" else read_all(datasets / name / "parts" / "000")[1]
            np.testing.assert_array_equal(values["frame"], rows["eye.rgb"][0, 0])
    assert capsys.readouterr().out


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datasets")
    make_flip_targets(folder)
    return folder


def test_the_card_begins_with_what_the_hub_reads(datasets: Path) -> None:
    for name, pattern in (("parquet", "shards/*.parquet"), ("parts", "parts/*/shards/*.parquet"), ("npy", None)):
        _, text, _ = (datasets / name / "README.md").read_text().split("---\n", 2)
        about = yaml.safe_load(text)
        assert about["size_categories"] == ["n<1K"]
        assert about["task_categories"] == ["reinforcement-learning"]
        files = [{"config_name": "default", "data_files": [{"split": "train", "path": pattern}]}]
        assert about.get("configs") == (files if pattern else None)
        for one in files if pattern else []:
            assert list((datasets / name).glob(str(one["data_files"][0]["path"])))  # type: ignore[index]


def test_the_card_has_the_figures_of_the_rows(datasets: Path) -> None:
    card = (datasets / "parquet" / "README.md").read_text()
    _, rows = read_all(datasets / "parquet")
    ended = rows["terminated"] | rows["truncated"]
    mean = np.mean([rows["reward"][rows["episode"] == one].sum() for one in rows["episode"][ended]])
    size = sum(path.stat().st_size for path in (datasets / "parquet" / "shards").iterdir())
    assert "| rows | 120: 30 of each lane |" in card
    assert f"| episodes that ended | {ended.sum()} |" in card
    assert f"| mean return of these | {mean:.6g} |" in card
    assert f"| size of the shards | {size:,} bytes, {size / 120:,.0f} a row |" in card
    assert "| `eye.rgb` | uint8 | 8 × 8 × 3 | frame, bytes of its pixels, compressed with zstd:1 |" in card


def test_parts_have_a_card_without_a_command(datasets: Path) -> None:
    card = (datasets / "parts" / "parts" / "001" / "README.md").read_text()
    assert "This is a part of a dataset: lanes 4 to 7 of 8." in card
    assert "```sh" not in card
    whole = (datasets / "parts" / "README.md").read_text()
    assert "--fleet" in whole
    assert "| rows | 240: 30 of each lane |" in whole
    incomplete = read_description(datasets / "incomplete")
    assert make_command(incomplete) is None  # its policy was given as an object


def test_pictures_are_frames_of_the_dataset(datasets: Path) -> None:
    _, rows = read_all(datasets / "images")
    frames = rows["eye.rgb"]
    sheet = np.asarray(Image.open(datasets / "images" / "contact_sheet.png"))
    zoom = 128 // 8
    cell = GAP + 8 * zoom
    assert sheet.shape == (GAP + 4 * cell, GAP + 8 * cell, 3)
    steps = np.linspace(0, 29, 8).round().astype(int)
    for lane in range(4):
        for column, step in enumerate(steps):
            shown = sheet[GAP + lane * cell :, GAP + column * cell :][: 8 * zoom : zoom, : 8 * zoom : zoom]
            np.testing.assert_array_equal(shown, frames[step, lane])
    film = read_gif(datasets / "images" / "film.gif").frames  # whose colours are rounded to a palette
    assert film.shape[1:] == (2 * 100 + 4, 3 * 100 + 4, 3)
    shown = film[0, 4:100:12, 4:100:12].astype(int)
    assert np.abs(shown - frames[0, 0]).mean() < 4


@pytest.mark.parametrize(("output", "dtype"), [("gray", "uint8"), ("depth", "float32"), ("segmentation", "uint8")])
@pytest.mark.parametrize("shape", [(8, 8), (5, 300), (700, 420), (1, 1)])
def test_frames_of_every_kind_and_size_are_shown(output: str, dtype: str, shape: tuple[int, int]) -> None:
    class Rows:
        def read(self, names: Any, lanes: slice, steps: slice) -> dict[str, np.ndarray]:
            counts = (lanes.stop - lanes.start, steps.stop - steps.start)
            return {f"eye.{output}": np.broadcast_to(picture, (*counts, *shape))}

    picture = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    column = Column(f"eye.{output}", "observation", dtype, shape, "raw")
    description = replace(describe(2, 1, 7, 7), columns=[column])
    assert find_frames(description) == column
    for data in (
        make_dataset_sheet(Rows(), description, column, 7),
        make_dataset_film(Rows(), description, column, 3),
        make_lane_sheet(Rows(), column, 1, 2, 7),
        make_lane_film(Rows(), description, column, 1, 2, 7),
    ):
        width, height = Image.open(io.BytesIO(data)).size
        assert 0 < width < 2400
        assert 0 < height < 2400


def test_the_colours_of_an_rgb_camera_are_preferred() -> None:
    columns = [Column(f"eye.{one}", "observation", "uint8", (8, 8), "raw") for one in ("depth", "segmentation", "rgb")]
    assert find_frames(replace(describe(1, 1, 2, 2), columns=columns)) == columns[2]


def test_without_frames_there_are_no_pictures(tmp_path: Path) -> None:
    Collector(tmp_path / "d", "cartpole", observations=["pose"], **{**SMALL, "shard_mb": 1}).run()
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == [
        "README.md",
        "dataset.json",
        "index.jsonl",
        "shards",
    ]
    assert "contact_sheet" not in (tmp_path / "d" / "README.md").read_text()
    assert check_dataset(tmp_path / "d").problems == []
