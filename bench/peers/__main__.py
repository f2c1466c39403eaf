"""Command of the comparison with peers: `make bench-peers`.

    python -m worldloom.bench.peers [--only bigfish miniworld vizdoom mujoco] [--page docs/peers.md]

Every implementation has a process of its own (or two) during all rounds; each round measures one after the other.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from worldloom.bench.measuring import (
    RateFunction,
    add_options,
    at_least_one,
    describe_conditions,
    limit_cores,
    measure_in_turn,
    medians,
    write_page,
)
from worldloom.bench.peers.comparisons import COMPARISONS, WORLDLOOM, Comparison, report
from worldloom.bench.peers.process import PeerError, PeerProcess

PYTHON = Path(".venv-peers/bin/python")
_PACKAGES = ("worldloom", "numba")


class PeerProcesses:
    """Processes of everything that is compared. All end with its `with` block."""

    def __init__(self, python: Path) -> None:
        self.versions: dict[str, str] = {}
        self._python = python.absolute()  # not resolved: a virtual environment is found by the path of its link
        self._cleanup = ExitStack()

    def __enter__(self) -> "PeerProcesses":
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def start(self, program: str, commands: Sequence[Sequence[str]]) -> RateFunction:
        """Start a process for each command and wait until all are ready; return the function that measures them."""
        started = []
        for arguments in commands:
            started.append(PeerProcess(program, arguments, None if program == WORLDLOOM else self._python))
            self._cleanup.callback(started[-1].close)
        for process in started:
            process.wait_until_ready()
            self.versions.update(process.about)

        def measure_rate(seconds: float) -> float:
            for process in started:
                process.start(seconds)
            return sum(process.finish(seconds) for process in started)

        return measure_rate


def start_implementations(
    comparisons: Sequence[Comparison], envs: int, processes: PeerProcesses, note: Callable[[str], None]
) -> dict[str, RateFunction]:
    """Start every implementation once; return the functions that measure them, by key."""
    runs: dict[str, RateFunction] = {}
    for comparison in comparisons:
        for one in comparison.implementations:
            key = comparison.key(one, envs)
            if key not in runs:
                note(f"making {key} environments")
                runs[key] = processes.start(one.program, comparison.commands(one, envs))
    return runs


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m worldloom.bench.peers", description="Other environments that render, beside worldloom."
    )
    names = [comparison.name for comparison in COMPARISONS]
    made.add_argument("--only", nargs="+", choices=names, default=names, help="which comparisons (all)")
    made.add_argument("--envs", type=at_least_one, default=64, help="environments of each side (%(default)s)")
    made.add_argument("--python", type=Path, default=PYTHON, help="the Python that has the peers (%(default)s)")
    made.add_argument("--page", type=Path, help="put the tables into this page, between its marks")
    made.add_argument("--json", type=Path, metavar="FOLDER", help="write all rounds of each comparison to files there")
    add_options(made, seconds=1.0)
    return made


def write_json(
    folder: Path,
    comparisons: Sequence[Comparison],
    envs: int,
    rates: dict[str, list[float]],
    conditions: dict[str, object],
) -> None:
    """Write a file for each comparison."""
    folder.mkdir(parents=True, exist_ok=True)
    for comparison in comparisons:
        sides = [
            {
                "name": one.name,
                "environments": comparison.envs_of(one, envs),
                "processes": one.processes,
                "includes": one.includes,
                "frames_per_s": rates[comparison.key(one, envs)],
            }
            for one in comparison.implementations
        ]
        found = {**conditions, "width": comparison.width, "height": comparison.height, "sides": sides}
        (folder / f"{comparison.name}.json").write_text(json.dumps(found, indent=1) + "\n")


def _print_note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Measure, print the tables, and write the files."""
    chosen = parser().parse_args(arguments)
    comparisons = [comparison for comparison in COMPARISONS if comparison.name in chosen.only]
    if not chosen.python.exists():
        print(f"there is no {chosen.python}: `make bench-peers` makes it, and runs this", file=sys.stderr)
        return 2
    try:
        limit_cores(chosen.cores)
        with PeerProcesses(chosen.python) as processes:
            runs = start_implementations(comparisons, chosen.envs, processes, _print_note)
            rates = measure_in_turn(runs, chosen.rounds, chosen.seconds)
    except (PeerError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    peers = ", ".join(f"{name} {version}" for name, version in processes.versions.items() if name not in _PACKAGES)
    command = shlex.join(["python", "-m", "worldloom.bench.peers", *arguments])
    conditions = f"{describe_conditions(_PACKAGES)}. Peers: {peers}."
    taken = f"Medians of {chosen.rounds} rounds of {chosen.seconds:g} s, in turn: `{command}`"
    lines = ["", conditions, taken, "", *report(comparisons, chosen.envs, medians(rates))]
    print("\n".join(lines))
    if chosen.json is not None:
        write_json(chosen.json, comparisons, chosen.envs, rates, {"conditions": conditions, "command": command})
    if chosen.page is not None:
        write_page(chosen.page, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
