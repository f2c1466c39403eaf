"""A million states are drawn in constant memory, and by runs that are killed; no frame is missing or there twice.

    python -m scripts.render_faults --states 1000000 --kills 20
    python -m scripts.render_faults --replacements

A wall slides before a camera, a little farther away in each state, so the depth in a frame tells which state it shows.
The states go through `MujocoRenderer.stream`, with breaks: the iterator is dropped, and another one takes up where it
ended. Then `worldloom render` draws them from a file, is killed with SIGKILL at random moments, and is started again.

With --replacements, runs replace a dataset by one with frames, and a directory of PNG files by another, and are killed
before each operation on files from when the new directory is complete; the next run has to leave the same files as one
that was never killed, with the notes that the old directory had.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scripts.support.server_process import WORLDLOOM
from worldloom import MujocoRenderer
from worldloom.data import collect_command, render_command
from worldloom.data.replacing import MARKER_FILE
from worldloom.server import cli

_HIDDEN = "".join(f'<body pos="0 0 -{0.2 + 0.01 * k:g}"><geom type="sphere" size=".05"/></body>' for k in range(200))
"""Spheres behind the wall: with them, a million states take long enough for runs to be killed in the middle."""
_MODEL = f"""<mujoco>
  <worldbody>
    <camera name="front" pos="0 0 0" xyaxes="1 0 0 0 1 0"/>
    <body pos="0 0 -1.1"><joint name="away" type="slide" axis="0 0 -1"/><geom type="box" size="9 9 .1"/>{_HIDDEN}</body>
  </worldbody>
</mujoco>"""
_NEAREST, _RANGE = 1.0, 0.9
"""Distances of the wall: float32 numbers from 1 to 2 are 1.2e-7 apart, a seventh of the step of a million states."""
_SIZE = 16
_START_S = 1.0
"""A run is not killed earlier than this after its start, as most of the time before it imports modules."""
_KILL_RANGE_S = 3.0
_LONGEST_S = 600.0


def make_states(count: int) -> np.ndarray:
    """Return joint positions [count, 1] whose depths are evenly spaced."""
    return _RANGE / count * np.arange(count)[:, None]


def check_numbers(frames: np.ndarray, first: int, count: int) -> None:
    """Raise AssertionError unless frames of depth show the states from `first` on, of so many, in their order."""
    numbers = np.rint((frames.astype(np.float64) - _NEAREST) * count / _RANGE)
    expected = np.arange(first, first + len(frames)).reshape(-1, *[1] * (frames.ndim - 1))
    wrong = np.flatnonzero((numbers != expected).reshape(len(frames), -1).any(axis=1))
    if wrong.size:
        k = int(wrong[0])
        raise AssertionError(f"{wrong.size} frames show another state; frame {first + k} shows {numbers[k].ravel()[0]}")


def resident_bytes() -> int:
    """Return the memory of this process that is not of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) << 10


def run_stream(count: int, breaks: int, chance: random.Random) -> list[int]:
    """Draw states with breaks, check each frame, and return the memory after each tenth of the states."""
    ends = [*sorted(chance.sample(range(1, count), breaks)), count]
    levels: list[int] = []
    with MujocoRenderer(model=_MODEL, width=_SIZE, height=_SIZE, cameras=["front"], outputs=["depth"]) as draw:
        done = 0
        for end in ends:
            for frames in draw.stream(_make_parts(done, count)):
                check_numbers(frames["front.depth"], done, count)
                done += len(frames["front.depth"])
                if done * 10 // count > len(levels):
                    levels.append(resident_bytes())
                if done >= end:
                    break
    if done != count:
        raise AssertionError(f"{done} states were drawn: expected {count}")
    return levels


def _make_parts(first: int, count: int) -> Iterator[np.ndarray]:
    """Yield states from `first` on in parts; all of them at once would be memory of this program."""
    for begin in range(first, count, 4096):
        yield _RANGE / count * np.arange(begin, min(count, begin + 4096))[:, None]


def run_kills(count: int, kills: int, chance: random.Random) -> tuple[int, int]:
    """Draw states to files until so many runs were killed, and check all frames.

    Returns the number of files, and of kills after which the next run went on from frames that were on the disk.
    """
    files, killed, taken_up = 0, 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "wall.xml").write_text(_MODEL)
        np.save(folder / "states.npy", make_states(count))
        out, journal = folder / "depth.npy", folder / "depth.npy.partial.jsonl"
        command = [str(WORLDLOOM), "render", "--model", "wall.xml", "--states", "states.npy", "--output", "depth"]
        command += ["--camera", "front", "--size", str(_SIZE), "-o", out.name]
        while killed < kills:
            while not out.exists():
                limit_s = _START_S + chance.random() * _KILL_RANGE_S if killed < kills else _LONGEST_S
                # Every second one once some frames are on the disk, however fast the machine is.
                noted = journal if killed % 2 and killed < kills else None
                if _is_killed(command, folder, limit_s, noted):
                    killed += 1
                    taken_up += _has_notes(journal)
            frames = np.load(out, mmap_mode="r")
            if len(frames) != count:
                raise AssertionError(f"{len(frames)} frames: expected {count}")
            for first in range(0, count, 65536):
                check_numbers(frames[first : first + 65536], first, count)
            out.unlink()
            files += 1
            left = sorted(path.name for path in folder.iterdir())
            if left != ["states.npy", "wall.xml"]:
                raise AssertionError(f"files are left over: {left}")
    return files, taken_up


def _has_notes(journal: Path) -> bool:
    """Return True if a journal says that frames are on the disk."""
    return journal.exists() and journal.read_bytes().count(b"\n") > 1


def _is_killed(command: list[str], folder: Path, limit_s: float, journal: Path | None) -> bool:
    """Run a command, and kill it after some time, or as soon as a journal has notes; return False if it has ended."""
    run = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if journal is not None:
        while run.poll() is None and not _has_notes(journal):
            time.sleep(0.01)
        limit_s = 0.0 if run.poll() is None else _LONGEST_S
    try:
        _, errors = run.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        run.kill()
        run.communicate()
        if limit_s == _LONGEST_S:
            raise
        return True
    if run.returncode:
        raise AssertionError(f"a run ended with {run.returncode}: {errors}")
    return False


_NOTES = ("notes.txt", "pictures/000000.png", "shards/notes.txt", ".hidden/deep/notes.txt")
"""Files that somebody keeps in the directory of a dataset."""
_COMMANDS = (collect_command, render_command)
"""Modules that forks need: imported once, and not by each of them."""
_WATCHED = ("open", "os.mkdir", "os.remove", "os.rename", "os.rmdir")
"""Events of Python that come before operations on files."""


def run_replacements(kinds: Sequence[str], most: int | None, chance: random.Random) -> int:
    """Kill runs that replace a directory before operations on files, at most so many for a kind; return the kills.

    Each run is a fork of this process, which must have no other threads.
    """
    kills = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        for kind in kinds:
            words = _make_replaceable(folder / kind, kind)
            operations = _fork_run(words, None)
            expected = _read_files(folder / kind)
            steps = range(1, operations + 1)
            for step in steps if most is None else sorted(chance.sample(steps, min(most, operations))):
                shutil.rmtree(folder / kind)
                _make_replaceable(folder / kind, kind)
                _fork_run(words, step)
                found = [path.read_bytes() for path in (folder / kind).rglob("*") if path.is_file()]
                missing = [note for note in _NOTES if note.encode() not in found]
                if missing:
                    raise AssertionError(f"{kind}, killed before operation {step}: {missing} are lost")
                _fork_run(words, None)
                if _read_files(folder / kind) != expected:
                    left = sorted(_read_files(folder / kind).items() ^ expected.items())
                    raise AssertionError(f"{kind}, killed before operation {step}: {[one for one, _ in left]} differ")
                kills += 1
    return kills


def _make_replaceable(folder: Path, kind: str) -> list[str]:
    """Make a directory with notes, and return the command that replaces it by frames of its states."""
    source = folder.with_name("source")
    if not source.exists():
        xml = _MODEL.replace(_HIDDEN, "")
        source.with_name("wall.xml").write_text(xml)
        sizes = ["--observations", "qpos", "--lanes", "2", "--steps", "40", "--seed", "0"]
        _fork_run(["collect", "mujoco", f"xml={xml}", *sizes, "-o", str(source)], None)
    words = ["render", "--model", "wall.xml", "--size", str(_SIZE), "--renderer", "cpu", "--camera", "front"]
    folder.mkdir()
    out = folder / "out"
    if kind == "dataset":
        shutil.copytree(source, out)
        words += ["--states", str(out), "-o", str(out)]
    else:
        words += [
            "--states",
            str(source),
            "--range",
            ":4",
            "--output",
            "rgb,depth",
            "--as",
            kind,
            "-o",
            str(out),
            "--overwrite",
        ]
        _fork_run(words, None)
    for note in _NOTES:
        (out / note).parent.mkdir(parents=True, exist_ok=True)
        (out / note).write_text(note)
    return words


def _read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _fork_run(words: list[str], step: int | None) -> int:
    """Run a command in a fork, which kills itself before an operation on files, counted from the marker on.

    Returns the number of operations of a run that is not to be killed.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _run_and_exit(words, step, writer)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        told = pipe.read()
    expected = 0 if step is None else -signal.SIGKILL
    if os.waitstatus_to_exitcode(status) != expected:
        raise AssertionError(f"a run ended with {os.waitstatus_to_exitcode(status)} instead of {expected}")
    return int(told or 0)


def _run_and_exit(words: list[str], step: int | None, writer: int) -> None:
    count = 0

    def count_operation(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event in _WATCHED and (count or str(arguments[0]).endswith(f"{MARKER_FILE}.tmp")):
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count_operation)
    sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
    code = 1
    try:
        code = cli.main(words)
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os.write(writer, str(count).encode())
        os._exit(code)


def run_full_disk(directory: Path) -> None:
    """Draw each kind of output into a small tmpfs at a directory that is full, then again with room."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(directory)], check=True)
    ballast = directory / "ballast"
    with tempfile.TemporaryDirectory() as name:
        _make_replaceable(Path(name) / "dataset", "dataset")
        words = ["render", "--model", f"{name}/wall.xml", "--states", f"{name}/source", "--camera", "front"]
        for kind, place in (("npy", "x.npy"), ("png", "x"), ("dataset", "x")):
            ballast.write_bytes(bytes((4 << 20) - 8192))  # which leaves room for a page or two
            command = [str(WORLDLOOM), *words, "--size", "64", "--as", kind, "-o", str(directory / place)]
            first = subprocess.run(command, capture_output=True, text=True)
            if first.returncode != 1 or "cannot write the frames: No space left" not in first.stderr:
                raise AssertionError(f"a full disk ended with {first.returncode}: {first.stderr}")
            print(f"{kind}: {first.stderr.strip().splitlines()[-1]}")
            ballast.unlink()
            again = subprocess.run(command, capture_output=True, text=True)
            if again.returncode != 0:
                raise AssertionError(f"with room it ended with {again.returncode}: {again.stderr}")
            for path in directory.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def main() -> None:
    """Run both, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--breaks", type=int, default=5, metavar="N", help="breaks of the stream")
    parser.add_argument("--kills", type=int, default=20, metavar="N", help="runs of `worldloom render` that are killed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--replacements",
        nargs="?",
        type=int,
        const=0,
        metavar="N",
        help="kill runs that replace directories, before each operation on files or N for each kind of directory",
    )
    parser.add_argument("--full-disk", action="store_true", help="draw to a full disk, a small tmpfs")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    if args.inside is not None:
        run_full_disk(args.inside)
        return
    if args.full_disk:
        with tempfile.TemporaryDirectory() as name:
            namespace = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
            inside = [sys.executable, "-m", "scripts.render_faults", "--inside", name]
            raise SystemExit(subprocess.run([*namespace, *inside]).returncode)
    if args.replacements is not None:
        kills = run_replacements(("dataset", "png"), args.replacements or None, chance)
        print(f"{kills} runs that replaced a directory were killed: no file is missing or left over")
        return
    began_s = time.monotonic()
    levels = run_stream(args.states, args.breaks, chance)
    elapsed_s = time.monotonic() - began_s
    print(f"{args.states:,} states in {elapsed_s:.0f} s with {args.breaks} breaks, each frame of its own state")
    print(f"memory after each tenth, in MB: {', '.join(f'{level / 1e6:.0f}' for level in levels)}", flush=True)
    files, taken_up = run_kills(args.states, args.kills, chance)
    print(
        f"{files} files of {args.states:,} frames each, drawn by runs of which {args.kills} were killed; {taken_up} "
        "times the next run went on from what was on the disk; each frame is of its own state"
    )


if __name__ == "__main__":
    main()
