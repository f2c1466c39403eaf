"""The family `mujoco`: steps as MuJoCo's own, noise, registered rewards, and simulations that fail."""

import logging
from collections.abc import Iterator
from pathlib import Path

import mujoco
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.determinism import draw
from worldloom.kernels.outputs import OUTPUT_NAMES, output_bits
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.episodes import INTERRUPTED, RUNNING, TERMINATED
from worldloom.worlds.family import LaneErrors
from worldloom.worlds.mujoco import family as mujoco_family
from worldloom.worlds.mujoco.family import Mujoco, register_reward
from worldloom.worlds.mujoco.models import files as models
from worldloom.worlds.mujoco.simulation.data import LaneArrays
from worldloom.worlds.pool import Pool
from worldloom.worlds.settings import SettingError

ARM = """
<mujoco>
  <worldbody>
    <light pos="0 0 3"/>
    <camera name="side" pos="0 -4 1" xyaxes="1 0 0 0 0 1"/>
    <geom name="floor" type="plane" size="2 2 .1"/>
    <body name="arm" pos="0 0 1"><joint name="hinge" axis="0 1 0" damping=".1"/>
      <geom name="rod" type="capsule" fromto="0 0 0 .5 0 0" size=".05"/><site name="tip" pos=".5 0 0"/></body>
    <body name="ball" pos="0 1 1"><freejoint/><geom size=".1"/></body>
  </worldbody>
  <actuator><motor name="torque" joint="hinge" ctrlrange="-2 1" ctrllimited="true"/><motor joint="hinge"/></actuator>
  <sensor><framepos name="where" objtype="site" objname="tip"/><jointvel joint="hinge"/></sensor>
  <keyframe><key qpos=".3 0 1 2 1 0 0 0" ctrl=".5 0"/></keyframe>
</mujoco>
"""
STIFF = ARM.replace('damping=".1"', 'damping="-1000000"')
"""Becomes unstable by itself."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(models, "_allowed_dirs", [])
    monkeypatch.setattr(mujoco_family, "_rewards", {})
    (tmp_path / "arm.xml").write_text(ARM)
    (tmp_path / "stiff.xml").write_text(STIFF)
    models.allow_model_dirs([tmp_path])
    return tmp_path


@pytest.fixture(scope="module")
def renderer() -> Iterator[CPURenderer]:
    with CPURenderer() as made:
        yield made


def make_pool(model: str = "arm.xml", **given: object) -> Pool:
    assets = AssetLibrary(texture_size=8)
    return Pool(Mujoco({"model": model, **given}, assets), Scene(assets))


def seeds(count: int, first: int = 0) -> np.ndarray:
    return Mujoco.lane_seeds(first, count)


def control(*values: float) -> dict[str, np.ndarray]:
    return {"control": np.array(values, np.float64).reshape(-1, 1, 2)}


def test_specs_describe_the_model() -> None:
    family = make_pool().family
    (action,) = family.actions
    assert (action.name, action.dtype, action.shape) == ("control", "float64", (2,))
    assert action.minimum == (-2.0, -np.inf)
    assert action.maximum == (1.0, np.inf)
    assert "torque" in action.text
    named = {spec.name: (spec.dtype, spec.shape) for spec in family.observations}
    assert named == {
        "qpos": ("float64", (8,)),
        "qvel": ("float64", (7,)),
        "unstable": ("bool", ()),
        "sensor.where": ("float64", (3,)),
        "sensor.1": ("float64", (1,)),
    }
    assert [camera.name for camera in family.cameras] == ["eye", "side", "free"]
    assert family.labels[0] == "sky"
    assert {"geom.floor", "geom.rod"} <= set(family.labels)


def test_the_model_must_be_given() -> None:
    with pytest.raises(SettingError, match="setting 'model' is missing: expected a text"):
        Mujoco({}, AssetLibrary(texture_size=8))


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.integers(1, 4), data=st.data())
def test_steps_are_mujocos(steps: int, data: st.DataObject) -> None:
    """As many of MuJoCo's steps as asked for; everything is up to date afterwards, also what MuJoCo lets lag behind."""
    model = mujoco.MjModel.from_xml_string(ARM)
    expected = [mujoco.MjData(model) for _ in range(2)]
    pool = make_pool(control_steps=steps)
    lanes = pool.add(seeds(2))
    for one in expected:
        mujoco.mj_resetDataKeyframe(model, one, 0)
    for turn in range(5):
        values = [data.draw(st.floats(-1, 1)) for _ in range(4)]
        pool.step(lanes, control(*values))
        for k, one in enumerate(expected):
            if turn:
                one.ctrl[:] = values[2 * k : 2 * k + 2]
                mujoco.mj_step(model, one, steps)
            fresh = mujoco.MjData(model)
            fresh.qpos[:], fresh.qvel[:], fresh.ctrl[:] = one.qpos, one.qvel, one.ctrl
            mujoco.mj_forward(model, fresh)
            assert np.array_equal(pool.observe(lanes, "qpos")[k], one.qpos)
            assert np.array_equal(pool.observe(lanes, "qvel")[k], one.qvel)
            assert np.array_equal(pool.observe(lanes, "sensor.where")[k], fresh.sensor("where").data)
            assert np.array_equal(pool.observe(lanes, "sensor.1")[k], one.qvel[:1])
    assert (pool.reward[lanes] == 0).all()


def test_episodes_end_in_time_and_begin_in_the_first_keyframe() -> None:
    pool = make_pool(max_steps=3)
    lanes = pool.add(seeds(2))
    for episode in range(2):
        pool.step(lanes, control(0, 0, 0, 0))
        assert pool.observe(lanes, "qpos")[0].tolist() == [0.3, 0, 1, 2, 1, 0, 0, 0]
        for _ in range(3):
            assert pool.status[lanes].tolist() == [RUNNING, RUNNING]
            pool.step(lanes, control(1, 0, 1, 0))
        assert pool.status[lanes].tolist() == [INTERRUPTED, INTERRUPTED]
        assert pool.episode[lanes].tolist() == [episode, episode]


def test_noise_comes_from_the_seed_and_stays_on_the_manifold() -> None:
    def begin(first: int, count: int = 400) -> tuple[np.ndarray, np.ndarray]:
        pool = make_pool(noise=0.1)
        lanes = pool.add(seeds(count, first))
        pool.step(lanes, control(*[0.0] * 2 * count))
        return pool.observe(lanes, "qpos"), pool.observe(lanes, "qvel")

    positions, velocities = begin(0)
    again = begin(0, 3)
    assert np.array_equal(positions[:3], again[0])
    assert np.array_equal(velocities[:3], again[1])
    assert not np.array_equal(positions[:3], begin(1, 3)[0])
    # A rotated quaternion has length 1, but for rounding in its four squares.
    assert np.abs(np.linalg.norm(positions[:, 4:], axis=1) - 1).max() < 1e-15 * 4
    # 400 numbers: their mean is within four of its standard deviations, their spread within a fifth of its own.
    for column in (positions[:, 0] - 0.3, positions[:, 3] - 2, velocities[:, 0], velocities[:, 6]):
        assert abs(column.mean()) < 4 * 0.1 / 20
        assert 0.08 < column.std() < 0.12


def test_registered_rewards_get_all_lanes_at_once() -> None:
    seen: list[int] = []

    def high(lanes: LaneArrays) -> tuple[np.ndarray, np.ndarray]:
        seen.append(len(lanes))
        assert lanes.qpos.shape == (len(lanes), 8)
        assert lanes.xmat.shape == (len(lanes), 3, 9)
        assert np.array_equal(lanes.sensor("where"), lanes.site_xpos[:, lanes.model.site("tip").id])
        return lanes.xpos[:, lanes.model.body("ball").id, 2], lanes.qpos[:, 0] > 0.3

    register_reward("arm.xml", high)
    pool = make_pool()
    lanes = pool.add(seeds(3))
    pool.step(lanes, control(*[0.0] * 6))
    assert not seen, "an episode begins without a reward"
    pool.step(lanes, control(-2, 0, 1, 10, -2, 0))
    assert seen == [3]
    positions = pool.observe(lanes, "qpos")
    assert np.array_equal(pool.reward[lanes, 0], positions[:, 3]), "float64, to the last bit"
    assert pool.status[lanes].tolist() == [TERMINATED if one > 0.3 else RUNNING for one in positions[:, 0]]


def test_an_unstable_lane_ends_its_episode_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("worldloom").propagate = True
    register_reward("arm.xml", lambda lanes: np.ones(len(lanes)))
    pool, calm = make_pool(), make_pool()
    lanes, others = pool.add(seeds(3)), calm.add(seeds(3))
    idle = control(*[0.0] * 6)
    for one, its in ((pool, lanes), (calm, others)):
        one.step(its, idle)
    pool.state.simulation[lanes[1]].qvel[0] = np.nan
    with caplog.at_level("WARNING", "worldloom.worlds"):
        pool.step(lanes, idle)
        calm.step(others, idle)
    assert pool.observe(lanes, "unstable").tolist() == [False, True, False]
    assert pool.status[lanes].tolist() == [RUNNING, TERMINATED, RUNNING]
    assert pool.reward[lanes, 0].tolist() == [1, 0, 1]
    assert pool.discount[lanes].tolist() == [1, 0, 1]
    assert np.array_equal(pool.observe(lanes, "qpos")[[0, 2]], calm.observe(others, "qpos")[[0, 2]])
    assert caplog.text.count("was aborted") == 1
    pool.step(lanes, idle)
    assert pool.observe(lanes, "unstable").tolist() == [False, False, False]
    assert pool.observe(lanes, "qpos")[1].tolist() == [0.3, 0, 1, 2, 1, 0, 0, 0]


def test_a_model_that_is_always_unstable_ends_every_episode(caplog: pytest.LogCaptureFixture) -> None:
    pool = make_pool("stiff.xml", noise=0.1)
    lanes = pool.add(seeds(8))
    for _ in range(400):
        pool.step(lanes, control(*[1.0] * 16))
    assert (pool.episode[lanes] > 2).all()
    assert np.isfinite(pool.observe(lanes, "qpos")).all()


def test_a_model_without_enough_memory_ends_its_episodes(folder: Path) -> None:
    balls = "".join(f'<body pos="0 0 {k * 0.1}"><freejoint/><geom size=".2"/></body>' for k in range(12))
    (folder / "full.xml").write_text(f'<mujoco><size memory="16K"/><worldbody>{balls}</worldbody></mujoco>')
    pool = make_pool("full.xml")
    lanes = pool.add(seeds(2))
    assert pool.family.actions == ()
    for _ in range(3):
        pool.step(lanes, {})
        assert pool.observe(lanes, "unstable").all()
        pool.step(lanes, {})
        assert pool.status[lanes].tolist() == [TERMINATED, TERMINATED]


def test_every_camera_draws_also_before_the_first_episode(renderer: CPURenderer) -> None:
    pool = make_pool(noise=0.2)
    lanes = pool.add(seeds(3))
    for _ in range(3):
        for camera in pool.family.cameras:
            views = pool.views(lanes, camera.name, width=24, height=20, outputs=output_bits(OUTPUT_NAMES))
            for frames in draw(pool, views, renderer):
                assert np.ptp(frames["rgb"]) > 0
                assert frames["segmentation"].max() < len(pool.family.labels)
        pool.step(lanes, control(*[0.0] * 6))
    side = pool.views(lanes, "side", width=32, height=32, outputs=output_bits(OUTPUT_NAMES))
    first, second, _ = (one["rgb"] for one in draw(pool, side, renderer))
    assert not np.array_equal(first, second), "lanes in different states look different"


def test_a_reward_that_fails_for_one_lane_costs_that_lane_only() -> None:
    """The physics has run by then: nobody is stepped twice."""
    calls = []

    def reward(lanes: LaneArrays) -> np.ndarray:
        calls.append(len(lanes.qpos))
        if (lanes.ctrl[:, 0] == 0.25).any():
            raise KeyError("no such reward")
        return np.asarray(lanes.qpos[:, 0])

    mujoco_family.register_reward("arm.xml", reward)
    pool, alone = make_pool(), make_pool()
    lanes, reference = pool.add(np.arange(3, dtype=np.uint64)), alone.add(np.arange(3, dtype=np.uint64))
    for step in range(4):
        control = np.zeros((3, 1, 2))
        control[:, 0, 0] = 0.5 * step
        alone.step(reference, {"control": control})
        if step == 2:
            control[1, 0, 0] = 0.25
            with pytest.raises(LaneErrors) as failed:
                pool.step(lanes, {"control": control})
            assert list(failed.value.errors) == [int(lanes[1])]
            assert isinstance(failed.value.errors[int(lanes[1])], KeyError)
            assert calls[-4:] == [3, 1, 1, 1]
        else:
            pool.step(lanes, {"control": control})
        for name in ("qpos", "qvel"):
            ours, expected = pool.observe(lanes, name), alone.observe(reference, name)
            np.testing.assert_array_equal(ours[[0, 2]], expected[[0, 2]])
        np.testing.assert_array_equal(pool.reward[lanes[[0, 2]]], alone.reward[reference[[0, 2]]])
        np.testing.assert_array_equal(pool.steps[lanes], alone.steps[reference])
