"""Translucent geoms, sites and tendons, drawn by MuJoCo's renderer and by worldloom."""

import copy

import mujoco
import numpy as np
import pytest

from tests.support.mujoco_frames import Frame, MujocoFrames, WorldloomFrames, compare_frames
from worldloom.render.renderer import Renderer
from worldloom.worlds.mujoco.dm_control.suite import suite

pytestmark = pytest.mark.gl

WIDTH, HEIGHT = 320, 240
LABELS, COLOR = 0.999, 1.0
"""Share of equal labels, and mean difference of colours of 255: as low as for opaque shapes."""
SHELF = """<mujoco><statistic extent="3" center="0 0 .5"/><visual><map znear=".01"/></visual>
<asset><texture name="check" type="2d" builtin="checker" rgb1=".8 .8 .7" rgb2=".3 .4 .4" width="64" height="64"/>
<texture type="skybox" builtin="gradient" rgb1=".5 .6 .8" rgb2=".1 .1 .2" width="64" height="64"/>
<material name="floor" texture="check" texrepeat="4 4" specular="0"/>
<material name="jade" rgba=".2 .7 .5 .45" specular=".3"/>
<mesh name="wedge" vertex="-.3 -.3 -.3  .3 -.3 -.3  .3 .3 -.3  -.3 .3 -.3  0 0 .4"/></asset>
<worldbody><light pos="1 -2 5" dir="-.2 .4 -1" cutoff="80"/>
<camera name="front" pos="0 -5 1.8" xyaxes="1 0 0 0 .25 1" fovy="40"/>
<geom name="floor" type="plane" size="3 3 .1" material="floor"/>
<geom name="post" type="box" size=".15 .15 .5" pos="-1.2 .6 .5" rgba=".9 .5 .2 1"/>
<body pos="-1.2 -.2 .5"><freejoint/><geom name="ball" type="sphere" size=".4" rgba=".8 .2 .2 .5"/></body>
<geom name="pill" type="capsule" size=".2 .3" pos="-.4 .1 .6" euler="30 20 0" rgba=".2 .3 .9 .3"/>
<geom name="egg" type="ellipsoid" size=".3 .2 .4" pos=".4 0 .5" material="jade"/>
<geom name="can" type="cylinder" size=".25 .35" pos="1.2 -.1 .4" rgba=".9 .8 .1 .6"/>
<geom name="crate" type="box" size=".3 .2 .3" pos=".5 1.3 .9" euler="0 0 30" rgba=".7 .3 .8 .4"/>
<geom name="wedge" type="mesh" mesh="wedge" pos="-.5 1.4 1.2" rgba=".3 .8 .3 .7"/>
<site name="mark" type="box" size=".2 .1 .2" pos="-.2 -1.2 .25" rgba="1 1 1 .2"/>
<site name="low" pos="-.9 -.8 .1" size=".02"/><site name="high" pos=".9 -.8 1" size=".02"/>
</worldbody>
<tendon><spatial width=".04" rgba=".1 .1 .1 .5"><site site="low"/><site site="high"/></spatial></tendon></mujoco>"""


def both(model: mujoco.MjModel, renderer: Renderer, camera: int = 0) -> tuple[WorldloomFrames, Frame, Frame]:
    """Return the frame of worldloom and that of MuJoCo."""
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    ours, theirs = WorldloomFrames(model, renderer), MujocoFrames(model, WIDTH, HEIGHT)
    name = ours.model_scene.cameras[1 + camera].name
    (frame,) = ours.see([data], name, WIDTH, HEIGHT)
    wanted = theirs.see(data, camera, ours.model_scene, WIDTH, HEIGHT)
    theirs.close()
    return ours, frame, wanted


def test_translucent_shapes_look_as_mujoco_draws_them(cpu: Renderer) -> None:
    ours, frame, wanted = both(mujoco.MjModel.from_xml_string(SHELF), cpu)
    difference = compare_frames(frame, wanted)
    assert difference.labels >= LABELS
    assert difference.color < COLOR
    seen = {ours.model_scene.labels[label] for label in np.unique(frame.labels)}
    assert seen == set(ours.model_scene.labels) - {"site.low", "site.high"}  # these are inside the tendon


PANES = """<mujoco><statistic extent="2" center="0 0 0"/>
<visual><headlight ambient=".8 .8 .8" diffuse="0 0 0" specular="0 0 0"/></visual>
<worldbody><camera name="front" pos="0 -4 0" xyaxes="1 0 0 0 0 1"/>
<geom name="wall" type="box" size="3 .1 3" pos="0 2 0" rgba=".9 .8 .7 1"/>
<geom name="far" type="box" size=".8 .1 .8" pos=".3 1 0" rgba=".9 .1 .2 {}"/>
<geom name="near" type="box" size=".8 .1 .8" pos="-.3 0 0" rgba=".1 .2 .9 {}"/></worldbody></mujoco>"""
ROUNDING = 1.0
"""Levels: MuJoCo rounds twice for each layer, worldloom once."""


@pytest.mark.parametrize(("far_alpha", "near_alpha"), [(0.5, 0.5), (0.3, 0.7), (0.8, 0.2), (0.94, 0.5)])
def test_two_layers_differ_from_mujocos_by_what_its_second_pass_adds(
    far_alpha: float, near_alpha: float, cpu: Renderer
) -> None:
    # MuJoCo draws near, far, far, near: the far layer shows more than through the near one alone, by
    # near_alpha (1 - near_alpha) (1 - (1 - far_alpha)²) of the difference of their colours, so by at most a quarter.
    _, ours, theirs = both(mujoco.MjModel.from_xml_string(PANES.format(far_alpha, near_alpha)), cpu)
    row = HEIGHT // 2
    only_far, only_near, overlap, wall = 205, 110, 160, 30
    for column in (only_far, only_near, wall):
        assert np.abs(ours.rgb[row, column].astype(int) - theirs.rgb[row, column]).max() <= ROUNDING
    _, opaque, _ = both(mujoco.MjModel.from_xml_string(PANES.format(1, 1)), cpu)
    far, near = opaque.rgb[row, only_far].astype(float), opaque.rgb[row, only_near].astype(float)
    share = near_alpha * (1 - near_alpha) * (1 - (1 - far_alpha) ** 2)
    assert share <= 0.25
    change = theirs.rgb[row, overlap].astype(float) - ours.rgb[row, overlap]
    assert np.abs(change - share * (far - near)).max() <= 2 * ROUNDING


def test_a_lane_may_have_alphas_of_its_own(cpu: Renderer) -> None:
    model = mujoco.MjModel.from_xml_string(SHELF)
    other = copy.copy(model)
    for name, alpha in (("ball", 1.0), ("pill", 0.0), ("can", 0.25)):
        other.geom(name).rgba[3] = alpha
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    ours = WorldloomFrames(model, cpu, lanes=2)
    ours.write_static(np.array([1]), other)
    alone = WorldloomFrames(other, cpu)
    frames = ours.see([data, data], "eye", WIDTH, HEIGHT)
    assert np.array_equal(frames[1].rgb, alone.see([data], "eye", WIDTH, HEIGHT)[0].rgb)
    assert not np.array_equal(frames[0].rgb, frames[1].rgb)


@pytest.mark.parametrize(("domain", "task"), [("dog", "stand"), ("lqr", "lqr_2_1")])
def test_tasks_with_translucent_geoms_look_as_mujoco_draws_them(domain: str, task: str, cpu: Renderer) -> None:
    environment = suite.load(domain, task, task_kwargs={"random": 1})
    environment.reset()
    model = environment.physics.model.ptr
    translucent = (model.geom_rgba[:, 3] > 0) & (model.geom_rgba[:, 3] < 0.995) & (model.geom_group < 3)
    _, frame, wanted = both(model, cpu)
    assert translucent.any() or (model.mat_rgba[:, 3] < 0.995).any()
    difference = compare_frames(frame, wanted)
    assert difference.labels >= LABELS
    assert difference.color < 4.0  # as in test_frames.py
