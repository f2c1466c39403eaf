"""Simulations of many lanes: results as of MuJoCo's own calls, and faults that stay in their lane."""

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldloom.worlds.family import State
from worldloom.worlds.mujoco.simulation import physics
from worldloom.worlds.mujoco.simulation.c_calls import libc_address
from worldloom.worlds.mujoco.simulation.data import FIELDS, ModelOverrides, copy_model_arrays, differing_arrays
from worldloom.worlds.mujoco.simulation.kernels import CACHE_LINE_WORDS, MUJOCO_ERROR, wait_until_done
from worldloom.worlds.mujoco.simulation.library import STATE, DataLayout, function_address
from worldloom.worlds.mujoco.simulation.physics import DIVERGED, LaneStepper

BALLS = 12


def pile(memory: str = "1M", integrator: str = "Euler") -> mujoco.MjModel:
    """Build a model of overlapping balls, and one on a spring with a motor and sensors."""
    balls = "".join(f'<body pos="0 0 {k * 0.1}"><freejoint/><geom size=".2"/></body>' for k in range(BALLS))
    return mujoco.MjModel.from_xml_string(
        f'<mujoco><size memory="{memory}"/><option integrator="{integrator}"/><worldbody>{balls}'
        '<body pos="3 0 0"><joint name="slide" type="slide" stiffness="2"/><geom size=".1"/><site name="tip"/></body>'
        '</worldbody><actuator><motor joint="slide"/></actuator><sensor><jointpos joint="slide"/>'
        '<velocimeter site="tip"/><accelerometer site="tip"/></sensor></mujoco>'
    )


def make_state(*models: mujoco.MjModel, override_bytes: int = 0) -> State:
    state = State({**STATE, "overrides": ("uint8", (override_bytes,))})
    state.resize(len(models))
    for lane, model in enumerate(models):
        DataLayout(model).attach(state, lane).call("mj_forward")
    return state


def make_stepper(model: mujoco.MjModel, fatal: int = DIVERGED) -> LaneStepper:
    return LaneStepper(model, ModelOverrides((), model), fatal)


@pytest.mark.parametrize("integrator", ["Euler", "RK4", "implicitfast"])
@settings(max_examples=10)
@given(data=st.data())
def test_lanes_step_as_mujoco_steps_them(integrator: str, data: st.DataObject) -> None:
    """On any number of threads, any of the lanes, any number of steps: the same bits as the same calls one by one."""
    model = pile(integrator=integrator)
    steps = data.draw(st.integers(1, 3))
    stepper = make_stepper(model)
    stepper.sharing.seconds_per_lane = data.draw(st.sampled_from([0.0, 1.0]))  # on this thread alone, or on all
    state = make_state(*[model] * 6)
    expected = [mujoco.MjData(model) for _ in range(6)]
    for one in expected:
        mujoco.mj_forward(model, one)
    for _ in range(3):
        lanes = np.array(data.draw(st.lists(st.integers(0, 5), min_size=1, unique=True)), np.int64)
        controls = np.random.default_rng(len(lanes)).uniform(-1, 1, (len(lanes), 1))
        faults = stepper.run(state, lanes, controls, physics.step_calls(model, steps))
        assert not faults.bits.any()
        for lane, control in zip(lanes.tolist(), controls, strict=True):
            one = expected[lane]
            one.ctrl[:] = control
            if integrator == "RK4":
                mujoco.mj_step(model, one, steps)
            else:
                mujoco.mj_step2(model, one)
                mujoco.mj_step(model, one, steps - 1)
            mujoco.mj_step1(model, one)
    for lane, one in enumerate(expected):
        for name in FIELDS:
            assert np.array_equal(getattr(state.simulation[lane], name), getattr(one, name)), name


def test_a_thread_that_has_not_begun_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other threads are busy all the while, as on a loaded machine; later they find no lane to take."""
    model = pile()
    state, calls = make_state(*[model] * 6), physics.step_calls(model, 2)
    monkeypatch.setattr(physics, "thread_count", lambda: 3)
    stepper, is_over = make_stepper(model), threading.Event()
    stepper.sharing.seconds_per_lane = 1.0
    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(physics, "_thread_pool", lambda process: pool)
        pool.submit(is_over.wait)
        for _ in range(2):
            stepper.run(state, np.arange(6), np.zeros((6, 1)), calls)
        is_over.set()
    expected = mujoco.MjData(model)
    mujoco.mj_forward(model, expected)
    mujoco.mj_step2(model, expected)
    mujoco.mj_step(model, expected, 3)
    mujoco.mj_step1(model, expected)
    for lane in range(6):
        assert np.array_equal(state.simulation[lane].qpos, expected.qpos)


@pytest.mark.parametrize("done", [0, 5, 6])
def test_waiting_ends_when_all_lanes_are_done_or_it_takes_too_long(done: int) -> None:
    progress = np.zeros((3, CACHE_LINE_WORDS), np.int64)
    progress[:, 0] = 4, 4, done
    assert wait_until_done(progress, 6, libc_address("sched_yield"), 3) == (done == 6)
    assert progress[:, 0].tolist() == [4, 4, done]


def test_an_error_inside_mujoco_affects_its_own_lane_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A simulation without enough memory for its contacts: MuJoCo would end the process."""
    monkeypatch.chdir(tmp_path)
    small = pile("24K")
    state = State({**STATE, "overrides": ("uint8", (0,))})
    state.resize(4)
    for lane in range(4):
        DataLayout(small).attach(state, lane)
    stepper = make_stepper(small)
    for seconds in (0.0, 1.0):
        stepper.sharing.seconds_per_lane = seconds
        for lane in (1, 3):  # far from each other they need little
            data = state.simulation[lane]
            data.call("mj_resetData")
            data.qpos[0 : 7 * BALLS : 7] = 10.0 * np.arange(BALLS)
        faults = stepper.run(state, np.arange(4), np.empty((4, 0)), physics.forward_calls())
        assert faults.bits.tolist() == [MUJOCO_ERROR, 0, MUJOCO_ERROR, 0]
        assert "out of memory" in faults.describe(0)
        assert faults.describe(1) == ""
        for lane in (0, 2):
            state.simulation[lane].call("mj_resetData")
    with pytest.raises(mujoco.FatalError, match="out of memory"):  # MuJoCo's own calls are as before
        mujoco.mj_forward(small, mujoco.MjData(small))
    assert os.listdir(tmp_path) == []
    assert capfd.readouterr() == ("", "")


def test_divergence_is_a_fault_and_no_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = pile()
    state, calm = make_state(model, model, model), make_state(model)
    stepper, calls = make_stepper(model), physics.step_calls(model, 2)
    state.simulation[1].qvel[0] = np.nan
    state.simulation[2].qpos[0] = 1e30
    faults = stepper.run(state, np.arange(3), np.zeros((3, 1)), calls)
    stepper.run(calm, np.arange(1), np.zeros((1, 1)), calls)
    assert faults.bits[0] == 0
    assert faults.bits[1] & DIVERGED
    assert faults.bits[2] & DIVERGED
    assert "bad" in faults.describe(1)
    assert np.array_equal(state.simulation[0].qpos, calm.simulation[0].qpos)
    assert os.listdir(tmp_path) == []
    assert capfd.readouterr() == ("", "")


def test_warnings_of_mujoco_itself_go_to_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.getLogger("worldloom"), "propagate", True)
    data = mujoco.MjData(pile())
    data.qpos[0] = np.nan
    with caplog.at_level("WARNING"):
        mujoco.mj_step(pile(), data)
    assert "Nan" in caplog.text
    assert os.listdir(tmp_path) == []


def test_lanes_are_stepped_with_their_own_model_values() -> None:
    """Lanes with different gravity compensation, on all threads, have the results of separate models."""
    model = pile()
    heavy = pile()
    heavy.body_gravcomp[:] = 0.5
    found = differing_arrays(copy_model_arrays(model), copy_model_arrays(heavy))
    overrides = ModelOverrides(found, model)
    assert found == {"body_gravcomp"}
    state = make_state(*[model] * 40, override_bytes=overrides.size_bytes)
    state.overrides[::2] = overrides.read(model)
    state.overrides[1::2] = overrides.read(heavy)
    stepper = LaneStepper(model, overrides, DIVERGED)
    stepper.sharing.seconds_per_lane = 1.0
    controls = np.zeros((40, 1))
    for _ in range(5):
        stepper.run(state, np.arange(40), controls, np.array([(function_address("mj_step"), 0, 0, 0)]))
    for lane, one in ((0, model), (1, heavy), (38, model), (39, heavy)):
        expected = mujoco.MjData(one)
        mujoco.mj_forward(one, expected)
        mujoco.mj_step(one, expected, 5)
        assert np.array_equal(state.simulation[lane].qpos, expected.qpos)
    overrides.write(state.overrides[1], model)
    assert not differing_arrays(copy_model_arrays(model), copy_model_arrays(heavy))
