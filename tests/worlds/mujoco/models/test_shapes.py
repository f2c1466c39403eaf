"""Every shape, texture and light of MuJoCo, as drawn by its renderer and by worldloom."""

from collections.abc import Iterator

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.mujoco_frames import MujocoFrames, WorldloomFrames, compare_frames
from tests.support.mujoco_models import build_all_shapes
from worldloom.render.renderer import Renderer

pytestmark = pytest.mark.gl

WIDTH, HEIGHT = 320, 240
CAMERAS = {"above": 2.0, "beside": 3.0, "flat": 2.0, "free": 2.0}
"""Mean difference allowed, of 255. Beside sees the horizon, where MuJoCo has haze."""
LABELS = 0.9993


@pytest.mark.parametrize(
    ("texture", "uniform", "light"),
    [
        (None, False, "head"),
        ("flat", False, "sun"),
        ("flat", True, "spot"),
        ("cube", False, "lamp"),
        ("cube", True, "head"),
        (None, False, "none"),
    ],
)
def test_every_shape_looks_as_mujoco_draws_it(texture: str | None, uniform: bool, light: str, cpu: Renderer) -> None:
    model = build_all_shapes(texture, uniform, light)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    ours, theirs = WorldloomFrames(model, cpu), MujocoFrames(model, WIDTH, HEIGHT)
    for camera, apart in CAMERAS.items():
        if camera == "flat" and light == "head":
            continue  # MuJoCo computes its highlights for a viewer at the camera, worldloom for one far away
        number = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, camera)
        (frame,) = ours.see([data], camera, WIDTH, HEIGHT)
        difference = compare_frames(frame, theirs.see(data, number, ours.model_scene, WIDTH, HEIGHT))
        assert difference.labels >= LABELS, camera
        assert difference.color < apart, camera
    theirs.close()


BODY = """<mujoco><statistic extent="4" center="0 0 0"/><visual><map znear=".01"/></visual>
<worldbody><light pos="2 -3 5" dir="-2 3 -5"/>
<camera name="eye" pos="0 -6 0" xyaxes="1 0 0 0 0 1"/>
<body><freejoint/>{}</body></worldbody></mujoco>"""
SHAPES = ("sphere", "capsule", "ellipsoid", "cylinder", "box")
NUMBERS = st.floats(0.0, 1.0)


class ShapeScene:
    """One geom of each shape, whose size and pose can be set, drawn by both renderers."""

    def __init__(self, cpu: Renderer) -> None:
        geoms = "".join(f'<geom name="{shape}" type="{shape}" size=".5 .5 .5"/>' for shape in SHAPES)
        self.model = mujoco.MjModel.from_xml_string(BODY.format(geoms))
        self.data = mujoco.MjData(self.model)
        self.ours, self.theirs = WorldloomFrames(self.model, cpu), MujocoFrames(self.model, WIDTH, HEIGHT)


@pytest.fixture(scope="module")
def shape_scene(cpu: Renderer) -> Iterator[ShapeScene]:
    made = ShapeScene(cpu)
    yield made
    made.theirs.close()


@settings(max_examples=40)
@given(
    shape=st.sampled_from(SHAPES),
    size=st.tuples(NUMBERS, NUMBERS, NUMBERS),
    place=st.tuples(NUMBERS, NUMBERS, NUMBERS),
    turn=st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS),
)
def test_sizes_and_poses_are_those_of_mujoco(
    shape_scene: ShapeScene,
    shape: str,
    size: tuple[float, float, float],
    place: tuple[float, float, float],
    turn: tuple[float, float, float, float],
) -> None:
    model, data, number = shape_scene.model, shape_scene.data, SHAPES.index(shape)
    model.geom_rgba[:, 3] = 0
    model.geom_rgba[number, 3] = 1
    model.geom_size[number] = 0.05 + 1.2 * np.array(size)
    data.qpos[:3] = 2 * np.array(place) - 1
    data.qpos[3:] = np.array(turn) - 0.5 + 1e-3
    mujoco.mj_forward(model, data)
    shape_scene.ours.write_static(np.arange(len(shape_scene.ours.lanes)), model)
    (frame,) = shape_scene.ours.see([data], "eye", WIDTH, HEIGHT)
    wanted = shape_scene.theirs.see(data, 0, shape_scene.ours.model_scene, WIDTH, HEIGHT)
    difference = compare_frames(frame, wanted)
    outline = np.count_nonzero(np.diff(wanted.labels, axis=0)) + np.count_nonzero(np.diff(wanted.labels, axis=1))
    assert (1 - difference.labels) * WIDTH * HEIGHT <= 0.3 * outline + 2
    assert difference.color < 1.5
