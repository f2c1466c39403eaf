"""PPO learns a task of dm_control's suite from pixels, in plain NumPy, and shows what it has learnt.

    pip install 'worldloom[mujoco]'
    python examples/ppo_dmc.py                            # cartpole swingup: a curve and a video
    python examples/ppo_dmc.py --domain reacher --task easy --camera eye
    python examples/ppo_dmc.py --steps 0                  # a video of what it does before it has learnt

The algorithm is in ppo.py; here is what belongs to such tasks: a normal distribution for each actuator, pictures in
which speed can be seen, and a video.
"""

import argparse
import os
from pathlib import Path

# Matrices this small are multiplied sooner by one thread; and sums come out the same with any number of cores.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from gymnasium.spaces import flatdim

from learning_curve import draw_learning_curve
from ppo import Parameters, Plan, Player, forward, make_parameters, train
from worldloom.client import VectorEnv
from worldloom.render.gif import write_gif

SIZE = 32  # pixels: pictures are SIZE × SIZE, in gray, each pixel the mean of four samples
HIDDEN = 128  # units in each of two layers
REPEAT = 4  # steps of the world for each action
PLAN = Plan(learning_rate=1e-3, rollout=32, epochs=4, minibatches=8, entropy_weight=0.0, reward_scale=0.05, smooth=256)

FILMED = 4  # lanes in the video
FILM_SIZE = 128  # pixels of each of them
FRAME_S = 0.04  # as long as the cartpole takes for an action
LONGEST = 2000  # steps of an episode; most of the suite's have 1000


class Normal:
    """A normal distribution for each actuator: the outputs are the means, the spreads are parameters."""

    def draw(self, p: Parameters, outputs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Any numbers; an actuator takes those from -1 to 1, and the nearest of them for others."""
        return np.asarray(outputs + np.exp(p["log_spread"]) * rng.standard_normal(outputs.shape, np.float32))

    def log_probs(self, p: Parameters, outputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Of what was drawn, before it was held to the range."""
        away = (actions - outputs) / np.exp(p["log_spread"])
        return np.asarray((-0.5 * away**2 - p["log_spread"] - 0.5 * np.log(2 * np.pi)).sum(axis=1))

    def entropy(self, p: Parameters, outputs: np.ndarray) -> np.ndarray:
        """The same for every picture."""
        return np.full(len(outputs), (p["log_spread"] + 0.5 * np.log(2 * np.pi * np.e)).sum())

    def gradients(
        self, p: Parameters, outputs: np.ndarray, actions: np.ndarray, d_log_probs: np.ndarray, d_entropy: float
    ) -> tuple[np.ndarray, Parameters]:
        """By the means and by the spreads."""
        away = (actions - outputs) / np.exp(p["log_spread"])
        d_spread = (d_log_probs[:, None] * (away**2 - 1)).sum(axis=0) + d_entropy * len(outputs)
        return d_log_probs[:, None] * away / np.exp(p["log_spread"]), {"log_spread": d_spread}


class Watcher(Player):
    """Sees how pictures differ from the background, and from the ones before the last action."""

    repeat = REPEAT

    def __init__(self, env: VectorEnv, seed: int, background: np.ndarray) -> None:
        self.background = background
        self.gray = np.zeros((env.num_envs, SIZE, SIZE), np.float32)
        super().__init__(env, seed)

    def seen(self, obs: dict[str, np.ndarray], is_first: np.ndarray) -> np.ndarray:
        """Two pictures a lane: the second is where things moved, and nothing of it when an episode begins."""
        [pictures] = obs.values()
        before, self.gray = self.gray, pictures.astype(np.float32)
        moved = np.where(is_first[:, None, None], 0.0, self.gray - before)
        return np.stack([self.gray - self.background, moved], axis=1).reshape(len(moved), -1) / 32

    def controls(self, actions: np.ndarray) -> dict[str, np.ndarray]:
        """Held to the range of the actuators."""
        return {"control": np.clip(actions, -1, 1).astype(np.float64)}


def make_env(args: argparse.Namespace, lanes: int, size: int, picture: str) -> VectorEnv:
    """Lanes of the task, seen in pictures of so many pixels a side."""
    task = {"domain": args.domain, "task": args.task}
    return VectorEnv(
        args.address, "dmc", lanes, width=size, height=size, samples=4, observations=[picture], settings=task
    )


def play_at_random(env: VectorEnv, seed: int) -> tuple[float, np.ndarray]:
    """The mean return of an agent that acts at random, an episode in each lane, and the mean of all that it saw."""
    player, rng = Watcher(env, seed, np.zeros((SIZE, SIZE), np.float32)), np.random.default_rng(seed)
    pictures = []
    while len(player.returns) < env.num_envs and player.steps < LONGEST * env.num_envs:
        player.step(rng.uniform(-1, 1, (env.num_envs, flatdim(env.single_action_space))))
        pictures.append(player.gray.mean(axis=0))
    if not player.returns:
        raise SystemExit(f"no episode ended in {LONGEST} steps: expected a task with shorter ones")
    return float(np.mean(player.returns)), np.mean(pictures, axis=0)


def film(
    small: VectorEnv, large: VectorEnv, p: Parameters, background: np.ndarray, seed: int, frames: int
) -> np.ndarray:
    """What the policy does where nothing is left to chance: [frames, height, width, 3].

    It acts on what it sees in small pictures. The lanes of large ones have the same seed and take the same actions,
    so the same happens there.
    """
    player = Watcher(small, seed, background)
    large.reset(seed=seed)
    shown = [large.render()]
    while len(shown) < frames:
        actions, steps = forward(p, player.pictures)[0], player.steps
        player.step(actions)
        for _ in range((player.steps - steps) // small.num_envs):
            large.step(player.controls(actions))
        shown.append(large.render())
    return np.stack(shown)


def learnt(args: argparse.Namespace) -> tuple[Parameters, np.ndarray]:
    """Train as the command line says, and draw the learning curve: the network, and the background."""
    with make_env(args, args.lanes, SIZE, f"{args.camera}.gray") as env:
        level, background = play_at_random(env, args.seed)
        print(f"{env}\nmean return of random actions: {level:.0f}", flush=True)
        rng = np.random.default_rng(args.seed)
        actuators = flatdim(env.single_action_space)
        parameters = make_parameters(rng, 2 * SIZE * SIZE, HIDDEN, actuators)
        parameters["log_spread"] = np.zeros(actuators, np.float32)
        player = Watcher(env, args.seed, background)
        curve = train(player, Normal(), parameters, PLAN, rng, args.steps, args.seconds)
    if curve:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        draw_learning_curve(args.out, curve, level, (0.0, 1000.0), PLAN.smooth)
        print(f"mean return {curve[-1][1]:.0f}, random {level:.0f}. Learning curve: {args.out}")
    elif args.steps:
        raise SystemExit("no episode ended in that time: expected more --steps or --seconds")
    return parameters, background


def main() -> None:
    """Learn, and show it."""
    parser = argparse.ArgumentParser(description="PPO learns a task of dm_control's suite from pixels.")
    parser.add_argument("--address", default="local", help="of a server, HOST:PORT or unix:PATH; default: none needed")
    parser.add_argument("--domain", default="cartpole", help="of the suite")
    parser.add_argument("--task", default="swingup", help="of the domain")
    parser.add_argument("--camera", default="lookatcart", help="to learn from; the video is seen from `eye`")
    parser.add_argument("--lanes", type=int, default=256, help="worlds side by side")
    parser.add_argument("--steps", type=int, default=3_000_000, help="of all lanes together; 0: only show")
    parser.add_argument("--seconds", type=float, default=900.0, help="after which to stop learning in any case")
    parser.add_argument("--seed", type=int, default=0, help="the same seed learns the same")
    parser.add_argument("--out", type=Path, default=Path("out/ppo-dmc.png"), help="picture of the learning curve")
    parser.add_argument("--video", type=Path, default=Path("out/ppo-dmc.gif"), help="of what was learnt")
    parser.add_argument("--frames", type=int, default=250, help="of the video, 25 a second")
    args = parser.parse_args()
    parameters, background = learnt(args)
    with (
        make_env(args, FILMED, SIZE, f"{args.camera}.gray") as small,
        make_env(args, FILMED, FILM_SIZE, "eye.rgb") as large,
    ):
        frames = film(small, large, parameters, background, args.seed, args.frames)
    args.video.parent.mkdir(parents=True, exist_ok=True)
    write_gif(args.video, frames, FRAME_S)
    print(f"video: {args.video}")


if __name__ == "__main__":
    main()
