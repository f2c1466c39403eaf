"""Rewards and observations from arrays of many lanes have the bits of dm_control's own code, wherever the lanes are."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.support.dm_control_lanes import make_pool, unseen  # noqa: F401
from worldloom.kernels.tables import F64
from worldloom.worlds.mujoco.dm_control import family as dmc
from worldloom.worlds.mujoco.dm_control.rewards.base import Judge, bell, norm
from worldloom.worlds.mujoco.dm_control.suite import TASKS, rewards
from worldloom.worlds.mujoco.simulation.data import Numbers

pytestmark = pytest.mark.usefixtures("unseen")
LANES = 16
JUDGED = (
    *("acrobot", "ball_in_cup", "cartpole", "cheetah", "finger", "hopper"),
    *("humanoid", "pendulum", "point_mass", "reacher", "walker"),
)
numbers = st.floats(-1e6, 1e6) | st.floats(-3, 3)


@pytest.mark.parametrize(("domain", "task"), [(domain, task) for domain in JUDGED for task in TASKS[domain]])
def test_states_from_everywhere_are_judged_the_same(domain: str, task: str) -> None:
    """Velocities, controls and places that no episode leads to in a few steps: sparse rewards are reached, too."""
    pool = make_pool(domain, task)
    family: Any = pool.family
    assert family._judge is not None
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
        seen = Numbers(family._model, pool.state, lanes)
        judge, family._judge = family._judge, None
        pool.state.seen[lanes] = 0
        expected = family._outcome(pool.state, lanes)[0]
        assert np.array_equal(judge.reward(seen), expected)
        for spec in family.observations:
            with np.errstate(invalid="ignore"):
                value = judge.observations[spec.name](seen)
            assert np.array_equal(value, family._observe_each(pool.state, lanes, spec), equal_nan=True), spec.name
        family._judge = judge


@given(arrays(np.float64, 5, elements=numbers), numbers, st.floats(0, 5), st.floats(1e-3, 10))
def test_bell_is_tolerance_of_single_numbers(x: F64, lower: float, width: float, margin: float) -> None:
    for upper in (lower + width, np.inf):
        expected = [rewards.tolerance(one, bounds=(lower, upper), margin=margin) for one in x]
        assert bell(x, lower, upper, margin).tolist() == expected


@settings(max_examples=200)
@given(arrays(np.float64, st.tuples(st.integers(1, 9), st.integers(1, 4)), elements=numbers))
def test_norms_are_those_of_single_vectors(vectors: F64) -> None:
    assert norm(vectors).tolist() == [np.linalg.norm(one) for one in vectors]


class Wrong(Judge):
    def reward(self, lanes: Numbers) -> F64:
        return np.full(len(lanes), 0.25)


def test_a_judge_that_is_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    task = type(make_pool("pendulum", "swingup").family._stage.task)  # type: ignore[attr-defined]
    monkeypatch.setitem(dmc._JUDGES, task, Wrong)
    assert make_pool("pendulum", "swingup").family._judge is None  # type: ignore[attr-defined]


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 9))
def test_numbers_are_those_of_the_lanes(count: int) -> None:
    pool = make_pool("pendulum", "swingup")
    lanes = pool.add(pool.family.lane_seeds(0, count))
    pool.step(lanes, {})
    some = lanes[::-2]
    seen = Numbers(pool.family._model, pool.state, some)  # type: ignore[attr-defined]
    for name in ("qpos", "xmat", "site_xpos"):
        expected = np.stack([getattr(pool.state.simulation[lane], name) for lane in some])
        assert np.array_equal(getattr(seen, name), expected)
    with pytest.raises(AttributeError, match="no numbers 'speed': expected some of qpos"):
        _ = seen.speed
