"""Progress and tables: bars and fitted columns on a terminal, plain text elsewhere."""

import io
import re
import subprocess
import sys
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from worldloom import terminal
from worldloom.terminal import print_columns, print_table, show_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def put_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stderr a terminal. Not a fixture: pytest puts its own stderr in place after those."""
    monkeypatch.setattr(sys, "stderr", out := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(terminal, "_REDRAW_S", 0.0)
    return out


def without_styles(text: str) -> str:
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", text)


def is_wiped(stderr: Terminal) -> bool:
    return stderr.getvalue().endswith("\x1b[2K\x1b[?25h\r")  # the last line is empty, the cursor there again


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = put_terminal(monkeypatch)
    with show_progress("stepping") as show:
        for part in (0.0, 0.5, 1.0):
            show(part, "7 frames a second")
    drawn = re.findall(r"([━╺╸]*) +(\d+)% stepping  7 frames a second", without_styles(stderr.getvalue()))
    assert [int(percent) for _, percent in drawn] == [0, 50, 100]
    assert {len(bar) for bar, _ in drawn} == {24}
    assert is_wiped(stderr)


def test_a_bar_is_no_longer_than_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = put_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "40")
    with show_progress("a title that is much longer than the window is wide") as show:
        show(0.5, "and a note")
    assert max(map(len, re.split(r"[\r\n]+", without_styles(stderr.getvalue())))) <= 40
    assert "50%" in stderr.getvalue()


def test_bars_of_several_threads_share_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = put_terminal(monkeypatch)

    def compile_kernels() -> None:
        with show_progress("compiling") as show:
            show(0.5, "")

    with show_progress("measuring") as show:
        thread = threading.Thread(target=compile_kernels)
        thread.start()
        thread.join()
        show(1.0, "done")
    shown = without_styles(stderr.getvalue())
    assert re.search(r" measuring .*\n.* compiling ", shown)
    assert terminal._bars._display is None


def test_a_bar_that_ends_with_an_error_is_wiped_away(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = put_terminal(monkeypatch)
    with pytest.raises(KeyboardInterrupt), show_progress("stepping"):
        raise KeyboardInterrupt
    assert is_wiped(stderr)
    assert terminal._bars._display is None


@pytest.mark.parametrize("term", ["dumb", None])
def test_plain_lines_elsewhere(term: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", out := io.StringIO() if term is None else Terminal())
    monkeypatch.setenv("TERM", term or "xterm")
    with show_progress("stepping") as show:
        for part in np.linspace(0, 1, 101):
            show(float(part), "7 frames a second")
    assert out.getvalue().splitlines() == [
        "stepping",
        *(f"stepping: {part}%  7 frames a second" for part in (25, 50, 75, 100)),
    ]


def columns(
    rows: Sequence[Sequence[str]],
    width: int | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[str]:
    if width is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", str(width))
    print_columns(rows)
    return capsys.readouterr().out.splitlines()


def test_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("a", "", "long words that go on and on"), ("bbb", "", "short")]
    assert columns(rows, 40, monkeypatch, capsys) == ["  a    long words that go on and on", "  bbb  short"]
    assert columns(rows, 30, monkeypatch, capsys) == [
        "  a",
        "      long words that go on",
        "      and on",
        "  bbb",
        "      short",
    ]
    assert columns([("only", "")], 40, monkeypatch, capsys) == ["  only"]
    assert columns([], 40, monkeypatch, capsys) == []


def test_rows_are_one_line_for_programs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    [line] = columns([("[name]", "word " * 100)], None, monkeypatch, capsys)
    assert line == "  [name]  " + ("word " * 100).rstrip()


def test_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table([["maze", "1,000"], ["catch", "20"]], text_columns=1, heads=["family", "frames/s"])
    assert capsys.readouterr().out.splitlines() == [
        "  family  frames/s",
        "  maze       1,000",
        "  catch         20",
    ]


@pytest.mark.parametrize("width", [30, 60, 200])
def test_a_table_fits_the_window(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", out := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    print_table([["one", *(["123,456"] * 8)]] * 2, text_columns=1, heads=["name", *(["frames"] * 8)])
    assert max(map(len, without_styles(out.getvalue()).splitlines())) <= width
    assert "\x1b[" in out.getvalue()


def test_rich_is_imported_only_when_it_draws() -> None:
    code = "import sys, worldloom.server.cli, worldloom.kernels.compiling; print('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
