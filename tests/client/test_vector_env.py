"""VectorEnv follows Gymnasium's conventions. The address is `local`; test_tiers.py compares it with servers."""

import copy
import gc
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils import env_checker
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers

from worldloom.client import BadAction, ClientError, ServerError, VectorEnv

LANES = 3
MAZE_SEES = ["eye.rgb", "eye.depth", "map.segmentation", "position", "goals_left", "reward"]


def make(family: str = "catch", num_envs: int = LANES, **given: Any) -> VectorEnv:
    given = {"address": "local", "width": 12, "height": 8, "renderer": "cpu", **given}
    return VectorEnv(family=family, num_envs=num_envs, **given)


@pytest.fixture
def env() -> Iterator[VectorEnv]:
    with make(seed=1) as made:
        yield made


def idle(env: VectorEnv) -> dict[str, np.ndarray]:
    return {
        name: np.zeros(space.shape, space.dtype)
        for name, space in env.action_space.items()  # type: ignore[attr-defined]
    }


@pytest.mark.parametrize(
    ("family", "sees", "actions"),
    [
        ("catch", ["eye.rgb", "ball", "paddle"], {"paddle": spaces.Discrete(3, start=-1)}),
        ("cartpole", ["eye.gray", "pose", "velocity"], {"force": spaces.Box(-1, 1, (), np.float32)}),
        (
            "maze",
            MAZE_SEES,
            {"move": spaces.Box(-1, 1, (2,), np.float32), "turn": spaces.Box(-1, 1, (), np.float32)},
        ),
    ],
)
def test_spaces_contain_observations_and_actions(family: str, sees: list[str], actions: dict[str, Any]) -> None:
    with make(family, observations=sees, seed=0) as env:
        assert env.single_action_space == spaces.Dict(actions)
        assert env.single_observation_space.keys() == set(sees)  # type: ignore[attr-defined]
        assert env.action_space == gymnasium.vector.utils.batch_space(env.single_action_space, LANES)
        env.action_space.seed(0)
        obs, info = env.reset(seed=5)
        assert info == {}
        for _ in range(25):
            assert obs in env.observation_space
            assert list(obs) == sees
            for name, space in env.observation_space.items():  # type: ignore[attr-defined]
                assert obs[name].dtype == space.dtype
                assert obs[name].flags.writeable
                assert obs[name].flags.aligned
            obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
            for array, dtype in ((reward, np.float64), (terminated, np.bool_), (truncated, np.bool_)):
                assert array.dtype == dtype
                assert array.shape == (LANES,)
            assert info == {}


def test_ranges_of_spaces() -> None:
    with make("maze", observations=MAZE_SEES) as env:
        found = env.single_observation_space
        assert isinstance(found, spaces.Dict)
        assert found["eye.rgb"] == spaces.Box(0, 255, (8, 12, 3), np.uint8)
        assert found["eye.depth"] == spaces.Box(0, np.inf, (8, 12), np.float32)
        assert found["map.segmentation"] == spaces.Box(0, 4, (8, 12), np.uint8)
        assert found["position"] == spaces.Box(0, 9, (2,), np.float32)
        assert found["goals_left"] == spaces.Box(0, 3, (), np.int32)
        assert found["reward"] == spaces.Box(-np.inf, np.inf, (), np.float32)


def test_the_checks_of_gymnasium() -> None:
    with make(num_envs=1, seed=1) as env:
        one: Any = env
        env_checker.check_reset_seed_determinism(one)
        env_checker.check_reset_options(one)
        env_checker.check_reset_return_type(one)
        env_checker.check_reset_return_info_deprecation(one)
        env_checker.check_seed_deprecation(one)
        env_checker.check_returned_data_not_reused(one)
        for space in (env.single_observation_space, env.single_action_space):
            for part in space.values():  # type: ignore[attr-defined]
                env_checker.check_space_limit(part, "any")
    assert isinstance(env, gymnasium.vector.VectorEnv)
    assert VectorEnv.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


def test_the_step_after_the_last_starts_the_next_episode() -> None:
    with make(observations=["ball"], settings={"rows": 4}, seed=1) as env:
        env.reset()
        for _ in range(5):
            for row in range(1, 4):
                obs, reward, terminated, truncated, _ = env.step(idle(env))
                assert (obs["ball"][:, 0] == row).all()
                assert terminated.tolist() == [row == 3] * LANES
                assert not truncated.any()
                assert (reward != 0).tolist() == [row == 3] * LANES
            obs, reward, terminated, truncated, _ = env.step({"paddle": np.ones(LANES, int)})
            assert (obs["ball"][:, 0] == 0).all()
            assert not reward.any()
            assert not terminated.any()


def test_the_time_limit_truncates() -> None:
    with make("cartpole", settings={"max_steps": 3}, observations=[]) as env:
        obs, _ = env.reset()
        assert obs == {}
        ends = [env.step(idle(env))[2:4] for _ in range(8)]
    assert [truncated.tolist() for _, truncated in ends] == [[step in (2, 6)] * LANES for step in range(8)]
    assert not any(terminated.any() for terminated, _ in ends)


def test_wrappers_of_gymnasium() -> None:
    with make(settings={"rows": 4}, seed=1) as env:
        wrapped: Any = wrappers.RecordEpisodeStatistics(env)
        wrapped.reset(seed=2)
        for _ in range(3):
            _, reward, terminated, _, info = wrapped.step(idle(env))
        assert terminated.all()
        assert info["episode"]["l"].tolist() == [3] * LANES
        assert info["episode"]["r"].tolist() == reward.tolist()
        gray: Any = wrappers.TransformObservation(
            wrapped, lambda obs: obs["eye.rgb"].mean(-1), single_observation_space=spaces.Box(0, 255, (8, 12))
        )
        assert gray.reset()[0].shape == (LANES, 8, 12)
        listed: Any = wrappers.DictInfoToList(env)
        assert listed.step(idle(env))[4] == [{}] * LANES


def test_a_seed_restarts_the_random_numbers() -> None:
    def play(env: VectorEnv, seed: int | None) -> list[np.ndarray]:
        seen = [env.reset(seed=seed)[0]["ball"]]
        return [*seen, *(env.step(idle(env))[0]["ball"] for _ in range(12))]

    with make(observations=["ball"], num_envs=16, seed=7) as env, make(observations=["ball"], num_envs=16) as other:
        first = play(env, None)
        assert np.array_equal(first, play(other, 7))
        assert np.array_equal(first, play(env, 7))
        assert np.array_equal(first, play(env, np.int64(7)))  # type: ignore[arg-type]
        second = play(env, None)
        assert not np.array_equal(first, second)
        assert not np.array_equal(first, play(env, 8))
        play(env, 7)
        assert np.array_equal(second, play(env, None))
        play(env, 2**64 - 1)
    with make(observations=["ball"], num_envs=16) as one, make(observations=["ball"], num_envs=16) as two:
        assert not np.array_equal(play(one, None), play(two, None))  # random unless given


@pytest.mark.parametrize("seed", [1.5, "1", True, np.array(2.0)])
def test_seeds_of_wrong_types(env: VectorEnv, seed: Any) -> None:
    with pytest.raises(TypeError, match=r"seed is .*: expected one integer, from which the seeds of the lanes follow"):
        env.reset(seed=seed)
    with pytest.raises(TypeError, match="seed is"):
        make(seed=seed)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_out_of_range(env: VectorEnv, seed: int) -> None:
    with pytest.raises(ValueError, match=f"seed is {seed}: expected an integer from 0"):
        env.reset(seed=seed)


def test_options(env: VectorEnv) -> None:
    env.reset(options={})
    with pytest.raises(ValueError, match=r"options are .*reset_mask.*: expected none"):
        env.reset(options={"reset_mask": np.ones(LANES, bool)})


def test_halves_of_a_step(env: VectorEnv) -> None:
    env.reset(seed=3)
    expected = env.step(idle(env))
    env.reset(seed=3)
    env.send(idle(env))
    with pytest.raises(ClientError, match=re.escape("expected env.recv() first")):
        env.send(idle(env))
    found = env.recv()
    assert np.array_equal(found[0]["eye.rgb"], expected[0]["eye.rgb"])
    with pytest.raises(ClientError, match=re.escape("expected env.send(actions) first")):
        env.recv()
    env.send(idle(env))
    env.reset(seed=3)  # discards the pending step
    assert np.array_equal(env.step(idle(env))[0]["eye.rgb"], expected[0]["eye.rgb"])


def test_bad_actions_change_nothing(env: VectorEnv) -> None:
    env.reset(seed=3)
    expected = env.step(idle(env))
    env.reset(seed=3)
    for bad in ({}, {"paddle": [0, 0]}, {"paddle": [0, 0, 2]}, {"paddle": [0.0, 0, 0]}, {"puddle": [0, 0, 0]}):
        with pytest.raises(BadAction, match="paddle"):
            env.step(bad)
    assert np.array_equal(env.step(idle(env))[0]["eye.rgb"], expected[0]["eye.rgb"])


def test_reset_comes_first(env: VectorEnv) -> None:
    with pytest.raises(gymnasium.error.ResetNeeded, match=re.escape("expected env.reset() first")):
        env.step(idle(env))
    with pytest.raises(gymnasium.error.ResetNeeded, match=re.escape("expected env.reset() first")):
        env.render()


def test_render_tiles_all_lanes(env: VectorEnv) -> None:
    obs, _ = env.reset()
    obs, *_ = env.step(idle(env))
    image = env.render()
    assert image.shape == (2 * 8, 2 * 12, 3)
    assert image.dtype == np.uint8
    assert np.array_equal(image[:8, :12], obs["eye.rgb"][0])
    assert np.array_equal(image[:8, 12:], obs["eye.rgb"][1])
    assert np.array_equal(image[8:, :12], obs["eye.rgb"][2])
    assert not image[8:, 12:].any()
    assert env.render_mode == "rgb_array"


def test_render_mode_draws_frames_that_are_not_observed() -> None:
    with make(observations=["ball"], render_mode="rgb_array", seed=1) as env, make(seed=1) as other:
        obs, _ = env.reset()
        assert list(obs) == ["ball"]
        other.reset()
        images = env.render()
        assert isinstance(images, tuple)
        assert len(images) == LANES
        assert np.array_equal(images[1], other.render()[:8, 12:])
    with make(observations=["ball"]) as env:
        env.reset()
        assert env.render_mode is None
        with pytest.raises(ClientError, match=r"expected an \.rgb name in `observations`, or render_mode='rgb_array'"):
            env.render()
    with pytest.raises(ValueError, match="render_mode is 'human': expected 'rgb_array' or None"):
        make(render_mode="human")


def test_closing(env: VectorEnv) -> None:
    env.reset()
    env.close()
    env.close()
    assert env.closed
    for call in (env.reset, lambda: env.step(idle(env)), env.recv):
        with pytest.raises(ClientError, match="this env was closed"):
            call()
    env.reconnect()
    env.reset()


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"num_envs": 0}, ValueError, "num_envs is 0: expected an integer from 1"),
        ({"num_envs": 1.5}, TypeError, "num_envs is 1.5: expected one integer"),
        ({"observations": "eye.rgb"}, TypeError, "expected a list of names, such as ['eye.rgb']"),
        ({"family": "cath"}, ServerError, "did you mean 'catch'?"),
        ({"observations": ["eye.rbg"]}, ServerError, "did you mean 'eye.rgb'?"),
        ({"settings": {"rws": 3}}, ServerError, "did you mean 'rows'?"),
        ({"settings": {"seed": 3}}, ValueError, "settings has 'seed': expected the argument seed"),
        ({"settings": {"lanes": 3}}, ValueError, "settings has 'lanes': expected the argument num_envs"),
        ({"samples": 3}, ServerError, "setting 'samples' is 3: expected 1 or 4"),
        ({"width": 0}, ServerError, "'width'"),
        ({"renderer": "vulkan"}, ValueError, "unknown renderer 'vulkan'"),
        ({"transport": "shm"}, ValueError, "transport is 'shm' for 'local'"),
        ({"transport": "tcp"}, ValueError, "transport is 'tcp': expected one of auto, grpc, shm"),
        ({"token": "x"}, ValueError, "a token or certificates for 'local'"),
        ({"timeout_s": 0}, ValueError, "timeout_s is 0: expected seconds"),
        ({"timeout_s": "60"}, TypeError, "timeout_s is '60': expected seconds, a number"),
        (
            {"address": None},
            TypeError,
            "address is None: expected HOST:PORT or unix:PATH of a server, a list of them, or 'local'",
        ),
        ({"address": 9000}, TypeError, "address is 9000: expected HOST:PORT or unix:PATH"),
    ],
)
def test_invalid_arguments(given: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        make(**given)


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_an_unknown_observation_lists_those_to_choose_from(autoreset: Any) -> None:
    """Not the variants that envs ask for by themselves."""
    with pytest.raises(ServerError) as caught:
        make(observations=["eyes"], autoreset=autoreset)
    listed = caught.value.text.partition("expected some of ")[2].split(", ")
    assert {"ball", "eye.rgb"} <= set(listed)
    assert not [name for name in listed if "@" in name or name == "final_lanes"]


def test_interrupted_in_the_middle_of_a_step(env: VectorEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    env.reset(seed=3)
    expected = env.step(idle(env))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("worldloom.server.engine.prepared.write_outcomes", interrupt)
        with pytest.raises(KeyboardInterrupt):
            env.step(idle(env))
    with pytest.raises(ClientError, match="interrupted in the middle of a step"):
        env.reset()
    env.reconnect()
    env.reset(seed=3)
    assert np.array_equal(env.step(idle(env))[0]["eye.rgb"], expected[0]["eye.rgb"])


def test_repr_and_copies_of_errors(env: VectorEnv) -> None:
    assert repr(env) == "VectorEnv('local', 'catch', num_envs=3, transport='local')"
    error = copy.copy(ServerError(3, "text"))
    assert (error.code, error.text, str(error)) == (3, "text", "INVALID_ARGUMENT: text")


class ClosingEnv(VectorEnv):
    """An env that closes itself when it is freed, as in Gymnasium 1.1 to 1.2.2."""

    def __del__(self) -> None:
        if not self.closed:
            self.close()


@pytest.mark.parametrize(
    "given",
    [{"num_envs": 0}, {"render_mode": "ansi"}, {"family": "cath"}, {"observations": ["eye.rbg"]}, {"token": "x"}],
)
def test_an_env_that_cannot_be_made_is_freed_without_an_error(given: dict[str, Any]) -> None:
    errors: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda caught: errors.append(repr(caught.exc_value)))
        with suppress(ValueError, ServerError):
            ClosingEnv(**{"address": "local", "family": "catch", "num_envs": 2, "renderer": "cpu", **given})
        gc.collect()
    assert errors == []
