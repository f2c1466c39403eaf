"""What varies in the pictures of models of MuJoCo: simulated, set by states, or in environments of Gymnasium."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.determinism import draw
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.family import Family
from worldloom.worlds.gym.family import Gym
from worldloom.worlds.mujoco.dm_control.family import Dmc
from worldloom.worlds.mujoco.family import Mujoco
from worldloom.worlds.mujoco.models.files import allow_model_dirs
from worldloom.worlds.pool import Pool
from worldloom.worlds.randomisation.settings import (
    CAMERA,
    COLORS,
    SIZES,
    STEP,
    VARIATIONS,
    VISUAL,
    WALK,
    Randomisation,
)
from worldloom.worlds.settings import SettingError

ASSETS = AssetLibrary(texture_size=32)
ARM = """
<mujoco><asset>
 <texture name="sky" type="skybox" builtin="gradient" rgb1=".4 .6 .8" rgb2="0 0 0" width="32" height="32"/>
 <material name="steel" rgba=".5 .6 .7 1"/><material name="wood" rgba=".6 .4 .2 1"/></asset>
<worldbody><light pos="0 0 3" dir="0 0 -1"/><geom name="floor" type="plane" size="2 2 .1" material="wood"/>
<camera name="front" pos="0 -3 1" xyaxes="1 0 0 0 .3 1"/>
<body name="upper" pos="0 0 .5"><joint axis="0 1 0"/>
 <geom name="upper" type="capsule" fromto="0 0 0 .5 0 0" size=".08" material="steel"/>
 <camera name="hand" pos="0 0 .2" mode="fixed"/>
 <body name="lower" pos=".5 0 0"><joint axis="0 1 0"/><geom name="lower" type="box" size=".2 .1 .1" material="steel"/>
 </body></body></worldbody></mujoco>
"""


def everything(when: int) -> Randomisation:
    return Randomisation(tuple(0.5 if k in VISUAL else 0.0 for k in range(len(VARIATIONS))), (when,) * len(VARIATIONS))


def only(what: int, amount: float) -> Randomisation:
    return Randomisation(tuple(amount if k == what else 0.0 for k in range(len(VARIATIONS))), (1,) * len(VARIATIONS))


@pytest.fixture(scope="module", autouse=True)
def models(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder: Path = tmp_path_factory.mktemp("models")
    (folder / "varied-arm.xml").write_text(ARM)
    allow_model_dirs([folder])


FAMILIES: dict[str, Callable[[], Family]] = {
    "simulated": lambda: Mujoco({"model": "varied-arm.xml", "max_steps": 6}, ASSETS),
    "states": lambda: Mujoco({"model": "varied-arm.xml", "drive": "state"}, ASSETS),
    "dmc": lambda: Dmc({"domain": "reacher", "task": "hard", "time_limit": 0.1}, ASSETS),
    "gym": lambda: Gym({"id": "Reacher-v5", "max_steps": 6}, ASSETS),
}


def told(build: Callable[[], Family], when: int, seeds: list[int], own: int, draw_every: int = 1) -> list[bytes]:
    """Return the frames of one of the lanes with these seeds, over three episodes."""
    pool = Pool(build(), Scene(ASSETS), everything(when))
    lanes = pool.add(np.array(seeds, np.uint64))
    found = []
    with CPURenderer(1) as renderer:
        for step in range(15):
            actions: dict[str, Any] = {
                spec.name: np.full((len(seeds), 1, *spec.shape), np.sin(step), spec.dtype)
                for spec in pool.family.actions
            }
            pool.step(lanes, actions)
            if step % draw_every == 0:
                frames = draw(pool, pool.views(lanes, "eye", width=20, height=20), renderer)[own]["rgb"].tobytes()
                found += [frames] * (step % 5 == 0)
    return found


@pytest.mark.parametrize("when", [STEP, WALK])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_lane_depends_on_its_seed_alone(name: str, when: int) -> None:
    alone = told(FAMILIES[name], when, [7], 0)
    assert len(set(alone)) == 3
    assert told(FAMILIES[name], when, [7], 0, draw_every=5) == alone
    assert told(FAMILIES[name], when, [3, 7, 9], 1) == alone
    assert told(FAMILIES[name], when, [8], 0) != alone


def test_what_has_one_material_has_one_color() -> None:
    pool = Pool(FAMILIES["simulated"](), Scene(ASSETS), only(COLORS, 0.5))
    lanes = pool.add(np.arange(20, dtype=np.uint64))
    pool.views(lanes, "eye")
    rows = pool.scene.rows(pool.scene_lane[lanes])
    labels = [pool.family.labels[label].removeprefix("geom.") for label in pool.scene.instances.label[rows][0]]
    assert sorted(labels) == ["floor", "lower", "upper"]
    colors = {label: pool.scene.instances.color[rows[:, k]] for k, label in enumerate(labels)}
    assert (colors["upper"] == colors["lower"]).all()
    assert (colors["upper"] != colors["floor"]).any(axis=1).all()
    assert (abs(colors["upper"] - np.array([0.5, 0.6, 0.7], np.float32)) <= 0.5).all()


def test_sizes_of_what_does_not_move_stay() -> None:
    varied, plain = (Pool(FAMILIES["simulated"](), Scene(ASSETS), what) for what in (only(SIZES, 1.0), None))
    poses = []
    for pool in (varied, plain):
        lanes = pool.add(np.arange(20, dtype=np.uint64))
        pool.views(lanes, "eye")
        rows = pool.scene.rows(pool.scene_lane[lanes])
        static = pool.family.static_rows
        poses.append((pool.scene.instances.pose[rows[:, :static]], pool.scene.instances.pose[rows[:, static:]]))
    assert (poses[0][0] == poses[1][0]).all()
    assert (np.linalg.det(poses[0][1][..., :3]) / np.linalg.det(poses[1][1][..., :3])).max() > 2


def test_cameras_go_around_the_first_body_but_not_those_on_bodies() -> None:
    pool = Pool(FAMILIES["simulated"](), Scene(ASSETS), only(CAMERA, 0.2))
    focuses_m = {camera.name: camera.focus_m for camera in pool.family.cameras}
    assert focuses_m["hand"] == 0.0
    assert focuses_m["front"] == focuses_m["eye"]
    assert focuses_m["front"] == pytest.approx(3.05, abs=0.1)
    lanes = pool.add(np.arange(30, dtype=np.uint64))
    pool.views(lanes, "eye")
    hand, own = pool.place_camera(lanes, "hand", 0), pool.family.place_camera(pool.state, lanes, "hand", 0)
    assert (hand.pose[:, :, 3] == own.pose[:, :, 3]).all()
    front, own = pool.place_camera(lanes, "front", 0), pool.family.place_camera(pool.state, lanes, "front", 0)
    focus = own.pose[0, :, 3] - focuses_m["front"] * own.pose[0, :, 2]
    towards = focus - front.pose[:, :, 3]
    distances = np.linalg.norm(towards, axis=1)
    assert (-front.pose[:, :, 2] * distances[:, None]) == pytest.approx(towards, abs=1e-5)
    assert 0.9 * focuses_m["front"] <= distances.min() < distances.max() <= 1.3 * focuses_m["front"]


def test_pictures_of_environments_cannot_vary() -> None:
    with pytest.raises(SettingError, match="settings that vary the pictures of 'gym': expected none"):
        Pool(Gym({"id": "CartPole-v1"}, ASSETS), Scene(ASSETS), everything(STEP))
