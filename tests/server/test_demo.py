"""`worldloom demo` draws, counts, saves a picture that can be read, and stops when told to."""

import re
import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from worldloom.kernels.tables import U8
from worldloom.server import cli
from worldloom.server.demo_scenes import make_worlds

QUICK = ("--renderer", "cpu", "--seconds", "0.05")
TILE, GAP = 128, 6


def read_png(path: Path) -> U8:
    """The pixels of a PNG file whose lines are filtered by nothing, or by what is left of or above them."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, width, height, channels, packed, kinds = 8, 0, 0, 0, b"", []
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length) == (zlib.crc32(kind + content),)
        kinds.append(kind)
        if kind == b"IHDR":
            width, height, depth, color_type, *others = struct.unpack(">IIBBBBB", content)
            assert (depth, others) == (8, [0, 0, 0])
            channels = {0: 1, 2: 3}[color_type]
        if kind == b"IDAT":
            packed += content
        at += 12 + length
    assert (kinds[0], kinds[-1]) == (b"IHDR", b"IEND")
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + channels * width)
    pixels = np.zeros((height, width, channels), np.uint8)
    above = np.zeros((width, channels), np.uint8)
    for y, line in enumerate(lines):
        values = line[1:].reshape(width, channels)
        assert line[0] in (0, 1, 2)
        if line[0] == 1:
            values = np.cumsum(values, axis=0, dtype=np.uint8)
        pixels[y] = above = values + above if line[0] == 2 else values
    return pixels


def test_it_draws_counts_and_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "folders" / "demo.png"
    assert cli.main(["demo", *QUICK, "--lanes", "18", "--size", "16", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "18 worlds (5 yard, 5 corridor, 4 island, 4 board), 16 x 16 pixels each" in text
    assert re.search(r"^renderer cpu, \d+ threads?\. The cpu renderer was asked for\.$", text, re.MULTILINE)
    number = r"([1-9][\d,]*)"
    rgb = re.search(rf"^rgb +{number} +{number} +{number}$", text, re.MULTILINE)
    every = re.search(rf"^rgb, gray, depth, segmentation +{number} +{number} +{number}$", text, re.MULTILINE)
    assert rgb
    assert every
    views = [int(found[3].replace(",", "")) for found in (rgb, every)]
    batches = [int(found[2].replace(",", "")) for found in (rgb, every)]
    assert views == [18 * count for count in batches]
    totals = f"frames in all: {sum(views):,} rgb, {views[1]:,} gray, {views[1]:,} depth, {views[1]:,} segmentation"
    assert totals in text
    assert f"saved {out}" in text


def test_the_picture_has_two_rows_of_worlds_then_depth_and_labels(tmp_path: Path) -> None:
    out = tmp_path / "demo.png"
    assert cli.main(["demo", *QUICK, "--lanes", "16", "--size", "8", "--out", str(out)]) == 0
    sheet = read_png(out)
    step = TILE + GAP
    assert sheet.shape == (4 * step + GAP, 8 * step + GAP, 3)
    assert (sheet[:GAP] == 255).all()
    tiles = [sheet[y : y + TILE, x : x + TILE] for y in range(GAP, 4 * step, step) for x in range(GAP, 8 * step, step)]
    assert len({one.tobytes() for one in tiles}) == len(tiles), "no two are the same"
    assert all(len(np.unique(one.reshape(-1, 3), axis=0)) >= 5 for one in tiles)


@pytest.mark.parametrize("lanes", [1, 3, 13])
def test_any_number_of_worlds_makes_a_picture(lanes: int, tmp_path: Path) -> None:
    out = tmp_path / "demo.png"
    assert cli.main(["demo", *QUICK, "--lanes", str(lanes), "--size", "8", "--out", str(out)]) == 0
    assert read_png(out).shape == (3 * (TILE + GAP) + GAP, min(8, lanes) * (TILE + GAP) + GAP, 3)


def test_no_two_worlds_look_alike() -> None:
    scene, kinds = make_worlds(64)
    for kind in kinds:
        rows = scene.rows(kind.lanes)
        kind.move(0.0)
        looks = {scene.instances.pose[lane].tobytes() + scene.instances.color[lane].tobytes() for lane in rows}
        assert len(looks) == len(kind.lanes)
        assert np.isfinite(scene.instances.pose[rows]).all()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--lanes", "0"), "--lanes: expected a whole number from 1 to 65536, got '0'"),
        (("--lanes", "many"), "--lanes: expected a whole number from 1 to 65536, got 'many'"),
        (("--size", "1000"), "--size: expected a whole number from 8 to 512, got '1000'"),
        (("--seconds", "0"), "--seconds: expected a number above 0, at most 3600, got '0'"),
        (("--seconds", "nan"), "--seconds: expected a number above 0, at most 3600, got 'nan'"),
        (("--renderer", "vulkan"), "--renderer: invalid choice: 'vulkan'"),
    ],
)
def test_wrong_numbers_are_refused(words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["demo", *words])
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_picture_that_cannot_be_written_is_told_before_drawing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "folder.png").mkdir()
    for out in ("file/demo.png", "folder.png", "demo.jpg"):
        assert cli.main(["demo", *QUICK, "--out", str(tmp_path / out)]) == 1
        text = capsys.readouterr()
        assert text.out == ""
        assert text.err.startswith("worldloom demo: ")
        assert str(tmp_path / out) in text.err


def test_a_device_is_not_for_the_cpu_renderer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", *QUICK, "--device", "0", "--out", str(tmp_path / "demo.png")]) == 1
    assert "a device (0) is for gl or auto only" in capsys.readouterr().err


def test_ctrl_c_stops_it_quietly(tmp_path: Path) -> None:
    out = tmp_path / "demo.png"
    code = "import sys; from worldloom.server.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "demo", "--renderer", "cpu", "--lanes", "8", "--seconds", "600"]
    with subprocess.Popen(
        [*command, "--out", out], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("drawing"):
                break
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=60)
        assert (process.returncode, rest) == (130, "")
    assert not out.exists()


@pytest.mark.gl
def test_it_draws_with_opengl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demo.png"
    words = ["--renderer", "gl", "--seconds", "0.05", "--lanes", "4", "--size", "8", "--out", str(out)]
    assert cli.main(["demo", *words]) == 0
    assert "renderer gl, " in capsys.readouterr().out
    assert read_png(out).shape == (3 * (TILE + GAP) + GAP, 4 * (TILE + GAP) + GAP, 3)
