"""Runs of `worldloom render` that are stopped, killed or fail, and what the next run makes of what they left."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from scripts import render_faults
from worldloom.data import Collector, render_job
from worldloom.server import cli

MODEL = """<mujoco><worldbody>
  <camera name="side" pos="0 -3 1" xyaxes="1 0 0 0 0 1"/>
  <geom type="plane" size="2 2 .1" rgba=".5 .6 .7 1"/>
  <body pos="0 0 1"><joint name="hinge" axis="0 1 0" damping=".1"/>
    <geom type="capsule" fromto="0 0 0 .8 0 0" size=".1" rgba=".8 .3 .2 1"/></body>
</worldbody><actuator><motor joint="hinge" ctrlrange="-9 9" ctrllimited="true"/></actuator></mujoco>"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


MESH = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
MODEL_WITH_FILES = """<mujoco><include file="{include}"/>
  <asset><mesh name="m" file="m.obj"/>
    <texture name="t" type="2d" file="t.png"/><material name="t" texture="t"/></asset>
  <worldbody><camera name="side" pos="0 -3 1" xyaxes="1 0 0 0 0 1"/>
    <body><joint axis="0 1 0"/><geom type="mesh" mesh="m" material="t"/></body></worldbody></mujoco>"""
INCLUDED = '<mujoco><worldbody><geom type="sphere" size="{size}"/></worldbody></mujoco>'


@pytest.mark.parametrize("changed", ["inner/part.xml", "../part.xml", "m.obj", "t.png", "model.xml"])
def test_a_run_does_not_go_on_with_another_model(
    folder: Path, changed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    include = changed if changed.endswith("part.xml") else "inner/part.xml"
    home = folder / "home"
    for name in ("inner/part.xml", "../part.xml"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(INCLUDED.format(size=0.1))
    (home / "m.obj").write_text(MESH)
    Image.new("RGB", (4, 4), "red").save(home / "t.png")
    (home / "model.xml").write_text(MODEL_WITH_FILES.format(include=include))
    np.save("states.npy", np.zeros((10, 1)))
    words = ["render", "--model", "home/model.xml", "--states", "states.npy", "--size", "8", "--renderer", "cpu"]
    journals: list[dict[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(render_job.Journal, "remove", lambda journal: journals.append(journal.arguments))
        assert cli.main([*words, "-o", "x.npy"]) == 0
        for path in home.rglob("*"):
            os.utime(path)  # which changes no content
        (folder / "y.npy.partial.jsonl").write_text(json.dumps(journals[0]) + "\n5\n")
        assert cli.main([*words, "-o", "y.npy"]) == 0
    (folder / "z.npy.partial.jsonl").write_text(json.dumps(journals[1]) + "\n5\n")
    if changed == "t.png":
        Image.new("RGB", (4, 4), "blue").save(home / changed)
    else:
        text = (home / changed).read_text()
        for one, other in (("v 1 0 0", "v 2 0 0"), ("0.1", "0.3"), ("0 -3 1", "0 -4 1")):
            text = text.replace(one, other)
        (home / changed).write_text(text)
    capsys.readouterr()
    assert cli.main([*words, "-o", "z.npy"]) == 1
    assert "home/model.xml, or a file that it refers to, has changed since" in capsys.readouterr().err


LINES = st.lists(
    st.one_of(
        st.integers(-2, 400).map(lambda number: json.dumps(number).encode()),
        st.sampled_from([b'"abc"', b"null", b"[1]", b"true", b"1.0", b"{}", b"", b"NaN", b"[" * 5000, b"9" * 5000]),
        st.binary(max_size=6),
    ),
    max_size=4,
)


@given(
    first=st.sampled_from([b'{"as": "npy"}', b"{}", b"7", b"null", b"", b"\xff"]),
    lines=LINES,
    end=st.binary(max_size=4),
)
def test_a_journal_of_any_bytes_is_read_or_called_damaged(first: bytes, lines: list[bytes], end: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        data = b"".join(line + b"\n" for line in [first, *lines]) + end
        (Path(name) / "x.partial.jsonl").write_bytes(data)
        journal = render_job.Journal(Path(name) / "x")
        journal.close()
    whole = data.split(b"\n")[:-1]
    if first in (b'{"as": "npy"}', b"{}") and all(
        re.fullmatch(rb"\s*(-?0|[1-9]\d{0,4000})\s*", one) for one in whole[1:]
    ):
        assert journal.arguments == json.loads(first)
        assert journal.done == max([0, *map(int, whole[1:])])
    else:
        assert (journal.arguments, journal.done) == (render_job.DAMAGED, 0)


def test_a_file_that_no_run_has_begun_is_not_removed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "arm.xml").write_text(MODEL)
    np.save("states.npy", np.zeros((3, 1)))
    (folder / "out.partial").mkdir()
    (folder / "out.partial/notes.txt").touch()
    words = ["render", "--model", "arm.xml", "--renderer", "cpu", "--states", "states.npy", "-o", "out"]
    assert cli.main(words) == 1
    assert "out.partial exists, and no journal says that a run has begun it" in capsys.readouterr().err
    assert sorted(path.name for path in folder.rglob("*")) == ["arm.xml", "notes.txt", "out.partial", "states.npy"]


def test_a_run_does_not_go_on_with_or_without_shadows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "arm.xml").write_text(MODEL)
    np.save("states.npy", np.zeros((10, 1)))
    words = ["render", "--model", "arm.xml", "--size", "8", "--renderer", "cpu", "--states", "states.npy"]
    for option, other, told in (([], ["--shadows"], "shadows was None, is True"),
                                (["--shadows"], [], "shadows was True, is None")):  # fmt: skip
        journals: list[dict[str, Any]] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(render_job.Journal, "remove", lambda journal, seen=journals: seen.append(journal.arguments))
            assert cli.main([*words, *option, "-o", "whole.npy"]) == 0
        (folder / "whole.npy.partial.jsonl").unlink()
        journal = folder / "x.npy.partial.jsonl"
        journal.write_text(json.dumps(journals[0]) + "\n5\n")
        before = journal.read_bytes()
        capsys.readouterr()
        assert cli.main([*words, *other, "-o", "x.npy"]) == 1
        assert f"x.npy was begun with other arguments ({told})" in capsys.readouterr().err
        assert journal.read_bytes() == before
        assert cli.main([*words, *option, "-o", "x.npy"]) == 0
        np.testing.assert_array_equal(np.load("x.npy"), np.load("whole.npy"))
        (folder / "x.npy").unlink()
        (folder / "whole.npy").unlink()


@pytest.mark.parametrize("line", ['"abc"', "null", "[1]", "true", "-1", "{"])
def test_a_damaged_journal_is_begun_anew_if_asked_for(
    folder: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    (folder / "arm.xml").write_text(MODEL)
    np.save("states.npy", np.linspace(0, 3, 20)[:, None])
    words = ["render", "--model", "arm.xml", "--size", "12", "--renderer", "cpu", "--states", "states.npy"]
    (folder / "x.npy.partial.jsonl").write_text(f'{{"as": "npy"}}\n100\n{line}\n')
    assert cli.main([*words, "-o", "x.npy"]) == 1
    assert "x.npy.partial.jsonl is damaged: expected --overwrite" in capsys.readouterr().err
    assert cli.main([*words, "-o", "x.npy", "--overwrite"]) == 0
    assert cli.main([*words, "-o", "expected.npy"]) == 0
    assert (folder / "x.npy").read_bytes() == (folder / "expected.npy").read_bytes()


@pytest.mark.slow
def test_a_full_disk_is_told_alike_for_all_outputs() -> None:
    """On a small tmpfs, in a mount namespace of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "scripts.render_faults", "--full-disk"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(render_faults.__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("cannot write the frames: No space left on device") == 3


NOTES_OFTEN = """
import sys
from worldloom.data import render_job
from worldloom.server import cli
render_job._CHECKPOINT_S, render_job._MAX_PART = 0.1, 256
sys.exit(cli.main())
"""
"""The command with smaller parts and ten times as many lines of the journal: few states are enough to be killed."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["npy", "png", "dataset"])
def test_a_killed_run_goes_on_to_the_same_bytes(folder: Path, kind: str) -> None:
    (folder / "arm.xml").write_text(MODEL)
    steps = {"npy": 16_000, "png": 2_800, "dataset": 8_000}[kind]  # parts enough for two kills
    Collector("out", "mujoco", settings={"xml": MODEL}, observations=["qpos"], lanes=4, steps=steps, seed=1).run()
    place = {"npy": "x.npy", "png": "x", "dataset": "x"}[kind]
    words = ["--model", "arm.xml", "--states", "out", "--size", "48", "--renderer", "cpu", "--as", kind]
    assert cli.main(["render", *words, "-o", f"whole-{place}"]) == 0
    journal, kills = folder / f"{place}.partial.jsonl", 0
    while True:
        command = [sys.executable, "-c", NOTES_OFTEN, "render", *words, "-o", place]
        run = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        noted = journal.read_bytes().count(b"\n") if journal.exists() else 0
        while run.poll() is None and kills < 2:
            if journal.exists() and journal.read_bytes().count(b"\n") > max(1, noted):
                run.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.002)
        if run.wait() == 0:
            break
    assert kills >= 1
    pairs = [(folder / f"whole-{place}", folder / place)]
    if pairs[0][0].is_dir():
        names = sorted(path.relative_to(pairs[0][0]) for path in pairs[0][0].rglob("*") if path.is_file())
        assert names == sorted(
            path.relative_to(folder / place) for path in (folder / place).rglob("*") if path.is_file()
        )
        pairs = [(folder / f"whole-{place}" / name, folder / place / name) for name in names]
    for one, other in pairs:
        assert one.read_bytes() == other.read_bytes()
    assert not list(folder.glob("*partial*"))


def test_no_frame_is_missing_or_there_twice_after_breaks_and_kills() -> None:
    """The short form of `python -m scripts.render_faults --states 1000000 --kills 20`."""
    levels = render_faults.run_stream(200_000, 3, random.Random(1))
    assert max(levels) - levels[0] < 64 << 20, levels  # two parts of up to 32 MB; the frames of all states are 205 MB
    _, taken_up = render_faults.run_kills(120_000, 2, random.Random(1))
    assert taken_up


@pytest.mark.slow
def test_no_file_is_lost_when_a_run_that_replaces_a_directory_is_killed() -> None:
    """The short form of `python -m scripts.render_faults --replacements`, in a process without threads."""
    done = subprocess.run(
        [sys.executable, "-m", "scripts.render_faults", "--replacements", "2"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(render_faults.__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
    assert "4 runs that replaced a directory were killed" in done.stdout
