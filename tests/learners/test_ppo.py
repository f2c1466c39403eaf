"""The PPO example: its parts against slower ways to the same numbers, and what it learns, films and refuses."""

import csv
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

import ppo
from tests.support.image_files import read_gif
from worldloom import VectorEnv

SIZE = 20  # the smallest frame that two convolutions leave more than a few features of
LANES = 8
TASK = replace(ppo.TASKS["catch"], size=SIZE, frame_stack=2, rollout=24, entropy_weight=0.01)
SMALL = replace(
    ppo.TASKS["catch"], settings={"rows": 5, "columns": 3}, size=SIZE, lanes=64, steps=12_000, random_episodes=4000
)
"""A board that is learnt in seconds; one ball in three is caught by accident."""
SPACES: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "multi-discrete": spaces.MultiDiscrete([3, 2, 5]),
    "continuous": spaces.Box(-1.0, 1.0, (2,), np.float32),
}


class ScriptedEnv(VectorEnv):
    """Lanes that go on (m), terminate (T) or are truncated (U) as in a script; each end begins the next episode."""

    def __init__(self, scripts: list[str], rng: np.random.Generator, space: spaces.Space[Any] | None = None) -> None:
        self.num_envs = len(scripts)
        shape = (SIZE, SIZE, 2)
        self.single_observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.single_action_space = SPACES["discrete"] if space is None else space
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        steps = len(scripts[0])
        self.frames = rng.integers(0, 256, (steps + 1, self.num_envs, *shape), np.uint8)
        self.last_frames = rng.integers(0, 256, (steps, self.num_envs, *shape), np.uint8)
        self.rewards = rng.standard_normal((steps, self.num_envs)).astype(np.float32)
        self.outcomes = np.array([list(script) for script in scripts]).T
        self.actions: list[np.ndarray] = []

    def reset(self, **_: Any) -> Any:
        return self.frames[0], {}

    def step(self, actions: Any, out: Any = None) -> Any:
        assert actions in self.action_space or isinstance(self.action_space, spaces.Box)
        t = len(self.actions)
        self.actions.append(actions)
        terminated, truncated = self.outcomes[t] == "T", self.outcomes[t] == "U"
        ended = terminated | truncated
        info: dict[str, Any] = {}
        if ended.any():
            lanes = np.flatnonzero(ended)
            info = {"_final_lanes": lanes, "_final_stacked": self.last_frames[t, lanes], "_episode": ended}
            info["episode"] = {"r": np.where(ended, 7.0 + t, 0.0)}
        return self.frames[t + 1], self.rewards[t], terminated, truncated, info


def make_network(env: VectorEnv, task: ppo.Task = TASK) -> ppo.Network:
    torch.manual_seed(2)
    network = ppo.Network(env, task, np.full((SIZE, SIZE, 1), 100.0, np.float32), 60.0)
    torch.nn.init.orthogonal_(network.policy_head.weight, 1.0)  # so that actions depend on the frames
    torch.nn.init.constant_(network.value_head.bias, 0.7)  # so that a value where none belongs shows
    return network


def test_advantages_are_sums_of_surprises_within_an_episode() -> None:
    rng = np.random.default_rng(3)
    scripts = ["".join(rng.choice(list("mmmTU"), TASK.rollout)) for _ in range(LANES)]
    env = ScriptedEnv(scripts, rng)
    network = make_network(env)
    task = replace(TASK, reward_scale=0.5)
    player = ppo.Player(env, task, 0, "cpu")
    batch = ppo.collect_rollout(player, network)

    with torch.no_grad():
        values, last_values = (
            np.array([network(torch.from_numpy(one))[1].numpy() for one in frames], np.float64)
            for frames in (env.frames, env.last_frames)
        )
    expected = []
    for t in range(task.rollout):
        for lane, script in enumerate(scripts):
            advantage, k = 0.0, t
            while k < task.rollout:
                after = {"m": values[k + 1, lane], "T": 0.0, "U": last_values[k, lane]}[script[k]]
                surprise = 0.5 * env.rewards[k, lane] + task.discount * after - values[k, lane]
                advantage += (task.discount * ppo.GAE_LAMBDA) ** (k - t) * surprise
                if script[k] != "m":
                    break
                k += 1
            expected.append((advantage, advantage + values[t, lane]))
    # Sums of up to 24 single-precision numbers of about 1.
    np.testing.assert_allclose(torch.stack([batch.advantages, batch.returns], dim=1).numpy(), expected, atol=1e-5)
    np.testing.assert_array_equal(batch.observations.numpy(), env.frames[:-1].reshape(-1, SIZE, SIZE, 2))
    np.testing.assert_array_equal(batch.actions.numpy()[:, 0], np.concatenate(env.actions))
    assert player.returns == [7.0 + t for t in range(task.rollout) for script in scripts if script[t] in "TU"]


def log_prob_and_entropy(network: ppo.Network, outputs: np.ndarray, action: np.ndarray) -> tuple[float, float]:
    """Return log-probability and entropy of one row, by the textbook formulas."""
    if network.is_continuous:
        variance = np.exp(2 * network.log_std.detach().double().numpy())
        density = np.exp(-((action - outputs) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
        return float(np.log(np.prod(density))), float(np.log(2 * np.pi * np.e * variance).sum() / 2)
    log_prob = entropy = 0.0
    for row, is_choice, chosen in zip(outputs.reshape(network.is_choice.shape), network.is_choice, action, strict=True):
        chances = np.exp(row[: int(is_choice.sum())])
        chances /= chances.sum()
        log_prob += float(np.log(chances[int(chosen)]))
        entropy -= float((chances * np.log(chances)).sum())
    return log_prob, entropy


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_the_loss_is_that_of_the_paper(space: spaces.Space[Any]) -> None:
    rng = np.random.default_rng(5)
    env = ScriptedEnv(["m" * TASK.rollout] * LANES, rng, space)
    network = make_network(env)
    if network.is_continuous:
        torch.nn.init.constant_(network.log_std, -0.3)
    batch = ppo.collect_rollout(ppo.Player(env, TASK, 0, "cpu"), network)
    batch.log_probs += torch.from_numpy(rng.uniform(-0.5, 0.5, len(batch.log_probs)).astype(np.float32))
    heads: dict[str, np.ndarray] = {}
    hook = network.policy_head.register_forward_hook(lambda _, __, out: heads.update(outputs=out.detach().numpy()))
    loss = ppo.compute_loss(network, batch, 0.01).item()
    hook.remove()
    with torch.no_grad():
        values = network(batch.observations)[1].numpy()

    advantages = batch.advantages.double().numpy()
    advantages = (advantages - advantages.mean()) / advantages.std(ddof=1)
    losses = []
    for i, action in enumerate(batch.actions.double().numpy()):
        log_prob, entropy = log_prob_and_entropy(network, heads["outputs"][i].astype(np.float64), action)
        ratio, advantage = np.exp(log_prob - float(batch.log_probs[i])), advantages[i]
        worth = min(ratio, 1 + ppo.CLIP_RANGE) if advantage >= 0 else max(ratio, 1 - ppo.CLIP_RANGE)
        error = values[i] - float(batch.returns[i])
        losses.append(-worth * advantage + ppo.VALUE_WEIGHT * error**2 - 0.01 * entropy)
    # Means of some hundred single-precision numbers of about 1.
    assert loss == pytest.approx(np.mean(losses), abs=1e-5)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_every_action_of_the_space_is_sampled_and_no_other(space: spaces.Space[Any]) -> None:
    env = ScriptedEnv(["m"] * LANES, np.random.default_rng(1), space)
    network = make_network(env)
    torch.nn.init.zeros_(network.policy_head.weight)
    with torch.no_grad():
        policy, _ = network(torch.from_numpy(env.frames[0]))
    samples = policy.sample((1000,)).flatten(0, 1).numpy()
    assert (policy.mode.numpy().reshape(env.action_space.shape or ())).shape == env.action_space.shape
    if isinstance(space, spaces.Box):
        # Five times the spread of the mean and of the spread of 8000 samples.
        np.testing.assert_allclose(samples.mean(axis=0), 0.0, atol=5 / 89)
        np.testing.assert_allclose(samples.std(axis=0), 1.0, atol=5 / 126)
        return
    counts = space.nvec if isinstance(space, spaces.MultiDiscrete) else [space.n]  # type: ignore[attr-defined]
    for column, count in zip(samples.T, counts, strict=True):
        shares = np.bincount(column, minlength=count) / len(column)
        np.testing.assert_allclose(shares, np.full(count, 1 / count), atol=5 * 0.5 / 89)  # five times their spread


def test_the_network_sees_differences_of_frames() -> None:
    rng = np.random.default_rng(1)
    task = replace(TASK, frame_stack=3)
    env = ScriptedEnv(["m"], rng)
    env.single_observation_space = spaces.Box(0, 255, (SIZE, SIZE, 6), np.uint8)
    mean_frame = rng.uniform(0, 255, (SIZE, SIZE, 2)).astype(np.float32)
    network = ppo.Network(env, task, mean_frame, 8.0)
    seen = []
    network.layers.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].numpy()))
    oldest, middle, newest = rng.integers(0, 256, (3, 4, SIZE, SIZE, 2)).astype(np.uint8)
    with torch.no_grad():
        network(torch.from_numpy(np.concatenate([oldest, middle, newest], axis=-1)))
    old, mid, new = (one.astype(np.float32) for one in (oldest, middle, newest))
    expected = np.concatenate([new - mean_frame, mid - old, new - mid], axis=-1) / 8
    np.testing.assert_array_equal(seen[0].transpose(0, 2, 3, 1), expected)


def learn(task: ppo.Task, address: str, seed: int) -> tuple[float, list[tuple[int, float]], dict[str, Any]]:
    """Return the random level, the curve without its times, and the network's parameters."""
    torch.manual_seed(seed)
    with ppo.make_env(task, address, task.lanes) as env:
        level, mean_frame, deviation = ppo.measure_random_agent(env, task, seed)
        network = ppo.Network(env, task, mean_frame, deviation)
        curve = ppo.train(ppo.Player(env, task, seed, "cpu"), network, task.steps, 600.0)
    return level, [(steps, value) for steps, _, value in curve], network.state_dict()


@pytest.fixture
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tests share two cores
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("_one_thread")
def test_it_learns_to_catch() -> None:
    level, curve, _ = learn(SMALL, "local", 0)
    assert level == pytest.approx(-1 / 3, abs=0.08)  # 4000 episodes: five times the spread of their mean
    assert curve[-1][1] > 0.8


@pytest.mark.usefixtures("_one_thread")
def test_the_same_seed_learns_the_same_with_a_server_or_without(server_address: str) -> None:
    task = replace(SMALL, steps=2400, random_episodes=64)
    here, there, other = learn(task, "local", 0), learn(task, server_address, 0), learn(task, "local", 1)
    assert here[:2] == there[:2]
    assert here[2].keys() == there[2].keys()
    for name, value in here[2].items():
        assert torch.equal(value, there[2][name]), name
    assert here[1] != other[1]


@pytest.mark.usefixtures("_one_thread")
def test_a_little_learning_of_continuous_actions_moves_every_parameter() -> None:
    task = replace(ppo.find_task("dmc-cartpole-swingup"), lanes=4, rollout=8)
    with ppo.make_env(task, "local", task.lanes) as env:
        network = ppo.Network(env, task, np.full((task.size, task.size, 1), 40.0, np.float32), 16.0)
        before = {name: value.clone() for name, value in network.named_parameters()}
        player = ppo.Player(env, task, 0, "cpu")
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
        ppo.update(network, optimizer, ppo.collect_rollout(player, network), task)
        assert player.steps == 4 * 8 * task.action_repeat
    for name, value in network.named_parameters():
        assert torch.isfinite(value).all()
        assert (value != before[name]).float().mean() > 0.2, name  # weights of what is never seen stay


def test_the_video_shows_what_the_policy_saw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = replace(ppo.find_task("dmc-cartpole-swingup"), observation="eye.gray")
    films: list[tuple[np.ndarray, float]] = []
    monkeypatch.setattr(ppo, "VIDEO_SIZE", task.size)
    monkeypatch.setattr(ppo, "write_gif", lambda path, frames, frame_s: films.append((frames, frame_s)))
    with ppo.make_env(task, "local", ppo.VIDEO_LANES) as env:
        network = ppo.Network(env, task, np.full((task.size, task.size, 1), 40.0, np.float32), 16.0)
        torch.nn.init.orthogonal_(network.policy_head.weight, 10.0)  # so that it moves
        ppo.record_video(tmp_path / "film.gif", task, "local", network, 5, 12, "cpu")
        [(film, frame_s)] = films
        frames, _ = env.reset(seed=5)
        for image in film:
            red, green, blue = np.moveaxis(image.astype(int), 2, 0)
            gray = (77 * red + 150 * green + 29 * blue + 128) >> 8
            tiles = gray.reshape(2, task.size, 2, task.size).swapaxes(1, 2).reshape(4, task.size, task.size)
            np.testing.assert_array_equal(tiles, frames[..., -1])
            with torch.no_grad():
                frames, *_ = env.step(network(torch.from_numpy(frames))[0].mode.numpy())
    assert film.shape == (12, 2 * task.size, 2 * task.size, 3)
    assert (film[0] != film[-1]).any()
    assert frame_s == pytest.approx(0.04)


@pytest.fixture
def flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options of the command line, to add to."""
    given = ["ppo.py"]
    monkeypatch.setattr(sys, "argv", given)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(ppo.TASKS, "catch", replace(SMALL, random_episodes=100))
    return given


@pytest.mark.usefixtures("_one_thread")
def test_it_writes_a_curve_and_a_video(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    flags += ["catch", "--steps", "2400", "--seed", "3", "--video", "new/film.gif", "--frames", "5"]
    ppo.main()
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "video: new/film.gif"
    with Path("out/ppo/catch-3.csv").open() as file:
        rows = list(csv.DictReader(file))
    learnt, level = float(rows[-1]["mean_return"]), float(rows[-1]["random_return"])
    curve = "Learning curve: out/ppo/catch-3.csv, out/ppo/catch-3.png"
    assert printed[-2] == f"mean return {learnt:.2f}, random {level:.2f}. {curve}"
    assert int(rows[-1]["steps"]) >= 2400
    assert Path("out/ppo/catch-3.png").read_bytes().startswith(b"\x89PNG")
    assert read_gif(Path("new/film.gif")).frames.shape == (5, 2 * ppo.VIDEO_SIZE, 2 * ppo.VIDEO_SIZE, 3)


def test_too_little_to_learn_from_is_told(flags: list[str]) -> None:
    flags += ["catch", "--lanes", "2", "--minutes", "0"]
    with pytest.raises(SystemExit, match=r"^no episode ended: expected more --minutes$"):
        ppo.main()
    flags += ["--steps", "7"]  # a ball falls for four steps, in each of two lanes
    with pytest.raises(SystemExit, match=r"^--steps is 7: expected 8 or more, so that episodes end$"):
        ppo.main()
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["catch", "--lanes", "0"], "--lanes is 0: expected an integer from 1"),
        (["catch", "--steps", "-5"], "--steps is -5: expected an integer from 1"),
        (["catch", "--frames", "0"], "--frames is 0: expected an integer from 1"),
        (["catch", "--device", "meta"], "--device is 'meta', which cannot be used: "),
        (["catch", "--device", "tape"], "--device is 'tape', which cannot be used: "),
        (["catch", "--device", "cuda:99"], "--device is 'cuda:99', which cannot be used: "),  # no machine has so many
    ],
)
def test_wrong_options_are_refused(
    flags: list[str], given: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags += given
    with pytest.raises(SystemExit):
        ppo.main()
    assert told in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["dmc-foo-bar"], r"setting 'domain' is 'foo': expected one of acrobot, "),
        (["dmc-cartpole-bar"], r"setting 'task' is 'bar': expected one of balance, "),
        (["catch", "--address", "127.0.0.1:1"], r"no server at 127\.0\.0\.1:1: start one with"),
        (["catch", "--address", "nowhere"], r"'nowhere' is not an address: expected HOST:PORT"),
    ],
)
def test_what_cannot_be_made_is_told_in_a_line(flags: list[str], given: list[str], told: str) -> None:
    flags += given
    with pytest.raises(SystemExit, match=told) as raised:
        ppo.main()
    assert "\n" not in str(raised.value)


def test_a_task_without_an_end_is_refused(flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    flags += ["dmc-lqr-lqr_2_1", "--lanes", "2"]
    monkeypatch.setattr(ppo, "MAX_RANDOM_STEPS", 20)
    with pytest.raises(SystemExit, match=r"no episode ended in 20 actions: expected a task with shorter ones"):
        ppo.main()


@pytest.mark.parametrize("name", ["pong", "dmc", "dmc-walker", "maze-9"])
def test_an_unknown_task_is_refused(flags: list[str], name: str) -> None:
    flags += [name]
    with pytest.raises(SystemExit, match=rf"the task is '{name}': expected catch, maze, or dmc-DOMAIN-TASK"):
        ppo.main()
