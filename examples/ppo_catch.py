"""PPO learns to catch from pixels, in one file of plain NumPy.

    python examples/ppo_catch.py                            # in this process
    python examples/ppo_catch.py --address 127.0.0.1:9000   # with a `worldloom serve`

Proximal policy optimisation as in https://arxiv.org/abs/1707.06347: play a while, estimate how much better than
expected each action was, make the good ones likelier in small steps, begin again. The gradients are worked out by hand
in `loss_and_gradients`.
"""

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path

# Matrices this small are multiplied sooner by one thread; and sums come out the same with any number of cores.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from learning_curve import draw_learning_curve
from worldloom.client import VectorEnv

SIZE = 24  # pixels: pictures are SIZE × SIZE, in gray
HIDDEN = 64  # units in each of two layers
MOVES = np.array([-1, 0, 1])  # left, stay, right: what the policy's three actions mean to the paddle

ROLLOUT = 32  # steps of every lane between two updates
EPOCHS, MINIBATCHES = 4, 8
LEARNING_RATE = 3e-3  # at first; it falls to 0 with the last step
DISCOUNT, TRACE = 0.99, 0.95  # gamma and lambda of generalised advantage estimation
CLIP = 0.2  # how far from 1 the ratio of new to old probability is worth moving
VALUE_WEIGHT, ENTROPY_WEIGHT = 0.5, 0.01
LONGEST_GRADIENT = 0.5
SMOOTH = 200  # episodes in the mean that is shown

Parameters = dict[str, np.ndarray]


@dataclass
class Batch:
    """Transitions to learn from, a row each."""

    pictures: np.ndarray  # float [n, SIZE * SIZE]
    actions: np.ndarray  # int [n], indices into MOVES
    log_probs: np.ndarray  # float [n], of those actions when they were taken
    advantages: np.ndarray  # float [n]
    returns: np.ndarray  # float [n], what the value should have been


# The network: a picture → two layers of tanh → a logit for each action, and a value.


def make_parameters(rng: np.random.Generator) -> Parameters:
    """Orthogonal weights; the heads begin small, so that the first policy is nearly uniform."""

    def orthogonal(rows: int, columns: int, gain: float) -> np.ndarray:
        q, r = np.linalg.qr(rng.standard_normal((rows, columns)))
        return np.asarray(gain * q * np.sign(np.diag(r)), np.float32)

    return {
        "w1": orthogonal(SIZE * SIZE, HIDDEN, 1.4),
        "b1": np.zeros(HIDDEN, np.float32),
        "w2": orthogonal(HIDDEN, HIDDEN, 1.4),
        "b2": np.zeros(HIDDEN, np.float32),
        "w_policy": orthogonal(HIDDEN, len(MOVES), 0.01),
        "b_policy": np.zeros(len(MOVES), np.float32),
        "w_value": orthogonal(HIDDEN, 1, 1.0),
        "b_value": np.zeros(1, np.float32),
    }


def forward(p: Parameters, pictures: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities [n, 3] and values [n], and the two layers, which the gradients are made from."""
    h1 = np.tanh(pictures @ p["w1"] + p["b1"])
    h2 = np.tanh(h1 @ p["w2"] + p["b2"])
    logits = h2 @ p["w_policy"] + p["b_policy"]
    logits = logits - logits.max(axis=1, keepdims=True)
    log_policy = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return log_policy, (h2 @ p["w_value"] + p["b_value"])[:, 0], h1, h2


def loss_and_gradients(p: Parameters, batch: Batch) -> tuple[float, Parameters]:
    """PPO's loss, and its derivative by every parameter."""
    n, rows = len(batch.actions), np.arange(len(batch.actions))
    log_policy, values, h1, h2 = forward(p, batch.pictures)
    policy = np.exp(log_policy)

    ratio = np.exp(log_policy[rows, batch.actions] - batch.log_probs)
    plain = ratio * batch.advantages
    clipped = np.clip(ratio, 1 - CLIP, 1 + CLIP) * batch.advantages
    entropy = -(policy * log_policy).sum(axis=1)
    error = values - batch.returns
    loss = np.mean(-np.minimum(plain, clipped) + VALUE_WEIGHT * 0.5 * error**2 - ENTROPY_WEIGHT * entropy)

    # Backwards, from the loss to each head. Where the clipped term is the smaller one it is constant.
    d_log_prob = np.where(plain <= clipped, -plain, 0.0)
    d_logits = -policy * d_log_prob[:, None]
    d_logits[rows, batch.actions] += d_log_prob
    d_logits += ENTROPY_WEIGHT * policy * (log_policy + entropy[:, None])
    d_logits /= n
    d_values = (VALUE_WEIGHT * error / n)[:, None]

    # And through the layers; the derivative of tanh is 1 - tanh².
    d2 = (d_logits @ p["w_policy"].T + d_values @ p["w_value"].T) * (1 - h2**2)
    d1 = (d2 @ p["w2"].T) * (1 - h1**2)
    return float(loss), {
        "w1": batch.pictures.T @ d1,
        "b1": d1.sum(axis=0),
        "w2": h1.T @ d2,
        "b2": d2.sum(axis=0),
        "w_policy": h2.T @ d_logits,
        "b_policy": d_logits.sum(axis=0),
        "w_value": h2.T @ d_values,
        "b_value": d_values.sum(axis=0),
    }


class Adam:
    """Each parameter moves by its mean gradient over the root of its mean square; long gradients are shortened."""

    def __init__(self, parameters: Parameters) -> None:
        self.steps = 0
        self.mean = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.square = {name: np.zeros_like(value) for name, value in parameters.items()}

    def update(self, parameters: Parameters, gradients: Parameters, rate: float) -> None:
        """One step down the gradients."""
        self.steps += 1
        length = np.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
        shorten = min(1.0, LONGEST_GRADIENT / (length + 1e-8))
        for name, gradient in gradients.items():
            self.mean[name] += 0.1 * (shorten * gradient - self.mean[name])
            self.square[name] += 0.001 * ((shorten * gradient) ** 2 - self.square[name])
            mean = self.mean[name] / (1 - 0.9**self.steps)
            square = self.square[name] / (1 - 0.999**self.steps)
            parameters[name] -= rate * mean / (np.sqrt(square) + 1e-5)


class Player:
    """Steps the lanes, and remembers where they are and how their latest episodes went."""

    def __init__(self, env: VectorEnv, seed: int) -> None:
        self.env = env
        self.pictures = self.prepared(env.reset(seed=seed)[0]["eye.gray"])
        self.ended = np.zeros(env.num_envs, bool)
        self.sums = np.zeros(env.num_envs)
        self.returns: list[float] = []

    @staticmethod
    def prepared(gray: np.ndarray) -> np.ndarray:
        """Bytes as numbers around 0, a row for each lane. The boards are dark, so 0 is where gray is 64."""
        return gray.reshape(len(gray), -1).astype(np.float32) / 64 - 1

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rewards, and which episodes ended by the rules of the game rather than for lack of time."""
        obs, rewards, terminated, truncated, _ = self.env.step({"paddle": MOVES[actions].astype(np.int32)})
        self.pictures, self.ended = self.prepared(obs["eye.gray"]), terminated | truncated
        self.sums += rewards
        self.returns.extend(self.sums[self.ended])
        self.sums[self.ended] = 0.0
        return rewards, terminated


def play(player: Player, p: Parameters, rng: np.random.Generator) -> Batch:
    """Play for ROLLOUT steps, and say of each action how much better than expected it turned out."""
    shape = (ROLLOUT, player.env.num_envs)
    pictures = np.empty((*shape, SIZE * SIZE), np.float32)
    actions, is_played = np.empty(shape, np.int64), np.empty(shape, bool)
    log_probs, values, rewards, goes_on = (np.empty(shape, np.float32) for _ in range(4))
    for t in range(ROLLOUT):
        log_policy, values[t], _, _ = forward(p, player.pictures)
        chance = rng.gumbel(size=log_policy.shape)  # the largest of log-probabilities plus this is a fair draw
        actions[t] = np.argmax(log_policy + chance, axis=1)
        log_probs[t] = np.take_along_axis(log_policy, actions[t][:, None], axis=1)[:, 0]
        pictures[t] = player.pictures
        # After an episode's last picture the next step only begins a new one and ignores the action (NEXT_STEP).
        is_played[t] = ~player.ended
        rewards[t], terminated = player.step(actions[t])
        goes_on[t] = ~terminated

    advantages = np.zeros(shape, np.float32)
    next_value, next_advantage = forward(p, player.pictures)[1], np.zeros(shape[1], np.float32)
    for t in reversed(range(ROLLOUT)):
        surprise = rewards[t] + DISCOUNT * goes_on[t] * next_value - values[t]
        advantages[t] = surprise + DISCOUNT * TRACE * next_advantage
        advantages[t][~is_played[t]] = 0.0  # which also keeps the new episode out of the old one's advantages
        next_value, next_advantage = values[t], advantages[t]
    every = (pictures, actions, log_probs, advantages, advantages + values)
    return Batch(*(one[is_played] for one in every))  # steps that only began an episode are not learnt from


def learn(p: Parameters, adam: Adam, played: Batch, rate: float, rng: np.random.Generator) -> None:
    """Go over what was played a few times, in a new order each time."""
    for _ in range(EPOCHS):
        for rows in np.array_split(rng.permutation(len(played.actions)), MINIBATCHES):
            advantages = played.advantages[rows]
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            batch = Batch(
                played.pictures[rows], played.actions[rows], played.log_probs[rows], advantages, played.returns[rows]
            )
            adam.update(p, loss_and_gradients(p, batch)[1], rate)


def random_return(env: VectorEnv, seed: int, episodes: int = 4000) -> float:
    """The mean return of an agent that acts at random."""
    player, rng = Player(env, seed), np.random.default_rng(seed)
    while len(player.returns) < episodes:
        player.step(rng.integers(len(MOVES), size=env.num_envs))
    return float(np.mean(player.returns))


def train(env: VectorEnv, seed: int, most_steps: int, most_s: float) -> list[tuple[int, float]]:
    """Play and learn until steps or seconds are used up.

    Returns after each update the steps so far and the mean return of the last episodes.
    """
    rng = np.random.default_rng(seed)
    parameters = make_parameters(rng)
    adam, player = Adam(parameters), Player(env, seed)
    curve: list[tuple[int, float]] = []
    start_s, steps = time.perf_counter(), 0
    while steps + ROLLOUT * env.num_envs <= most_steps and time.perf_counter() - start_s < most_s:
        played = play(player, parameters, rng)
        learn(parameters, adam, played, LEARNING_RATE * (1 - steps / most_steps), rng)
        steps += ROLLOUT * env.num_envs
        if not player.returns:
            continue  # no episode has ended yet
        curve.append((steps, float(np.mean(player.returns[-SMOOTH:]))))
        elapsed_s = time.perf_counter() - start_s
        speed = f"{elapsed_s:6.1f} s  {steps:9,} steps  {steps / elapsed_s:7,.0f} a second"
        print(f"{speed}  mean return of the last {SMOOTH} episodes: {curve[-1][1]:5.2f}", flush=True)
    return curve


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
        curve = train(env, args.seed, args.steps, args.seconds)
    if not curve:
        raise SystemExit("no episode ended in that time: expected more --steps or --seconds")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    draw_learning_curve(args.out, curve, random_return=level)
    print(f"mean return {curve[-1][1]:.2f}, random {level:.2f}. Learning curve: {args.out}")


if __name__ == "__main__":
    main()
