"""Worldloom: a vector environment with its engine in this process."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from .pace import Player, options, run

_DIFFERENT_ACTIONS = 32


def make(chosen: argparse.Namespace) -> Player:
    """All lanes of a family in one env, with random actions that were drawn beforehand."""
    from worldloom.client import VectorEnv

    env = VectorEnv("local", chosen.family, chosen.envs, width=chosen.width, height=chosen.height, renderer="cpu")
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(_DIFFERENT_ACTIONS)]
    env.reset(seed=0)
    steps = 0

    def step() -> int:
        nonlocal steps
        env.step(actions[steps % _DIFFERENT_ACTIONS])
        steps += 1
        return int(chosen.envs)

    return Player(step, {"worldloom": version("worldloom"), "numba": version("numba")})


def main(words: Sequence[str]) -> int:
    """Run as the words say."""
    parser = options("Lanes of a family.", 64, 64)
    parser.add_argument("--family", required=True, help="which")
    return run(parser, make, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
