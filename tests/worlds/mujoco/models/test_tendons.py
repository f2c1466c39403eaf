"""Tendons and skins, compared with MuJoCo's renderer."""

import math

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.mujoco_frames import MujocoFrames, WorldloomFrames, compare_frames
from worldloom.render.renderer import Renderer
from worldloom.worlds.mujoco.dm_control.suite import suite
from worldloom.worlds.mujoco.models.tendons import solve_catenary, write_catenary_poses

WIDTH, HEIGHT = 320, 240
TUBES = 28
ROPES = """<mujoco><statistic extent="3" center="0 0 .6"/>
<visual><headlight ambient=".4 .4 .4"/></visual>
<worldbody>
  <camera name="side" pos="0 -3.2 .6" xyaxes="1 0 0 0 0 1"/>
  <site name="a" pos="-1.2 0 1.2" size=".03"/> <site name="b" pos="-.6 0 1" size=".03"/>
  <site name="c" pos="-.2 0 1.3" size=".03"/> <body><joint type="slide"/><geom size=".02" pos=".3 0 1.2"/>
  <site name="d" pos=".3 0 1.2" size=".03"/></body>
  <site name="e" pos=".7 0 .9" size=".03"/> <site name="f" pos="1.2 0 1.3" size=".03"/>
  <geom name="drum" type="cylinder" size=".15 .3" pos="-.3 0 0" euler="90 0 0"/>
  <geom name="knob" type="sphere" size=".15" pos=".8 0 .05"/>
  <body><joint type="slide" axis="0 0 1"/><geom size=".06" pos="0 0 -.2"/>
    <site name="low" pos="0 0 -.2" size=".03"/> <site name="left" pos="-1 0 .1" size=".03"/>
    <site name="right" pos="1.3 0 .1" size=".03"/></body>
</worldbody>
<tendon>
  <spatial name="rope" limited="true" range="0 1.1" width=".02" rgba=".8 .3 .2 1">
    <site site="a"/><site site="b"/></spatial>
  <spatial name="taut" limited="true" range="0 .4" width=".02"><site site="c"/><site site="d"/></spatial>
  <spatial name="spring" stiffness="1" springlength="0 .9" width=".015"><site site="e"/><site site="f"/></spatial>
  <spatial name="around" width=".02" rgba=".2 .7 .3 1">
    <site site="left"/><geom geom="drum"/><site site="low"/></spatial>
  <spatial name="over" width=".02" rgba=".2 .3 .8 1"><site site="low"/><geom geom="knob"/><site site="right"/>
    <pulley divisor="2"/><site site="f"/><site site="right"/><site site="e"/></spatial>
</tendon></mujoco>"""


@pytest.mark.gl
def test_tendons_are_where_mujoco_draws_them(cpu: Renderer) -> None:
    model = mujoco.MjModel.from_xml_string(ROPES)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    ours, theirs = WorldloomFrames(model, cpu), MujocoFrames(model, WIDTH, HEIGHT)
    (frame,) = ours.see([data], "side", WIDTH, HEIGHT)
    wanted = theirs.see(data, 0, ours.model_scene, WIDTH, HEIGHT)
    theirs.close()
    assert compare_frames(frame, wanted).labels > 0.998
    for tendon in range(model.ntendon):
        label = ours.model_scene.labels.index(f"tendon.{model.tendon(tendon).name}")
        both = (frame.labels == label) & (wanted.labels == label)
        assert both.sum() > 0.9 * (wanted.labels == label).sum() > 50
        # MuJoCo computes light at vertices, which gives another shade on tubes a few pixels wide.
        assert np.abs(frame.rgb[both].astype(int) - wanted.rgb[both]).mean() < 12


@pytest.mark.gl
def test_a_skin_is_where_mujoco_draws_it(cpu: Renderer) -> None:
    environment = suite.load("dog", "walk", task_kwargs={"random": 1})
    environment.reset()
    rng = np.random.default_rng(0)
    for _ in range(15):
        environment.step(rng.uniform(-1, 1, environment.action_spec().shape))
    model, data = environment.physics.model.ptr, environment.physics.data.ptr
    ours, theirs = WorldloomFrames(model, cpu), MujocoFrames(model, WIDTH, HEIGHT)
    for camera in range(2):
        (frame,) = ours.see([data], model.cam(camera).name, WIDTH, HEIGHT)
        difference = compare_frames(frame, theirs.see(data, camera, ours.model_scene, WIDTH, HEIGHT))
        assert difference.labels > 0.99  # pieces are stiff: MuJoCo bends the skin at every vertex
        assert difference.color < 3
    theirs.close()


@given(st.floats(1e-6, 12.0).map(lambda power: 1 + math.expm1(power)))
def test_the_catenary_equation_is_solved(stretch: float) -> None:
    x = solve_catenary(stretch)
    assert x > 0
    # sinh(x) / x changes by x² / 3 of itself where x is small, which is what rounding leaves of it.
    assert math.isclose(math.sinh(x) / x, stretch, rel_tol=1e-9)


@given(
    st.tuples(*[st.floats(-1, 1)] * 3),
    st.tuples(*[st.floats(-1, 1)] * 3),
    st.floats(1.001, 3.0),
)
def test_a_catenary_has_its_length(
    one: tuple[float, float, float], two: tuple[float, float, float], slack: float
) -> None:
    ends = np.array([*one, *two])
    apart = float(np.linalg.norm(ends[3:] - ends[:3]))
    length = slack * max(apart, 0.01)
    pose = np.full((TUBES, 3, 4), np.nan, np.float32)
    write_catenary_poses(ends, np.array([0.0, 0.0, -9.81]), length, TUBES, 0, 0.01, pose)
    used = np.isfinite(pose).all(axis=(1, 2))
    along = 2 * np.linalg.norm(pose[used, :, 2], axis=1)
    # A chain of straight tubes is a little shorter than the curve it stands for.
    assert 0.93 * length < along.sum() < 1.0001 * length + 1e-5
    np.testing.assert_allclose(pose[0, :, 3] - pose[0, :, 2], one, atol=1e-5)
    last = pose[used][-1]
    np.testing.assert_allclose(last[:, 3] + last[:, 2], two, atol=1e-5)
