"""A template is written into a lane once, and again when the lane is reused."""

from typing import Any

import numpy as np

from worldloom.kernels.tables import NO_MESH
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.instance_template import InstanceTemplate, upright_pose

ASSETS = AssetLibrary(texture_size=8)


def build_template() -> InstanceTemplate:
    template = InstanceTemplate(ASSETS)
    template.add("box", upright_pose((1, 2, 3)), "ff0000", 1, "wood", (2.0, 3.0))
    template.add("coarse sphere", upright_pose((4, 5, 6), (2, 2, 2)), "00ff00", 2)
    return template


def check_written(template: InstanceTemplate, scene: Scene, lanes: np.ndarray) -> None:
    for name in ("mesh", "pose", "color", "texture", "uv_scale", "label"):
        column, wanted = getattr(scene.instances, name)[scene.rows(lanes)], np.array(getattr(template, name))
        assert (column == wanted.astype(column.dtype)).all(), name
    assert (scene.lanes.sky_zenith[lanes] == np.array([0.1, 0.2, 0.3], np.float32)).all()
    assert (scene.lanes.ambient[lanes] == np.float32(0.5)).all()


def test_rows_are_written_into_empty_lanes_only() -> None:
    template, scene = build_template(), Scene(ASSETS)
    first, others, second = scene.add(3, 2), scene.add(4, 2), scene.add(2, 2)
    lane_columns: dict[str, Any] = {"sky_zenith": (0.1, 0.2, 0.3), "ambient": 0.5}
    template.write_where_empty(scene, first[::-1].copy(), **lane_columns)
    check_written(template, scene, first)
    scene.instances.pose[scene.rows(first)] = 7.0
    scene.lanes.ambient[first] = 0.25
    template.write_where_empty(scene, np.concatenate([second, first]), **lane_columns)
    check_written(template, scene, second)
    assert (scene.instances.pose[scene.rows(first)] == 7.0).all()
    assert (scene.lanes.ambient[first] == 0.25).all()
    assert (scene.instances.mesh[scene.rows(others)] == NO_MESH).all()


def test_rows_are_written_again_into_a_lane_that_is_reused() -> None:
    template, scene = build_template(), Scene(ASSETS, spare_rows=0)
    for rows_per_lane in (2, 5, 2):  # rows move, or serve again
        lanes = scene.add(6, rows_per_lane)
        scene.instances.mesh[scene.rows(lanes)] = 3
        scene.instances.pose[scene.rows(lanes)] = 9.0
        scene.free(lanes[1:])
        mine = scene.add(4, 2)
        assert set(mine.tolist()) <= set(lanes.tolist())
        template.write_where_empty(scene, mine, sky_zenith=(0.1, 0.2, 0.3), ambient=0.5)
        check_written(template, scene, mine)
        scene.free(np.concatenate([mine, lanes[:1]]))
