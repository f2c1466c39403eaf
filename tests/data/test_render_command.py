"""`worldloom render`: files of states become films, PNG files, arrays and columns, in one run or in several."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from worldloom import MujocoRenderer
from worldloom.data import Collector
from worldloom.data.check import check_dataset
from worldloom.data.whole import WholeDataset
from worldloom.server import cli

ARM = """<mujoco>
  <worldbody>
    <light type="directional" dir=".3 .5 -1"/>
    <camera name="side" pos="0 -3 1" xyaxes="1 0 0 0 0 1"/>
    <camera name="top" pos="0 0 4"/>
    <geom type="plane" size="2 2 .1" rgba=".5 .6 .7 1"/>
    <body pos="0 0 1"><joint name="hinge" axis="0 1 0" damping=".1"/>
      <geom type="capsule" fromto="0 0 0 .8 0 0" size=".1" rgba=".8 .3 .2 1"/></body>
    <body mocap="true" pos="0 0 2"><geom type="box" size=".1 .1 .1" rgba="0 1 0 1"/></body>
  </worldbody>
  <actuator><motor joint="hinge" ctrlrange="-9 9" ctrllimited="true"/></actuator>
</mujoco>"""
COUNT, SIZE = 300, 12


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arm.xml").write_text(ARM)
    return tmp_path


@pytest.fixture(scope="module")
def states() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"qpos": rng.uniform(-3, 3, (COUNT, 1)), "mocap_pos": rng.uniform(-1, 1, (COUNT, 1, 3))}


@pytest.fixture(scope="module")
def expected(states: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    with MujocoRenderer(
        model=ARM, width=SIZE, height=SIZE, cameras=["side", "top"], outputs=["rgb", "depth"], renderer="cpu"
    ) as draw:
        return draw(states)


def render(*words: str) -> int:
    return cli.main(["render", "--model", "arm.xml", "--size", str(SIZE), "--renderer", "cpu", *words])


def to_lists(array: np.ndarray, leaf: Any) -> Any:
    kind = leaf
    for _ in array.shape[1:]:
        kind = pa.list_(kind)
    return pa.array(array.tolist(), kind)


def write_states(name: str, states: dict[str, np.ndarray]) -> None:
    if name == "states.parquet":
        table = pa.table({column: to_lists(array, pa.float64()) for column, array in states.items()})
        pq.write_table(table, name, row_group_size=70)
    elif name == "compressed.npz":
        np.savez_compressed(name, **states)  # type: ignore[arg-type]
    else:
        np.savez(name, **states)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["states.npz", "compressed.npz", "states.parquet"])
def test_an_array_for_each_camera_and_output(
    folder: Path, name: str, states: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> None:
    write_states(name, states)
    assert render("--states", name, "--camera", "side,top", "--output", "rgb,depth", "-o", "out.npy") == 0
    for key, frames in expected.items():
        np.testing.assert_array_equal(np.load(f"out.{key}.npy"), frames)
    assert render("--states", name, "--range", "71:145", "-o", "some.npy") == 0
    np.testing.assert_array_equal(np.load("some.npy"), expected["side.rgb"][71:145])
    assert sorted(path.name for path in folder.glob("*partial*")) == []


def test_png_files_and_films(folder: Path, states: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    write_states("states.npz", states)
    assert render("--states", "states.npz", "--output", "rgb,depth", "--range", "10:30", "-o", "frames") == 0
    for state in (10, 29):
        with Image.open(folder / f"frames/side.rgb/{state:06d}.png") as image:
            np.testing.assert_array_equal(np.asarray(image), expected["side.rgb"][state])
        with Image.open(folder / f"frames/side.depth/{state:06d}.png") as image:
            metres = np.asarray(image) / 1000
        shown = np.minimum(expected["side.depth"][state], 65.535)
        assert np.abs(metres - shown).max() <= 0.00051  # half a millimetre, and the rounding of float32
    assert render("--states", "states.npz", "--output", "normals", "--range", "10:12", "-o", "normals.npy") == 0
    assert render("--states", "states.npz", "--output", "normals", "--range", "10:12", "-o", "normals") == 0
    with Image.open(folder / "normals/000011.png") as image:
        apart = np.asarray(image) / 127.5 - 1 - np.load(folder / "normals.npy")[1]
    assert np.abs(apart).max() <= 0.5001 / 127.5  # half a level
    assert len(list((folder / "frames/side.rgb").iterdir())) == 20
    assert json.loads((folder / "frames/frames.json").read_text())["count"] == 20
    assert render("--states", "states.npz", "--range", ":20", "-o", "film.webp") == 0
    assert render("--states", "states.npz", "--range", ":20", "-o", "film.gif") == 0
    for name in ("film.webp", "film.gif"):
        with Image.open(name) as film:
            assert film.size == (SIZE, SIZE)
            assert getattr(film, "n_frames", 1) == 20


@pytest.mark.parametrize("format", ["parquet", "npy"])
@pytest.mark.parametrize("place", ["new", "out"])
def test_columns_of_a_dataset(folder: Path, format: Any, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    Collector(
        "out", "mujoco", settings={"xml": ARM}, observations=["qpos"], lanes=5, steps=400, seed=0, format=format
    ).run()
    before = WholeDataset("out")
    names = [column.name for column in before.description.columns]
    rows = before.read(names, slice(0, 5), slice(0, 80))
    assert render("--states", "out", "--as", "dataset", "-o", place) == 0
    assert check_dataset(place).is_good
    whole = WholeDataset(place)
    assert whole.is_complete
    found = whole.read([*names, "side.rgb"], slice(0, 5), slice(0, 80))
    for name in names:
        np.testing.assert_array_equal(found[name], rows[name])
    with MujocoRenderer(model=ARM, width=SIZE, height=SIZE, renderer="cpu") as draw:
        frames = draw(rows["qpos"].reshape(-1, 1))["side.rgb"]
    np.testing.assert_array_equal(found["side.rgb"].reshape(frames.shape), frames)
    assert "worldloom render --model arm.xml" in (folder / place / "README.md").read_text()
    assert not list(folder.glob("*partial*"))
    capsys.readouterr()
    assert render("--states", place, "--as", "dataset", "-o", place) == 1
    assert "has a column side.rgb already" in capsys.readouterr().err


def test_shadows_are_drawn_if_asked_for(folder: Path, states: dict[str, np.ndarray], expected: Any) -> None:
    write_states("states.npz", states)
    assert render("--states", "states.npz", "--camera", "side", "--shadows", "-o", "x.npy") == 0
    with MujocoRenderer(model=ARM, width=SIZE, height=SIZE, cameras=["side"], shadows=True, renderer="cpu") as draw:
        frames = draw(states)["side.rgb"]
    np.testing.assert_array_equal(np.load("x.npy"), frames)
    assert (frames != expected["side.rgb"]).any()


def test_columns_with_shadows_say_so(folder: Path) -> None:
    make_arm_dataset()
    assert render("--states", "out", "--shadows", "-o", "out") == 0
    assert "--shadows" in (folder / "out/README.md").read_text()


def make_arm_dataset(place: str = "out", **arguments: Any) -> None:
    Collector(
        place, "mujoco", settings={"xml": ARM}, observations=["qpos"], lanes=3, steps=60, seed=0, **arguments
    ).run()


def read_columns(place: str, *names: str) -> dict[str, np.ndarray]:
    return WholeDataset(place).read(names, slice(0, 3), slice(0, 20))


@pytest.mark.parametrize("format", ["parquet", "npy"])
@pytest.mark.parametrize("place", ["new", "out"])
def test_columns_are_drawn_anew_if_asked_for(
    folder: Path, format: Any, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_arm_dataset(format=format)
    assert render("--states", "out", "--camera", "side,top", "-o", "out") == 0
    before = read_columns("out", "qpos", "top.rgb", "last")
    (folder / "arm.xml").write_text(ARM.replace(".8 .3 .2 1", "0 0 1 1"))
    assert render("--states", "out", "--as", "dataset", "-o", place) == 1
    assert "--overwrite draws it anew" in capsys.readouterr().err
    words = ["--states", "out", "--as", "dataset", "-o", place, "--overwrite"]
    assert cli.main(["render", "--model", "arm.xml", "--size", "20x16", "--renderer", "cpu", *words]) == 0
    assert check_dataset(place).is_good
    assert not check_dataset(place).notes
    found = read_columns(place, "qpos", "top.rgb", "last", "side.rgb")
    for name, rows in before.items():
        np.testing.assert_array_equal(found[name], rows)
    with MujocoRenderer(model="arm.xml", width=20, height=16, renderer="cpu") as draw:
        frames = draw(before["qpos"].reshape(-1, 1))["side.rgb"]
    np.testing.assert_array_equal(found["side.rgb"].reshape(frames.shape), frames)
    description = WholeDataset(place).description
    assert sorted(column.name for column in description.frames) == ["side.rgb", "top.rgb"]
    commands = list(dict.fromkeys(description.drawn.values()))  # of which the first draws side.rgb, too
    assert [command.endswith(" --overwrite") for command in commands] == [False, True]


def test_frames_that_are_all_drawn_anew_may_have_other_pictures(folder: Path) -> None:
    make_arm_dataset(pictures="jpeg:50")
    assert render("--states", "out", "-o", "out") == 0
    assert WholeDataset("out").description.frames[0].encoding == "jpeg"
    assert render("--states", "out", "-o", "out", "--overwrite", "--pictures", "png") == 0
    description = WholeDataset("out").description
    assert (description.pictures, description.lossy_pictures) == ("png:1", "")
    assert check_dataset("out").is_good
    rows = read_columns("out", "qpos", "side.rgb")
    with MujocoRenderer(model=ARM, width=SIZE, height=SIZE, renderer="cpu") as draw:
        np.testing.assert_array_equal(
            rows["side.rgb"].reshape(60, SIZE, SIZE, 3), draw(rows["qpos"].reshape(60, 1))["side.rgb"]
        )
    commands = set(description.drawn.values())
    assert len(commands) == 1
    assert not commands.pop().endswith("--overwrite")


def test_files_beside_a_dataset_stay(folder: Path) -> None:
    make_arm_dataset()
    assert render("--states", "out", "--range", ":5", "-o", "out/frames") == 0
    (folder / "out/notes.txt").write_text("mine")
    assert render("--states", "out", "-o", "out") == 0
    assert (folder / "out/notes.txt").read_text() == "mine"
    assert sorted(path.name for path in (folder / "out/frames").iterdir()) == [
        *(f"{k:06d}.png" for k in range(5)),
        "frames.json",
    ]
    assert check_dataset("out").is_good
    make_arm_dataset("other")
    assert render("--states", "other", "--as", "dataset", "-o", "out", "--overwrite") == 0
    assert (folder / "out/notes.txt").read_text() == "mine"
    assert not list(folder.rglob("*partial*"))


def test_files_of_ones_own_by_the_names_of_others_stay(folder: Path) -> None:
    make_arm_dataset()
    (folder / "out/film.gif").write_text("mine")
    card = (folder / "out/README.md").read_text()
    (folder / "out/README.md").write_text(f"{card}And this, by hand.")
    assert render("--states", "out", "-o", "out") == 0
    assert (folder / "out/film.gif").read_bytes()[:3] == b"GIF"
    assert (folder / "out/film.gif~").read_text() == "mine"
    assert (folder / "out/README.md~").read_text().endswith("And this, by hand.")
    assert not (folder / "out/contact_sheet.png~").exists()
    assert render("--states", "out", "--camera", "top", "-o", "out") == 0
    assert sorted(path.name for path in (folder / "out").iterdir() if path.name.endswith("~")) == [
        "README.md~",
        "film.gif~",
    ]


@pytest.mark.parametrize("mode", [0o700, 0o2770])
def test_a_directory_that_is_replaced_keeps_its_permissions(folder: Path, mode: int) -> None:
    make_arm_dataset()
    (folder / "out").chmod(mode)
    assert render("--states", "out", "-o", "out") == 0
    assert stat.S_IMODE((folder / "out").stat().st_mode) == mode
    assert render("--states", "out", "-o", "frames") == 0
    (folder / "frames").chmod(mode)
    assert render("--states", "out", "-o", "frames", "--overwrite") == 0
    assert stat.S_IMODE((folder / "frames").stat().st_mode) == mode


def test_the_current_directory_and_links_are_places(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_arm_dataset()
    (folder / "link").symlink_to("out")
    assert render("--states", "link", "--camera", "top", "-o", "link") == 0
    assert (folder / "link").is_symlink()
    monkeypatch.chdir(folder / "out")
    words = ["render", "--model", "../arm.xml", "--size", "12", "--renderer", "cpu", "--states", ".", "-o"]
    assert cli.main([*words, "."]) == 0
    assert f"`cd {folder / 'out'}`" in capsys.readouterr().out
    assert cli.main([*words, "."]) == 1
    assert "which was removed: expected a path" in capsys.readouterr().err
    os.chdir(folder)
    assert {column.name for column in WholeDataset("out").description.frames} == {"side.rgb", "top.rgb"}
    assert cli.main(["render", "--model", "arm.xml", "--states", "out", "-o", "/"]) == 1
    assert "--out is /: expected a file or directory in it" in capsys.readouterr().err


def test_what_a_stopped_run_has_left_is_no_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_arm_dataset("out.partial")
    (folder / "out.partial.jsonl").touch()
    assert render("--states", "out.partial", "-o", "out.partial") == 1
    assert "expected out, to go on with it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "length", "message"),
    [
        (12, 5, "qpos of state 12 in rows.parquet has 5 numbers: expected 9, as the first state has"),
        (29, 0, "qpos of state 29 in rows.parquet has 0 numbers: expected 9, as the first state has"),
        (0, 5, "qpos of state 1 in rows.parquet has 9 numbers: expected 5, as the first state has"),
        (0, 0, "qpos of state 1 in rows.parquet has 9 numbers: expected 0, as the first state has"),
    ],
)
@pytest.mark.parametrize("group", [7, 100])
def test_the_first_row_of_another_length_is_told(
    folder: Path, row: int, length: int, message: str, group: int, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [[0.0] * (length if k == row else 9) for k in range(30)]
    pq.write_table(pa.table({"qpos": rows}), "rows.parquet", row_group_size=group)
    bodies = '<body><freejoint/><geom size="1"/></body><body><joint/><geom size="1"/></body></worldbody>'
    model = ARM.replace("</worldbody>", bodies)
    (folder / "arm.xml").write_text(model)
    assert render("--states", "rows.parquet", "-o", "x.npy") == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--states", "nope.npz", "-o", "x.npy"], "nope.npz does not exist"),
        (["--states", "states.npz", "-o", "x.mp4"], "ends with '.mp4': expected a film"),
        (["--states", "states.npz", "-o", "nowhere/x.npy"], "nowhere is no directory"),
        (["--states", "states.npz", "-o", "x.npy", "--range", "5:900"], "there are 300 states"),
        (["--states", "states.npz", "-o", "x.npy", "--range", "a"], "expected A:B"),
        (["--states", "states.npz", "-o", "x.npy", "--camera", "left"], "camera 'left' is not the model's"),
        (["--states", "states.npz", "-o", "x.npy", "--output", "red"], "output 'red' does not exist"),
        (["--states", "states.npz", "-o", "x", "--as", "dataset"], "is a file: expected the states of a dataset"),
        (["--states", "states.npz", "-o", "x.npy", "--qpos", "pos"], "has no 'pos'"),
        (["--states", "wide.npy", "-o", "x.npy"], "have 2 positions, the model has 1"),
        (["--states", "nan.npy", "-o", "x.npy"], "qpos of state 7 is nan"),
        (["--states", "damaged.npz", "-o", "x.npy"], "damaged.npz cannot be read"),
        (["--states", "words.npy", "-o", "x.npy"], "expected numbers in 2 dimensions"),
        (["--states", "states.npz", "-o", "x.npy", "--token-file", "t"], "expected --server"),
        (["--states", "wide.npy", "-o", "wide.npy", "--overwrite"], "the file of the states: expected another"),
    ],
)
def test_errors_say_what_was_expected_and_leave_nothing(
    folder: Path, states: dict[str, np.ndarray], words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_states("states.npz", states)
    np.save("wide.npy", np.zeros((9, 2)))
    np.save("words.npy", np.array(["a", "b"]))
    np.save("nan.npy", np.where(np.arange(9)[:, None] == 7, np.nan, 0.0))
    (folder / "damaged.npz").write_bytes((folder / "states.npz").read_bytes()[:500])
    before = sorted(folder.iterdir())
    assert render(*words) == 1
    assert message in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_output_that_exists_is_replaced_only_if_asked_for(
    folder: Path, states: dict[str, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    write_states("states.npz", states)
    (folder / "x.npy").write_text("mine")
    assert render("--states", "states.npz", "-o", "x.npy") == 1
    assert "x.npy exists" in capsys.readouterr().err
    assert (folder / "x.npy").read_text() == "mine"
    assert render("--states", "states.npz", "-o", "x.npy", "--overwrite") == 0
    assert np.load("x.npy").shape == (COUNT, SIZE, SIZE, 3)
    (folder / "mine").mkdir()
    (folder / "mine/file").touch()
    assert render("--states", "states.npz", "-o", "mine", "--overwrite") == 1
    assert (folder / "mine/file").exists()
