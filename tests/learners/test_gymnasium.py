"""Gymnasium's wrappers and checker over VectorEnv and the registered names, with its oldest and its newest version."""

import copy
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers

import worldloom

LANES = 3
STEPS = 25
"""Enough for some episodes of catch, which take 11 steps."""
MODES = ["next_step", "same_step", "disabled"]
FLOATS = "worldloom/Cartpole-v0"
SMALL: dict[str, Any] = {"width": 12, "height": 12, "observations": ["eye.gray"]}
VERSION = tuple(int(part) for part in gymnasium.__version__.split(".")[:2])
Wrap = Callable[[Any], Any]


def make(env_id: str = "worldloom/Catch-v0", autoreset: str = "next_step", **arguments: Any) -> Any:
    return gymnasium.make_vec(env_id, num_envs=LANES, autoreset=autoreset, **{**SMALL, **arguments})


def play(env: Any, steps: int = STEPS, seed: int = 7) -> list[Any]:
    """Step with actions of this seed, and reset what has ended where nothing else does."""
    is_disabled = env.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    env.action_space.seed(seed)
    found: list[Any] = [env.reset(seed=seed)]
    for _ in range(steps):
        found.append(copy.deepcopy(env.step(env.action_space.sample())))  # some wrappers change what they returned
        ended = found[-1][2] | found[-1][3]
        if is_disabled and ended.any():
            found.append(env.reset(options={"reset_mask": ended}))
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", ["worldloom/Catch-v0", FLOATS, "worldloom/Maze-v0"])
def test_make_vec(env_id: str, mode: str) -> None:
    env = make(env_id, mode, settings={"max_steps": 10})
    assert isinstance(env.unwrapped, worldloom.VectorEnv)
    assert env.metadata["autoreset_mode"] is AutoresetMode[mode.upper()] is env.unwrapped.autoreset_mode
    assert env.metadata["render_fps"] > 0
    assert env.single_observation_space.shape == (12, 12, 1)
    results = play(env)
    assert any((one[2] | one[3]).any() for one in results if len(one) == 5)
    for one in results:
        assert one[0].dtype == np.uint8
        assert one[0] in env.observation_space
        if len(one) == 5:
            assert one[1].dtype == np.float64
            assert one[2].dtype == one[3].dtype == bool
    env.close()


def test_the_name_with_its_module() -> None:
    env = gymnasium.make_vec("worldloom:worldloom/Catch-v0", num_envs=2)
    assert env.reset(seed=1)[0].shape == (2, 64, 64, 3)
    env.close()


@pytest.mark.parametrize("env_id", ["worldloom/Catch-v0", FLOATS, "worldloom/Maze-v0", "worldloom/dmc-walker-walk-v0"])
def test_check_env(env_id: str) -> None:
    env = gymnasium.make(env_id, width=16, height=16)
    with warnings.catch_warnings():
        # It recommends that floats are normalised, and looks for render modes of windows.
        warnings.simplefilter("ignore", UserWarning)
        check_env(env.unwrapped, skip_render_check=True)
    env.close()


OBSERVATION_WRAPPERS: dict[str, Wrap] = {
    "TransformObservation": lambda env: wrappers.TransformObservation(env, lambda frames: frames // 2),
    "DtypeObservation": lambda env: wrappers.DtypeObservation(env, np.float32),
    "ReshapeObservation": lambda env: wrappers.ReshapeObservation(env, (144,)),
    "FlattenObservation": wrappers.FlattenObservation,
    "RescaleObservation": lambda env: wrappers.RescaleObservation(
        wrappers.DtypeObservation(env, np.float32), np.float32(0), np.float32(1)
    ),
}
WRAPPERS: dict[str, Wrap] = {
    **OBSERVATION_WRAPPERS,
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "NormalizeReward": wrappers.NormalizeReward,
    "TransformReward": lambda env: wrappers.TransformReward(env, lambda reward: 2 * reward),
    "ClipReward": lambda env: wrappers.ClipReward(env, -0.5, 0.5),
    "DictInfoToList": wrappers.DictInfoToList,
    "ClipAction": wrappers.ClipAction,
    "RescaleAction": lambda env: wrappers.RescaleAction(env, np.full(1, -2, np.float32), np.full(1, 2, np.float32)),
    "TransformAction": lambda env: wrappers.TransformAction(env, lambda actions: -actions),
    "NumpyToTorch": wrappers.NumpyToTorch,
}
if VERSION >= (1, 2):  # before, it had no such dicts
    WRAPPERS["DictInfoToList of statistics"] = lambda env: wrappers.DictInfoToList(
        wrappers.RecordEpisodeStatistics(env)
    )


def refuse_same_step(wrap: Wrap, env: Any) -> None:
    """Gymnasium's wrappers of observations leave the last ones alone, so they do not accept this mode."""
    with pytest.raises((ValueError, AssertionError)):
        wrap(env)
    env.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers(name: str, mode: str) -> None:
    base = make(FLOATS, mode, settings={"max_steps": 10})
    if name in OBSERVATION_WRAPPERS and mode == "same_step":
        refuse_same_step(WRAPPERS[name], base)
        return
    env = WRAPPERS[name](base)
    if name == "NumpyToTorch":
        env.reset(seed=1)
        # Gymnasium's own vector envs fail in this mode, too: it has no tensors for the last observations.
        with pytest.raises((BufferError, TypeError)) if mode == "same_step" else nullcontext():
            for _ in range(STEPS):
                assert env.step(torch.zeros(env.action_space.shape))[0].shape == (LANES, 12, 12, 1)
    else:
        assert len(play(env)) > STEPS
    env.close()


# In Gymnasium 1.1 the wrapper miscounts this mode: it takes a step of each episode for one that begins it.
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "same_step" or VERSION >= (1, 4)])
def test_episode_statistics_are_those_of_the_wrapper(mode: str) -> None:
    ours = make(autoreset=mode, episode_statistics=True)
    theirs = wrappers.RecordEpisodeStatistics(make(autoreset=mode))
    count = 0
    for one, other in zip(play(ours), play(theirs), strict=True):
        assert data_equivalence(one[:-1], other[:-1], exact=True)
        assert ("episode" in one[-1]) == ("episode" in other[-1])
        if "episode" in one[-1]:
            count += 1
            np.testing.assert_array_equal(one[-1]["_episode"], other[-1]["_episode"])
            for key in ("r", "l"):
                np.testing.assert_array_equal(one[-1]["episode"][key], other[-1]["episode"][key])
            assert (one[-1]["episode"]["t"][one[-1]["_episode"]] > 0).all()
    assert count > 1
    ours.close()
    theirs.close()


@pytest.mark.parametrize("mode", MODES)
def test_the_same_as_gymnasiums_sync_vector_env(mode: str) -> None:
    """Gymnasium's own vector env of single envs: the same observations, outcomes and infos for the same seeds."""
    seeds: list[int | None] = [11, 5, 8]
    ours = make(autoreset=mode)
    singles = [lambda: gymnasium.make("worldloom/Catch-v0", **SMALL).unwrapped for _ in range(LANES)]
    theirs = gymnasium.vector.SyncVectorEnv(singles, autoreset_mode=AutoresetMode[mode.upper()])
    for env in (ours, theirs):
        env.action_space.seed(3)
    assert data_equivalence(ours.reset(seed=seeds), theirs.reset(seed=seeds), exact=True)
    ends = 0
    for _ in range(STEPS):
        actions = ours.action_space.sample()
        one, other = ours.step(actions), theirs.step(actions)
        assert data_equivalence(one[:4], other[:4], exact=True)
        assert {key for key in one[4] if "final_" not in key} == {key for key in other[4] if "final_" not in key}
        ended = one[2] | one[3]
        ends += int(ended.sum())
        if mode == "same_step":
            assert ("final_obs" in one[4]) == ended.any() == ("final_obs" in other[4])
        if mode == "same_step" and ended.any():
            np.testing.assert_array_equal(one[4]["_final_obs"], other[4]["_final_obs"])
            np.testing.assert_array_equal(one[4]["_final_info"], other[4]["_final_info"])
            for lane in range(LANES):
                np.testing.assert_array_equal(one[4]["final_obs"][lane], other[4]["final_obs"][lane])
        if mode == "disabled" and ended.any():
            masks = [{"reset_mask": ended.copy()} for _ in range(2)]
            assert data_equivalence(ours.reset(options=masks[0]), theirs.reset(options=masks[1]), exact=True)
    assert ends > LANES
    ours.close()
    theirs.close()


def test_normalised_observations_want_next_step() -> None:
    env = wrappers.NormalizeObservation(wrappers.DtypeObservation(make(), np.float32))
    assert len(play(env)) > STEPS
    env.close()


@pytest.mark.parametrize("mode", MODES)
def test_dict_observations_are_filtered(mode: str) -> None:
    env = make(autoreset=mode, flat=False, observations=["eye.gray", "ball"])
    if mode == "same_step":
        refuse_same_step(lambda env: wrappers.FilterObservation(env, ["ball"]), env)
        return
    filtered = wrappers.FilterObservation(env, ["ball"])
    assert all(list(one[0]) == ["ball"] for one in play(filtered))
    filtered.close()


def test_render_returns_an_image_of_each_lane() -> None:
    env = make(observations=["eye.rgb"], render_mode="rgb_array")
    observations, _ = env.reset(seed=1)
    images = env.render()
    assert isinstance(images, tuple)
    np.testing.assert_array_equal(images, observations)
    env.close()


if hasattr(wrappers, "RecordVideo"):  # since Gymnasium 1.2

    def test_record_video(tmp_path: Path) -> None:
        env = make(observations=["eye.rgb"], width=32, height=32, render_mode="rgb_array")
        recorder = wrappers.RecordVideo(env, str(tmp_path / "videos"), video_length=5)
        play(recorder)
        recorder.close()
        assert list((tmp_path / "videos").glob("*.mp4"))


def test_a_failed_construction_says_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(worldloom.ServerError):
        make(settings={"nonsense": 1})
    assert "Exception ignored" not in capfd.readouterr().err
