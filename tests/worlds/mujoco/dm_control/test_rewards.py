"""Rewards and observations computed from arrays of many lanes have the bits of dm_control's own code."""

from typing import Any

import numpy as np
import pytest
from dm_control.utils import rewards
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.support.dm_control_lanes import make_pool, without_drawing  # noqa: F401
from worldloom.kernels.tables import F64
from worldloom.worlds.mujoco.dm_control.rewards import REWARDS_BY_TASK
from worldloom.worlds.mujoco.dm_control.rewards.base import TaskRewards, gaussian_tolerance, tolerance
from worldloom.worlds.mujoco.dm_control.suite import TASKS
from worldloom.worlds.mujoco.simulation.arithmetic import norm
from worldloom.worlds.mujoco.simulation.data import Columns, LaneArrays

pytestmark = pytest.mark.usefixtures("without_drawing")
LANES = 16
VECTORISED = (
    *("acrobot", "ball_in_cup", "cartpole", "cheetah", "finger", "hopper"),
    *("humanoid", "pendulum", "point_mass", "reacher", "walker"),
)
numbers = st.floats(-1e6, 1e6) | st.floats(-3, 3)


@pytest.mark.parametrize(("domain", "task"), [(domain, task) for domain in VECTORISED for task in TASKS[domain]])
def test_rewards_of_arbitrary_states_are_the_same(domain: str, task: str) -> None:
    """Use states that no episode reaches in a few steps, so that sparse rewards occur, too."""
    pool = make_pool(domain, task)
    family: Any = pool.family
    assert family._rewards is not None
    lanes = pool.add(family.lane_seeds(0, LANES))
    controls = np.random.default_rng(0).uniform(-1, 1, (LANES, 1, *family.actions[0].shape))
    pool.step(lanes, {})
    rng = np.random.default_rng(1)
    for spread in (0.0, 0.03, 1.0):
        for lane in lanes:
            data = pool.state.simulation[lane]
            for field in ("xpos", "xipos", "xmat", "geom_xpos", "site_xpos", "sensordata", "qpos", "qvel"):
                array = getattr(data, field)
                array += spread * rng.standard_normal(array.shape)
            data.sensordata[:] = np.where(rng.random(data.sensordata.shape) < 0.5, abs(data.sensordata) * 20, 0)
            data.ctrl[:] = controls[lane, 0]
        arrays_of_lanes = LaneArrays(family._model, pool.state, lanes)
        task_rewards, family._rewards = family._rewards, None
        pool.state.observed[lanes] = 0
        expected = family._outcome(pool.state, lanes)[0]
        assert np.array_equal(task_rewards.reward(arrays_of_lanes), expected)
        for spec in family.observations:
            with np.errstate(invalid="ignore"):
                value = task_rewards.observations[spec.name](arrays_of_lanes)
            assert np.array_equal(value, family._observe_each(pool.state, lanes, spec), equal_nan=True), spec.name
        family._rewards = task_rewards


@given(arrays(np.float64, 5, elements=numbers), numbers, st.floats(0, 5), st.floats(1e-3, 10))
def test_gaussian_tolerance_has_the_bits_of_single_numbers(x: F64, lower: float, width: float, margin: float) -> None:
    for upper in (lower + width, np.inf):
        expected = [rewards.tolerance(one, bounds=(lower, upper), margin=margin) for one in x]
        assert gaussian_tolerance(x, (lower, upper), margin).tolist() == expected


@settings(max_examples=300)
@given(
    arrays(np.float64, st.tuples(st.integers(1, 9), st.integers(1, 4)), elements=numbers | st.just(np.nan)),
    numbers,
    st.sampled_from([0.0, 0.5, 1e6, np.inf]),
    st.just(0.0) | st.floats(1e-3, 10),
    st.sampled_from(["gaussian", "linear", "quadratic"]),
    st.floats(0.01, 0.99) | st.just(0.0),
)
def test_tolerance_has_the_bits_of_arrays(
    x: F64, lower: float, width: float, margin: float, sigmoid: str, value_at_margin: float
) -> None:
    """Each lane's row of an array [n, k], and the whole array, as dm_control's own function gives them."""
    if sigmoid == "gaussian":
        value_at_margin = max(value_at_margin, 0.01)
    edge: Any = {"margin": margin, "sigmoid": sigmoid, "value_at_margin": value_at_margin}
    bounds = lower, lower + width
    found = tolerance(x, bounds, **edge)
    assert found.tobytes() == rewards.tolerance(x, bounds, **edge).tobytes()
    assert found.tobytes() == np.stack([rewards.tolerance(row, bounds, **edge) for row in x]).tobytes()
    assert tolerance(np.asfortranarray(x), bounds, **edge).tobytes() == found.tobytes()


@settings(max_examples=200)
@given(arrays(np.float64, st.tuples(st.integers(1, 9), st.integers(1, 4)), elements=numbers))
def test_norms_have_the_bits_of_single_vectors(vectors: F64) -> None:
    assert norm(vectors).tolist() == [np.linalg.norm(one) for one in vectors]


class WrongRewards(TaskRewards):
    def reward(self, lanes: LaneArrays) -> F64:
        return np.full(len(lanes), 0.25)


def test_rewards_that_differ_from_dm_control_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    task = type(make_pool("pendulum", "swingup").family._task_environment.task)  # type: ignore[attr-defined]
    monkeypatch.setitem(REWARDS_BY_TASK, task, WrongRewards)
    assert make_pool("pendulum", "swingup").family._rewards is None  # type: ignore[attr-defined]


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 9))
def test_lane_arrays_are_those_of_the_lanes(count: int) -> None:
    pool = make_pool("pendulum", "swingup")
    lanes = pool.add(pool.family.lane_seeds(0, count))
    pool.step(lanes, {})
    some = lanes[::-2]
    seen = LaneArrays(pool.family._model, pool.state, some)  # type: ignore[attr-defined]
    for name in ("qpos", "xmat", "site_xpos"):
        expected = np.stack([getattr(pool.state.simulation[lane], name) for lane in some])
        assert np.array_equal(getattr(seen, name), expected)
    model: Any = pool.family._model  # type: ignore[attr-defined]
    columns = seen.columns(Columns(model, ("xmat", 1, 8), ("qpos", 0), ("geom_xpos", 0, 2)))
    assert np.array_equal(columns, [seen.xmat[:, 1, 8], seen.qpos[:, 0], seen.geom_xpos[:, 0, 2]])
    with pytest.raises(AttributeError, match="unknown array 'speed': expected one of qpos"):
        _ = seen.speed
