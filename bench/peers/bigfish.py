"""EnvPool's Procgen Bigfish: C++ environments in a pool of threads of this process."""

import argparse
import ctypes
import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from .pace import Player, options, run

_SIDE = 64
_ACTIONS = 15
_DIFFERENT_ACTIONS = 32


def make(chosen: argparse.Namespace) -> Player:
    """All of them step together, a thread a core, with random actions that were drawn beforehand."""
    _load_qt()
    import envpool
    import numpy as np

    if (chosen.width, chosen.height) != (_SIDE, _SIDE):
        sys.exit(
            f"{chosen.width} × {chosen.height} pixels: expected {_SIDE} × {_SIDE}, which is all that Procgen draws"
        )
    threads = len(os.sched_getaffinity(0))
    env = envpool.make_gymnasium(f"Bigfish{chosen.mode}-v0", num_envs=chosen.envs, num_threads=threads, seed=0)
    rng = np.random.default_rng(0)
    actions = rng.integers(0, _ACTIONS, (_DIFFERENT_ACTIONS, chosen.envs)).astype(np.int32)
    env.reset()
    steps = 0

    def step() -> int:
        nonlocal steps
        frames = env.step(actions[steps % _DIFFERENT_ACTIONS])[0]
        steps += 1
        return len(frames)

    return Player(step, {"envpool": envpool.__version__})


def _load_qt() -> None:
    """Have Procgen draw with the Qt that came by pip; where there is none, the system's is taken."""
    libraries = Path(sysconfig.get_path("purelib")) / "PyQt5/Qt5/lib"
    for name in ("libQt5Core.so.5", "libQt5Gui.so.5"):
        if (libraries / name).exists():
            ctypes.CDLL(str(libraries / name), ctypes.RTLD_GLOBAL)


def main(words: Sequence[str]) -> int:
    """Run as the words say."""
    parser = options("Procgen Bigfish by EnvPool.", _SIDE, _SIDE)
    parser.add_argument("--mode", choices=("Easy", "Hard"), default="Easy", help="of distribution (%(default)s)")
    return run(parser, make, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
