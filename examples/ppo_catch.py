"""PPO learns to catch from pixels, in plain NumPy.

    python examples/ppo_catch.py                            # in this process
    python examples/ppo_catch.py --address 127.0.0.1:9000   # with a `worldloom serve`

The algorithm is in ppo.py; here is what belongs to this game: three moves to choose from, and what a board looks like.
"""

import argparse
import os
from pathlib import Path

# Matrices this small are multiplied sooner by one thread; and sums come out the same with any number of cores.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from learning_curve import draw_learning_curve
from ppo import Parameters, Plan, Player, make_parameters, train
from worldloom.client import VectorEnv

SIZE = 24  # pixels: pictures are SIZE × SIZE, in gray
HIDDEN = 64  # units in each of two layers
MOVES = np.array([-1, 0, 1])  # left, stay, right: what the policy's three actions mean to the paddle
PLAN = Plan(learning_rate=3e-3)


class Moves:
    """A chance for each move: the outputs are their logarithms, but for a sum."""

    def draw(self, p: Parameters, outputs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Indices into MOVES."""
        log_policy = log_softmax(outputs)
        # The largest of log-probabilities plus this is a fair draw.
        return np.asarray(np.argmax(log_policy + rng.gumbel(size=log_policy.shape), axis=1))

    def log_probs(self, p: Parameters, outputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Of the moves taken."""
        return np.take_along_axis(log_softmax(outputs), actions[:, None], axis=1)[:, 0]

    def entropy(self, p: Parameters, outputs: np.ndarray) -> np.ndarray:
        """How undecided the policy is."""
        log_policy = log_softmax(outputs)
        return -np.asarray((np.exp(log_policy) * log_policy).sum(axis=1))

    def gradients(
        self, p: Parameters, outputs: np.ndarray, actions: np.ndarray, d_log_probs: np.ndarray, d_entropy: float
    ) -> tuple[np.ndarray, Parameters]:
        """By the outputs; the policy has no parameters of its own."""
        log_policy = log_softmax(outputs)
        policy = np.exp(log_policy)
        d_outputs = -policy * d_log_probs[:, None]
        d_outputs[np.arange(len(actions)), actions] += d_log_probs
        d_outputs -= d_entropy * policy * (log_policy + self.entropy(p, outputs)[:, None])
        return d_outputs, {}


def log_softmax(outputs: np.ndarray) -> np.ndarray:
    """Logarithms of chances that add up to 1 in each row."""
    outputs = outputs - outputs.max(axis=1, keepdims=True)
    return np.asarray(outputs - np.log(np.exp(outputs).sum(axis=1, keepdims=True)))


class Catcher(Player):
    """Sees boards, moves paddles."""

    def seen(self, obs: dict[str, np.ndarray], is_first: np.ndarray) -> np.ndarray:
        """Bytes as numbers around 0, a row for each lane. The boards are dark, so 0 is where gray is 64."""
        return obs["eye.gray"].reshape(self.env.num_envs, -1).astype(np.float32) / 64 - 1

    def controls(self, actions: np.ndarray) -> dict[str, np.ndarray]:
        """Where paddles move."""
        return {"paddle": MOVES[actions].astype(np.int32)}


def random_return(env: VectorEnv, seed: int, episodes: int = 4000) -> float:
    """The mean return of an agent that acts at random."""
    player, rng = Catcher(env, seed), np.random.default_rng(seed)
    while len(player.returns) < episodes:
        player.step(rng.integers(len(MOVES), size=env.num_envs))
    return float(np.mean(player.returns))


def main() -> None:
    """Train as the command line says, and draw the learning curve."""
    parser = argparse.ArgumentParser(description="PPO learns to catch from pixels.")
    parser.add_argument("--address", default="local", help="of a server, HOST:PORT or unix:PATH; default: none needed")
    parser.add_argument("--lanes", type=int, default=128, help="games played side by side")
    parser.add_argument("--rows", type=int, default=10, help="height of the board")
    parser.add_argument("--columns", type=int, default=5, help="width of the board")
    parser.add_argument("--steps", type=int, default=200_000, help="of all lanes together, to learn from")
    parser.add_argument("--seconds", type=float, default=120.0, help="after which to stop in any case")
    parser.add_argument("--seed", type=int, default=0, help="the same seed learns the same")
    parser.add_argument("--out", type=Path, default=Path("out/ppo-catch.png"), help="picture of the learning curve")
    args = parser.parse_args()
    board = {"rows": args.rows, "columns": args.columns}
    with VectorEnv(
        args.address, "catch", args.lanes, width=SIZE, height=SIZE, observations=["eye.gray"], settings=board
    ) as env:
        level = random_return(env, args.seed)
        print(f"{env}\nmean return of random actions: {level:.2f}", flush=True)
        rng = np.random.default_rng(args.seed)
        parameters = make_parameters(rng, SIZE * SIZE, HIDDEN, len(MOVES))
        curve = train(Catcher(env, args.seed), Moves(), parameters, PLAN, rng, args.steps, args.seconds)
    if not curve:
        raise SystemExit("no episode ended in that time: expected more --steps or --seconds")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    draw_learning_curve(args.out, curve, level, (-1.0, 1.0), PLAN.smooth)
    print(f"mean return {curve[-1][1]:.2f}, random {level:.2f}. Learning curve: {args.out}")


if __name__ == "__main__":
    main()
