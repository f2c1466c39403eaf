"""Command of the benchmarks: `make bench`.

    python -m worldloom.bench [--only WORDS] [--strict-targets] [--page bench/RESULTS.md] [--json out/bench.json]

pytest-benchmark measures. Each benchmark has a process of its own, so that memory, threads and warm caches that one
leaves behind do not count for the next. Progress goes to stderr, the table to stdout at the end. A missed target is
marked in the table; it is an error only with --strict-targets. Ctrl-C and SIGTERM end the current benchmark with its
servers, and the table has what was measured until then.
"""

import argparse
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from worldloom.bench.measuring import Row, describe_conditions, graphics, table, write_page
from worldloom.terminal import is_terminal, print_table, show_progress

FOLDER = Path(__file__).resolve().parent
LOGS = Path("out/bench")
HEADS = ("what", "measured", "target")
_CONFIG = FOLDER.parent / "pyproject.toml"
_PACKAGES = ("worldloom", "numba", "numpy", "grpcio", "protobuf")
_PYTEST = (sys.executable, "-m", "pytest", "-p", "worldloom.bench.plugin", "-p", "no:cacheprovider", "-c", str(_CONFIG))
_TIMEOUT_S = 1200
"""Time for one benchmark, the start of other environments and compiling included."""
_NO_TESTS = 5
"""Exit code of pytest if nothing was selected."""
_POLL_S = 0.5
_READ_BYTES = 1 << 16


class BenchError(Exception):
    """Benchmarks that cannot be run."""


class Terminated(KeyboardInterrupt):
    """The signal SIGTERM, which reaches this process alone."""


def _raise_terminated(*_: object) -> NoReturn:
    raise Terminated


@dataclass
class Results:
    """Findings of a run so far."""

    rows: list[Row] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Benchmarks that could not finish."""

    @property
    def missed(self) -> list[Row]:
        """Rows whose target was missed."""
        return [row for row in self.rows if not row.met]

    def summary(self) -> str:
        """Return how many targets there are and how many were missed, in one line."""
        targets = sum(bool(row.target) for row in self.rows)
        failed = f"; {len(self.failed)} failed: {', '.join(self.failed)}" if self.failed else ""
        return f"{len(self.rows)} rows, {targets} with a target, {len(self.missed)} missed{failed}"


def collect(folder: Path, only: str) -> list[str]:
    """Return the benchmarks of a folder, as arguments of pytest, that match an expression of its -k, all if empty."""
    folder = folder.absolute()
    arguments = [str(folder), "--rootdir", str(folder), "--collect-only", "--quiet"]
    command = [*_PYTEST, *arguments, *(["-k", only] if only else [])]
    done = subprocess.run(command, cwd=_CONFIG.parent, capture_output=True, text=True, check=False)
    if done.returncode == _NO_TESTS:
        names = ", ".join(sorted(path.stem.removeprefix("bench_") for path in folder.glob("bench_*.py")))
        raise BenchError(f"no benchmark matches {only!r}: expected a part of a name, such as {names}")
    found = [str(folder / line) for line in done.stdout.splitlines() if "::" in line]
    if done.returncode or not found:
        raise BenchError(f"the benchmarks of {folder} cannot be read:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found


def run_one(benchmark: str, log: Path, add_row: Callable[[Row], None], note: Callable[[str], None]) -> int:
    """Run a benchmark in a process of its own and return its exit code; whatever it prints goes to its log.

    `note` gets its notes, and an empty text now and then.
    """
    read_fd, write_fd = os.pipe()
    arguments = ["--benchmark-enable", "--benchmark-only", "--timeout", str(_TIMEOUT_S), "--events-fd", str(write_fd)]
    log.parent.mkdir(parents=True, exist_ok=True)
    # Without the variables of a pytest that this may be part of: pytest-benchmark measures nothing in its workers.
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*_PYTEST, benchmark, *arguments],
            cwd=_CONFIG.parent,
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[write_fd],
        )
    os.close(write_fd)
    try:
        for event in _read_events(read_fd):
            if "row" in event:
                add_row(Row(**event["row"]))
            note(event.get("note", ""))
        return process.wait()
    except Terminated:
        process.terminate()
        raise
    finally:  # Ctrl-C reaches the benchmark too: it ends its servers first
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()
        process.wait()
        os.close(read_fd)


def _read_events(read_fd: int) -> Iterator[dict[str, Any]]:
    """Yield the events of a benchmark until it ends, and an empty one whenever there was none for a while."""
    rest = b""
    while True:
        if not select.select([read_fd], [], [], _POLL_S)[0]:
            yield {}
            continue
        part = os.read(read_fd, _READ_BYTES)
        if not part:
            return
        *lines, rest = (rest + part).split(b"\n")
        yield from map(json.loads, lines)


class Progress:
    """Progress of a run on stderr: each row as a line, and on a terminal a bar with what runs now."""

    def __init__(self, count: int, update: Callable[[float, str], None]) -> None:
        self._count = count
        self._update = update
        self._began_s = time.monotonic()
        self._number = 0
        self._label = ""
        self._last_note = ""

    def begin(self, number: int, label: str) -> None:
        """Show that a benchmark begins, counted from 1."""
        self._number, self._label, self._last_note = number, label, ""
        if not is_terminal(sys.stderr):
            print(f"{self._place()}  {label}", file=sys.stderr, flush=True)
        self.note("")

    def note(self, text: str) -> None:
        """Show a note beside the bar, the last one again if it is empty, and the time that has passed."""
        self._last_note = text or self._last_note
        note = f"{self._place()}, {self._label}  {self._last_note}".rstrip()
        self._update((self._number - 1) / self._count, note)

    def row(self, row: Row) -> None:
        """Write a row as a line."""
        target = f" (target {row.target}{'' if row.met else ', missed'})" if row.target else ""
        print(f"{self._place()}  {row.what}: {row.measured}{target}", file=sys.stderr, flush=True)

    def _place(self) -> str:
        elapsed_s = int(time.monotonic() - self._began_s)
        return f"{self._number} of {self._count}, {elapsed_s // 60}:{elapsed_s % 60:02d}"


def run(benchmarks: Sequence[str], logs: Path, results: Results) -> None:
    """Run benchmarks one after the other and add what they find to `results`."""
    with show_progress("benchmarks", plain_lines=False) as update:
        progress = Progress(len(benchmarks), update)

        def add_row(row: Row) -> None:
            results.rows.append(row)
            progress.row(row)

        for number, benchmark in enumerate(benchmarks, 1):
            label = make_label(benchmark)
            progress.begin(number, label)
            log = logs / f"{re.sub('[^a-z0-9]+', '-', label.lower()).strip('-')}.log"
            code = run_one(benchmark, log, add_row, progress.note)
            if code:
                results.failed.append(label)
                add_row(Row(label, f"failed: {_last_error(log, code)} (see {log})"))


def make_label(benchmark: str) -> str:
    """Return the name of a benchmark in words: `bench_maze.py::bench_frames[eye]` is "maze: frames [eye]"."""
    path, _, function = benchmark.partition("::")
    name, bracket, case = function.removeprefix("bench_").partition("[")
    return f"{Path(path).stem.removeprefix('bench_')}: {name.replace('_', ' ')}{f' [{case}' if bracket else ''}"


def _last_error(log: Path, code: int) -> str:
    """Return the last line of an exception in a log of pytest, or the exit code."""
    errors = [line[1:].strip() for line in log.read_text(errors="replace").splitlines() if line.startswith("E  ")]
    return errors[-1] if errors else f"exit code {code}"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m worldloom.bench", description="The benchmarks, and their targets.")
    made.add_argument("--only", default="", metavar="WORDS", help="those whose name matches, as pytest -k does (all)")
    made.add_argument("--strict-targets", action="store_true", help="exit with 1 if a target was missed")
    made.add_argument("--page", type=Path, help="put the table into this page, between its marks")
    made.add_argument("--json", type=Path, help="write all rows to this file")
    made.add_argument("--folder", type=Path, default=FOLDER, help="of the benchmarks (%(default)s)")
    made.add_argument("--logs", type=Path, default=LOGS, help="folder for what benchmarks print (%(default)s)")
    return made


def write_results(results: Results, page: Path | None, json_file: Path | None) -> None:
    """Print the table, and write the files that were asked for."""
    conditions = f"{describe_conditions(_PACKAGES)}. OpenGL draws on {graphics()}."
    rows = [row.cells() for row in results.rows]
    print(f"\n{conditions}")
    print_table([[cell.replace("**", "") for cell in row] for row in rows], text_columns=3, heads=HEADS, indent=0)
    print(f"\n{results.summary()}")
    if page is not None:
        write_page(page, ["", conditions, "", *table(HEADS, rows), "", f"{results.summary()}.", ""])
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        content = {"conditions": conditions, "failed": results.failed, "rows": [asdict(row) for row in results.rows]}
        json_file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def main(arguments: list[str]) -> int:
    """Run the benchmarks, print their table, and write the files.

    The exit code is 1 if a benchmark could not finish or, with --strict-targets, if a target was missed.
    """
    chosen = parser().parse_args(arguments)
    results = Results()
    try:
        run(collect(chosen.folder, chosen.only), chosen.logs, results)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupt:
        print("interrupted: the table has what was measured until then, and no page is written", file=sys.stderr)
        write_results(results, None, None)
        return 128 + (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT)
    write_results(results, chosen.page, chosen.json)
    return int(bool(results.failed) or (chosen.strict_targets and bool(results.missed)))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _raise_terminated)
    sys.exit(main(sys.argv[1:]))
