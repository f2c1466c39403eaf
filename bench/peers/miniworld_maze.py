"""MiniWorld-Maze: first-person environments in Python, drawn with OpenGL by way of EGL."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from .program import Stepper, options, run

_ACTIONS = 3
_DIFFERENT_ACTIONS = 1024


def make_envs(args: argparse.Namespace) -> Stepper:
    """Make environments that step one after the other in this process, reset when their episode ends."""
    import pyglet

    pyglet.options["headless"] = True  # before MiniWorld opens a window
    import gymnasium
    import miniworld  # noqa: F401  # it registers its environments
    import numpy as np

    size = {"obs_width": args.width, "obs_height": args.height}
    envs = [gymnasium.make("MiniWorld-Maze-v0", **size) for _ in range(args.envs)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    actions = np.random.default_rng(0).integers(0, _ACTIONS, _DIFFERENT_ACTIONS).tolist()
    steps = 0

    def step() -> int:
        nonlocal steps
        env = envs[steps % len(envs)]
        _frame, _reward, terminated, truncated, _info = env.step(actions[steps % _DIFFERENT_ACTIONS])
        if terminated or truncated:
            env.reset()
        steps += 1
        return 1

    return Stepper(step, {"miniworld": version("miniworld"), "pyglet": version("pyglet")})


def main(arguments: Sequence[str]) -> int:
    """Run with these arguments."""
    return run(options("MiniWorld-Maze.", 80, 60), make_envs, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
