"""`worldloom demo` as people run it: what it prints and saves, what it refuses, and that it leaves no server behind."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from scripts.support.server_process import WORLDLOOM
from tests.support.image_files import read_gif, read_png
from worldloom.demo import recording
from worldloom.demo import run as demo_run
from worldloom.server import cli

QUICK = ("--seconds", "0.2", "--lanes", "6", "--streams", "1", "--size", "16", "--frames", "3")
CPU = ("--renderer", "cpu")
END_S = 30.0


def test_it_serves_steps_counts_and_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "folders" / "demo.png"
    assert cli.main(["demo", *CPU, *QUICK, "--out", str(out)]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert re.match(r"server: process \d+ at 127\.0\.0\.1:\d+, renderer cpu, \d+ threads?$", lines[0])
    rows = {cells[0]: cells[1:] for line in lines if len(cells := re.split(r" {2,}", line.strip())) == 3}
    assert rows["frames come"] == ["in replies", "in shared memory"]
    assert rows["worlds"] == ["3", "18"]
    for name in ("frames a second", "catch", "cartpole", "maze", "mean batch, streams", "mean batch, worlds"):
        assert all(float(cell.replace(",", "")) > 0 for cell in rows[name]), name
    shares = re.findall(r"^  [a-z]+ .*?([\d.]+)%.*?([\d.]+)%$", said.out, re.MULTILINE)
    assert len(shares) >= 5
    for column in zip(*shares, strict=True):
        assert sum(map(float, column)) == pytest.approx(100, abs=1)  # each is rounded
    assert "[" not in said.err  # no bar where there is no terminal
    assert "3 vector worlds, 0.1 s: 100%" in said.err
    assert f"saved {out}" in said.out
    assert f"saved {out.with_suffix('.gif')}: 3 frames" in said.out
    _check_pictures(out)


def _check_pictures(out: Path) -> None:
    sheet, moving = read_png(out), read_gif(out.with_suffix(".gif")).frames
    step = recording.FRAME_SIZE + recording.SHEET_GAP
    rows = recording.SHEET_ROWS + 2
    assert sheet.shape == (rows * step + recording.SHEET_GAP, recording.SHEET_COLUMNS * step + recording.SHEET_GAP, 3)
    places = [
        (y, x)
        for y in range(recording.SHEET_GAP, rows * step, step)
        for x in range(recording.SHEET_GAP, 8 * step, step)
    ]
    tiles = [sheet[y : y + recording.FRAME_SIZE, x : x + recording.FRAME_SIZE] for y, x in places]
    assert len({one.tobytes() for one in tiles}) == len(tiles), "no two are the same"
    assert all(len(np.unique(one.reshape(-1, 3), axis=0)) >= 2 for one in tiles)
    small = recording.FRAME_SIZE // 2 + recording.VIDEO_GAP
    expected = recording.VIDEO_ROWS * small + recording.VIDEO_GAP, recording.VIDEO_COLUMNS * small + recording.VIDEO_GAP
    assert moving.shape == (3, *expected, 3)
    assert all((one != moving[0]).any() for one in moving[1:])
    assert (moving[:, : recording.VIDEO_GAP] == moving[0, 0, 0]).all()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--lanes", "0"), "--lanes: expected a whole number from 1 to 16384, got '0'"),
        (("--lanes", "many"), "--lanes: expected a whole number from 1 to 16384, got 'many'"),
        (("--streams", "65"), "--streams: expected a whole number from 1 to 64, got '65'"),
        (("--size", "1000"), "--size: expected a whole number from 8 to 512, got '1000'"),
        (("--frames", "0"), "--frames: expected a whole number from 1 to 250, got '0'"),
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


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is refused before a server is started."""

    def start(*_: str, **__: object) -> None:
        raise AssertionError("a server was started")

    monkeypatch.setattr(demo_run, "ServerProcess", start)


@pytest.mark.usefixtures("no_server")
@pytest.mark.parametrize("name", ["file/demo.png", "folder.png", "demo.jpg", "demo.gif", "taken.png"])
def test_pictures_that_cannot_be_written_are_told_first(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "taken.gif").mkdir()
    assert cli.main(["demo", *CPU, "--out", str(tmp_path / name)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("worldloom demo: ")
    assert str(tmp_path / name.partition(".")[0]) in said.err


@pytest.mark.usefixtures("no_server")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--renderer", "cpu", "--device", "0"), "--device is 0: expected none with --renderer cpu"),
        (("--lanes", "16384", "--size", "512"), "--lanes 16384 of --size 512 are 12,884,901,888 bytes of frames"),
    ],
)
def test_what_does_not_go_together(
    words: tuple[str, ...], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["demo", *words, "--out", str(tmp_path / "demo.png")]) == 1
    assert complaint in capsys.readouterr().err


def test_a_server_that_does_not_start(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--renderer", "gl", "--device", "999", *QUICK, "--out", str(tmp_path / "demo.png")]) == 1
    first, *others = capfd.readouterr().err.splitlines()[1:]
    assert first.startswith("worldloom serve: there is no graphics device 999")
    assert others == ["worldloom demo: the server did not start (exit code 1): see above for why"]


@contextmanager
def running(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[str]", int, int]]:
    """A demo that steps for very long, the number of its server's process, and the server's port."""
    command = [str(WORLDLOOM), "demo", *CPU, *QUICK, "--seconds", "600", "--out", str(tmp_path / "demo.png")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"process (\d+) at 127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert found
            assert process.stderr is not None
            _wait_for(process.stderr, "3 single streams")
            yield process, int(found[1]), int(found[2])
        finally:
            process.kill()


def _wait_for(lines: IO[str], start: str) -> None:
    assert any(line.startswith(start) for line in lines)


def _assert_gone(pid: int, port: int) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


@pytest.mark.parametrize(
    ("sent", "code", "words"),
    [(signal.SIGINT, 130, "stopped, and the server with it\n"), (signal.SIGTERM, 143, "")],
)
def test_told_to_stop_it_leaves_nothing(sent: signal.Signals, code: int, words: str, tmp_path: Path) -> None:
    with running(tmp_path) as (process, server_pid, port):
        process.send_signal(sent)
        _, rest = process.communicate(timeout=END_S)
        assert (process.returncode, rest) == (code, words)
        _assert_gone(server_pid, port)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_dies_is_told_in_one_line(tmp_path: Path) -> None:
    with running(tmp_path) as (process, server_pid, port):
        os.kill(server_pid, signal.SIGKILL)
        _, rest = process.communicate(timeout=END_S)
        assert process.returncode == 1
        last = rest.splitlines()[-1]
        assert last.startswith(f"worldloom demo: lost the server at 127.0.0.1:{port}: ")
        assert "Traceback" not in rest
