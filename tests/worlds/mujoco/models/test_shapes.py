"""Every shape, texture and light of MuJoCo's, as its renderer draws it and as we do."""

from collections.abc import Iterator

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.mujoco_frames import Ours, Theirs, judge
from tests.support.mujoco_models import zoo
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
    model = zoo(texture, uniform, light)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    ours, theirs = Ours(model, cpu), Theirs(model, WIDTH, HEIGHT)
    for camera, apart in CAMERAS.items():
        if camera == "flat" and light == "head":
            continue  # MuJoCo looks for the head light's highlights from where the camera stands, we from far away
        number = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, camera)
        (picture,) = ours.see([data], camera, WIDTH, HEIGHT)
        verdict = judge(picture, theirs.see(data, number, ours.looks, WIDTH, HEIGHT))
        assert verdict.labels >= LABELS, camera
        assert verdict.color < apart, camera
    theirs.close()


BODY = """<mujoco><statistic extent="4" center="0 0 0"/><visual><map znear=".01"/></visual>
<worldbody><light pos="2 -3 5" dir="-2 3 -5"/>
<camera name="eye" pos="0 -6 0" xyaxes="1 0 0 0 0 1"/>
<body><freejoint/>{}</body></worldbody></mujoco>"""
SHAPES = ("sphere", "capsule", "ellipsoid", "cylinder", "box")
NUMBERS = st.floats(0.0, 1.0)


class Room:
    """A thing of each shape that can be made to have any size and pose, seen by both."""

    def __init__(self, cpu: Renderer) -> None:
        geoms = "".join(f'<geom name="{shape}" type="{shape}" size=".5 .5 .5"/>' for shape in SHAPES)
        self.model = mujoco.MjModel.from_xml_string(BODY.format(geoms))
        self.data = mujoco.MjData(self.model)
        self.ours, self.theirs = Ours(self.model, cpu), Theirs(self.model, WIDTH, HEIGHT)


@pytest.fixture(scope="module")
def room(cpu: Renderer) -> Iterator[Room]:
    made = Room(cpu)
    yield made
    made.theirs.close()


@settings(max_examples=40)
@given(
    shape=st.sampled_from(SHAPES),
    size=st.tuples(NUMBERS, NUMBERS, NUMBERS),
    place=st.tuples(NUMBERS, NUMBERS, NUMBERS),
    turn=st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS),
)
def test_sizes_and_poses_are_where_mujoco_has_them(
    room: Room,
    shape: str,
    size: tuple[float, float, float],
    place: tuple[float, float, float],
    turn: tuple[float, float, float, float],
) -> None:
    model, data, number = room.model, room.data, SHAPES.index(shape)
    model.geom_rgba[:, 3] = 0
    model.geom_rgba[number, 3] = 1
    model.geom_size[number] = 0.05 + 1.2 * np.array(size)
    data.qpos[:3] = 2 * np.array(place) - 1
    data.qpos[3:] = np.array(turn) - 0.5 + 1e-3
    mujoco.mj_forward(model, data)
    room.ours.looks.furnish(room.ours.scene, room.ours.lanes, model)
    (picture,) = room.ours.see([data], "eye", WIDTH, HEIGHT)
    wanted = room.theirs.see(data, 0, room.ours.looks, WIDTH, HEIGHT)
    verdict = judge(picture, wanted)
    outline = np.count_nonzero(np.diff(wanted.labels, axis=0)) + np.count_nonzero(np.diff(wanted.labels, axis=1))
    assert (1 - verdict.labels) * WIDTH * HEIGHT <= 0.3 * outline + 2
    assert verdict.color < 1.5
