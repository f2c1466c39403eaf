"""The cost of a step through the adaptors of learning libraries: `make bench-learners`.

    python -m worldloom.bench.learners [--lanes 256] [--json out/learners.json]

Runs in .venv-learners. Each env is stepped with random actions that were sampled beforehand: as it is, by SB3's
`VecEnv.step`, and by TorchRL's `step_and_maybe_reset`, which collectors call. All take their turn in every round.
Rates are compared with the env's own step: in next-step mode, where the steps that only begin an episode count as
frames, too, and in same-step mode, which has none of these. EnvPool and Gymnasium's AsyncVectorEnv are measured by
themselves and through the same adaptors.
"""

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

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
from worldloom.client.adaptors.sb3 import SB3VecEnv
from worldloom.client.adaptors.torchrl import TorchRLEnv
from worldloom.client.episodes import FINAL_LANES, FINAL_STACKED

FAMILIES = ("catch", "maze")
BASES = ("next_step", "same_step")
"""Modes in which envs are stepped by themselves."""
_PROCESSES = 8
"""Lanes of AsyncVectorEnv, which has a process for each."""
_ACTIONS = 32
"""Different actions of an env."""
_PACKAGES = ("worldloom", "torch", "stable-baselines3", "torchrl", "gymnasium")


class Stepper(NamedTuple):
    """An env that is ready to be stepped."""

    step: Callable[[], object]
    lanes: int


class PeerEnv(VectorEnv):
    """Another vector env in the place of ours, so that the adaptors take it."""

    has_shared_frames = False

    def __init__(self, env: Any) -> None:
        self._peer = env
        self._statistics = None
        self._actions: Any = None
        self.num_envs = env.num_envs if hasattr(env, "num_envs") else env.config["num_envs"]
        self.single_observation_space = getattr(env, "single_observation_space", env.observation_space)
        self.single_action_space = getattr(env, "single_action_space", env.action_space)
        self.autoreset_mode = AutoresetMode.SAME_STEP
        self.metadata = {"render_fps": 30}
        self.render_mode = None
        self.closed = False

    def reset(self, **_: Any) -> Any:
        """Reset all lanes."""
        return self._peer.reset()

    def step(self, actions: Any, out: Any = None) -> Any:
        """Step all lanes; last observations are stacked, as ours are."""
        *results, info = self._peer.step(actions)
        if "final_obs" in info:
            info[FINAL_LANES] = np.flatnonzero(info["_final_obs"])
            info[FINAL_STACKED] = np.stack(info["final_obs"][info["_final_obs"]])
        return *results, info

    def send(self, actions: Any, env_id: Any = None) -> None:
        """Keep the actions for `recv`."""
        self._actions = actions

    def recv(self, min_lanes: int | None = None) -> Any:
        """Step with the actions that were kept."""
        return self.step(self._actions)

    def close_extras(self, **_: Any) -> None:
        """Close the other env."""
        self._peer.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write JSON."""
    parser = argparse.ArgumentParser(description="Cost of a step through the adaptors of learning libraries.")
    parser.add_argument("--lanes", type=at_least_one, default=256, help="lanes of each env (%(default)s)")
    parser.add_argument("--size", type=at_least_one, default=64, help="side of a frame in pixels (%(default)s)")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="without EnvPool and Gymnasium's own")
    parser.add_argument("--json", type=Path, help="file for the rates of all rounds")
    add_options(parser, seconds=2.0)
    args = parser.parse_args(arguments)
    if args.peers and importlib.util.find_spec("envpool") is None:
        parser.error("EnvPool is not installed here: run `make bench-learners`, which installs it, or give --no-peers")
    limit_cores(args.cores)
    steppers: dict[str, Stepper] = {}
    for family in FAMILIES:
        steppers |= make_worldloom_steppers(family, args.lanes, args.size)
    if args.peers:
        steppers |= make_peer_steppers(args.lanes, args.size)
    runs = {name: _measured(stepper) for name, stepper in steppers.items()}
    rates = measure_in_turn(runs, args.rounds, args.seconds)
    conditions = describe_conditions((*_PACKAGES, "envpool") if args.peers else _PACKAGES)
    print("\n".join([conditions, "", *report(medians(rates), steppers)]))
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        content = {"conditions": conditions, "lanes": args.lanes, "size": args.size, "frames_per_s": rates}
        args.json.write_text(json.dumps(content, indent=1))
    return 0


def report(rates: dict[str, float], steppers: dict[str, Stepper]) -> list[str]:
    """Return the table: each rate, compared with the step of the same env by itself."""
    rows = []
    for name, rate in rates.items():
        env, _, way = name.partition(": ")
        compared = [ratio(rate, rates.get(f"{env}: {mode}")) for mode in BASES]
        rows.append(
            (env, f"itself, {way}" if way in BASES else way, str(steppers[name].lanes), f"{rate:,.0f}", *compared)
        )
    return table(("env", "stepped by", "lanes", "frames/s", *(f"to its {mode}" for mode in BASES)), rows)


def make_worldloom_steppers(family: str, lanes: int, size: int) -> dict[str, Stepper]:
    """Make an env of a family for each way to step it."""
    options: dict[str, Any] = {"width": size, "height": size, "renderer": "cpu", "seed": 1}
    found = {}
    for mode in BASES:
        env = VectorEnv("local", family, lanes, flat=True, autoreset=mode, **options)  # type: ignore[arg-type]
        env.reset()
        found[f"{family}: {mode}"] = _step_itself(env, lanes)
    found[f"{family}: SB3"] = _step_sb3(SB3VecEnv("local", family, lanes, **options))
    for mode in ("same_step", "disabled"):
        env = TorchRLEnv("local", family, lanes, autoreset=mode, **options)
        found[f"{family}: TorchRL, {mode}"] = _step_torchrl(env)
    return found


def make_peer_steppers(lanes: int, size: int) -> dict[str, Stepper]:
    """Make the other vector envs. EnvPool's pictures of Pong are of the same size, with three channels, too."""
    import envpool  # installed for this alone

    def make_pool() -> PeerEnv:
        options = {"img_height": size, "img_width": size, "gray_scale": False, "stack_num": 1}
        return PeerEnv(envpool.make_gymnasium("Pong-v5", num_envs=lanes, **options))

    def make_processes() -> PeerEnv:
        options: dict[str, Any] = {"context": "spawn", "autoreset_mode": AutoresetMode.SAME_STEP}
        name = "worldloom:worldloom/Catch-v0"
        env = gymnasium.make_vec(name, _PROCESSES, "async", options, width=size, height=size, renderer="cpu")
        return PeerEnv(env)

    found = {}
    for name, make in (("EnvPool's Pong", make_pool), ("AsyncVectorEnv of catch", make_processes)):
        env = make()
        env.reset()
        found[f"{name}: same_step"] = _step_itself(env, env.num_envs)
        found[f"{name}: SB3"] = _step_sb3(SB3VecEnv(env))
        found[f"{name}: TorchRL, same_step"] = _step_torchrl(TorchRLEnv(env))
    return found


def _measured(stepper: Stepper) -> RateFunction:
    def run(seconds: float) -> float:
        began, steps = time.perf_counter(), 0
        while time.perf_counter() < began + seconds:
            stepper.step()
            steps += 1
        return steps * stepper.lanes / (time.perf_counter() - began)

    return run


def _step_itself(env: VectorEnv, lanes: int) -> Stepper:
    return Stepper(_cycle(env.step, _sample(env.single_action_space, lanes)), lanes)


def _step_sb3(env: SB3VecEnv) -> Stepper:
    env.reset()
    return Stepper(_cycle(env.step, _sample(env.action_space, env.num_envs)), env.num_envs)


def _step_torchrl(env: TorchRLEnv) -> Stepper:
    actions = [env.full_action_spec.rand() for _ in range(_ACTIONS)]
    current = env.reset()

    def step(action: Any) -> None:
        nonlocal current
        _, current = env.step_and_maybe_reset(current.update(action))

    return Stepper(_cycle(step, actions), env.batch_size[0])


def _sample(space: gymnasium.Space[Any], lanes: int) -> list[np.ndarray]:
    """Return some random actions of all lanes."""
    space.seed(0)
    return [np.stack([space.sample() for _ in range(lanes)]) for _ in range(_ACTIONS)]


def _cycle(step: Callable[[Any], object], actions: list[Any]) -> Callable[[], object]:
    """Return a function that steps with the next of these actions."""
    count = 0

    def run() -> object:
        nonlocal count
        count += 1
        return step(actions[count % len(actions)])

    return run


if __name__ == "__main__":
    sys.exit(main())
