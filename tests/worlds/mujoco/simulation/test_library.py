"""Simulations and model variants made with the C library have the results of Python's, and are freed."""

import copy
import gc

import mujoco
import numpy as np
import pytest

from tests.worlds.mujoco.simulation.test_physics import pile
from worldloom.worlds.family import State
from worldloom.worlds.mujoco.simulation import library
from worldloom.worlds.mujoco.simulation.data import FIELDS
from worldloom.worlds.mujoco.simulation.library import STATE, DataLayout, ModelVariant, Simulation, call

SENSORS = (
    '<mujoco><worldbody><body><joint name="hinge" damping="1"/><geom size=".1" pos="1 0 0"/><site name="tip"/></body>'
    '</worldbody><sensor><jointpos joint="hinge"/><accelerometer site="tip"/></sensor></mujoco>'
)


def test_a_simulation_has_the_arrays_of_an_mjdata() -> None:
    model = pile()
    state = State({**STATE, "overrides": ("uint8", (0,))})
    state.resize(2)
    layout = DataLayout(model)
    for lane in range(2):
        simulation = layout.attach(state, lane)
        simulation.qvel[:] = 0.01 * np.arange(model.nv) + lane
        data = mujoco.MjData(model)
        data.qvel[:] = 0.01 * np.arange(model.nv) + lane
        simulation.call("mj_step")
        mujoco.mj_step(model, data)
        for name in FIELDS:
            assert np.array_equal(getattr(simulation, name), getattr(data, name)), name
            assert getattr(simulation, name).shape == getattr(data, name).shape
    with pytest.raises(AttributeError, match="unknown array 'speed': expected one of qpos"):
        _ = simulation.speed


def test_simulations_are_copied_both_ways() -> None:
    model = pile()
    simulation, data = Simulation(DataLayout(model)), mujoco.MjData(model)
    mujoco.mj_step(model, data, 3)
    simulation.copy_from(data._address)
    assert np.array_equal(simulation.qpos, data.qpos)
    other = mujoco.MjData(model)
    simulation.copy_to(other._address)
    assert np.array_equal(other.xpos, data.xpos)


def test_an_error_is_raised_and_the_next_call_works() -> None:
    small = pile("24K")
    simulation = Simulation(DataLayout(small))
    for _ in range(2):
        with pytest.raises(mujoco.FatalError, match="out of memory"):
            simulation.call("mj_forward")
        simulation.call("mj_resetData")
    assert np.isfinite(simulation.qpos).all()


def test_the_clock_stands_still_within_guarded_calls_only() -> None:
    """MuJoCo measures its stages as before where it is called by anybody else, also after an error."""
    model, small = pile(), pile("24K")
    data = mujoco.MjData(model)

    def measured_s() -> float:
        return float(data.timer[mujoco.mjtTimer.mjTIMER_STEP].duration)

    call("mj_step", model._address, data._address)
    assert data.time > 0
    assert measured_s() == 0.0
    mujoco.mj_step(model, data)
    assert measured_s() > 0.0
    before_s = measured_s()
    with pytest.raises(mujoco.FatalError, match="out of memory"):
        Simulation(DataLayout(small)).call("mj_forward")
    assert measured_s() == before_s
    mujoco.mj_step(model, data)
    assert measured_s() > before_s


def test_a_simulation_is_freed_with_its_last_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[int] = []
    monkeypatch.setattr(Simulation.__del__, "__defaults__", (freed.append,))
    simulation = Simulation(DataLayout(pile()))
    address = simulation.address
    gc.disable()
    try:
        del simulation
    finally:
        gc.enable()
    assert freed == [address]
    library._delete(address)


def test_a_variant_steps_as_a_copy_of_the_model_and_leaves_the_model_as_it_is() -> None:
    model = mujoco.MjModel.from_xml_string(SENSORS)
    changed = copy.copy(model)
    changed.dof_damping[:] = 3.0
    own = {"dof_damping": changed.dof_damping.copy()}
    for has_sensors in (True, False):
        changed.opt.disableflags = 0 if has_sensors else int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
        expected, data = mujoco.MjData(changed), mujoco.MjData(model)
        expected.qvel[:] = data.qvel[:] = 1.0
        mujoco.mj_step(changed, expected, 5)
        variant = ModelVariant(model, own, has_sensors)
        for _ in range(5):
            call("mj_step", variant.address, data._address)
        assert np.array_equal(data.qpos, expected.qpos)
        assert np.array_equal(data.sensordata, expected.sensordata)
        assert bool(data.sensordata.any()) == has_sensors
    assert model.dof_damping.tolist() == [1.0]
    assert model.opt.disableflags == 0
