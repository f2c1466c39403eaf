"""MiniWorld-Maze: first-person environments in Python, drawn with OpenGL by way of EGL."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from .pace import Player, options, run

_ACTIONS = 3
_DIFFERENT_ACTIONS = 1024


def make(chosen: argparse.Namespace) -> Player:
    """One after the other in this process; those whose episode has ended begin another."""
    import pyglet

    pyglet.options["headless"] = True  # before MiniWorld opens a window
    import gymnasium
    import miniworld  # noqa: F401  # it registers its environments
    import numpy as np

    size = {"obs_width": chosen.width, "obs_height": chosen.height}
    envs = [gymnasium.make("MiniWorld-Maze-v0", **size) for _ in range(chosen.envs)]
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

    return Player(step, {"miniworld": version("miniworld"), "pyglet": version("pyglet")})


def main(words: Sequence[str]) -> int:
    """Run as the words say."""
    return run(options("MiniWorld-Maze.", 80, 60), make, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
