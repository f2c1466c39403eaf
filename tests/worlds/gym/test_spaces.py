"""Spaces as specs: any value of a space comes back from its arrays, and bounds are those of the space."""

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from tests.support.odd_environments import Sampling, leaves
from worldloom.client import BadAction, ServerError, VectorEnv
from worldloom.worlds.gym.permissions import allow_gym_ids
from worldloom.worlds.gym.spaces import SpaceArrays
from worldloom.worlds.settings import SettingError

FLOATS = (np.float16, np.float32, np.float64)
INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64)
shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)
arrays: st.SearchStrategy[spaces.Space[Any]] = st.one_of(
    st.builds(lambda shape, dtype: spaces.Box(-3, 3, shape, dtype), shapes, st.sampled_from(FLOATS)),
    st.builds(lambda shape, dtype: spaces.Box(0, 9, shape, dtype), shapes, st.sampled_from(INTEGERS)),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), st.integers(-9, 9)),
    st.builds(lambda counts: spaces.MultiDiscrete(counts), st.lists(st.integers(1, 5), min_size=1, max_size=4)),
    st.builds(spaces.MultiBinary, st.integers(1, 4)),
)
nested = st.recursive(
    arrays,
    lambda member: st.one_of(
        st.dictionaries(st.sampled_from(["a", "B", "c d", "é"]), member, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(member, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=6,
)


@given(space=nested, seed=st.integers(0, 2**31))
def test_values_come_back_from_their_arrays(space: spaces.Space[Any], seed: int) -> None:
    found = SpaceArrays("action", space, "")
    space.seed(seed)
    value = space.sample()
    rows = [np.empty(spec.shape, spec.dtype) for spec in found.specs]
    found.write(value, rows)
    back = found.read(rows)
    assert space.contains(back)
    for one, other, spec in zip(leaves(value), leaves(back), found.specs, strict=True):
        assert np.array_equal(one, other)
        assert one.dtype == other.dtype
        low = -np.inf if spec.minimum is None else spec.minimum
        high = np.inf if spec.maximum is None else spec.maximum
        assert (one.ravel() >= low).all()
        assert (one.ravel() <= high).all()


def test_names_are_the_keys_in_lower_case() -> None:
    space = spaces.Dict({"Camera 1": spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))), "x.y": spaces.Discrete(4)})
    assert [spec.name for spec in SpaceArrays("observation", space, "").specs] == [
        "observation.camera_1.0",
        "observation.camera_1.1",
        "observation.x_y",
    ]


def test_bounds() -> None:
    low, high = np.array([-1, -np.inf], np.float32), np.array([2, np.inf], np.float32)
    (spec,) = SpaceArrays("observation", spaces.Box(low, high), "").specs
    assert (spec.minimum, spec.maximum) == ((-1, -np.inf), (2, np.inf))
    (spec,) = SpaceArrays("observation", spaces.Box(-np.inf, np.inf, (3,)), "").specs
    assert (spec.minimum, spec.maximum) == (None, None)
    (spec,) = SpaceArrays("observation", spaces.Box(0, np.arange(2000.0), dtype=np.float64), "").specs
    assert (spec.minimum, spec.maximum) == (0, 1999)
    (spec,) = SpaceArrays("action", spaces.Discrete(3, start=-1), "").specs
    assert (spec.dtype, spec.minimum, spec.maximum) == ("int64", -1, 1)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Discrete(2), None),
        spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]),
        spaces.Dict({"a": spaces.Text(3)}),
        spaces.Dict({"a": spaces.Discrete(2), "A": spaces.Discrete(2)}),
        spaces.Tuple([spaces.Discrete(2)] * 65),
        spaces.Box(0, 1, (5000, 5000), np.uint8),
    ],
    ids=lambda space: type(space).__name__,
)
def test_other_spaces_are_refused(space: spaces.Space[Any]) -> None:
    with pytest.raises(SettingError, match="of this environment"):
        SpaceArrays("observation", space, "")


@pytest.mark.parametrize("value", [np.zeros(3), np.zeros((2, 1)), "ab", None, {"a": 1}, [1.5, "x"]])
def test_a_value_that_is_not_of_the_space_is_refused(value: Any) -> None:
    found = SpaceArrays("observation", spaces.Box(0, 1, (2,)), "")
    with pytest.raises((ValueError, TypeError)):
        found.write(value, [np.zeros(2, np.float32)])


ODD_SIDES: list[spaces.Space[Any]] = [
    spaces.MultiDiscrete([3, 4]),
    spaces.MultiDiscrete([3, 2], start=[1, -1]),
    spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
    spaces.MultiDiscrete(np.array([3, 200], np.uint8), dtype=np.uint8),
    spaces.Box(np.array([0, 1]), np.array([5, 6]), dtype=np.int64),
    spaces.Box(np.array([[0, -9], [1, 3]]), np.array([[5, 6], [1, 7]]), dtype=np.int32),
    spaces.Box(np.array([0, 1]), np.array([2**16 - 1, 6]), dtype=np.uint16),
    spaces.Box(np.array([0, 2**50]), np.array([2**60, 2**62]), dtype=np.int64),
    spaces.Box(np.array([0, 2**50], np.uint64), np.array([2**60, 2**62], np.uint64), dtype=np.uint64),
    spaces.Dict({"sides": spaces.MultiDiscrete([3, 4]), "two": spaces.Tuple((spaces.MultiDiscrete([5, 2]),))}),
]


def limits_of(space: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    if isinstance(space, spaces.Box):
        return [(space.low, space.high)]
    if isinstance(space, spaces.MultiDiscrete):
        return [(space.start, space.start + (space.nvec - 1))]
    members: Any = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
    return [pair for member in members for pair in limits_of(member)]


@pytest.mark.parametrize("space", ODD_SIDES, ids=str)
def test_integers_whose_ranges_differ_are_observed_and_are_actions(space: spaces.Space[Any]) -> None:
    lanes = 2
    gymnasium.register("odd/Sides-v0", lambda **_: Sampling(copy.deepcopy(space), copy.deepcopy(space)))
    allow_gym_ids(["odd/*"])
    theirs = [copy.deepcopy(space) for _ in range(lanes)]
    arrays = SpaceArrays("observation", space, "")
    names = [spec.name for spec in arrays.specs]
    asked = [*names, "failed"]
    with VectorEnv("local", "gym", lanes, settings={"id": "odd/Sides-v0"}, observations=asked) as env:
        seen, _ = env.reset(seed=3)
        for k, one in enumerate(theirs):
            one.seed(3 + k)
        env.action_space.seed(0)
        for _ in range(5):
            for k, one in enumerate(theirs):
                for name, leaf in zip(names, leaves(one.sample()), strict=True):
                    assert np.array_equal(seen[name][k], leaf)
            assert env.observation_space.contains(seen)
            actions = env.action_space.sample()
            seen, reward, *_ = env.step(actions)
            assert reward.tolist() == [sum(float(one[k].sum()) for one in actions.values()) for k in range(lanes)]
            assert not seen["failed"].any()
        single: Any = env.single_action_space
        for (name, box), (low, high) in zip(single.items(), limits_of(space), strict=True):
            assert np.array_equal(box.low, low)
            assert np.array_equal(box.high, high)
            wrong = {**actions, name: actions[name].copy()}
            wrong[name][1].flat[0] = int(low.flat[0]) - 1 if low.flat[0] else int(high.flat[0]) + 1
            with pytest.raises((BadAction, ServerError), match=rf"{name}'.* expected"):
                env.step(wrong)
        env.step(actions)
