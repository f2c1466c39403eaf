"""EnvPool's Procgen Bigfish: C++ environments in a pool of threads of this process."""

import argparse
import ctypes
import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from .program import Stepper, options, run

_SIDE = 64
_ACTIONS = 15
_DIFFERENT_ACTIONS = 32


def make_envs(args: argparse.Namespace) -> Stepper:
    """Make environments that step together, a thread for each core, with random actions sampled beforehand."""
    _load_qt()
    import envpool
    import numpy as np

    if (args.width, args.height) != (_SIDE, _SIDE):
        sys.exit(f"{args.width} × {args.height} pixels: expected {_SIDE} × {_SIDE}, which is all that Procgen draws")
    threads = len(os.sched_getaffinity(0))
    env = envpool.make_gymnasium(f"Bigfish{args.mode}-v0", num_envs=args.envs, num_threads=threads, seed=0)
    rng = np.random.default_rng(0)
    actions = rng.integers(0, _ACTIONS, (_DIFFERENT_ACTIONS, args.envs)).astype(np.int32)
    env.reset()
    steps = 0

    def step() -> int:
        nonlocal steps
        frames = env.step(actions[steps % _DIFFERENT_ACTIONS])[0]
        steps += 1
        return len(frames)

    return Stepper(step, {"envpool": envpool.__version__})


def _load_qt() -> None:
    """Let Procgen draw with the Qt from pip; where that is missing, the system's is used."""
    libraries = Path(sysconfig.get_path("purelib")) / "PyQt5/Qt5/lib"
    for name in ("libQt5Core.so.5", "libQt5Gui.so.5"):
        if (libraries / name).exists():
            ctypes.CDLL(str(libraries / name), ctypes.RTLD_GLOBAL)


def main(arguments: Sequence[str]) -> int:
    """Run with these arguments."""
    parser = options("Procgen Bigfish by EnvPool.", _SIDE, _SIDE)
    parser.add_argument("--mode", choices=("Easy", "Hard"), default="Easy", help="of distribution (%(default)s)")
    return run(parser, make_envs, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
