"""Collections that are killed at random moments and resumed, compared byte for byte with ones that were never stopped.

    python -m scripts.collect_faults --kills 200
    python -m scripts.collect_faults --full-disk        # on a tmpfs that is too small, in a mount namespace of its own
    python -m scripts.collect_faults --flips 1000       # bytes that change on the disk, each found by check_dataset

Each round collects a small dataset of another seed, family and format: once undisturbed in this process, and once by
`worldloom collect --resume`, again and again, which is killed with SIGKILL after a random time. In half of the rounds
the frames come from a server, and sometimes that is killed instead, or both are; a collector that loses its server has
to end by itself, with an error. Policies are those of worldloom and one with a state of its own.
"""

import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scripts.support.server_process import WORLDLOOM, ServerProcess
from worldloom.data.check import check_dataset
from worldloom.data.collection import Stopped
from worldloom.data.collector import Collector
from worldloom.data.files import replace_file
from worldloom.data.finish import finish_dataset
from worldloom.data.index import Index
from worldloom.data.layout import DESCRIPTION_FILE, Description, PartPlace

_COLLECT = (str(WORLDLOOM), "collect")
_LONGEST_S = 120.0
_START_S = 0.7
"""A collector is not killed earlier than this after its start, as most of the time before it imports modules."""


class Counting:
    """A policy with a state: actions follow from a count, and sometimes from the generator."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, observations: Any, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Return actions of catch."""
        self.count += 1
        lanes = len(observations["eye.rgb"])
        if self.count % 3:
            return {"paddle": np.full(lanes, self.count // 3 % 3 - 1)}
        return {"paddle": generator.integers(-1, 2, lanes)}

    def get_state(self) -> bytes:
        """Return the count."""
        return str(self.count).encode()

    def set_state(self, state: bytes) -> None:
        """Go on from a count."""
        self.count = int(state)


ROUNDS: tuple[tuple[list[str], dict[str, Any]], ...] = (
    (
        ["catch", "--policy", "scripts.collect_faults:Counting"],
        {"family": "catch", "policy": "scripts.collect_faults:Counting"},
    ),
    (["maze", "--format", "npy"], {"family": "maze", "format": "npy"}),
    (["catch", "--pictures", "png"], {"family": "catch", "pictures": "png"}),
    (
        ["cartpole", "--observations", "eye.gray,pose", "--pictures", "raw"],
        {"family": "cartpole", "observations": ["eye.gray", "pose"], "pictures": "raw"},
    ),
)
"""Words of the command, and arguments of Collector for the same dataset."""
_SIZES: dict[str, Any] = {"lanes": 16, "width": 24, "height": 24, "shard_mb": 0.25}


def read_tree(directory: Path) -> dict[str, bytes]:
    """Return the content of all files of a directory by relative path."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def compare(expected: Path, found: Path) -> list[str]:
    """Return the differences of two datasets."""
    one, other = read_tree(expected), read_tree(found)
    names = sorted(one.keys() | other.keys())
    return [name for name in names if one.get(name) != other.get(name)] + check_dataset(found).problems


class Round:
    """A dataset that is collected undisturbed, and again with kills."""

    def __init__(self, folder: Path, number: int, steps: int, chance: random.Random) -> None:
        words, arguments = ROUNDS[number % len(ROUNDS)]
        self.expected, self.found = folder / f"expected-{number}", folder / f"found-{number}"
        began_s = time.monotonic()
        Collector(self.expected, steps=steps, seed=number, **_SIZES, **arguments).run()
        self._usual_s = time.monotonic() - began_s
        sizes = ["--lanes", "16", "--size", "24", "--shard-mb", "0.25", "--steps", str(steps), "--seed", str(number)]
        self._words = [*words, *sizes, "--resume", "-o", str(self.found)]
        self._chance = chance
        self._server: ServerProcess | None = None
        self._has_server = number % 2 == 1
        self._folder = folder
        self.kills: Counter[str] = Counter()

    def run(self, most_kills: int) -> None:
        """Collect with kills, until it is complete; raise an error if the result differs."""
        try:
            while self._attempt(sum(self.kills.values()) < most_kills):
                pass
        finally:
            if self._server is not None:
                self._server.kill()
        differences = compare(self.expected, self.found)
        if differences:
            raise AssertionError(f"{self.found} differs from {self.expected}: {differences[:10]}")

    def _attempt(self, may_kill: bool) -> bool:
        """Run the collector once, and kill something in half a second or so; return whether there is more to do."""
        words = list(self._words)
        if self._has_server:
            if self._server is None:
                self._server = ServerProcess()
            words += ["--server", self._server.address]
        collector = subprocess.Popen([*_COLLECT, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            if not may_kill:
                return self._conclude(collector)
            try:
                collector.wait(_START_S + self._chance.random() * (self._usual_s * 0.5 + 0.5))
                return self._conclude(collector)
            except subprocess.TimeoutExpired:
                return self._kill_something(collector)
        finally:
            collector.kill()
            collector.communicate()

    def _kill_something(self, collector: "subprocess.Popen[str]") -> bool:
        target = self._chance.choice(("collector", "server", "both")) if self._server is not None else "collector"
        if target != "collector":
            assert self._server is not None, "it was chosen because there is one"
            self._server.kill()
            self._server = None
        if target != "server":
            collector.kill()
            collector.wait()
        else:
            text = collector.communicate(timeout=_LONGEST_S)[1]
            if collector.returncode == 0:
                return False  # it had just ended
            if collector.returncode != 1 or ("--resume" not in text and "server" not in text):
                raise AssertionError(f"a collector without its server ended with {collector.returncode}: {text}")
        self.kills[target] += 1
        return True

    def _conclude(self, collector: "subprocess.Popen[str]") -> bool:
        _, errors = collector.communicate(timeout=_LONGEST_S)
        if collector.returncode != 0:
            raise AssertionError(f"the collector ended with {collector.returncode}: {errors}")
        return False


def run_kills(kills: int, steps: int, seed: int) -> Counter[str]:
    """Run rounds until so many kills were done; return how many of each kind."""
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    number = 0
    with tempfile.TemporaryDirectory() as name:
        while done.total() < kills:
            one = Round(Path(name), number, steps, chance)
            one.run(min(12, kills - done.total()))
            done += one.kills
            shutil.rmtree(one.expected)
            shutil.rmtree(one.found)
            number += 1
            print(f"round {number}: {done.total()} kills, {dict(done)}; no difference", flush=True)
    return done


def run_full_disk(directory: Path) -> None:
    """Collect into a small tmpfs at a directory until it is full, make room, resume, and compare."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(directory)], check=True)
    ballast = directory / "ballast"
    ballast.write_bytes(bytes(3_200_000))
    arguments = {"lanes": "16", "size": "24", "shard-mb": "0.25", "steps": "800", "seed": "3", "pictures": "raw"}
    words = [word for name, value in arguments.items() for word in (f"--{name}", value)]
    out = directory / "catch"
    first = subprocess.run([*_COLLECT, "catch", *words, "-o", str(out)], capture_output=True, text=True)
    if first.returncode != 1 or "No space left" not in first.stderr or "--resume" not in first.stderr:
        raise AssertionError(f"a full disk ended with {first.returncode}: {first.stderr}")
    print(first.stderr.strip().splitlines()[-1])
    if check_dataset(out).problems:
        raise AssertionError(f"what was complete is not good: {check_dataset(out).problems}")
    ballast.unlink()
    again = subprocess.run([*_COLLECT, "--resume", "-o", str(out)], capture_output=True, text=True)
    if again.returncode != 0:
        raise AssertionError(f"with room it ended with {again.returncode}: {again.stderr}")
    with tempfile.TemporaryDirectory() as name:
        expected = Path(name) / "catch"
        sizes = {**_SIZES, "steps": 800, "seed": 3, "pictures": "raw"}
        Collector(expected, "catch", **sizes).run()
        differences = compare(expected, out)
    if differences:
        raise AssertionError(f"differs after a full disk: {differences}")
    print("full disk: the same dataset after --resume")


def make_flip_targets(folder: Path) -> list[Path]:
    """Make small datasets of each kind: Parquet, .npy and images, of two parts, and one that is incomplete."""
    sizes: dict[str, Any] = {"lanes": 4, "steps": 120, "width": 8, "height": 8, "seed": 1, "shard_mb": 0.01}
    kinds: dict[str, dict[str, Any]] = {"parquet": {}, "npy": {"format": "npy"}, "images": {"pictures": "png"}}
    for name, arguments in kinds.items():
        Collector(folder / name, "catch", **sizes, **arguments).run()
    with contextlib.suppress(Stopped):
        Collector(
            folder / "incomplete", "catch", policy=Counting(), on_step=lambda step: step.number < 25, **sizes
        ).run()
    places = [PartPlace(f"parts/{k:03d}", 4 * k, 4) for k in range(2)]
    for place in places:
        part = {**sizes, "steps": 240, "first_lane": place.first_lane, "all_lanes": 8}
        Collector(folder / "parts" / place.path, "catch", **part).run()
    path = folder / "parts" / places[0].path / DESCRIPTION_FILE
    whole = replace(Description.from_json(path.read_bytes(), path), lanes=8, parts=places)
    replace_file(folder / "parts" / DESCRIPTION_FILE, whole.to_json())
    finish_dataset(folder / "parts", whole, Index())
    return [folder / name for name in (*kinds, "incomplete", "parts")]


def flip_byte(path: Path, chance: random.Random) -> tuple[int, int, int]:
    """Change a byte of a file, or one bit of it; return its place, and its value before and after."""
    data = bytearray(path.read_bytes())
    place = chance.randrange(len(data))
    before = data[place]
    data[place] ^= 1 << chance.randrange(8) if chance.random() < 0.5 else chance.randrange(1, 256)
    path.write_bytes(data)
    return place, before, data[place]


def run_flips(count: int, seed: int) -> Counter[str]:
    """Change one byte after the other, each in a file of its own choice; AssertionError if a check does not find it."""
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        targets = make_flip_targets(Path(name))
        files = {target: sorted(path for path in target.rglob("*") if path.is_file()) for target in targets}
        for target in targets:
            found = check_dataset(target)
            if found.problems or found.notes:
                raise AssertionError(f"{target} without a changed byte: {found}")
        while done.total() < count:
            target = chance.choice(targets)
            path = chance.choice(files[target])
            data = path.read_bytes()
            flip = flip_byte(path, chance)
            if check_dataset(target).is_good:
                raise AssertionError(f"not found: {path}, byte {flip[0]} was {flip[1]:#x} and is {flip[2]:#x}")
            path.write_bytes(data)
            done[path.name if path.suffix not in (".parquet", ".npy", ".state") else f"*{path.suffix}"] += 1
    return done


def main() -> None:
    """Run what the command line asks for; an AssertionError tells what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="number of kills (default: 200)")
    parser.add_argument("--steps", type=int, default=12_000, help="rows of each dataset (default: 12000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments and kinds of kills (default: 0)")
    parser.add_argument("--full-disk", action="store_true", help="run into a full disk instead")
    parser.add_argument("--flips", type=int, metavar="N", help="change N bytes of datasets instead")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside is not None:
        run_full_disk(args.inside)
    elif args.flips is not None:
        flips = run_flips(args.flips, args.seed)
        print(f"{flips.total()} changed bytes ({dict(flips)}): each was found")
    elif args.full_disk:
        with tempfile.TemporaryDirectory() as name:
            namespace = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
            inside = [sys.executable, "-m", "scripts.collect_faults", "--inside", name]
            raise SystemExit(subprocess.run([*namespace, *inside]).returncode)
    else:
        done = run_kills(args.kills, args.steps, args.seed)
        print(f"{done.total()} kills ({dict(done)}): every dataset is the same as one that was never stopped")


if __name__ == "__main__":
    main()
