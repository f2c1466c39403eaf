"""Worlds of `mujoco` whose states are their actions: poses are MuJoCo's own, and nothing of a lane reaches another."""

from collections.abc import Iterator

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.test_state_renderer import MOCAP, random_states
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.family import ActionError
from worldloom.worlds.mujoco.family import Mujoco
from worldloom.worlds.mujoco.models import files
from worldloom.worlds.mujoco.states import StateDrivenMujoco
from worldloom.worlds.pool import Pool
from worldloom.worlds.settings import SettingError

MODEL = mujoco.MjModel.from_xml_string(MOCAP)


@pytest.fixture(scope="module")
def family() -> Iterator[StateDrivenMujoco]:
    name = files.offer_model(MODEL)
    made = Mujoco({"model": name, "drive": "state"}, AssetLibrary())
    assert isinstance(made, StateDrivenMujoco)
    yield made
    files.withdraw_model(name)


def pose_by_hand(positions: dict[str, np.ndarray]) -> mujoco.MjData:
    """Pose a state as a program would with MuJoCo alone."""
    data = mujoco.MjData(MODEL)
    for name, value in positions.items():
        getattr(data, name)[...] = value
    mujoco.mj_forward(MODEL, data)
    return data


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(0, 1000), st.sampled_from([0.0, 1.0]))
def test_poses_are_those_of_mj_forward(
    family: StateDrivenMujoco, count: int, seed: int, seconds_per_lane: float
) -> None:
    """The same bits: both call mj_kinematics, and poses are rounded to float32 once."""
    scene = Scene(family.assets)
    pool = Pool(family, scene)
    lanes = pool.add(np.zeros(count, np.uint64))
    states = random_states(MODEL, count, seed)
    family._poser._sharing.seconds_per_lane = seconds_per_lane  # on this thread alone, or on all
    actions = {name: array[:, None] for name, array in states.items()}
    actions["act"] = np.zeros((count, 1, MODEL.na))
    pool.step(lanes, actions)
    pool.step(lanes, actions)
    chase = pool.views(lanes, "chase").camera
    rows = scene.rows(pool.scene_lane[lanes])
    labels = list(family.labels)
    ball, goal = (labels.index(f"geom.{name}") for name in ("ball", "goal"))
    for k in range(count):
        data = pose_by_hand({name: array[k] for name, array in states.items()})
        for label, name in ((ball, "ball"), (goal, "goal")):
            (row,) = rows[k][scene.instances.label[rows[k]] == label]
            expected = data.geom(name).xpos.astype(np.float32)
            np.testing.assert_array_equal(scene.instances.pose[row, :, 3], expected)
        np.testing.assert_array_equal(chase[k, :, 3], data.cam("chase").xpos.astype(np.float32))
        np.testing.assert_array_equal(chase[k, :, :3], data.cam("chase").xmat.reshape(3, 3).astype(np.float32))
    pool.free(lanes)


def test_actions_that_are_not_sent_have_the_models_values(family: StateDrivenMujoco) -> None:
    idle = {spec.name: spec.idle for spec in family.actions}
    data = mujoco.MjData(MODEL)
    assert idle["qpos"] == tuple(MODEL.qpos0.tolist())
    assert idle["mocap_pos"] == tuple(data.mocap_pos.ravel().tolist())
    assert idle["mocap_quat"] == tuple(data.mocap_quat.ravel().tolist())


@given(st.integers(0, 6), st.integers(0, 9))
def test_a_quaternion_of_length_0_is_found_wherever_it_is(family: StateDrivenMujoco, lane: int, tiny: int) -> None:
    qpos = np.ones((7, MODEL.nq))
    family.check_actions({"qpos": qpos})
    qpos[lane, 4:8] = 0.0
    qpos[lane, 4 + tiny % 4] = 1e-14  # short, but it has a direction
    family.check_actions({"qpos": qpos})
    qpos[lane, 4:8] = 1e-17 * (tiny % 2)
    with pytest.raises(ActionError, match=f"lane {lane}, elements 4 to 7"):
        family.check_actions({"qpos": qpos})


def test_settings_that_do_not_go_together_are_refused() -> None:
    name = files.offer_model(MODEL)
    with pytest.raises(SettingError, match="'colors' is true with the drive 'control'"):
        Mujoco({"model": name, "colors": True}, AssetLibrary())
    with pytest.raises(SettingError, match="'drive' is 'states': expected one of control, state"):
        Mujoco({"model": name, "drive": "states"}, AssetLibrary())
    with pytest.raises(SettingError, match=r"'noise' is 0\.1 with the drive 'state', which simulates nothing"):
        Mujoco({"model": name, "drive": "state", "noise": 0.1}, AssetLibrary())
    files.withdraw_model(name)
