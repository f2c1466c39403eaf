"""Episodes of dm_control tasks begin and end as dm_control's, whatever other lanes are added and freed.

There are no tolerances in this file: everything is compared for equality.
"""

import functools
from typing import Any

import mujoco
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.dm_control_lanes import make_environment, make_pool, random_controls, step_both, without_drawing  # noqa: F401
from worldloom.worlds.episodes import INTERRUPTED, RUNNING, TERMINATED
from worldloom.worlds.mujoco.dm_control.family import Dmc
from worldloom.worlds.mujoco.dm_control.suite import suite
from worldloom.worlds.settings import SettingError

pytestmark = pytest.mark.usefixtures("without_drawing")
pool_of = functools.cache(make_pool)


@pytest.mark.parametrize(
    ("domain", "task", "time_limit"),
    [
        ("cartpole", "swingup", 0.07),
        ("reacher", "hard", 0.1),
        ("finger", "turn_easy", 0.1),
        ("fish", "upright", 0.2),
        ("humanoid", "stand", 0.1),
        ("point_mass", "hard", 0.1),
        ("manipulator", "insert_peg", 0.05),
        ("lqr", "lqr_2_1", 0.15),
        ("dog", "walk", 0.06),
    ],
)
def test_random_numbers_go_on_from_episode_to_episode(domain: str, task: str, time_limit: float) -> None:
    pool = make_pool(domain, task, time_limit=time_limit)
    lanes = pool.add(pool.family.lane_seeds(2**32 - 1, 3))
    environments = [make_environment(domain, task, (2**32 - 1 + k) % 2**32, time_limit=time_limit) for k in range(3)]
    rng = np.random.default_rng(2)
    begun = 0
    while begun < 3:
        step_both(pool, lanes, environments, random_controls(environments[0], rng, 3))
        begun += int(pool.steps[lanes[0]] == 0)
        assert pool.status[lanes[0]] != TERMINATED
    assert pool.episode[lanes].tolist() == [2, 2, 2]


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_lanes_that_are_added_and_freed_do_not_affect_others(data: st.DataObject) -> None:
    """Lanes are added, freed, left out of steps and reseeded in any order, and each runs as its environment does."""
    kind = data.draw(st.sampled_from([("pendulum", "swingup"), ("reacher", "easy"), ("fish", "swim")]))
    limit: dict[str, float] = {"time_limit": 0.1}
    pool = pool_of(*kind, **limit)
    running: dict[int, object] = {}
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    controlled = make_environment(*kind, 0)

    def begin(seed: int) -> object:
        return make_environment(kind[0], kind[1], seed % 2**32, **limit)

    for _ in range(data.draw(st.integers(5, 15))):
        event = data.draw(st.sampled_from(["step", "step", "step", "add", "free", "reseed"]))
        if event == "add" or not running:
            seed = data.draw(st.integers(0, 2**64 - 1))
            for k, lane in enumerate(pool.add(pool.family.lane_seeds(seed, data.draw(st.integers(1, 3))))):
                running[int(lane)] = begin(seed + k)
            continue
        some = np.array(data.draw(st.lists(st.sampled_from(sorted(running)), min_size=1, unique=True)), np.int64)
        if event == "free":
            pool.free(some)
            for lane in some.tolist():
                del running[lane]
        elif event == "reseed":
            pool.reseed(some, pool.family.lane_seeds(5, len(some)))
            running |= {lane: begin(5 + k) for k, lane in enumerate(some.tolist())}
        else:
            controls = random_controls(controlled, rng, len(some))
            step_both(pool, some, [running[lane] for lane in some.tolist()], controls)
    pool.free(np.array(list(running), np.int64))


def test_a_reseeded_lane_starts_over() -> None:
    """Also with the same seed: its random generator starts again."""
    pool = make_pool("walker", "run")
    lanes = pool.add(pool.family.lane_seeds(3, 2))
    for _ in range(2):
        pool.reseed(lanes, pool.family.lane_seeds(3, 2))
        environments = [make_environment("walker", "run", 3 + k) for k in range(2)]
        rng = np.random.default_rng(0)
        for _ in range(10):
            step_both(pool, lanes, environments, random_controls(environments[0], rng, 2))


def test_an_episode_that_the_task_ends_has_discount_0_but_1_at_the_time_limit() -> None:
    for steps_left, discount, status in ((5, 0.0, TERMINATED), (1, 1.0, INTERRUPTED)):
        pool = make_pool("lqr", "lqr_2_1", time_limit=1.0)
        lanes = pool.add(pool.family.lane_seeds(0, 1))
        environment = make_environment("lqr", "lqr_2_1", 0, time_limit=1.0)
        limit = pool.family.max_steps
        for _ in range(1 + limit - steps_left):
            step_both(pool, lanes, [environment], np.zeros((1, 1)))
        simulation, data = pool.state.simulation[lanes[0]], environment.physics.data.ptr
        for one in (simulation, data):
            one.qpos[:] = one.qvel[:] = 1e-9
        simulation.call("mj_forward")
        mujoco.mj_forward(environment.physics.model.ptr, data)
        step_both(pool, lanes, [environment], np.zeros((1, 1)))
        assert pool.discount[lanes[0]] == discount
        assert pool.status[lanes[0]] == status


@given(st.integers(0, 2**64 - 1), st.integers(1, 5))
def test_lanes_have_consecutive_seeds(seed: int, lanes: int) -> None:
    assert Dmc.lane_seeds(seed, lanes).tolist() == [(seed + k) % 2**32 for k in range(lanes)]


def test_an_unstable_lane_ends_its_episode_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """dm_control would raise an error there."""
    pool = make_pool("cheetah", "run")
    lanes = pool.add(pool.family.lane_seeds(0, 3))
    environments = [make_environment("cheetah", "run", k) for k in range(3)]
    rng = np.random.default_rng(0)
    for _ in range(3):
        step_both(pool, lanes, environments, random_controls(environments[0], rng, 3))
    pool.state.simulation[lanes[2]].qvel[:] = np.nan
    with caplog.at_level("WARNING", "worldloom.worlds"):
        step_both(pool, lanes, environments[:2], random_controls(environments[0], rng, 3))
    assert pool.status[lanes].tolist() == [RUNNING, RUNNING, TERMINATED]
    assert pool.reward[lanes[2], 0] == 0
    assert pool.discount[lanes[2]] == 0
    assert caplog.text.count("was aborted") == 1
    assert np.isfinite(pool.observe(lanes, "position")).all()
    step_both(pool, lanes, environments[:2], random_controls(environments[0], rng, 3))
    assert pool.status[lanes].tolist() == [RUNNING, RUNNING, RUNNING]


def test_a_lane_whose_episode_cannot_begin_ends_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make_pool("finger", "spin")
    lanes = pool.add(pool.family.lane_seeds(0, 2))
    environment = make_environment("finger", "spin", 1)
    begin = suite.finger.Spin.initialize_episode

    def fail_sometimes(task: Any, physics: Any) -> None:
        begin(task, physics)
        if task is pool.state.task[lanes[0]]:
            raise RuntimeError("no place was found")

    monkeypatch.setattr(suite.finger.Spin, "initialize_episode", fail_sometimes)
    for turn in range(4):
        step_both(pool, lanes[::-1], [environment], np.zeros((2, 2)))
        assert pool.status[lanes].tolist() == [TERMINATED if turn % 2 else RUNNING, RUNNING]
    assert pool.reward[lanes[0], 0] == 0


@pytest.mark.parametrize("name", ["before_step", "after_step"])
def test_a_task_with_its_own_step_hooks_is_rejected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(make_environment("pendulum", "swingup", 0).task)
    monkeypatch.setattr(kind, name, lambda *_: None, raising=False)
    with pytest.raises(SettingError, match=f"'swingup', which has its own {name}"):
        make_pool("pendulum", "swingup")
