"""Proximal policy optimisation (PPO) in plain NumPy, shared by ppo_catch.py and ppo_dmc.py.

As in https://arxiv.org/abs/1707.06347: collect a rollout, estimate the advantage of each action, update the network in
a few epochs with clipped probability ratios, repeat. `loss_and_gradients` computes the gradients by hand.
"""

import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from worldloom import VectorEnv

GAE_LAMBDA = 0.95  # of generalised advantage estimation
CLIP_RANGE = 0.2  # of the ratio of new to old probability, around 1
VALUE_WEIGHT = 0.5
MAX_GRADIENT_NORM = 0.5

Parameters = dict[str, np.ndarray]


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a task."""

    learning_rate: float  # at the first step; decays linearly to 0 at the last
    rollout: int = 32  # actions of each lane between two updates
    epochs: int = 4
    minibatches: int = 8
    discount: float = 0.99
    entropy_weight: float = 0.01
    reward_scale: float = 1.0  # for training only; reported returns are not scaled
    return_window: int = 200  # episodes in the reported mean return


@dataclass
class Batch:
    """Transitions to train on, one per row."""

    inputs: np.ndarray  # float [n, inputs]
    actions: np.ndarray  # [n] or [n, k], as the policy samples them
    log_probs: np.ndarray  # float [n], of those actions under the policy that sampled them
    advantages: np.ndarray  # float [n]
    returns: np.ndarray  # float [n], targets of the value function

    def rows(self, chosen: np.ndarray) -> "Batch":
        """Return a batch of the chosen rows."""
        return Batch(*(one[chosen] for one in vars(self).values()))


class Policy(Protocol):
    """A distribution of actions, parametrised by the outputs [n, k] of the network's policy head."""

    def sample(self, p: Parameters, outputs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Sample an action for each row."""

    def log_probs(self, p: Parameters, outputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return the log-probability of each row's action: [n]."""

    def entropy(self, p: Parameters, outputs: np.ndarray) -> np.ndarray:
        """Return the entropy of each row's distribution: [n]."""

    def gradients(
        self, p: Parameters, outputs: np.ndarray, actions: np.ndarray, d_log_probs: np.ndarray, d_entropy: float
    ) -> tuple[np.ndarray, Parameters]:
        """Return the derivatives of the loss by the outputs [n, k], and by parameters that only the policy has.

        Given are its derivatives by log-probability [n] and by entropy.
        """


class Player:
    """An env with the state of training: the current inputs of the network, and the returns of finished episodes."""

    repeat = 1
    """Steps for which each action is repeated."""

    def __init__(self, env: VectorEnv, seed: int) -> None:
        self.env = env
        self.steps = 0  # of all lanes together
        self.ended = np.zeros(env.num_envs, bool)
        self.sums = np.zeros(env.num_envs)
        self.returns: list[float] = []
        self.inputs = self.encode(env.reset(seed=seed)[0], np.ones(env.num_envs, bool))

    def encode(self, obs: dict[str, np.ndarray], is_first: np.ndarray) -> np.ndarray:
        """Return inputs of the network, float [lanes, inputs]. `is_first` marks lanes whose episode begins."""
        raise NotImplementedError

    def decode(self, actions: np.ndarray) -> dict[str, np.ndarray]:
        """Decode sampled actions to the actions of the env."""
        raise NotImplementedError

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Apply actions; return the rewards, and which lanes terminated (not truncated).

        An action is not repeated beyond the end of an episode: where one lane's ends or begins, all lanes stop there.
        """
        controls, total, is_first = self.decode(actions), np.zeros(self.env.num_envs), self.ended
        for _ in range(1 if is_first.any() else self.repeat):
            obs, rewards, terminated, truncated, _ = self.env.step(controls)
            self.ended = terminated | truncated
            self.steps += self.env.num_envs
            total += rewards
            if self.ended.any():
                break
        self.inputs = self.encode(obs, is_first)
        self.sums += total
        self.returns.extend(self.sums[self.ended])
        self.sums[self.ended] = 0.0
        return total, terminated


# The network: inputs → two layers of tanh → the policy's outputs, and a value.


def init_parameters(rng: np.random.Generator, inputs: int, hidden: int, outputs: int) -> Parameters:
    """Return orthogonal weights. The policy's head is small, so that the first actions hardly depend on the inputs."""

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


def forward(p: Parameters, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the policy's outputs [n, k], values [n], and the two layers, which the gradients need."""
    h1 = np.tanh(inputs @ p["w1"] + p["b1"])
    h2 = np.tanh(h1 @ p["w2"] + p["b2"])
    return h2 @ p["w_policy"] + p["b_policy"], (h2 @ p["w_value"] + p["b_value"])[:, 0], h1, h2


def loss_and_gradients(p: Parameters, policy: Policy, batch: Batch, entropy_weight: float) -> tuple[float, Parameters]:
    """Return PPO's loss, and its derivative by every parameter."""
    n = len(batch.actions)
    outputs, values, h1, h2 = forward(p, batch.inputs)
    ratio = np.exp(policy.log_probs(p, outputs, batch.actions) - batch.log_probs)
    plain = ratio * batch.advantages
    clipped = np.clip(ratio, 1 - CLIP_RANGE, 1 + CLIP_RANGE) * batch.advantages
    entropy = policy.entropy(p, outputs)
    error = values - batch.returns
    loss = np.mean(-np.minimum(plain, clipped) + VALUE_WEIGHT * 0.5 * error**2 - entropy_weight * entropy)

    # Backpropagation, from the loss to each head. Where the clipped term is the smaller one it is constant.
    d_log_probs = np.where(plain <= clipped, -plain, 0.0) / n
    d_outputs, policy_gradients = policy.gradients(p, outputs, batch.actions, d_log_probs, -entropy_weight / n)
    d_values = (VALUE_WEIGHT * error / n)[:, None]

    # Through the layers; the derivative of tanh is 1 - tanh².
    d2 = (d_outputs @ p["w_policy"].T + d_values @ p["w_value"].T) * (1 - h2**2)
    d1 = (d2 @ p["w2"].T) * (1 - h1**2)
    return float(loss), policy_gradients | {
        "w1": batch.inputs.T @ d1,
        "b1": d1.sum(axis=0),
        "w2": h1.T @ d2,
        "b2": d2.sum(axis=0),
        "w_policy": h2.T @ d_outputs,
        "b_policy": d_outputs.sum(axis=0),
        "w_value": h2.T @ d_values,
        "b_value": d_values.sum(axis=0),
    }


class Adam:
    """The Adam optimiser, with gradients clipped to MAX_GRADIENT_NORM."""

    def __init__(self, parameters: Parameters) -> None:
        self.steps = 0
        self.mean = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.square = {name: np.zeros_like(value) for name, value in parameters.items()}

    def update(self, parameters: Parameters, gradients: Parameters, rate: float) -> None:
        """Update the parameters in place."""
        self.steps += 1
        norm = np.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
        scale = min(1.0, MAX_GRADIENT_NORM / (norm + 1e-8))
        for name, gradient in gradients.items():
            self.mean[name] += 0.1 * (scale * gradient - self.mean[name])
            self.square[name] += 0.001 * ((scale * gradient) ** 2 - self.square[name])
            mean = self.mean[name] / (1 - 0.9**self.steps)
            square = self.square[name] / (1 - 0.999**self.steps)
            parameters[name] -= rate * mean / (np.sqrt(square) + 1e-5)


def collect_rollout(player: Player, policy: Policy, p: Parameters, config: Config, rng: np.random.Generator) -> Batch:
    """Collect a rollout, with the advantage of each action."""
    taken: list[tuple[np.ndarray, ...]] = []
    for _ in range(config.rollout):
        inputs = player.inputs
        outputs, values, _, _ = forward(p, inputs)
        actions = policy.sample(p, outputs, rng)
        # The step after an episode's last one only starts the next episode, and ignores the action (NEXT_STEP).
        is_played = ~player.ended
        rewards, terminated = player.step(actions)
        log_probs = policy.log_probs(p, outputs, actions)
        taken.append((inputs, actions, log_probs, values, rewards, ~terminated, is_played))
    inputs, actions, log_probs, values, rewards, continues, is_played = map(np.stack, zip(*taken, strict=True))
    rewards, continues = (config.reward_scale * rewards).astype(np.float32), continues.astype(np.float32)

    advantages = np.zeros(rewards.shape, np.float32)
    next_value, next_advantage = forward(p, player.inputs)[1], np.zeros(rewards.shape[1], np.float32)
    for t in reversed(range(config.rollout)):
        td_error = rewards[t] + config.discount * continues[t] * next_value - values[t]
        advantages[t] = td_error + config.discount * GAE_LAMBDA * next_advantage
        advantages[t][~is_played[t]] = 0.0  # also separates the advantages of the two episodes
        next_value, next_advantage = values[t], advantages[t]
    played = Batch(inputs, actions, log_probs, advantages, advantages + values)
    return played.rows(is_played)  # without the steps that only started an episode


def update_parameters(
    p: Parameters, adam: Adam, policy: Policy, played: Batch, config: Config, rate: float, rng: np.random.Generator
) -> None:
    """Train on a rollout for some epochs, each in a new random order."""
    for _ in range(config.epochs):
        for rows in np.array_split(rng.permutation(len(played.actions)), config.minibatches):
            batch = played.rows(rows)
            batch.advantages = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8)
            adam.update(p, loss_and_gradients(p, policy, batch, config.entropy_weight)[1], rate)


def train(
    player: Player,
    policy: Policy,
    p: Parameters,
    config: Config,
    rng: np.random.Generator,
    max_steps: int,
    max_s: float,
) -> list[tuple[int, float]]:
    """Train until `max_steps` or `max_s` is reached; updates the parameters in place.

    Returns the learning curve: after each rollout in which episodes ended, the steps so far and the mean return of the
    last episodes.
    """
    adam = Adam(p)
    curve: list[tuple[int, float]] = []
    start_s, known = time.perf_counter(), 0
    rollout_steps = config.rollout * player.repeat * player.env.num_envs
    while player.steps + rollout_steps <= max_steps and time.perf_counter() - start_s < max_s:
        rate = config.learning_rate * (1 - player.steps / max_steps)
        update_parameters(p, adam, policy, collect_rollout(player, policy, p, config, rng), config, rate, rng)
        if len(player.returns) == known:
            continue
        known = len(player.returns)
        curve.append((player.steps, float(np.mean(player.returns[-config.return_window :]))))
        elapsed_s = time.perf_counter() - start_s
        speed = f"{elapsed_s:6.1f} s  {player.steps:9,} steps  {player.steps / elapsed_s:7,.0f} a second"
        print(f"{speed}  mean return of the last {config.return_window} episodes: {curve[-1][1]:5.2f}", flush=True)
    return curve
