"""A million states are drawn in constant memory, and by runs that are killed; no frame is missing or there twice.

    python -m scripts.render_faults --states 1000000 --kills 20

A wall slides before a camera, a little farther away in each state, so the depth in a frame tells which state it shows.
The states go through `MujocoRenderer.stream`, with breaks: the iterator is dropped, and another one takes up where it
ended. Then `worldloom render` draws them from a file, is killed with SIGKILL at random moments, and is started again.
"""

import argparse
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from scripts.support.server_process import WORLDLOOM
from worldloom import MujocoRenderer

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
                if _is_killed(command, folder, limit_s):
                    killed += 1
                    taken_up += journal.exists() and journal.read_bytes().count(b"\n") > 1
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


def _is_killed(command: list[str], folder: Path, limit_s: float) -> bool:
    """Run a command, and kill it after some time; return False if it has ended before."""
    run = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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


def main() -> None:
    """Run both, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--breaks", type=int, default=5, metavar="N", help="breaks of the stream")
    parser.add_argument("--kills", type=int, default=20, metavar="N", help="runs of `worldloom render` that are killed")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    chance = random.Random(args.seed)
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
