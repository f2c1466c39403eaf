"""Things are put into a lane once, and again when another world has it."""

from typing import Any

import numpy as np

from worldloom.kernels.tables import NO_MESH
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.props import Props, placed

ASSETS = AssetLibrary(texture_size=8)


def make_props() -> Props:
    props = Props(ASSETS)
    props.add("box", placed((1, 2, 3)), "ff0000", 1, "wood", (2.0, 3.0))
    props.add("ball", placed((4, 5, 6), (2, 2, 2)), "00ff00", 2)
    return props


def check_furnished(props: Props, scene: Scene, lanes: np.ndarray) -> None:
    for name in ("mesh", "pose", "color", "texture", "uv_scale", "label"):
        column, wanted = getattr(scene.instances, name)[scene.rows(lanes)], np.array(getattr(props, name))
        assert (column == wanted.astype(column.dtype)).all(), name
    assert (scene.lanes.sky_zenith[lanes] == np.array([0.1, 0.2, 0.3], np.float32)).all()
    assert (scene.lanes.ambient[lanes] == np.float32(0.5)).all()


def test_everything_is_put_into_lanes_that_lack_it_and_nowhere_else() -> None:
    props, scene = make_props(), Scene(ASSETS)
    first, others, second = scene.add(3, 2), scene.add(4, 2), scene.add(2, 2)
    look: dict[str, Any] = {"sky_zenith": (0.1, 0.2, 0.3), "ambient": 0.5}
    props.furnish(scene, first[::-1].copy(), **look)
    check_furnished(props, scene, first)
    scene.instances.pose[scene.rows(first)] = 7.0
    scene.lanes.ambient[first] = 0.25
    props.furnish(scene, np.concatenate([second, first]), **look)
    check_furnished(props, scene, second)
    assert (scene.instances.pose[scene.rows(first)] == 7.0).all()
    assert (scene.lanes.ambient[first] == 0.25).all()
    assert (scene.instances.mesh[scene.rows(others)] == NO_MESH).all()


def test_whoever_gets_a_lane_next_finds_it_furnished_anew() -> None:
    props, scene = make_props(), Scene(ASSETS, spare_rows=0)
    for rows_per_lane in (2, 5, 2):  # rows move, or serve again
        lanes = scene.add(6, rows_per_lane)
        scene.instances.mesh[scene.rows(lanes)] = 3
        scene.instances.pose[scene.rows(lanes)] = 9.0
        scene.free(lanes[1:])
        mine = scene.add(4, 2)
        assert set(mine.tolist()) <= set(lanes.tolist())
        props.furnish(scene, mine, sky_zenith=(0.1, 0.2, 0.3), ambient=0.5)
        check_furnished(props, scene, mine)
        scene.free(np.concatenate([mine, lanes[:1]]))
