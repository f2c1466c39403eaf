"""Part of its return that an agent keeps when the pictures change: PPO on cartpole swingup, plain and distracted.

    python examples/robustness.py train --seed 0                             # out/robustness/none-0.pt
    python examples/robustness.py train --seed 0 --distraction dcs-hard
    python examples/robustness.py evaluate --distraction none dcs-hard

`--distraction` is a setting of the family `dmc`, see docs/distractions.md. The agent and its hyperparameters are those
of ppo.py. `evaluate` plays episodes with the most likely actions of each agent in the folder.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch.distributions import Distribution

from ppo import Network, Player, Task, find_task, make_env, measure_random_agent, train

TASK = "dmc-cartpole-swingup"
PLAIN = "none"
EPISODES = 128
EVALUATION_SEED = 1000
"""Seed of the episodes that all agents are compared in; none is trained with it."""


def distracted(distraction: str) -> Task:
    """Return the task with a distraction."""
    task = find_task(TASK)
    return replace(task, settings={**task.settings, "distraction": distraction})


def train_agent(path: Path, distraction: str, seed: int, steps: int, minutes: float) -> None:
    """Train an agent and save it."""
    task = replace(distracted(distraction), steps=steps)
    torch.manual_seed(seed)
    Distribution.set_default_validate_args(False)  # saves a fifth of the time of a rollout
    with make_env(task, "local", task.lanes) as env:
        random_return, mean_frame, deviation = measure_random_agent(env, task, seed)
        network = Network(env, task, mean_frame, deviation)
        curve = train(Player(env, task, seed, "cpu"), network, steps, 60 * minutes)
    if not curve:
        raise SystemExit("no episode ended: expected more --minutes")
    path.parent.mkdir(parents=True, exist_ok=True)
    saved = {"network": network.state_dict(), "steps": curve[-1][0], "mean_return": curve[-1][2]}
    torch.save({**saved, "random_return": random_return}, path)
    print(f"{path}: mean return {curve[-1][2]:.0f} after {curve[-1][0]:,} steps, random {random_return:.0f}")


@torch.no_grad()
def evaluate_agent(path: Path, distraction: str) -> float:
    """Return the mean return of a saved agent's most likely actions."""
    task = distracted(distraction)
    with make_env(task, "local", EPISODES) as env:
        shape = env.single_observation_space.shape
        assert shape is not None
        network = Network(env, task, np.zeros((*shape[:2], shape[2] // task.frame_stack), np.float32), 1.0)
        network.load_state_dict(torch.load(path, weights_only=True)["network"])
        player = Player(env, task, EVALUATION_SEED, "cpu")
        while len(player.returns) < EPISODES:
            player.step(network(player.observations)[0].mode)
    return float(np.mean(player.returns))


def evaluate(folder: Path, distractions: Sequence[str]) -> None:
    """Print a table: the returns of each agent, and the part that it keeps of the first."""
    agents = sorted(folder.glob("*.pt"))
    if not agents:
        raise SystemExit(f"{folder} has no agents: expected files of `train`")
    print("".join(word.rjust(22) for word in ("agent", *distractions)))
    for path in agents:
        returns = [evaluate_agent(path, distraction) for distraction in distractions]
        cells = [f"{one:.0f} ({one / returns[0]:.0%})" for one in returns]
        print("".join(word.rjust(22) for word in (path.stem, *cells)), flush=True)


def parse_arguments() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(description="Part of its return that an agent keeps when the pictures change.")
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train", help="train an agent and save it")
    training.add_argument("--distraction", default=PLAIN, help="setting of dmc to train with; default: none")
    training.add_argument("--seed", type=int, default=0, help="seed of the worlds, the network and its actions")
    training.add_argument("--steps", type=int, default=6_000_000, help="steps of the world; default: 6 million")
    training.add_argument("--minutes", type=float, default=60.0, help="longest time to train; default: 60")
    testing = commands.add_parser("evaluate", help="play with all agents of the folder")
    testing.add_argument("--distraction", nargs="+", default=[PLAIN, "dcs-hard"], help="settings to play with")
    for command in (training, testing):
        command.add_argument("--out", type=Path, default=Path("out/robustness"), help="folder of the agents")
    return parser.parse_args()


def main() -> None:
    """Train an agent, or compare those that there are."""
    args = parse_arguments()
    if args.command == "train":
        path = args.out / f"{args.distraction}-{args.seed}.pt"
        train_agent(path, args.distraction, args.seed, args.steps, args.minutes)
    else:
        evaluate(args.out, args.distraction)


if __name__ == "__main__":
    main()
