"""PPO learns to catch from pixels, in plain NumPy.

    python examples/ppo_catch.py                            # in this process
    python examples/ppo_catch.py --address 127.0.0.1:9000   # with a `worldloom serve`

The algorithm is in ppo.py. This file has the parts for this game: a policy of three moves, and the inputs.
"""

import argparse
import os
from pathlib import Path

# One thread is faster for matrices of this size, and gives the same sums with any number of cores.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from learning_curve import draw_learning_curve
from ppo import Config, Parameters, Player, init_parameters, train
from worldloom import VectorEnv

SIZE = 24  # pixels: frames are SIZE × SIZE, in gray
HIDDEN = 64  # units in each of two layers
MOVES = np.array([-1, 0, 1])  # left, stay, right: the paddle's moves for the policy's three actions
CONFIG = Config(learning_rate=3e-3)


class CategoricalPolicy:
    """A probability for each move: the outputs are unnormalised log-probabilities."""

    def sample(self, p: Parameters, outputs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Sample indices into MOVES."""
        log_policy = log_softmax(outputs)
        # The Gumbel-max trick: the argmax of log-probabilities plus Gumbel noise is a sample.
        return np.asarray(np.argmax(log_policy + rng.gumbel(size=log_policy.shape), axis=1))

    def log_probs(self, p: Parameters, outputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return the log-probabilities of the sampled moves."""
        return np.take_along_axis(log_softmax(outputs), actions[:, None], axis=1)[:, 0]

    def entropy(self, p: Parameters, outputs: np.ndarray) -> np.ndarray:
        """Return the entropy of each row."""
        log_policy = log_softmax(outputs)
        return -np.asarray((np.exp(log_policy) * log_policy).sum(axis=1))

    def gradients(
        self, p: Parameters, outputs: np.ndarray, actions: np.ndarray, d_log_probs: np.ndarray, d_entropy: float
    ) -> tuple[np.ndarray, Parameters]:
        """Return the derivatives by the outputs; the policy has no parameters of its own."""
        log_policy = log_softmax(outputs)
        policy = np.exp(log_policy)
        d_outputs = -policy * d_log_probs[:, None]
        d_outputs[np.arange(len(actions)), actions] += d_log_probs
        d_outputs -= d_entropy * policy * (log_policy + self.entropy(p, outputs)[:, None])
        return d_outputs, {}


def log_softmax(outputs: np.ndarray) -> np.ndarray:
    """Return normalised log-probabilities of each row."""
    outputs = outputs - outputs.max(axis=1, keepdims=True)
    return np.asarray(outputs - np.log(np.exp(outputs).sum(axis=1, keepdims=True)))


class CatchPlayer(Player):
    """A player of catch."""

    def encode(self, obs: dict[str, np.ndarray], is_first: np.ndarray) -> np.ndarray:
        """Return pixels as numbers around 0, one row per lane. Boards are dark, so a gray of 64 becomes 0."""
        return obs["eye.gray"].reshape(self.env.num_envs, -1).astype(np.float32) / 64 - 1

    def decode(self, actions: np.ndarray) -> dict[str, np.ndarray]:
        """Return the moves of the paddles."""
        return {"paddle": MOVES[actions].astype(np.int32)}


def random_return(env: VectorEnv, seed: int, episodes: int = 4000) -> float:
    """Return the mean return of an agent with random actions."""
    player, rng = CatchPlayer(env, seed), np.random.default_rng(seed)
    while len(player.returns) < episodes:
        player.step(rng.integers(len(MOVES), size=env.num_envs))
    return float(np.mean(player.returns))


def main() -> None:
    """Train with the options of the command line, and draw the learning curve."""
    parser = argparse.ArgumentParser(description="PPO learns to catch from pixels.")
    parser.add_argument(
        "--address", default="local", help="address of a server, HOST:PORT or unix:PATH; default: no server"
    )
    parser.add_argument("--lanes", type=int, default=128, help="number of games in parallel")
    parser.add_argument("--rows", type=int, default=10, help="height of the board")
    parser.add_argument("--columns", type=int, default=5, help="width of the board")
    parser.add_argument("--steps", type=int, default=200_000, help="steps to train for, of all lanes together")
    parser.add_argument("--seconds", type=float, default=120.0, help="longest time to train")
    parser.add_argument("--seed", type=int, default=0, help="seed; the same seed gives the same result")
    parser.add_argument("--out", type=Path, default=Path("out/ppo-catch.png"), help="PNG file for the learning curve")
    args = parser.parse_args()
    board = {"rows": args.rows, "columns": args.columns}
    with VectorEnv(
        args.address, "catch", args.lanes, width=SIZE, height=SIZE, observations=["eye.gray"], settings=board
    ) as env:
        level = random_return(env, args.seed)
        print(f"{env}\nmean return of random actions: {level:.2f}", flush=True)
        rng = np.random.default_rng(args.seed)
        parameters = init_parameters(rng, SIZE * SIZE, HIDDEN, len(MOVES))
        curve = train(
            CatchPlayer(env, args.seed), CategoricalPolicy(), parameters, CONFIG, rng, args.steps, args.seconds
        )
    if not curve:
        raise SystemExit("no episode ended: expected more --steps or --seconds")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    draw_learning_curve(args.out, curve, level, (-1.0, 1.0), CONFIG.return_window)
    print(f"mean return {curve[-1][1]:.2f}, random {level:.2f}. Learning curve: {args.out}")


if __name__ == "__main__":
    main()
