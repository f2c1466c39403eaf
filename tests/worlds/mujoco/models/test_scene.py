"""Rows, labels and descriptions of a model, and lanes with models of their own."""

import copy

import mujoco
import numpy as np
import pytest

from tests.support.mujoco_frames import Frame, WorldloomFrames
from tests.support.mujoco_models import build_all_shapes
from worldloom.kernels.tables import NO_MESH
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import quad
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.worlds.mujoco.models.contents import MAX_LABELS, assign_labels, find_task_placed
from worldloom.worlds.mujoco.models.scene import ModelScene
from worldloom.worlds.mujoco.simulation.data import field_addresses

ROOM = """<mujoco><statistic extent="3"/><worldbody>
  <geom name="floor" type="plane" size="2 2 .1" rgba=".3 .3 .4 1"/>
  <geom type="box" size=".2 .2 .2" pos="1 0 .2"/>
  <geom name="hidden" type="box" size=".2 .2 .2" group="3"/>
  <geom name="nothing" type="box" size=".2 .2 .2" rgba="1 1 1 0"/>
  <geom name="ghost" type="sphere" size=".3" pos="-1 0 .4" rgba="1 0 0 .3"/>
  <geom name="glass" type="sphere" size=".3" pos="-1 1 .4" rgba="1 0 0 .7"/>
  <site name="mark" size=".1" pos="0 1 .2"/>
  <body name="carried" mocap="true" pos="1 1 .3"><geom name="held" size=".1"/></body>
  <body pos="0 0 1"><freejoint/><geom name="ball" size=".25"/><camera name="rider" pos="0 -1 0" euler="90 0 0"/></body>
  <camera name="side" pos="0 -4 1.5" euler="75 0 0"/>
  {}
</worldbody></mujoco>"""


def simulated(xml: str) -> tuple[mujoco.MjModel, mujoco.MjData]:
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data


def count_pixels(frame: Frame, ours: WorldloomFrames, label: str) -> int:
    return int((frame.labels == ours.model_scene.labels.index(label)).sum())


def test_drawn_objects_have_labels_and_static_ones_come_first() -> None:
    model, _ = simulated(ROOM.format(""))
    model_scene = ModelScene(model, AssetLibrary())
    assert model_scene.labels == (
        *("sky", "geom.floor", "geom.1", "geom.ghost", "geom.glass", "geom.held", "geom.ball", "site.mark"),
    )
    assert model_scene.rows_per_lane == 7
    assert model_scene.static_rows == 5
    assert ModelScene(model, AssetLibrary(), task_placed=["site.mark"]).static_rows == 4


def test_objects_that_a_task_places_are_found() -> None:
    model, data = simulated(ROOM.format(""))
    seen = []
    for x in (0.0, 0.3):
        model.geom("ghost").pos[0], model.site("mark").pos[0] = x, x
        mujoco.mj_forward(model, data)
        seen.append((data.geom_xpos.copy(), data.site_xpos.copy()))
    assert find_task_placed(model, seen, height_fields_differ=False) == {"geom.ghost", "site.mark"}
    hills = build_all_shapes(None)
    still = (np.zeros((hills.ngeom, 3)), np.zeros((hills.nsite, 3)))
    assert find_task_placed(hills, [still, still], height_fields_differ=True) == {"geom.hills"}


def test_cameras_are_the_models_own_and_two_more() -> None:
    model, data = simulated(ROOM.format(""))
    model_scene = ModelScene(model, AssetLibrary())
    assert [camera.name for camera in model_scene.cameras] == ["eye", "side", "rider", "free"]
    addresses = field_addresses(data)[None]
    eye, side = model_scene.place_camera(addresses, "eye"), model_scene.place_camera(addresses, "side")
    np.testing.assert_array_equal(eye.pose, side.pose)
    np.testing.assert_allclose(side.pose[0, :, 3], (0, -4, 1.5))
    own = mujoco.MjModel.from_xml_string(ROOM.format('<camera name="eye" pos="0 0 5"/><camera name="free"/>'))
    assert [camera.name for camera in ModelScene(own, AssetLibrary()).cameras] == ["eye", "side", "free", "rider"]
    none = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    assert [camera.name for camera in ModelScene(none, AssetLibrary()).cameras] == ["eye", "free"]


def test_more_things_than_labels_share_the_last() -> None:
    names = [f"geom.{number}" for number in range(MAX_LABELS + 20)]
    labels, numbers = assign_labels(names[:MAX_LABELS])
    assert labels == ("sky", *names[:MAX_LABELS])
    labels, numbers = assign_labels(names)
    assert len(labels) == MAX_LABELS + 1
    assert labels[-1] == "geom.254 and 20 more"
    assert numbers == [*range(1, MAX_LABELS), *[MAX_LABELS] * 21]


def test_what_is_not_drawn_is_said() -> None:
    model, _ = simulated(ROOM.format('<light castshadow="true"/>'))
    assert ModelScene(model, AssetLibrary()).not_drawn == ()
    assert ModelScene(build_all_shapes(None), AssetLibrary()).not_drawn == ("haze",)
    crowded = ROOM.format('<light castshadow="false"/>' * 9)
    assert "lights beyond the first 8" in ModelScene(mujoco.MjModel.from_xml_string(crowded), AssetLibrary()).not_drawn


def test_translucent_objects_are_drawn_and_have_labels(cpu: Renderer) -> None:
    model, data = simulated(ROOM.format(""))
    ours = WorldloomFrames(model, cpu)
    (frame,) = ours.see([data], "side", 160, 120)
    assert count_pixels(frame, ours, "geom.glass") > 0
    assert count_pixels(frame, ours, "geom.ghost") > 0


def test_a_lane_may_have_a_model_of_its_own(cpu: Renderer) -> None:
    model, data = simulated(ROOM.format(""))
    ours = WorldloomFrames(model, cpu, lanes=3)
    other = copy.copy(model)
    other.geom("ball").size = 0.5
    other.geom("floor").rgba = (0.8, 0.2, 0.2, 1)
    other.site("mark").rgba = (1, 1, 1, 0)
    data_of_other = mujoco.MjData(other)
    mujoco.mj_forward(other, data_of_other)
    ours.write_static(np.array([1]), other)
    one, two, three = ours.see([data, data_of_other, data], "side", 160, 120)
    np.testing.assert_array_equal(one.rgb, three.rgb)
    assert count_pixels(two, ours, "geom.ball") > 3 * count_pixels(one, ours, "geom.ball") > 0
    assert count_pixels(one, ours, "site.mark") > 0 == count_pixels(two, ours, "site.mark")
    floor = ours.model_scene.labels.index("geom.floor")
    assert two.rgb[two.labels == floor, 0].mean() > 2 * one.rgb[one.labels == floor, 0].mean()
    ours.write_static(np.array([1]))
    (_, again) = ours.see([data, data], "side", 160, 120)
    np.testing.assert_array_equal(one.rgb, again.rgb)


def test_a_lane_may_have_its_own_height_field_and_reuses_its_mesh(cpu: Renderer) -> None:
    model = build_all_shapes(None)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    ours = WorldloomFrames(model, cpu, lanes=2)
    first, _ = ours.see([data, data], "above", 160, 120)
    other, meshes = copy.copy(model), set()
    for height in (0.0, 0.5, 1.0):
        other.hfield_data[:] = height
        ours.write_static(np.arange(1, len(ours.lanes)), other)
        same, changed = ours.see([data, data], "above", 160, 120)
        np.testing.assert_array_equal(same.rgb, first.rgb)
        assert (changed.rgb != first.rgb).any()
        meshes.add(len(ours.assets.table.mesh_first_triangle))
    assert len(meshes) == 1
    ours.write_static(np.arange(1, len(ours.lanes)), model)
    _, back = ours.see([data, data], "above", 160, 120)
    np.testing.assert_array_equal(back.rgb, first.rgb)


def test_the_height_field_of_a_lane_is_freed_with_it(cpu: Renderer) -> None:
    model = build_all_shapes(None)
    ours = WorldloomFrames(model, cpu, lanes=3)
    before = len(ours.assets.table.triangles)
    other = copy.copy(model)
    other.hfield_data[:] = 0.5
    ours.write_static(np.arange(3), other)
    each = (len(ours.assets.table.triangles) - before) // 3
    assert each > 0
    ours.model_scene.free(ours.scene, ours.lanes[:2])
    assert len(ours.assets.table.triangles) == before + each + 2 * len(quad().triangles)
    ours.write_static(np.array([0]), other)
    assert len(ours.assets.table.triangles) == before + 2 * each + len(quad().triangles)


def test_a_diverged_simulation_does_not_affect_other_lanes(cpu: Renderer) -> None:
    model, data = simulated(ROOM.format(""))
    lost = copy.copy(data)
    for name in ("cam_xpos", "cam_xmat", "geom_xpos", "geom_xmat", "light_xpos"):
        getattr(lost, name)[...] = np.nan
    ours = WorldloomFrames(model, cpu, lanes=2)
    (alone,) = ours.see([data], "side", 64, 64)
    beside, _ = ours.see([data, lost], "side", 64, 64)
    np.testing.assert_array_equal(alone.rgb, beside.rgb)


def test_models_that_look_alike_share_their_assets() -> None:
    assets = AssetLibrary()
    ModelScene(build_all_shapes("flat"), assets)
    before = assets.table
    model_scene, scene = ModelScene(build_all_shapes("flat", light="sun"), assets), Scene(assets)
    scales = np.ones((2, model_scene.rows_per_lane, 3), np.float32)
    lanes = scene.add(2, model_scene.rows_per_lane, model_scene.static_rows)
    model_scene.write_static(scales, np.arange(2), scene, lanes)
    assert len(assets.table.mesh_first_triangle) == len(before.mesh_first_triangle)
    assert len(assets.table.texels) == len(before.texels)


def test_an_empty_model_draws_nothing(cpu: Renderer) -> None:
    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    ours = WorldloomFrames(model, cpu)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    (frame,) = ours.see([data], "eye", 16, 16)
    assert not frame.rgb.any()
    assert not frame.labels.any()


@pytest.mark.parametrize("camera", ["eye", "rider"])
def test_mocap_bodies_are_drawn_where_they_are_put(camera: str, cpu: Renderer) -> None:
    model, data = simulated(ROOM.format(""))
    ours = WorldloomFrames(model, cpu)
    (before,) = ours.see([data], camera, 64, 64)
    data.mocap_pos[0] = (0, 0.5, 0.6)
    mujoco.mj_forward(model, data)
    (after,) = ours.see([data], camera, 64, 64)
    assert (before.labels != after.labels).any()
    assert (ours.scene.instances.mesh[ours.scene.rows(ours.lanes)] != NO_MESH).all()
