"""PPO learns a task of the dm_control suite from pixels, in plain NumPy, and records a video of the trained policy.

    pip install 'worldloom[mujoco]'
    python examples/ppo_dmc.py                            # cartpole swingup: a curve and a video
    python examples/ppo_dmc.py --domain reacher --task easy --camera eye
    python examples/ppo_dmc.py --steps 0                  # only a video, of an untrained policy

The algorithm is in ppo.py. This file has the parts for such tasks: a normal distribution for each actuator, inputs that
show velocities, and the video.
"""

import argparse
import os
from pathlib import Path

# One thread is faster for matrices of this size, and gives the same sums with any number of cores.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from gymnasium.spaces import flatdim

from learning_curve import draw_learning_curve
from ppo import Config, Parameters, Player, forward, init_parameters, train
from worldloom import VectorEnv
from worldloom.demo.images import write_gif

SIZE = 32  # pixels: frames are SIZE × SIZE, in gray, with four samples per pixel
HIDDEN = 128  # units in each of two layers
REPEAT = 4  # steps of the world for each action
CONFIG = Config(
    learning_rate=1e-3, rollout=32, epochs=4, minibatches=8, entropy_weight=0.0, reward_scale=0.05, return_window=256
)

VIDEO_LANES = 4  # lanes in the video
VIDEO_SIZE = 128  # pixels: their width and height
FRAME_S = 0.04  # the time of an action of the cartpole
MAX_EPISODE_STEPS = 2000  # most episodes of the suite have 1000


class GaussianPolicy:
    """A normal distribution for each actuator: the outputs are the means, the standard deviations are parameters."""

    def sample(self, p: Parameters, outputs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Sample actions. They may exceed the actuators' range, -1 to 1; `decode` clips them."""
        return np.asarray(outputs + np.exp(p["log_std"]) * rng.standard_normal(outputs.shape, np.float32))

    def log_probs(self, p: Parameters, outputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return the log-probabilities of the samples, before they are clipped."""
        deviation = (actions - outputs) / np.exp(p["log_std"])
        return np.asarray((-0.5 * deviation**2 - p["log_std"] - 0.5 * np.log(2 * np.pi)).sum(axis=1))

    def entropy(self, p: Parameters, outputs: np.ndarray) -> np.ndarray:
        """Return the entropy, which is the same for every row."""
        return np.full(len(outputs), (p["log_std"] + 0.5 * np.log(2 * np.pi * np.e)).sum())

    def gradients(
        self, p: Parameters, outputs: np.ndarray, actions: np.ndarray, d_log_probs: np.ndarray, d_entropy: float
    ) -> tuple[np.ndarray, Parameters]:
        """Return the derivatives by the means and by the standard deviations."""
        deviation = (actions - outputs) / np.exp(p["log_std"])
        d_log_std = (d_log_probs[:, None] * (deviation**2 - 1)).sum(axis=0) + d_entropy * len(outputs)
        return d_log_probs[:, None] * deviation / np.exp(p["log_std"]), {"log_std": d_log_std}


class DmcPlayer(Player):
    """A player of dm_control tasks. Inputs are differences of frames: to the background, and to the last frames."""

    repeat = REPEAT

    def __init__(self, env: VectorEnv, seed: int, background: np.ndarray) -> None:
        self.background = background
        self.gray = np.zeros((env.num_envs, SIZE, SIZE), np.float32)
        super().__init__(env, seed)

    def encode(self, obs: dict[str, np.ndarray], is_first: np.ndarray) -> np.ndarray:
        """Return two frames per lane: less the background, and less the last frame (0 if an episode begins)."""
        [frames] = obs.values()
        before, self.gray = self.gray, frames.astype(np.float32)
        moved = np.where(is_first[:, None, None], 0.0, self.gray - before)
        return np.stack([self.gray - self.background, moved], axis=1).reshape(len(moved), -1) / 32

    def decode(self, actions: np.ndarray) -> dict[str, np.ndarray]:
        """Clip actions to the range of the actuators."""
        return {"control": np.clip(actions, -1, 1).astype(np.float64)}


def make_env(args: argparse.Namespace, lanes: int, size: int, observation: str) -> VectorEnv:
    """Create an env of the task, with frames of size × size pixels."""
    task = {"domain": args.domain, "task": args.task}
    return VectorEnv(
        args.address, "dmc", lanes, width=size, height=size, samples=4, observations=[observation], settings=task
    )


def measure_random_agent(env: VectorEnv, seed: int) -> tuple[float, np.ndarray]:
    """Return the mean return of an agent with random actions, over an episode per lane, and its mean frame."""
    player, rng = DmcPlayer(env, seed, np.zeros((SIZE, SIZE), np.float32)), np.random.default_rng(seed)
    frames = []
    while len(player.returns) < env.num_envs and player.steps < MAX_EPISODE_STEPS * env.num_envs:
        player.step(rng.uniform(-1, 1, (env.num_envs, flatdim(env.single_action_space))))
        frames.append(player.gray.mean(axis=0))
    if not player.returns:
        raise SystemExit(f"no episode ended in {MAX_EPISODE_STEPS} steps: expected a task with shorter ones")
    return float(np.mean(player.returns)), np.mean(frames, axis=0)


def record(
    small: VectorEnv, large: VectorEnv, p: Parameters, background: np.ndarray, seed: int, frames: int
) -> np.ndarray:
    """Record the policy with its most likely actions: [frames, height, width, 3].

    The policy sees the frames of the small env. The large env has the same seed and gets the same actions, so the same
    happens there.
    """
    player = DmcPlayer(small, seed, background)
    large.reset(seed=seed)
    shown = [large.render()]
    while len(shown) < frames:
        actions, steps = forward(p, player.inputs)[0], player.steps
        player.step(actions)
        for _ in range((player.steps - steps) // small.num_envs):
            large.step(player.decode(actions))
        shown.append(large.render())
    return np.stack(shown)


def train_policy(args: argparse.Namespace) -> tuple[Parameters, np.ndarray]:
    """Train a policy, and draw its learning curve. Returns its parameters and the background of the frames."""
    with make_env(args, args.lanes, SIZE, f"{args.camera}.gray") as env:
        level, background = measure_random_agent(env, args.seed)
        print(f"{env}\nmean return of random actions: {level:.0f}", flush=True)
        rng = np.random.default_rng(args.seed)
        actuators = flatdim(env.single_action_space)
        parameters = init_parameters(rng, 2 * SIZE * SIZE, HIDDEN, actuators)
        parameters["log_std"] = np.zeros(actuators, np.float32)
        player = DmcPlayer(env, args.seed, background)
        curve = train(player, GaussianPolicy(), parameters, CONFIG, rng, args.steps, args.seconds)
    if curve:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        draw_learning_curve(args.out, curve, level, (0.0, 1000.0), CONFIG.return_window)
        print(f"mean return {curve[-1][1]:.0f}, random {level:.0f}. Learning curve: {args.out}")
    elif args.steps:
        raise SystemExit("no episode ended: expected more --steps or --seconds")
    return parameters, background


def main() -> None:
    """Train a policy, and record a video of it."""
    parser = argparse.ArgumentParser(description="PPO learns a task of the dm_control suite from pixels.")
    parser.add_argument(
        "--address", default="local", help="address of a server, HOST:PORT or unix:PATH; default: no server"
    )
    parser.add_argument("--domain", default="cartpole", help="domain of the suite")
    parser.add_argument("--task", default="swingup", help="task of the domain")
    parser.add_argument("--camera", default="lookatcart", help="camera of the network's inputs; the video shows `eye`")
    parser.add_argument("--lanes", type=int, default=256, help="number of simulations in parallel")
    parser.add_argument(
        "--steps", type=int, default=3_000_000, help="steps to train for, of all lanes together; 0: only the video"
    )
    parser.add_argument("--seconds", type=float, default=900.0, help="longest time to train")
    parser.add_argument("--seed", type=int, default=0, help="seed; the same seed gives the same result")
    parser.add_argument("--out", type=Path, default=Path("out/ppo-dmc.png"), help="PNG file for the learning curve")
    parser.add_argument("--video", type=Path, default=Path("out/ppo-dmc.gif"), help="GIF file for the video")
    parser.add_argument("--frames", type=int, default=250, help="length of the video, at 25 frames per second")
    args = parser.parse_args()
    parameters, background = train_policy(args)
    with (
        make_env(args, VIDEO_LANES, SIZE, f"{args.camera}.gray") as small,
        make_env(args, VIDEO_LANES, VIDEO_SIZE, "eye.rgb") as large,
    ):
        frames = record(small, large, parameters, background, args.seed, args.frames)
    args.video.parent.mkdir(parents=True, exist_ok=True)
    write_gif(args.video, frames, FRAME_S)
    print(f"video: {args.video}")


if __name__ == "__main__":
    main()
