"""Worldloom: a vector environment with its engine in this process."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from .program import Stepper, options, run

_DIFFERENT_ACTIONS = 32


def make_envs(args: argparse.Namespace) -> Stepper:
    """Make one env with all lanes of a family, with random actions sampled beforehand."""
    from worldloom.client import VectorEnv

    env = VectorEnv("local", args.family, args.envs, width=args.width, height=args.height, renderer="cpu")
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(_DIFFERENT_ACTIONS)]
    env.reset(seed=0)
    steps = 0

    def step() -> int:
        nonlocal steps
        env.step(actions[steps % _DIFFERENT_ACTIONS])
        steps += 1
        return int(args.envs)

    return Stepper(step, {"worldloom": version("worldloom"), "numba": version("numba")})


def main(arguments: Sequence[str]) -> int:
    """Run with these arguments."""
    parser = options("Lanes of a family.", 64, 64)
    parser.add_argument("--family", required=True, help="which")
    return run(parser, make_envs, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
