"""The command of `make bench`: a table with missed targets marked, a process for each benchmark, exit codes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from worldloom.bench import __main__ as command
from worldloom.bench.measuring import BEGIN, END

BENCHMARKS = """
import os
import pytest

LEFT_BEHIND = []


@pytest.mark.parametrize("number", [1, 2])
def bench_alone(report, number):
    report.seconds(lambda: None, rounds=1)
    report.row(f"alone {number}", f"{os.getpid()} {len(LEFT_BEHIND)}", figures={f"pid {number}": os.getpid()})
    LEFT_BEHIND.append(number)


def bench_in_turn(report):
    rates = iter([9.0, 9.0, 2.0, 1.0, 3.0, 1.0, 8.0, 2.0])
    runs = {"one": lambda seconds: next(rates), "other": lambda seconds: next(rates)}
    rounds = report.in_turn(runs, 0.1, rounds=3, compared=("one", "other"))
    report.ratio_row("one against other", rounds.ratio("one", "other"), "in turn", at_least=4)


def bench_broken(report):
    report.row("before it broke", "1 µs", "≤ 2 µs")
    raise RuntimeError("no such thing")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a few benchmarks that take no time."""
    made = tmp_path_factory.mktemp("benchmarks")
    (made / "bench_stand_in.py").write_text(BENCHMARKS)
    return made


def run(folder: Path, *arguments: str) -> int:
    """Run the command on a folder, with logs there."""
    return command.main(["--folder", str(folder), "--logs", str(folder / "logs"), *arguments])


def test_each_benchmark_has_a_process_of_its_own(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    page, found = tmp_path / "page.md", tmp_path / "out" / "bench.json"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert run(folder, "--only", "alone or in_turn", "--page", str(page), "--json", str(found)) == 0
    out, err = capfd.readouterr()

    content = json.loads(found.read_text())
    pids = {value for row in content["rows"] for value in row["figures"].values()}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert [row["measured"].split()[1] for row in content["rows"][:2]] == ["0", "0"], "nothing is left behind"

    # The first round does not count. Rounds have ratios of 2, 3 and 4: a ratio of medians would be 3 / 1.
    assert content["rows"][2]["measured"] == "3 × (in turn)"
    assert re.search(r"one against other +3 × \(in turn\) +≥ 4 × missed\n", out), "missed, and not an error"
    assert out.rstrip().endswith("3 rows, 1 with a target, 1 missed")
    assert "| one against other | 3 × (in turn) | ≥ 4 × **missed** |" in page.read_text()
    assert page.read_text().startswith(f"before\n{BEGIN}\n")
    assert page.read_text().endswith(f"{END}\nafter\n")
    assert re.search(r"^3 of 3, \d+:\d\d  stand_in: in turn$", err, re.MULTILINE)
    assert re.search(r"^3 of 3, \d+:\d\d  one against other: .*\(target ≥ 4 ×, missed\)$", err, re.MULTILINE)


SERVING = """
import time
from worldloom.bench.load import echo_process


def bench_serving(report):
    with echo_process(10) as server:
        report.row("server", str(server.pid))
        time.sleep(600)
"""


def test_a_terminated_run_leaves_no_server(tmp_path: Path) -> None:
    (tmp_path / "bench_stand_in.py").write_text(SERVING)
    arguments = [sys.executable, "-m", "worldloom.bench", "--folder", str(tmp_path), "--logs", str(tmp_path / "logs")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = (re.search(r"  server: (\d+)$", line.rstrip()) for line in process.stderr)
        pid = int(next(match for match in found if match is not None)[1])
        process.terminate()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "interrupted: the table has what was measured until then" in err
    assert f"server  {pid}" in out
    assert not Path(f"/proc/{pid}").exists()


def test_missed_targets_fail_where_they_are_strict(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--only", "in_turn", "--strict-targets") == 1
    out, err = capfd.readouterr()
    assert "1 rows, 1 with a target, 1 missed" in out
    assert "Traceback" not in out + err


def test_a_benchmark_that_breaks_is_a_row_and_an_error(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--only", "broken") == 1
    out, err = capfd.readouterr()
    assert re.search(r"before it broke +1 µs +≤ 2 µs\n", out), "rows before it stay"
    assert "failed: RuntimeError: no such thing (see " in " ".join(out.split()), "on one line or several"
    assert out.rstrip().endswith("0 missed; 1 failed: stand_in: broken")
    assert "Traceback" not in out + err
    assert "no such thing" in (folder / "logs" / "stand-in-broken.log").read_text()


def test_a_name_that_there_is_not(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--only", "pong") == 2
    assert "no benchmark matches 'pong': expected a part of a name, such as stand_in" in capfd.readouterr().err


def test_a_folder_that_cannot_be_read_says_why(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bench_wrong.py").write_text("import no_such_module\n")
    assert run(tmp_path) == 2
    assert "No module named 'no_such_module'" in capfd.readouterr().err


def test_the_benchmarks_here_can_be_collected() -> None:
    found = command.collect(command.FOLDER, "")
    files = {name.partition("::")[0] for name in found}
    assert files == set(map(str, command.FOLDER.glob("bench_*.py")))
    assert len(set(map(command.make_label, found))) == len(found), "each has a log of its own"


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ([], "--json out/bench.json --page bench/RESULTS.md"),
        (["ONLY=maze or local"], '--only "maze or local"'),
        (["STRICT=1", "ONLY=maze"], '--only "maze" --strict-targets'),
    ],
)
def test_make_passes_its_variables_on(words: list[str], flags: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", "bench", *words], cwd=command.FOLDER.parent, capture_output=True, text=True, check=True
    )
    assert f"-m worldloom.bench {flags}" in done.stdout
