"""A template is written into a lane once, and again when the lane is reused."""

from collections.abc import Mapping

import numpy as np

from tests.support.toy import Toy
from worldloom.kernels.tables import I32, I64, NO_MESH
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.family import State
from worldloom.worlds.instance_template import InstanceTemplate, upright_pose
from worldloom.worlds.pool import Pool

ASSETS = AssetLibrary(texture_size=8)


def build_template() -> InstanceTemplate:
    template = InstanceTemplate(ASSETS)
    template.add("box", upright_pose((1, 2, 3)), "ff0000", 1, "wood", (2.0, 3.0))
    template.add("coarse sphere", upright_pose((4, 5, 6), (2, 2, 2)), "00ff00", 2, alpha=0.5)
    return template


def check_written(template: InstanceTemplate, scene: Scene, lanes: np.ndarray) -> None:
    for name in ("mesh", "pose", "color", "texture", "uv_scale", "label", "alpha"):
        column, wanted = getattr(scene.instances, name)[scene.rows(lanes)], np.array(getattr(template, name))
        assert (column == wanted.astype(column.dtype)).all(), name
    assert (scene.lanes.sky_zenith[lanes] == np.array([0.1, 0.2, 0.3], np.float32)).all()
    assert (scene.lanes.ambient[lanes] == np.float32(0.5)).all()


class Templated(Toy):
    """The toy with instances from a template, none of which move."""

    rows_per_lane = 2

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        self.template = build_template()

    def write_static_instances(self, scene: Scene, scene_lanes: I32) -> None:
        self.template.write(scene, scene_lanes, sky_zenith=(0.1, 0.2, 0.3), ambient=0.5)

    def write_instances(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        pass


def test_rows_are_written_into_lanes_that_are_drawn_for_the_first_time_only() -> None:
    scene = Scene(ASSETS)
    family = Templated({}, ASSETS)
    pool = Pool(family, scene)
    first, others, second = (pool.add(np.arange(count, dtype=np.uint64)) for count in (3, 4, 2))
    pool.views(first[::-1].copy(), "eye")
    check_written(family.template, scene, pool.scene_lane[first])
    rows = scene.rows(pool.scene_lane[first])
    scene.instances.pose[rows] = 7.0
    scene.lanes.ambient[pool.scene_lane[first]] = 0.25
    pool.views(np.concatenate([second, first]), "eye")
    check_written(family.template, scene, pool.scene_lane[second])
    assert (scene.instances.pose[rows] == 7.0).all()
    assert (scene.lanes.ambient[pool.scene_lane[first]] == 0.25).all()
    assert (scene.instances.mesh[scene.rows(pool.scene_lane[others])] == NO_MESH).all()


def test_rows_are_written_again_into_a_lane_that_is_reused() -> None:
    scene = Scene(ASSETS, spare_rows=0)
    family = Templated({}, ASSETS)
    pool = Pool(family, scene)
    for rows_per_lane in (2, 5, 2):  # rows move, or serve again
        theirs = scene.add(6, rows_per_lane)
        scene.instances.mesh[scene.rows(theirs)] = 3
        scene.instances.pose[scene.rows(theirs)] = 9.0
        scene.free(theirs[1:])
        mine = pool.add(np.arange(4, dtype=np.uint64))
        assert set(pool.scene_lane[mine].tolist()) <= set(theirs.tolist())
        pool.views(mine, "eye")
        check_written(family.template, scene, pool.scene_lane[mine])
        pool.free(mine)
        scene.free(theirs[:1])
