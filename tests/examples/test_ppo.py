"""The parts of the PPO example, each against a slower way to the same numbers."""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

import ppo_catch as ppo
from worldloom.client import VectorEnv

PIXELS = ppo.SIZE**2


def parameters_64(rng: np.random.Generator) -> ppo.Parameters:
    """In double precision, with nothing at 0 or nearly so."""
    return {
        name: value.astype(np.float64) + 0.1 * rng.standard_normal(value.shape)
        for name, value in ppo.make_parameters(rng).items()
    }


def batch_64(rng: np.random.Generator, p: ppo.Parameters, n: int) -> ppo.Batch:
    """Ratios on both sides of the clip, and advantages of both signs."""
    pictures = rng.uniform(-1, 3, (n, PIXELS))
    actions = rng.integers(3, size=n)
    log_probs = ppo.forward(p, pictures)[0][np.arange(n), actions] + rng.uniform(-0.5, 0.5, n)
    return ppo.Batch(pictures, actions, log_probs, rng.standard_normal(n), rng.standard_normal(n))


def plain_loss(p: ppo.Parameters, batch: ppo.Batch) -> float:
    """Case by case, as the paper has it."""
    log_policy, values, _, _ = ppo.forward(p, batch.pictures)
    losses = []
    for i, action in enumerate(batch.actions):
        ratio, advantage = np.exp(log_policy[i, action] - batch.log_probs[i]), batch.advantages[i]
        worth = min(ratio, 1 + ppo.CLIP) if advantage >= 0 else max(ratio, 1 - ppo.CLIP)
        entropy = -sum(np.exp(one) * one for one in log_policy[i])
        error = values[i] - batch.returns[i]
        losses.append(-worth * advantage + ppo.VALUE_WEIGHT / 2 * error**2 - ppo.ENTROPY_WEIGHT * entropy)
    return float(np.mean(losses))


@pytest.mark.parametrize("name", list(ppo.make_parameters(np.random.default_rng(0))))
def test_gradients_are_the_slope_of_the_loss(name: str) -> None:
    rng = np.random.default_rng(5)
    p = parameters_64(rng)
    batch = batch_64(rng, p, 40)
    loss, gradients = ppo.loss_and_gradients(p, batch)
    assert loss == pytest.approx(plain_loss(p, batch), rel=1e-12)
    assert gradients[name].shape == p[name].shape
    flat, step = p[name].reshape(-1), 1e-5
    for i in rng.permutation(flat.size)[:40]:
        middle = flat[i]
        flat[i] = middle + step
        above = plain_loss(p, batch)
        flat[i] = middle - step
        below = plain_loss(p, batch)
        flat[i] = middle
        # The error of a central difference is some step² = 1e-10, that of the subtraction 1e-16 / step = 1e-11.
        assert gradients[name].reshape(-1)[i] == pytest.approx((above - below) / (2 * step), rel=1e-5, abs=1e-8)


def test_a_network_has_a_distribution_for_every_picture() -> None:
    rng = np.random.default_rng(1)
    log_policy, values, _, _ = ppo.forward(parameters_64(rng), rng.uniform(-1, 3, (50, PIXELS)))
    np.testing.assert_allclose(np.exp(log_policy).sum(axis=1), 1.0, rtol=1e-12)
    assert values.shape == (50,)


class ScriptedEnv:
    """Lanes that end by their rules (T) or for lack of time (U) as in a script, and then begin anew (r)."""

    def __init__(self, scripts: list[str], rng: np.random.Generator) -> None:
        self.num_envs = len(scripts)
        self.pictures = rng.integers(0, 256, (len(scripts[0]) + 1, self.num_envs, ppo.SIZE, ppo.SIZE), np.uint8)
        self.rewards = rng.standard_normal((len(scripts[0]), self.num_envs)).astype(np.float32)
        self.outcomes = np.array([list(script) for script in scripts]).T
        self.rewards[self.outcomes == "r"] = 0.0
        self.t = 0

    def reset(self, seed: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return {"eye.gray": self.pictures[0]}, {}

    def step(self, actions: dict[str, np.ndarray]) -> tuple[Any, ...]:
        assert set(actions["paddle"]) <= {-1, 0, 1}
        t, self.t = self.t, self.t + 1
        outcome = self.outcomes[t]
        return {"eye.gray": self.pictures[t + 1]}, self.rewards[t], outcome == "T", outcome == "U", {}


def scripts(rng: np.random.Generator, lanes: int, steps: int) -> list[str]:
    def outcomes() -> Iterator[str]:
        before = "r"
        for _ in range(steps):
            before = "r" if before in "TU" else str(rng.choice(list("mmmTU")))
            yield before

    return ["".join(outcomes()) for _ in range(lanes)]


def test_advantages_are_sums_of_surprises_within_an_episode() -> None:
    rng = np.random.default_rng(3)
    script = scripts(rng, lanes=8, steps=ppo.ROLLOUT)
    env = ScriptedEnv(script, rng)
    player = ppo.Player(cast(VectorEnv, env), seed=0)
    p = ppo.make_parameters(rng)
    p["b_value"] += 0.7  # so that a value where none belongs shows
    batch = ppo.play(player, p, rng)

    values = np.array([ppo.forward(p, ppo.Player.prepared(pictures))[1] for pictures in env.pictures], np.float64)
    expected = []
    for t in range(ppo.ROLLOUT):
        for lane, outcomes in enumerate(script):
            if outcomes[t] == "r":
                continue
            advantage, k = 0.0, t
            while k < ppo.ROLLOUT and outcomes[k] != "r":
                after = 0.0 if outcomes[k] == "T" else values[k + 1, lane]
                surprise = env.rewards[k, lane] + ppo.DISCOUNT * after - values[k, lane]
                advantage += (ppo.DISCOUNT * ppo.TRACE) ** (k - t) * surprise
                k += 1
            expected.append((advantage, advantage + values[t, lane]))
    assert len(expected) < 8 * ppo.ROLLOUT
    # Sums of up to 32 single-precision numbers of about 1.
    np.testing.assert_allclose(np.stack([batch.advantages, batch.returns], axis=1), expected, atol=1e-5)
    assert len(player.returns) == sum(outcomes.count("T") + outcomes.count("U") for outcomes in script)


def test_actions_are_drawn_as_the_policy_has_it() -> None:
    rng = np.random.default_rng(4)
    env = ScriptedEnv(["m" * ppo.ROLLOUT] * 200, rng)
    env.pictures[:] = env.pictures[0, 0]
    p = ppo.make_parameters(rng)
    p["b_policy"] += np.log([0.6, 0.3, 0.1]).astype(np.float32)
    batch = ppo.play(ppo.Player(cast(VectorEnv, env), seed=0), p, rng)
    policy = np.exp(ppo.forward(p, batch.pictures[:1])[0][0])
    counts = np.bincount(batch.actions, minlength=3) / len(batch.actions)
    np.testing.assert_allclose(counts, policy, atol=0.03)  # five times the spread of 6400 draws
    np.testing.assert_allclose(np.exp(batch.log_probs), policy[batch.actions], rtol=1e-4)


def test_adam_finds_the_bottom_of_a_bowl() -> None:
    p = {"x": np.array([3.0, -2.0], np.float32)}
    adam, bottom = ppo.Adam(p), np.array([1.0, 0.5], np.float32)
    for _ in range(2000):
        adam.update(p, {"x": 2 * (p["x"] - bottom)}, rate=0.01)
    np.testing.assert_allclose(p["x"], bottom, atol=1e-3)
