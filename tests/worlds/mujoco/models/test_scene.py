"""What of a model becomes rows, labels and words, and what lanes with models of their own look like."""

import copy

import mujoco
import numpy as np
import pytest

from tests.support.mujoco_frames import Ours, Picture
from tests.support.mujoco_models import zoo
from worldloom.kernels.tables import NO_MESH
from worldloom.render.assets import AssetLibrary
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.worlds.mujoco.models.contents import MOST_LABELS, elsewhere, share_labels
from worldloom.worlds.mujoco.models.scene import Looks
from worldloom.worlds.mujoco.simulation.data import places_of

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


def seen(picture: Picture, ours: Ours, label: str) -> int:
    return int((picture.labels == ours.looks.labels.index(label)).sum())


def test_what_is_shown_has_a_label_and_what_stands_still_comes_first() -> None:
    model, _ = simulated(ROOM.format(""))
    looks = Looks(model, AssetLibrary())
    assert looks.labels == (
        *("sky", "geom.floor", "geom.1", "geom.ghost", "geom.glass", "geom.held", "geom.ball", "site.mark"),
    )
    assert looks.rows_per_lane == 7
    assert looks.static_rows == 5
    assert Looks(model, AssetLibrary(), restless=["site.mark"]).static_rows == 4


def test_what_is_elsewhere_each_time_is_found() -> None:
    model, data = simulated(ROOM.format(""))
    seen = []
    for x in (0.0, 0.3):
        model.geom("ghost").pos[0], model.site("mark").pos[0] = x, x
        mujoco.mj_forward(model, data)
        seen.append((data.geom_xpos.copy(), data.site_xpos.copy()))
    assert elsewhere(model, seen, fields_differ=False) == {"geom.ghost", "site.mark"}
    hills = zoo(None)
    still = (np.zeros((hills.ngeom, 3)), np.zeros((hills.nsite, 3)))
    assert elsewhere(hills, [still, still], fields_differ=True) == {"geom.hills"}


def test_cameras_are_the_models_own_and_two_more() -> None:
    model, data = simulated(ROOM.format(""))
    looks = Looks(model, AssetLibrary())
    assert [camera.name for camera in looks.cameras] == ["eye", "side", "rider", "free"]
    places = places_of(data)[None]
    eye, side = looks.look(places, "eye"), looks.look(places, "side")
    np.testing.assert_array_equal(eye.pose, side.pose)
    np.testing.assert_allclose(side.pose[0, :, 3], (0, -4, 1.5))
    own = mujoco.MjModel.from_xml_string(ROOM.format('<camera name="eye" pos="0 0 5"/><camera name="free"/>'))
    assert [camera.name for camera in Looks(own, AssetLibrary()).cameras] == ["eye", "side", "free", "rider"]
    none = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    assert [camera.name for camera in Looks(none, AssetLibrary()).cameras] == ["eye", "free"]


def test_more_things_than_labels_share_the_last() -> None:
    names = [f"geom.{number}" for number in range(MOST_LABELS + 20)]
    labels, numbers = share_labels(names[:MOST_LABELS])
    assert labels == ("sky", *names[:MOST_LABELS])
    labels, numbers = share_labels(names)
    assert len(labels) == MOST_LABELS + 1
    assert labels[-1] == "geom.254 and 20 more"
    assert numbers == [*range(1, MOST_LABELS), *[MOST_LABELS] * 21]


def test_what_is_not_drawn_is_said() -> None:
    model, _ = simulated(ROOM.format('<light castshadow="true"/>'))
    assert Looks(model, AssetLibrary()).not_drawn == (
        "1 thing less than half opaque",
        "that 1 thing can be seen through",
        "shadows",
    )
    assert Looks(zoo(None), AssetLibrary()).not_drawn == ("haze",)
    crowded = ROOM.format('<light castshadow="false"/>' * 9)
    assert "lights beyond the first 8" in Looks(mujoco.MjModel.from_xml_string(crowded), AssetLibrary()).not_drawn


def test_what_is_half_opaque_is_drawn_and_what_is_less_is_not(cpu: Renderer) -> None:
    model, data = simulated(ROOM.format(""))
    ours = Ours(model, cpu)
    (picture,) = ours.see([data], "side", 160, 120)
    assert seen(picture, ours, "geom.glass") > 0
    assert seen(picture, ours, "geom.ghost") == 0


def test_a_lane_may_have_a_model_of_its_own(cpu: Renderer) -> None:
    model, data = simulated(ROOM.format(""))
    ours = Ours(model, cpu, lanes=3)
    other = copy.copy(model)
    other.geom("ball").size = 0.5
    other.geom("floor").rgba = (0.8, 0.2, 0.2, 1)
    other.site("mark").rgba = (1, 1, 1, 0)
    data_of_other = mujoco.MjData(other)
    mujoco.mj_forward(other, data_of_other)
    ours.looks.furnish(ours.scene, ours.lanes[1:2], other)
    one, two, three = ours.see([data, data_of_other, data], "side", 160, 120)
    np.testing.assert_array_equal(one.rgb, three.rgb)
    assert seen(two, ours, "geom.ball") > 3 * seen(one, ours, "geom.ball") > 0
    assert seen(one, ours, "site.mark") > 0 == seen(two, ours, "site.mark")
    floor = ours.looks.labels.index("geom.floor")
    assert two.rgb[two.labels == floor, 0].mean() > 2 * one.rgb[one.labels == floor, 0].mean()
    ours.looks.furnish(ours.scene, ours.lanes[1:2])
    (_, again) = ours.see([data, data], "side", 160, 120)
    np.testing.assert_array_equal(one.rgb, again.rgb)


def test_a_lane_may_have_ground_of_its_own_and_it_takes_no_more_room(cpu: Renderer) -> None:
    model = zoo(None)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    ours = Ours(model, cpu, lanes=2)
    first, _ = ours.see([data, data], "above", 160, 120)
    other, meshes = copy.copy(model), set()
    for height in (0.0, 0.5, 1.0):
        other.hfield_data[:] = height
        ours.looks.furnish(ours.scene, ours.lanes[1:], other)
        same, changed = ours.see([data, data], "above", 160, 120)
        np.testing.assert_array_equal(same.rgb, first.rgb)
        assert (changed.rgb != first.rgb).any()
        meshes.add(len(ours.assets.table.mesh_first_triangle))
    assert len(meshes) == 1
    ours.looks.furnish(ours.scene, ours.lanes[1:], model)
    _, back = ours.see([data, data], "above", 160, 120)
    np.testing.assert_array_equal(back.rgb, first.rgb)


def test_a_simulation_that_lost_its_numbers_harms_nobody_else(cpu: Renderer) -> None:
    model, data = simulated(ROOM.format(""))
    lost = copy.copy(data)
    for name in ("cam_xpos", "cam_xmat", "geom_xpos", "geom_xmat", "light_xpos"):
        getattr(lost, name)[...] = np.nan
    ours = Ours(model, cpu, lanes=2)
    (alone,) = ours.see([data], "side", 64, 64)
    beside, _ = ours.see([data, lost], "side", 64, 64)
    np.testing.assert_array_equal(alone.rgb, beside.rgb)


def test_models_that_look_alike_share_their_assets() -> None:
    assets = AssetLibrary()
    Looks(zoo("flat"), assets)
    before = assets.table
    looks, scene = Looks(zoo("flat", light="sun"), assets), Scene(assets)
    looks.furnish(scene, scene.add(2, looks.rows_per_lane, looks.static_rows))
    assert len(assets.table.mesh_first_triangle) == len(before.mesh_first_triangle)
    assert len(assets.table.texels) == len(before.texels)


def test_a_model_with_nothing_in_it_shows_nothing(cpu: Renderer) -> None:
    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    ours = Ours(model, cpu)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    (picture,) = ours.see([data], "eye", 16, 16)
    assert not picture.rgb.any()
    assert not picture.labels.any()


@pytest.mark.parametrize("camera", ["eye", "rider"])
def test_what_is_carried_goes_where_it_is_put(camera: str, cpu: Renderer) -> None:
    model, data = simulated(ROOM.format(""))
    ours = Ours(model, cpu)
    (before,) = ours.see([data], camera, 64, 64)
    data.mocap_pos[0] = (0, 0.5, 0.6)
    mujoco.mj_forward(model, data)
    (after,) = ours.see([data], camera, 64, 64)
    assert (before.labels != after.labels).any()
    assert (ours.scene.instances.mesh[ours.scene.rows(ours.lanes)] != NO_MESH).sum() == ours.looks.rows_per_lane - 1
