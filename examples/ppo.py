"""Proximal policy optimisation in plain NumPy: what the examples that learn have in common.

As in https://arxiv.org/abs/1707.06347: play a while, estimate how much better than expected each action was, make the
good ones likelier in small steps, begin again. The gradients are worked out by hand in `loss_and_gradients`.
"""

import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from worldloom.client import VectorEnv

TRACE = 0.95  # lambda of generalised advantage estimation
CLIP = 0.2  # how far from 1 the ratio of new to old probability is worth moving
VALUE_WEIGHT = 0.5
LONGEST_GRADIENT = 0.5

Parameters = dict[str, np.ndarray]


@dataclass(frozen=True)
class Plan:
    """What is chosen for a task."""

    learning_rate: float  # at first; it falls to 0 with the last step
    rollout: int = 32  # actions of every lane between two updates
    epochs: int = 4
    minibatches: int = 8
    discount: float = 0.99
    entropy_weight: float = 0.01
    reward_scale: float = 1.0  # for what is learnt from; what is shown is as the world gives it
    smooth: int = 200  # episodes in the mean that is shown


@dataclass
class Batch:
    """Transitions to learn from, a row each."""

    pictures: np.ndarray  # float [n, inputs]
    actions: np.ndarray  # [n] or [n, k], as the policy draws them
    log_probs: np.ndarray  # float [n], of those actions when they were taken
    advantages: np.ndarray  # float [n]
    returns: np.ndarray  # float [n], what the value should have been

    def rows(self, chosen: np.ndarray) -> "Batch":
        """Some of them."""
        return Batch(*(one[chosen] for one in vars(self).values()))


class Policy(Protocol):
    """What the outputs [n, k] of the network's head mean: a distribution of actions for each row."""

    def draw(self, p: Parameters, outputs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """An action for each row."""

    def log_probs(self, p: Parameters, outputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Of these actions: [n]."""

    def entropy(self, p: Parameters, outputs: np.ndarray) -> np.ndarray:
        """Of each row's distribution: [n]."""

    def gradients(
        self, p: Parameters, outputs: np.ndarray, actions: np.ndarray, d_log_probs: np.ndarray, d_entropy: float
    ) -> tuple[np.ndarray, Parameters]:
        """From the loss's derivatives by log-probability [n] and by entropy to those by the outputs [n, k], and by
        parameters that only the policy has."""


class Player:
    """Steps the lanes, and remembers where they are and how their latest episodes went."""

    repeat = 1
    """Steps of a lane that an action is for."""

    def __init__(self, env: VectorEnv, seed: int) -> None:
        self.env = env
        self.steps = 0  # of all lanes together
        self.ended = np.zeros(env.num_envs, bool)
        self.sums = np.zeros(env.num_envs)
        self.returns: list[float] = []
        self.pictures = self.seen(env.reset(seed=seed)[0], np.ones(env.num_envs, bool))

    def seen(self, obs: dict[str, np.ndarray], is_first: np.ndarray) -> np.ndarray:
        """An observation as the network takes it: float [lanes, inputs]. Of some lanes it is an episode's first."""
        raise NotImplementedError

    def controls(self, actions: np.ndarray) -> dict[str, np.ndarray]:
        """What the policy drew, as the world takes it."""
        raise NotImplementedError

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rewards, and which episodes ended by the rules of the game rather than for lack of time.

        No action reaches over the end of an episode: it is cut short for all lanes where one ends or begins.
        """
        controls, total, is_first = self.controls(actions), np.zeros(self.env.num_envs), self.ended
        for _ in range(1 if is_first.any() else self.repeat):
            obs, rewards, terminated, truncated, _ = self.env.step(controls)
            self.ended = terminated | truncated
            self.steps += self.env.num_envs
            total += rewards
            if self.ended.any():
                break
        self.pictures = self.seen(obs, is_first)
        self.sums += total
        self.returns.extend(self.sums[self.ended])
        self.sums[self.ended] = 0.0
        return total, terminated


# The network: a picture → two layers of tanh → the policy's outputs, and a value.


def make_parameters(rng: np.random.Generator, inputs: int, hidden: int, outputs: int) -> Parameters:
    """Orthogonal weights; the policy's head begins small, so that the first actions hardly depend on the picture."""

    def orthogonal(rows: int, columns: int, gain: float) -> np.ndarray:
        q, r = np.linalg.qr(rng.standard_normal((rows, columns)))
        return np.asarray(gain * q * np.sign(np.diag(r)), np.float32)

    return {
        "w1": orthogonal(inputs, hidden, 1.4),
        "b1": np.zeros(hidden, np.float32),
        "w2": orthogonal(hidden, hidden, 1.4),
        "b2": np.zeros(hidden, np.float32),
        "w_policy": orthogonal(hidden, outputs, 0.01),
        "b_policy": np.zeros(outputs, np.float32),
        "w_value": orthogonal(hidden, 1, 1.0),
        "b_value": np.zeros(1, np.float32),
    }


def forward(p: Parameters, pictures: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The policy's outputs [n, k] and values [n], and the two layers, which the gradients are made from."""
    h1 = np.tanh(pictures @ p["w1"] + p["b1"])
    h2 = np.tanh(h1 @ p["w2"] + p["b2"])
    return h2 @ p["w_policy"] + p["b_policy"], (h2 @ p["w_value"] + p["b_value"])[:, 0], h1, h2


def loss_and_gradients(p: Parameters, policy: Policy, batch: Batch, entropy_weight: float) -> tuple[float, Parameters]:
    """PPO's loss, and its derivative by every parameter."""
    n = len(batch.actions)
    outputs, values, h1, h2 = forward(p, batch.pictures)
    ratio = np.exp(policy.log_probs(p, outputs, batch.actions) - batch.log_probs)
    plain = ratio * batch.advantages
    clipped = np.clip(ratio, 1 - CLIP, 1 + CLIP) * batch.advantages
    entropy = policy.entropy(p, outputs)
    error = values - batch.returns
    loss = np.mean(-np.minimum(plain, clipped) + VALUE_WEIGHT * 0.5 * error**2 - entropy_weight * entropy)

    # Backwards, from the loss to each head. Where the clipped term is the smaller one it is constant.
    d_log_probs = np.where(plain <= clipped, -plain, 0.0) / n
    d_outputs, own = policy.gradients(p, outputs, batch.actions, d_log_probs, -entropy_weight / n)
    d_values = (VALUE_WEIGHT * error / n)[:, None]

    # And through the layers; the derivative of tanh is 1 - tanh².
    d2 = (d_outputs @ p["w_policy"].T + d_values @ p["w_value"].T) * (1 - h2**2)
    d1 = (d2 @ p["w2"].T) * (1 - h1**2)
    return float(loss), own | {
        "w1": batch.pictures.T @ d1,
        "b1": d1.sum(axis=0),
        "w2": h1.T @ d2,
        "b2": d2.sum(axis=0),
        "w_policy": h2.T @ d_outputs,
        "b_policy": d_outputs.sum(axis=0),
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


def play(player: Player, policy: Policy, p: Parameters, plan: Plan, rng: np.random.Generator) -> Batch:
    """Play for a rollout, and say of each action how much better than expected it turned out."""
    taken: list[tuple[np.ndarray, ...]] = []
    for _ in range(plan.rollout):
        pictures = player.pictures
        outputs, values, _, _ = forward(p, pictures)
        actions = policy.draw(p, outputs, rng)
        # After an episode's last picture the next step only begins a new one and ignores the action (NEXT_STEP).
        is_played = ~player.ended
        rewards, terminated = player.step(actions)
        log_probs = policy.log_probs(p, outputs, actions)
        taken.append((pictures, actions, log_probs, values, rewards, ~terminated, is_played))
    pictures, actions, log_probs, values, rewards, goes_on, is_played = map(np.stack, zip(*taken, strict=True))
    rewards, goes_on = (plan.reward_scale * rewards).astype(np.float32), goes_on.astype(np.float32)

    advantages = np.zeros(rewards.shape, np.float32)
    next_value, next_advantage = forward(p, player.pictures)[1], np.zeros(rewards.shape[1], np.float32)
    for t in reversed(range(plan.rollout)):
        surprise = rewards[t] + plan.discount * goes_on[t] * next_value - values[t]
        advantages[t] = surprise + plan.discount * TRACE * next_advantage
        advantages[t][~is_played[t]] = 0.0  # which also keeps the new episode out of the old one's advantages
        next_value, next_advantage = values[t], advantages[t]
    played = Batch(pictures, actions, log_probs, advantages, advantages + values)
    return played.rows(is_played)  # steps that only began an episode are not learnt from


def learn(
    p: Parameters, adam: Adam, policy: Policy, played: Batch, plan: Plan, rate: float, rng: np.random.Generator
) -> None:
    """Go over what was played a few times, in a new order each time."""
    for _ in range(plan.epochs):
        for rows in np.array_split(rng.permutation(len(played.actions)), plan.minibatches):
            batch = played.rows(rows)
            batch.advantages = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8)
            adam.update(p, loss_and_gradients(p, policy, batch, plan.entropy_weight)[1], rate)


def train(
    player: Player,
    policy: Policy,
    p: Parameters,
    plan: Plan,
    rng: np.random.Generator,
    most_steps: int,
    most_s: float,
) -> list[tuple[int, float]]:
    """Play and learn until steps or seconds are used up; the parameters are changed in place.

    Returns after each update in which episodes ended the steps so far and the mean return of the last episodes.
    """
    adam = Adam(p)
    curve: list[tuple[int, float]] = []
    start_s, known = time.perf_counter(), 0
    most_in_rollout = plan.rollout * player.repeat * player.env.num_envs
    while player.steps + most_in_rollout <= most_steps and time.perf_counter() - start_s < most_s:
        rate = plan.learning_rate * (1 - player.steps / most_steps)
        learn(p, adam, policy, play(player, policy, p, plan, rng), plan, rate, rng)
        if len(player.returns) == known:
            continue
        known = len(player.returns)
        curve.append((player.steps, float(np.mean(player.returns[-plan.smooth :]))))
        elapsed_s = time.perf_counter() - start_s
        speed = f"{elapsed_s:6.1f} s  {player.steps:9,} steps  {player.steps / elapsed_s:7,.0f} a second"
        print(f"{speed}  mean return of the last {plan.smooth} episodes: {curve[-1][1]:5.2f}", flush=True)
    return curve
