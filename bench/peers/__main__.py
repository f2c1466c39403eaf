"""Peers beside us, in one run: `make bench-peers`.

    python -m worldloom.bench.peers [--only bigfish miniworld vizdoom mujoco] [--page docs/peers.md]

Every side is a process of its own (or two) and there all the time; the rounds go from one to the next.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from worldloom.bench.measuring import (
    Play,
    add_options,
    at_least_one,
    circumstances,
    medians,
    play_in_turn,
    take_cores,
    write_page,
)
from worldloom.bench.peers.contests import CONTESTS, OURS, Contest, report
from worldloom.bench.peers.worker import PeerError, Worker

PYTHON = Path(".venv-peers/bin/python")
_PACKAGES = ("worldloom", "numba")


class Company:
    """All sides that are compared. They end with it."""

    def __init__(self, python: Path) -> None:
        self.versions: dict[str, str] = {}
        self._python = python.absolute()  # not resolved: an environment's Python is a link that it is known by
        self._ends = ExitStack()

    def __enter__(self) -> "Company":
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def invite(self, program: str, commands: Sequence[Sequence[str]]) -> Play:
        """Processes of a side, which are ready."""
        workers = []
        for words in commands:
            workers.append(Worker(program, words, None if program == OURS else self._python))
            self._ends.callback(workers[-1].close)
        for worker in workers:
            worker.wait_until_ready()
            self.versions.update(worker.about)

        def play(seconds: float) -> float:
            for worker in workers:
                worker.start(seconds)
            return sum(worker.finish(seconds) for worker in workers)

        return play


def measure(
    contests: Sequence[Contest], envs: int, company: Company, rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Frames a second of each side in each round."""
    plays: dict[str, Play] = {}
    for contest in contests:
        for side in contest.sides:
            key = contest.key(side, envs)
            if key not in plays:
                print(f"making {key} environments", file=sys.stderr, flush=True)
                plays[key] = company.invite(side.program, contest.commands(side, envs))
    return play_in_turn(plays, rounds, seconds)


def options() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = argparse.ArgumentParser(
        prog="python -m worldloom.bench.peers", description="Other ways to get pixels, beside worldloom."
    )
    names = [contest.name for contest in CONTESTS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="which comparisons (all)")
    parser.add_argument("--envs", type=at_least_one, default=64, help="environments of each side (%(default)s)")
    parser.add_argument("--python", type=Path, default=PYTHON, help="the Python that has the peers (%(default)s)")
    parser.add_argument("--page", type=Path, help="put the tables into this page, between its marks")
    parser.add_argument(
        "--json", type=Path, metavar="FOLDER", help="write all rounds of each comparison to files there"
    )
    add_options(parser, seconds=1.0)
    return parser


def write_json(
    folder: Path, contests: Sequence[Contest], envs: int, rates: dict[str, list[float]], conditions: dict[str, object]
) -> None:
    """A file for each comparison."""
    folder.mkdir(parents=True, exist_ok=True)
    for contest in contests:
        sides = [
            {
                "name": side.name,
                "environments": contest.envs_of(side, envs),
                "processes": side.processes,
                "includes": side.includes,
                "frames_per_s": rates[contest.key(side, envs)],
            }
            for side in contest.sides
        ]
        found = {**conditions, "width": contest.width, "height": contest.height, "sides": sides}
        (folder / f"{contest.name}.json").write_text(json.dumps(found, indent=1) + "\n")


def main(words: list[str]) -> int:
    """Measure, and tell."""
    chosen = options().parse_args(words)
    contests = [contest for contest in CONTESTS if contest.name in chosen.only]
    if not chosen.python.exists():
        print(f"there is no {chosen.python}: `make bench-peers` makes it, and runs this", file=sys.stderr)
        return 2
    try:
        take_cores(chosen.cores)
        with Company(chosen.python) as company:
            rates = measure(contests, chosen.envs, company, chosen.rounds, chosen.seconds)
    except (PeerError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    peers = ", ".join(f"{name} {version}" for name, version in company.versions.items() if name not in _PACKAGES)
    command = shlex.join(["python", "-m", "worldloom.bench.peers", *words])
    conditions = f"{circumstances(_PACKAGES)}. Peers: {peers}."
    taken = f"Medians of {chosen.rounds} rounds of {chosen.seconds:g} s, in turn: `{command}`"
    lines = ["", conditions, taken, "", *report(contests, chosen.envs, medians(rates))]
    print("\n".join(lines))
    if chosen.json is not None:
        write_json(chosen.json, contests, chosen.envs, rates, {"conditions": conditions, "command": command})
    if chosen.page is not None:
        write_page(chosen.page, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
