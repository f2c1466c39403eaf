"""Outputs that are offered by name only: agents that do not name them get what they got without these."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from scripts.support.engine_streams import EngineHarness, refused
from worldloom.client import VectorEnv
from worldloom.kernels.outputs import OUTPUTS

BY_NAME_ONLY = {output.name for output in OUTPUTS if output.by_name_only}
SIZE = {"width": 9, "height": 7}
SAME_STEP = {"size": 5, "max_steps": 3, "lanes": 2, "autoreset": "same_step"}


def output_of(name: str) -> str:
    return name.partition("@")[0].rpartition(".")[2]


@pytest.mark.parametrize("shm", [False, True])
@pytest.mark.parametrize("settings", [{}, {"lanes": 2}, SAME_STEP], ids=["plain", "vector", "same_step"])
def test_who_names_nothing_is_not_offered_them(harness: EngineHarness, settings: Mapping[str, Any], shm: bool) -> None:
    stream = harness.stream()
    specs = stream.join(stream.create("maze", **settings), shm=shm, **SIZE)
    assert not [spec.name for spec in specs.observations.values() if output_of(spec.name) in BY_NAME_ONLY]
    assert list(specs.observations) == list(range(1, len(specs.observations) + 1)), "UIDs as without them"


def test_they_come_after_all_others_in_every_variant(harness: EngineHarness) -> None:
    stream, other = harness.stream(), harness.stream()
    offered = stream.join(stream.create("maze", **SAME_STEP), shm=True, **SIZE).observations
    variants = [f"{camera}.{{}}{variant}" for camera in ("eye", "map") for variant in ("", "@shm", "@final")]
    extra = [variant.format(output) for variant in variants for output in sorted(BY_NAME_ONLY)]
    names = [spec.name for spec in offered.values()] + extra
    specs = other.join(other.create("maze", **SAME_STEP), shm=True, observations=names, **SIZE).observations
    assert {uid: spec for uid, spec in specs.items() if uid <= len(offered)} == dict(offered)
    assert {spec.name for uid, spec in specs.items() if uid > len(offered)} == set(extra)


def test_who_names_them_gets_them_beside_the_others(harness: EngineHarness) -> None:
    stream = harness.stream()
    names = ["eye.normals", "eye.rgb", "map.normals", "eye.normals@final", "final_lanes"]
    specs = stream.join(stream.create("maze", seed=3, **SAME_STEP), observations=names, **SIZE)
    by_name = {spec.name: spec for spec in specs.observations.values()}
    assert set(by_name) == set(names)
    assert list(by_name["eye.normals"].shape) == [2, 7, 9, 3]
    other = harness.stream()
    other.join(other.create("maze", seed=3, **SAME_STEP), **SIZE)
    ended = 0
    for _ in range(5):
        seen, plain = stream.step(*names).observations, other.step("eye.rgb", "eye.depth").observations
        assert np.array_equal(seen["eye.rgb"], plain["eye.rgb"])
        lengths = np.linalg.norm(seen["eye.normals"], axis=-1)
        shows_something = plain["eye.depth"] < plain["eye.depth"].max()
        assert np.abs(lengths[shows_something] - 1).max() < 1e-6
        ended += len(seen["final_lanes"])
        assert seen["eye.normals@final"].shape == (len(seen["final_lanes"]), 7, 9, 3)
        if len(seen["final_lanes"]):
            assert (np.abs(np.linalg.norm(seen["eye.normals@final"], axis=-1) - 1) < 1e-6).any()
    assert ended == 2


def test_a_wrong_name_is_told_of_them(harness: EngineHarness) -> None:
    stream = harness.stream()
    world = stream.create("catch")
    with refused("INVALID_ARGUMENT", "did you mean 'eye.normals'"):
        stream.join(world, observations=["eye.normal"], **SIZE)


def test_an_env_has_their_space() -> None:
    names = ["eye.normals", "eye.gray"]
    with VectorEnv("local", "maze", num_envs=2, renderer="cpu", observations=names, width=9, height=7) as env:
        spaces: Any = env.single_observation_space
        space = spaces["eye.normals"]
        assert (space.shape, space.low.min(), space.high.max()) == ((7, 9, 3), -1.0, 1.0)
        observed, _ = env.reset(seed=4)
        assert env.observation_space.contains(observed)
    with VectorEnv("local", "maze", num_envs=2, renderer="cpu", width=9, height=7) as env:
        spaces = env.single_observation_space
        assert not [name for name in spaces if output_of(name) in BY_NAME_ONLY]


def test_states_that_are_drawn_have_no_flow(harness: EngineHarness) -> None:
    stream = harness.stream()
    world = stream.create("mujoco", model="walker/walk", drive="state")
    with refused("INVALID_ARGUMENT", "it is of a step, and states that are drawn have none before them"):
        stream.join(world, observations=["eye.flow"], **SIZE)
    assert stream.join(world, observations=["eye.normals"], **SIZE).observations
