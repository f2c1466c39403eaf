"""The cost of a step through the adaptors of learning libraries: `make bench-learners`.

    python -m worldloom.bench.learners [--lanes 256] [--json out/learners.json]

Runs in .venv-learners. Everything is stepped with random actions at the same number of lanes, one after the other in
each round, with rewards and observations as the library hands them out: SB3's `VecEnv.step`, TorchRL's
`step_and_maybe_reset`. Ratios are to `VectorEnv.step` with the same env, in the same autoreset mode and in next-step
mode. Beside it are EnvPool and Gymnasium's AsyncVectorEnv through the adaptors that these libraries have for them.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from worldloom.bench.measuring import (
    RateFunction,
    add_options,
    at_least_one,
    describe_conditions,
    limit_cores,
    measure_in_turn,
    medians,
    ratio,
    table,
)
from worldloom.client import VectorEnv

FAMILIES = ("catch", "maze")
TARGET = 0.8
"""Least ratio of an adaptor's rate to that of VectorEnv.step."""
_DIFFERENT_ACTIONS = 32
_ENVPOOL_TASK = "Pong-v5"
_PACKAGES = ("worldloom", "torch", "stable-baselines3", "torchrl", "gymnasium", "envpool")
Step = Callable[[], object]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write JSON."""
    parser = argparse.ArgumentParser(description="Cost of a step through the adaptors of learning libraries.")
    parser.add_argument("--lanes", type=at_least_one, default=256, help="lanes of each env (%(default)s)")
    parser.add_argument("--size", type=at_least_one, default=64, help="side of a frame in pixels (%(default)s)")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="without EnvPool and Gymnasium's own")
    parser.add_argument("--json", type=Path, help="file for the rates of all rounds")
    add_options(parser, seconds=2.0)
    args = parser.parse_args(arguments)
    limit_cores(args.cores)
    steppers = {
        f"{family}, {name}": step
        for family in FAMILIES
        for name, step in make_worldloom_steps(family, args.lanes, args.size).items()
    }
    if args.peers:
        steppers |= make_peer_steps(args.lanes, args.size)
    rates = measure_in_turn(
        {name: measured(step, args.lanes) for name, step in steppers.items()}, args.rounds, args.seconds
    )
    found = medians(rates)
    lines = report(found)
    print("\n".join([describe_conditions(_PACKAGES if args.peers else _PACKAGES[:-1]), "", *lines]))
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({"lanes": args.lanes, "size": args.size, "rates": rates}, indent=1))
    return 0


def measured(step: Step, lanes: int) -> RateFunction:
    """Return a function that steps for some seconds and returns frames a second."""

    def run(seconds: float) -> float:
        began, steps = time.perf_counter(), 0
        while time.perf_counter() < began + seconds:
            step()
            steps += 1
        return steps * lanes / (time.perf_counter() - began)

    return run


def report(rates: dict[str, float]) -> list[str]:
    """Return the table: each rate, and its ratio to VectorEnv.step in next-step mode with the same world."""
    rows = []
    for name, rate in rates.items():
        world = name.partition(",")[0]
        base = rates.get(f"{world}, VectorEnv next_step")
        rows.append((name, f"{rate:,.0f}", ratio(rate, base)))
    return table(("env", "frames/s", "to VectorEnv.step"), rows)


def make_worldloom_steps(family: str, lanes: int, size: int) -> dict[str, Step]:
    """Make an env for each way to step it."""
    from worldloom.client.adaptors.sb3 import SB3VecEnv
    from worldloom.client.adaptors.torchrl import TorchRLEnv

    frames = {"width": size, "height": size, "renderer": "cpu", "seed": 1}
    steps: dict[str, Step] = {}
    for mode in ("next_step", "same_step"):
        env = VectorEnv("local", family, lanes, flat=True, autoreset=mode, **frames)
        env.reset()
        steps[f"VectorEnv {mode}"] = cycle(env.step, sample_actions(env.action_space))
    steps["SB3VecEnv"] = step_sb3(SB3VecEnv("local", family, lanes, **frames))
    for mode in ("same_step", "disabled"):
        steps[f"TorchRLEnv {mode}"] = step_torchrl(TorchRLEnv("local", family, lanes, autoreset=mode, **frames))
    return steps


def make_peer_steps(lanes: int, size: int) -> dict[str, Step]:
    """Make other vector envs with pictures, through what each library has for them."""
    import envpool
    import gymnasium
    from torchrl.envs.libs.envpool import MultiThreadedEnv

    steps: dict[str, Step] = {}
    options = {"num_envs": lanes, "img_height": size, "img_width": size, "gray_scale": False, "stack_num": 1}
    pool = envpool.make_gymnasium(_ENVPOOL_TASK, **options)
    pool.reset()
    actions = [np.random.default_rng(k).integers(0, 6, lanes).astype(np.int32) for k in range(_DIFFERENT_ACTIONS)]
    steps["EnvPool Pong, its step"] = cycle(pool.step, actions)
    steps["EnvPool Pong, TorchRL"] = step_torchrl(
        MultiThreadedEnv(lanes, _ENVPOOL_TASK, create_env_kwargs={**options, "gym_reset_return_info": True})
    )
    few = min(lanes, 16)
    gym_env = gymnasium.make_vec(
        "worldloom:worldloom/Catch-v0", few, "async", width=size, height=size, vector_kwargs={"context": "spawn"}
    )
    gym_env.reset(seed=1)
    steps[f"AsyncVectorEnv of {few} catch, its step"] = cycle(gym_env.step, sample_actions(gym_env.action_space))
    return steps


def sample_actions(space: Any) -> list[Any]:
    """Return some random actions, sampled beforehand."""
    space.seed(0)
    return [space.sample() for _ in range(_DIFFERENT_ACTIONS)]


def cycle(step: Callable[[Any], object], actions: list[Any]) -> Step:
    """Return a function that steps with the next of these actions."""
    count = 0

    def run() -> object:
        nonlocal count
        count += 1
        return step(actions[count % len(actions)])

    return run


def step_sb3(env: Any) -> Step:
    """Return a function that steps an env of SB3."""
    env.reset()
    env.action_space.seed(0)
    actions = [np.stack([env.action_space.sample() for _ in range(env.num_envs)]) for _ in range(_DIFFERENT_ACTIONS)]
    return cycle(env.step, actions)


def step_torchrl(env: Any) -> Step:
    """Return a function that steps an env of TorchRL and resets what has ended, as its collectors do."""
    actions = [env.full_action_spec.rand() for _ in range(_DIFFERENT_ACTIONS)]
    current = env.reset()

    def step(action: Any) -> None:
        nonlocal current
        _, current = env.step_and_maybe_reset(current.update(action))

    return cycle(step, actions)


if __name__ == "__main__":
    sys.exit(main())
