"""The parts of the PPO examples, each against a slower way to the same numbers."""

import dataclasses
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

import ppo
from ppo_catch import CONFIG, MOVES, SIZE, CatchPlayer, CategoricalPolicy
from ppo_dmc import GaussianPolicy
from worldloom.client import VectorEnv

INPUTS, HIDDEN, OUTPUTS = 50, 20, 3
POLICIES: dict[str, ppo.Policy] = {"moves": CategoricalPolicy(), "normal": GaussianPolicy()}


def init_parameters(rng: np.random.Generator, inputs: int = INPUTS) -> ppo.Parameters:
    """Those of any network, and those that a policy may have."""
    return ppo.init_parameters(rng, inputs, HIDDEN, OUTPUTS) | {"log_std": np.zeros(OUTPUTS, np.float32)}


def parameters_64(rng: np.random.Generator) -> ppo.Parameters:
    """In double precision, with nothing at 0 or nearly so."""
    return {
        name: value.astype(np.float64) + 0.1 * rng.standard_normal(value.shape)
        for name, value in init_parameters(rng).items()
    }


def batch_64(rng: np.random.Generator, p: ppo.Parameters, policy: ppo.Policy, n: int) -> ppo.Batch:
    """Ratios on both sides of the clip, and advantages of both signs."""
    pictures = rng.uniform(-1, 3, (n, INPUTS))
    outputs = ppo.forward(p, pictures)[0]
    actions = policy.sample(p, outputs, rng)
    log_probs = policy.log_probs(p, outputs, actions) + rng.uniform(-0.5, 0.5, n)
    return ppo.Batch(pictures, actions, log_probs, rng.standard_normal(n), rng.standard_normal(n))


def log_prob_and_entropy(p: ppo.Parameters, outputs: np.ndarray, action: Any) -> tuple[float, float]:
    """Of one row, as textbooks have them: an index is one of some moves, an array has a normal number for each."""
    if np.ndim(action) == 0:
        chances = np.exp(outputs) / np.exp(outputs).sum()
        return float(np.log(chances[action])), -sum(chance * np.log(chance) for chance in chances)
    variance = np.exp(p["log_std"]) ** 2
    density = np.exp(-((action - outputs) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
    return float(np.log(np.prod(density))), float(np.log(2 * np.pi * np.e * variance).sum() / 2)


def plain_loss(p: ppo.Parameters, batch: ppo.Batch) -> float:
    """Case by case, as the paper has it."""
    outputs, values, _, _ = ppo.forward(p, batch.inputs)
    losses = []
    for i, action in enumerate(batch.actions):
        log_prob, entropy = log_prob_and_entropy(p, outputs[i], action)
        ratio, advantage = np.exp(log_prob - batch.log_probs[i]), batch.advantages[i]
        worth = min(ratio, 1 + ppo.CLIP_RANGE) if advantage >= 0 else max(ratio, 1 - ppo.CLIP_RANGE)
        error = values[i] - batch.returns[i]
        losses.append(-worth * advantage + ppo.VALUE_WEIGHT / 2 * error**2 - 0.01 * entropy)
    return float(np.mean(losses))


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_gradients_are_the_slope_of_the_loss(policy: ppo.Policy) -> None:
    rng = np.random.default_rng(5)
    p = parameters_64(rng)
    batch = batch_64(rng, p, policy, 40)
    loss, gradients = ppo.loss_and_gradients(p, policy, batch, entropy_weight=0.01)
    assert loss == pytest.approx(plain_loss(p, batch), rel=1e-12)
    assert {*gradients, "log_std"} == set(p)
    step = 1e-5
    for name, gradient in gradients.items():
        assert gradient.shape == p[name].shape
        flat = p[name].reshape(-1)
        for i in rng.permutation(flat.size)[:40]:
            middle = flat[i]
            flat[i] = middle + step
            above = plain_loss(p, batch)
            flat[i] = middle - step
            below = plain_loss(p, batch)
            flat[i] = middle
            # The error of a central difference is some step² = 1e-10, that of the subtraction 1e-16 / step = 1e-11.
            assert gradient.reshape(-1)[i] == pytest.approx((above - below) / (2 * step), rel=1e-5, abs=1e-8)


class ScriptedEnv:
    """Lanes that end by their rules (T) or for lack of time (U) as in a script, and then begin anew (r)."""

    def __init__(self, scripts: list[str], rng: np.random.Generator) -> None:
        self.num_envs = len(scripts)
        self.pictures = rng.integers(0, 256, (len(scripts[0]) + 1, self.num_envs, SIZE, SIZE), np.uint8)
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
    script = scripts(rng, lanes=8, steps=CONFIG.rollout)
    env = ScriptedEnv(script, rng)
    player = CatchPlayer(cast(VectorEnv, env), seed=0)
    p = init_parameters(rng, SIZE * SIZE)
    p["b_value"] += 0.7  # so that a value where none belongs shows
    batch = ppo.collect_rollout(player, CategoricalPolicy(), p, CONFIG, rng)

    pictures = [player.encode({"eye.gray": gray}, np.zeros(8, bool)) for gray in env.pictures]
    values = np.array([ppo.forward(p, one)[1] for one in pictures], np.float64)
    expected = []
    for t in range(CONFIG.rollout):
        for lane, outcomes in enumerate(script):
            if outcomes[t] == "r":
                continue
            advantage, k = 0.0, t
            while k < CONFIG.rollout and outcomes[k] != "r":
                after = 0.0 if outcomes[k] == "T" else values[k + 1, lane]
                td_error = env.rewards[k, lane] + CONFIG.discount * after - values[k, lane]
                advantage += (CONFIG.discount * ppo.GAE_LAMBDA) ** (k - t) * td_error
                k += 1
            expected.append((advantage, advantage + values[t, lane]))
    assert len(expected) < 8 * CONFIG.rollout
    # Sums of up to 32 single-precision numbers of about 1.
    np.testing.assert_allclose(np.stack([batch.advantages, batch.returns], axis=1), expected, atol=1e-5)
    assert len(player.returns) == sum(outcomes.count("T") + outcomes.count("U") for outcomes in script)


def test_rewards_are_scaled_for_what_is_learnt_from_alone() -> None:
    batches = []
    for scale in (1.0, 0.125):
        rng = np.random.default_rng(3)
        env = ScriptedEnv(["mmTrmUrm" * 4] * 3, rng)
        player = CatchPlayer(cast(VectorEnv, env), seed=0)
        p = init_parameters(rng, SIZE * SIZE)
        p["w_value"][:] = 0.0
        batches.append(
            ppo.collect_rollout(player, CategoricalPolicy(), p, dataclasses.replace(CONFIG, reward_scale=scale), rng)
        )
        # An episode's last step is in its return; sums of a few single-precision numbers.
        np.testing.assert_allclose(player.returns[:3], env.rewards[:3].sum(axis=0), rtol=1e-5)
    np.testing.assert_allclose(batches[1].returns, batches[0].returns / 8, rtol=1e-5)


def test_moves_are_drawn_as_the_policy_has_it() -> None:
    rng = np.random.default_rng(4)
    outputs = np.tile(np.log([0.6, 0.3, 0.1]) + 2.0, (6400, 1))
    moves = CategoricalPolicy().sample({}, outputs, rng)
    counts = np.bincount(moves, minlength=len(MOVES)) / len(moves)
    np.testing.assert_allclose(counts, [0.6, 0.3, 0.1], atol=0.03)  # five times the spread of 6400 draws


def test_normal_numbers_are_drawn_around_the_outputs() -> None:
    rng = np.random.default_rng(4)
    p = {"log_std": np.log([0.5, 2.0])}
    drawn = GaussianPolicy().sample(p, np.tile([3.0, -1.0], (6400, 1)), rng)
    # Five times the spread of 6400 draws' mean, and of their spread.
    np.testing.assert_allclose(drawn.mean(axis=0), [3.0, -1.0], atol=5 * 2.0 / 80)
    np.testing.assert_allclose(drawn.std(axis=0), [0.5, 2.0], rtol=5 / 113)


def test_adam_finds_the_bottom_of_a_bowl() -> None:
    p = {"x": np.array([3.0, -2.0], np.float32)}
    adam, bottom = ppo.Adam(p), np.array([1.0, 0.5], np.float32)
    for _ in range(2000):
        adam.update(p, {"x": 2 * (p["x"] - bottom)}, rate=0.01)
    np.testing.assert_allclose(p["x"], bottom, atol=1e-3)
