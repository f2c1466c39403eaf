"""Flat envs: one observation and all actions as plain arrays; channels of frames; clipped actions."""

import pickle
import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from worldloom.client import BadAction, VectorEnv
from worldloom.client.requests import StepWriter, write_step
from worldloom.client.spaces import FlatActions
from worldloom.client.specs import Spec

LANES = 3


def make(family: str = "catch", num_envs: int = LANES, **given: Any) -> VectorEnv:
    return VectorEnv("local", family, num_envs, **{"width": 12, "height": 8, "renderer": "cpu", "seed": 1, **given})


def integer(uid: int, low: int | None, high: int | None, shape: tuple[int, ...] = (LANES,)) -> Spec:
    low_array, high_array = (None if bound is None else np.array(bound, np.int32) for bound in (low, high))
    return Spec(uid, f"a{uid}", "int32", shape, low_array, high_array)


def decode(specs: dict[str, Spec], actions: dict[str, Any], clip: bool = False) -> dict[str, np.ndarray]:
    """Return the actions as a server would read them."""
    request = rpc.EnvironmentRequest.FromString(write_step(StepWriter(specs, clip).write(actions), b"")).step
    return {name: tensor_utils.unpack_tensor(request.actions[spec.uid]) for name, spec in specs.items()}


@given(st.data(), st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(1, 300)), min_size=1, max_size=3))
def test_integers_are_counted_from_0(data: st.DataObject, ranges: list[tuple[int, int]]) -> None:
    ranges = [(low, min(count, 2**31 - low)) for low, count in ranges]
    specs = {f"a{uid}": integer(uid, low, low + count - 1) for uid, (low, count) in enumerate(ranges)}
    flat = FlatActions(specs, LANES)
    counts = [count for _, count in ranges]
    assert flat.space == (spaces.Discrete(counts[0]) if len(counts) == 1 else spaces.MultiDiscrete(counts))
    dtype = data.draw(st.sampled_from([np.uint16, np.int32, np.int64, np.uint64]))
    columns = np.array([[data.draw(st.integers(0, count - 1)) for count in counts] for _ in range(LANES)], dtype)
    found = decode(specs, flat.unflatten(columns[:, 0] if len(counts) == 1 else columns, LANES))
    for uid, (low, _) in enumerate(ranges):
        assert found[f"a{uid}"].tolist() == [low + int(number) for number in columns[:, uid]]


@given(st.data(), st.lists(hnp.array_shapes(min_dims=0, max_dims=2, max_side=3), min_size=1, max_size=3), st.booleans())
def test_floats_are_joined_and_clipped(data: st.DataObject, shapes: list[tuple[int, ...]], is_double: bool) -> None:
    dtype = "float64" if is_double else "float32"
    low, high = np.array(-1, dtype), np.array(0.5, dtype)
    specs = {f"a{uid}": Spec(uid, f"a{uid}", dtype, (LANES, *shape), low, high) for uid, shape in enumerate(shapes)}
    sizes = [int(np.prod(shape)) for shape in shapes]
    flat = FlatActions(specs, LANES)
    assert flat.space == spaces.Box(-1, 0.5, (sum(sizes),), np.dtype(dtype))
    numbers = data.draw(hnp.arrays(dtype, (LANES, sum(sizes)), elements=st.floats(-2, 2, width=32)))
    numbers[data.draw(st.integers(0, LANES - 1)), 0] = data.draw(st.sampled_from([np.inf, -np.inf, 1.0001, 0]))
    before = numbers.copy()
    found = decode(specs, flat.unflatten(numbers, LANES), clip=True)
    assert np.array_equal(numbers, before)
    expected = np.minimum(np.maximum(numbers, -1), 0.5)
    for uid, shape in enumerate(shapes):
        start = sum(sizes[:uid])
        assert np.array_equal(found[f"a{uid}"], expected[:, start : start + sizes[uid]].reshape(LANES, *shape))


def test_clipping_has_limits_of_each_element_and_leaves_what_has_none() -> None:
    low, high = np.array([[0, 5]] * LANES, np.float32), np.array([[1, 6]] * LANES, np.float32)
    specs = {
        "pull": Spec(0, "pull", "float32", (LANES, 2), low, high),
        "push": Spec(1, "push", "float32", (LANES,), None, np.array(2, np.float32)),
        "free": Spec(2, "free", "float32", (LANES,), None, None),
        "a3": integer(3, -1, 1),
    }
    good: dict[str, Any] = {"pull": np.full((LANES, 2), 3), "push": [-9, 3, 0], "free": [9, 9, 9], "a3": [0, 1, -1]}
    found = decode(specs, good, clip=True)
    assert found["pull"].tolist() == [[1, 5]] * LANES
    assert found["push"].tolist() == [-9, 2, 0]
    assert found["free"].tolist() == [9, 9, 9]
    for name, bad in (("pull", [[np.nan, 5]] * LANES), ("free", [0, np.inf, 0]), ("a3", [0, 2, 0])):
        with pytest.raises(BadAction, match=name):
            decode(specs, {**good, name: bad}, clip=True)


@pytest.mark.parametrize(
    ("specs", "actions", "words"),
    [
        ([integer(0, -1, 1)], [0, 1], "actions have shape [2]: expected integers [3] from 0 to 2, a0"),
        ([integer(0, -1, 1)], [0, 1, 3], "actions are 3 at [2]: expected integers [3] from 0 to 2, a0"),
        ([integer(0, -1, 1)], [0, -1, 0], "actions are -1 at [1]"),
        ([integer(0, -1, 1)], np.array([0, 2**64 - 1, 0], np.uint64), "actions are 18446744073709551615 at [1]"),
        ([integer(0, -1, 1)], [0.0, 0, 0], "actions have dtype float64: expected integers"),
        ([integer(0, -1, 1)], [[0], [0, 1], 0], "actions are not an array"),
        ([integer(0, -1, 1)], {"a0": [0, 0, 0]}, "actions have shape []"),
        (
            [integer(0, 0, 1), integer(1, 5, 9)],
            [[0, 0], [1, 5], [0, 0]],
            "actions are 5 at [1, 1]: expected integers [3,",
        ),
        ([Spec(0, "a0", "float32", (LANES, 2), None, None)], np.zeros((3, 1)), "expected float32 [3, 2], a0"),
        ([Spec(0, "a0", "float32", (LANES, 2), None, None)], np.zeros((3, 2), bool), "actions have dtype bool"),
    ],
)
def test_bad_flat_actions(specs: list[Spec], actions: Any, words: str) -> None:
    with pytest.raises(BadAction, match=re.escape(words)):
        FlatActions({spec.name: spec for spec in specs}, LANES).unflatten(actions, LANES)


@pytest.mark.parametrize(
    "specs",
    [
        [],
        [integer(0, None, None)],
        [integer(0, 0, 1, (LANES, 2))],
        [Spec(0, "a0", "bool", (LANES,), None, None)],
        [integer(0, 0, 1), Spec(1, "a1", "float32", (LANES,), None, None)],
    ],
)
def test_actions_that_are_not_one_array(specs: list[Spec]) -> None:
    with pytest.raises(ValueError, match="use flat=False, which takes a dict of actions"):
        FlatActions({spec.name: spec for spec in specs}, LANES)


@pytest.mark.parametrize(
    ("family", "space"),
    [
        ("catch", spaces.Discrete(3)),
        ("cartpole", spaces.Box(-1, 1, (1,), np.float32)),
        ("maze", spaces.Box(-1, 1, (3,), np.float32)),
    ],
)
def test_flat_envs_equal_others(family: str, space: gymnasium.Space[Any]) -> None:
    with make(family, flat=True) as flat, make(family) as other:
        assert flat.single_action_space == space
        assert flat.single_observation_space == spaces.Box(0, 255, (8, 12, 3), np.uint8)
        flat.action_space.seed(3)
        assert np.array_equal(flat.reset()[0], other.reset()[0]["eye.rgb"])
        for _ in range(15):
            actions = flat.action_space.sample()
            by_name = {
                "catch": lambda given: {"paddle": given - 1},
                "cartpole": lambda given: {"force": given[:, 0]},
                "maze": lambda given: {"move": given[:, :2], "turn": given[:, 2]},
            }[family](actions)
            found, expected = flat.step(actions), other.step(by_name)
            assert found[0] in flat.observation_space
            assert np.array_equal(found[0], expected[0]["eye.rgb"])
            for mine, theirs in zip(found[1:4], expected[1:4], strict=True):
                assert np.array_equal(mine, theirs)


def test_bad_flat_actions_change_nothing() -> None:
    with make("cartpole", flat=True, observations=["pose"]) as env:
        env.reset(seed=1)
        with pytest.raises(BadAction, match=r"'force' is 2\.0 at"):
            env.step(np.full((LANES, 1), 2.0))
        with pytest.raises(BadAction, match=re.escape("actions have shape [3]: expected float32 [3, 1], force")):
            env.step(np.zeros(LANES))
        found = env.step(np.ones((LANES, 1)))[0]
        env.reset(seed=1)
        assert np.array_equal(found, env.step(np.ones((LANES, 1)))[0])
    with make("cartpole", flat=True, observations=["pose"], clip_actions=True) as env:
        env.reset(seed=1)
        assert np.array_equal(found, env.step(np.full((LANES, 1), 1.0001))[0])
        with pytest.raises(BadAction, match="'force' is nan at"):
            env.step(np.full((LANES, 1), np.nan))


@pytest.mark.parametrize("channels", [None, "last", "first"])
def test_channels(channels: Any) -> None:
    names = ["eye.rgb", "eye.gray", "eye.depth", "position"]
    with make("maze", observations=names, channels=channels) as env, make("maze", observations=names) as plain:
        found, raw = env.reset()[0], plain.reset()[0]
        assert found in env.observation_space
        if channels == "last":
            raw = raw | {name: raw[name][..., None] for name in ("eye.gray", "eye.depth")}
        elif channels == "first":
            raw = raw | {name: raw[name][:, None] for name in ("eye.gray", "eye.depth")}
            raw["eye.rgb"] = np.moveaxis(raw["eye.rgb"], -1, 1)
        for name in names:
            assert np.array_equal(found[name], raw[name])
            assert found[name].dtype == raw[name].dtype
        assert env.render().shape == (16, 24, 3)


def test_channels_of_flat_envs() -> None:
    for channels, shape in ((None, (8, 12, 1)), ("last", (8, 12, 1)), ("first", (1, 8, 12))):
        with make(flat=True, observations=["eye.gray"], channels=channels) as env:
            assert env.single_observation_space == spaces.Box(0, 255, shape, np.uint8)
            assert env.reset()[0].shape == (LANES, *shape)
    with make(flat=True, observations=["ball"]) as env:
        assert env.single_observation_space.shape == (2,)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"flat": True, "observations": ["ball", "paddle"]}, "expected exactly one, or flat=False"),
        ({"flat": True, "observations": []}, "expected exactly one, or flat=False"),
        ({"channels": "middle"}, "channels is 'middle': expected 'last', 'first' or None"),
    ],
)
def test_invalid_arguments(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        make(**given)


def test_pickled_envs_are_made_again() -> None:
    with make(flat=True, channels="first", settings={"rows": 4}) as env:
        env.reset()
        env.step(np.zeros(LANES, int))
        with pickle.loads(pickle.dumps(env)) as other:
            assert other.single_observation_space == env.single_observation_space
            assert np.array_equal(other.reset(seed=3)[0], env.reset(seed=3)[0])
            assert np.array_equal(other.step(np.ones(LANES, int))[0], env.step(np.ones(LANES, int))[0])


def test_metadata_is_of_each_env() -> None:
    with make() as env:
        assert env.autoreset_mode is env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        env.metadata["autoreset_mode"] = None
    assert VectorEnv.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


def test_wrappers_for_arrays() -> None:
    with make("cartpole", flat=True, observations=["pose"]) as env:
        wrapped: Any = wrappers.ClipAction(wrappers.RescaleAction(env, np.zeros(1, np.float32), np.ones(1, np.float32)))
        wrapped.reset(seed=1)
        found = wrapped.step(np.full((LANES, 1), 1.5, np.float32))[0]
        env.reset(seed=1)
        assert np.array_equal(found, env.step(np.ones((LANES, 1)))[0])
