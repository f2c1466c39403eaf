"""The comparison with peers, without them: its programs' options, its processes, its tables."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.bench.measuring import BEGIN, END
from worldloom.bench.peers import __main__ as command
from worldloom.bench.peers import program as peer_program
from worldloom.bench.peers.comparisons import COMPARISONS, WORLDLOOM, report
from worldloom.bench.peers.process import PeerError, PeerProcess

PROGRAMS = sorted({side.program for comparison in COMPARISONS for side in comparison.implementations})
STAND_IN = """
import sys
from worldloom.bench.peers.program import Stepper, options, run
parser = options("Somebody else's.", 64, 64)
parser.add_argument("--mode")

def make(chosen):
    print("a library that prints what it likes", flush=True)
    return Stepper(lambda: chosen.envs, {"stand-in": "1.0"})

sys.exit(run(parser, make, sys.argv[3:]))
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A Python that knows one program only, whatever it is asked for."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/stand_in.py" "$@"\n')
    python.chmod(0o755)
    return python


@given(st.integers(1, 300))
def test_environments_are_shared_out_among_processes(envs: int) -> None:
    for comparison in COMPARISONS:
        for side in comparison.implementations:
            commands = comparison.commands(side, envs)
            shares = [int(words[words.index("--envs") + 1]) for words in commands]
            assert sum(shares) == comparison.envs_of(side, envs)
            assert min(shares) >= 1
            assert len(shares) <= side.processes
            assert all(words.count(str(comparison.width)) for words in commands)
            cores = [words[words.index("--core") + 1] for words in commands if "--core" in words]
            assert len(set(cores)) == len(cores) == (len(commands) if side.processes > 1 else 0)


def test_ours_is_compared_with_each_of_theirs() -> None:
    middle: dict[str, float] = {}
    for comparison in COMPARISONS:
        middle.update({comparison.key(side, 64): 500.0 for side in comparison.others})
        middle[comparison.key(comparison.ours, 64)] = 1000.0
    lines = report(COMPARISONS, 64, middle)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    assert [row[3] for row in rows if row[0].startswith("worldloom")] == [""] * len(COMPARISONS)
    theirs = [row for row in rows if row[3] == "2.0 ×"]
    assert len(theirs) == sum(len(comparison.others) for comparison in COMPARISONS)
    assert {row[1] for row in rows if row[1].isdecimal()} == {"2", "64"}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--envs", "0"], "--envs is 0: expected 1 to 65536"),
        (["--width", "x"], "invalid int value: 'x'"),
        (["--core", "100000"], "--core is 100000: expected 0 to "),
    ],
)
def test_programs_refuse_what_makes_no_sense(
    program: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module(f"worldloom.bench.peers.{program}")
    if program == WORLDLOOM:
        words = ["--family", "catch", *words]
    with pytest.raises(SystemExit):
        module.main(words)
    assert said in capsys.readouterr().err


@given(st.integers(-100, 70_000), st.integers(-100, 70_000))
def test_sizes_are_checked(width: int, height: int) -> None:
    parser = peer_program.options("", 64, 64)
    words = ["--width", str(width), "--height", str(height)]
    if 1 <= width <= 65_536 and 1 <= height <= 65_536:
        peer_program.check(parser, parser.parse_args(words))
    else:
        with pytest.raises(SystemExit, match="2"):
            peer_program.check(parser, parser.parse_args(words))


def test_ours_is_stepped_in_a_process_of_its_own() -> None:
    worker = PeerProcess(WORLDLOOM, ["--family", "catch", "--envs", "3", "--width", "8", "--height", "8"], None)
    try:
        worker.wait_until_ready(timeout_s=240)
        assert set(worker.about) == {"worldloom", "numba"}
        for _ in range(2):
            worker.start(0.02)
            assert worker.finish(0.02) > 0
    finally:
        worker.close()


def test_a_program_that_cannot_run_has_last_words() -> None:
    assert importlib.util.find_spec("vizdoom") is None, "the tests run without the peers"
    worker = PeerProcess("vizdoom_basic", ["--envs", "1"], Path(sys.executable))
    try:
        with pytest.raises(PeerError, match=r"(?s)vizdoom_basic ended: expected frames.*No module named 'vizdoom'"):
            worker.wait_until_ready(timeout_s=60)
    finally:
        worker.close()


def test_a_run_beside_a_stand_in(
    stand_in: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "limit_cores", lambda count: count)  # the tests go on with all they have
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    words = ["--only", "bigfish", "--envs", "2", "--rounds", "1", "--seconds", "0.02", "--python", str(stand_in)]
    assert command.main([*words, "--page", str(page), "--json", str(tmp_path / "peers")]) == 0
    printed = capsys.readouterr().out
    assert page.read_text() == f"{BEGIN}\n{printed}{END}\n"
    assert "Peers: stand-in 1.0." in printed
    found = json.loads((tmp_path / "peers" / "bigfish.json").read_text())
    assert [side["name"] for side in found["sides"]] == [side.name for side in COMPARISONS[0].implementations]
    assert all(rate > 0 for side in found["sides"] for rate in side["frames_per_s"])


def test_without_the_peers_it_says_how_to_get_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--python", str(tmp_path / "none")]) == 2
    assert "`make bench-peers` makes it" in capsys.readouterr().err


def test_other_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--only", "pong"])
    assert "invalid choice: 'pong'" in capsys.readouterr().err
