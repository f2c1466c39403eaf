"""The example that learns a task of dm_control's suite: what it sees, when it acts, what it learns and films."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ppo
import ppo_dmc
from ppo_dmc import SIZE, DmcPlayer, GaussianPolicy
from tests.examples.test_examples import run
from tests.support.image_files import read_gif
from worldloom.client import VectorEnv

TASK = {"domain": "cartpole", "task": "swingup"}
PICTURE = "lookatcart.gray"
NOTHING = np.zeros((SIZE, SIZE), np.float32)


class Recorded(VectorEnv):
    """Remembers what it showed and what it was told."""

    def __init__(self, lanes: int, picture: str, **how: Any) -> None:
        self.shown: list[dict[str, np.ndarray]] = []
        self.told: list[np.ndarray] = []
        super().__init__("local", "dmc", lanes, width=SIZE, height=SIZE, observations=[picture], settings=TASK, **how)

    def __enter__(self) -> "Recorded":
        return self

    def reset(self, **how: Any) -> Any:
        obs, info = super().reset(**how)
        self.shown.append(obs)
        return obs, info

    def step(self, actions: Any) -> Any:
        obs, *rest = super().step(actions)
        self.told.append(np.array(actions["control"]))
        self.shown.append(obs)
        return obs, *rest


class CountingEnv:
    """Lanes whose pictures are the number of their step in an episode, which has as many as it should."""

    def __init__(self, lengths: list[int]) -> None:
        self.num_envs, self.lengths = len(lengths), np.array(lengths)
        self.count = np.zeros(self.num_envs, np.int64)
        self.told: list[tuple[np.ndarray, np.ndarray]] = []

    def observed(self) -> dict[str, np.ndarray]:
        return {PICTURE: np.broadcast_to(self.count[:, None, None], (self.num_envs, SIZE, SIZE)).astype(np.uint8)}

    def reset(self, seed: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        self.count[:] = 0
        return self.observed(), {}

    def step(self, actions: dict[str, np.ndarray]) -> tuple[Any, ...]:
        self.told.append((self.count.copy(), actions["control"][:, 0]))
        ended = self.count == self.lengths
        self.count = np.where(ended, 0, self.count + 1)
        truncated = self.count == self.lengths
        return self.observed(), (~ended).astype(np.float64), np.zeros_like(ended), truncated, {}


@given(st.lists(st.integers(1, 11), min_size=1, max_size=4), st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_no_action_reaches_over_the_end_of_an_episode(lengths: list[int], decisions: int) -> None:
    env = CountingEnv(lengths)
    player = DmcPlayer(cast(VectorEnv, env), 0, NOTHING)
    for k in range(decisions):
        before, was_ended, told = env.count.copy(), player.ended, len(env.told)
        rewards, _ = player.step(np.full((env.num_envs, 1), k / decisions))
        steps = len(env.told) - told
        assert 1 <= steps <= ppo_dmc.REPEAT
        np.testing.assert_array_equal(rewards, np.where(was_ended, 0, steps))
        np.testing.assert_array_equal(env.count, np.where(was_ended, 0, before + steps))
        np.testing.assert_array_equal(player.ended, env.count == lengths)
        # The second picture is what changed since the action before, and nothing where an episode begins.
        now, moved = np.split(32 * player.inputs, 2, axis=1)
        assert (now == env.count[:, None]).all()
        assert (moved == np.where(was_ended, 0, steps)[:, None]).all()
    assert player.steps == env.num_envs * len(env.told)
    assert all(one in lengths for one in player.returns)


def test_controls_are_held_to_their_range() -> None:
    player = DmcPlayer(cast(VectorEnv, CountingEnv([5, 5, 5])), 0, NOTHING)
    controls = player.decode(np.array([[-7.0], [0.25], [1.5]], np.float32))["control"]
    assert controls.dtype == np.float64
    assert controls.tolist() == [[-1.0], [0.25], [1.0]]


@pytest.fixture
def small() -> Iterator[Recorded]:
    with Recorded(3, PICTURE, samples=4) as env:
        yield env


def network(seed: int) -> ppo.Parameters:
    p = ppo.init_parameters(np.random.default_rng(seed), 2 * SIZE * SIZE, ppo_dmc.HIDDEN, 1)
    return p | {"log_std": np.zeros(1, np.float32)}


def test_the_film_shows_what_the_policy_saw_and_did(small: Recorded) -> None:
    p = network(1)
    p["w_policy"] *= 100.0  # so that it moves
    with Recorded(3, "lookatcart.rgb", samples=4) as large:
        frames = ppo_dmc.record(small, large, p, NOTHING + 40.0, seed=5, frames=12)
        assert np.array_equal(large.told, small.told)
    assert frames.shape == (12, 2 * SIZE, 2 * SIZE, 3)
    assert len(small.shown) == 1 + 11 * ppo_dmc.REPEAT
    red, green, blue = np.moveaxis(frames.astype(int), 3, 0)
    gray = (77 * red + 150 * green + 29 * blue + 128) >> 8
    for k, sheet in enumerate(gray):
        seen = small.shown[k * ppo_dmc.REPEAT][PICTURE]
        np.testing.assert_array_equal(sheet[:SIZE, :SIZE], seen[0])
        np.testing.assert_array_equal(sheet[:SIZE, SIZE:], seen[1])
        np.testing.assert_array_equal(sheet[SIZE:, :SIZE], seen[2])
    assert (frames[0] != frames[-1]).any()


def test_a_little_learning_moves_every_parameter(small: Recorded) -> None:
    p, rng = network(2), np.random.default_rng(2)
    before = {name: value.copy() for name, value in p.items()}
    player = DmcPlayer(small, 0, NOTHING + 40.0)
    batch = ppo.collect_rollout(player, GaussianPolicy(), p, ppo_dmc.CONFIG, rng)
    assert batch.inputs.shape == (3 * ppo_dmc.CONFIG.rollout, 2 * SIZE * SIZE)
    ppo.update_parameters(p, ppo.Adam(p), GaussianPolicy(), batch, ppo_dmc.CONFIG, 1e-3, rng)
    for name, value in p.items():
        assert np.isfinite(value).all()
        assert (value != before[name]).mean() > 0.2, name  # weights of pixels in which nothing is ever seen stay


def test_acting_at_random_gives_a_level_and_a_background(small: Recorded) -> None:
    level, background = ppo_dmc.measure_random_agent(small, seed=0)
    assert len(small.told) == 1000
    assert 0 < level < 200
    seen = np.mean([obs[PICTURE] for obs in small.shown[ppo_dmc.REPEAT :: ppo_dmc.REPEAT]], axis=(0, 1))
    np.testing.assert_allclose(background, seen, rtol=1e-4)  # means of some hundred single-precision numbers


def test_it_learns_and_films_as_its_page_says(tmp_path: Path) -> None:
    out, video = tmp_path / "new" / "curve.png", tmp_path / "other" / "film.gif"
    printed = run("ppo_dmc.py", "--lanes", "4", "--steps", "4608", "--frames", "3", "--out", out, "--video", video)
    assert re.search(r"^mean return \d+, random \d+\. Learning curve: .*curve\.png$", printed, re.MULTILINE)
    assert printed.splitlines()[-1] == f"video: {video}"
    assert out.read_bytes().startswith(b"\x89PNG")
    film = read_gif(video)
    assert film.frames.shape == (3, 2 * ppo_dmc.VIDEO_SIZE, 2 * ppo_dmc.VIDEO_SIZE, 3)


@pytest.fixture
def flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of the command line, to add to."""
    given = ["ppo_dmc.py", "--lanes", "2", "--frames", "2"]
    monkeypatch.setattr(sys, "argv", given)
    monkeypatch.chdir(tmp_path)
    return given


def test_nothing_learnt_is_filmed_without_a_curve(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    flags += ["--steps", "0"]
    ppo_dmc.main()
    assert "Learning curve" not in capsys.readouterr().out
    assert [path.name for path in Path("out").iterdir()] == ["ppo-dmc.gif"]


def test_too_little_to_learn_from_is_told(flags: list[str]) -> None:
    flags += ["--steps", "100"]
    with pytest.raises(SystemExit, match=r"no episode ended: expected more --steps or --seconds"):
        ppo_dmc.main()
    assert not Path("out").exists()


def test_a_task_without_an_end_is_refused(flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    flags += ["--domain", "lqr", "--task", "lqr_2_1", "--camera", "eye"]
    monkeypatch.setattr(ppo_dmc, "MAX_EPISODE_STEPS", 20)
    with pytest.raises(SystemExit, match=r"no episode ended in 20 steps: expected a task with shorter ones"):
        ppo_dmc.main()
