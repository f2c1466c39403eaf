"""Models without some of what others have: no joints, no geoms, nothing but a light. Poses are MuJoCo's own."""

from collections.abc import Iterator

import mujoco
import numpy as np
import pytest

from tests.support.determinism import draw
from worldloom.kernels.outputs import SEGMENTATION
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.mujoco.family import Mujoco
from worldloom.worlds.mujoco.models import files
from worldloom.worlds.pool import Pool

LIGHT = '<light pos="0 0 3"/><camera name="side" pos="0 -3 .5" xyaxes="1 0 0 0 0 1"/>'
SITES = '<site name="a" pos="-.8 .1 .2" size=".15"/><site name="b" pos=".7 0 .9" size=".15"/>'
ROPE = '<tendon><spatial name="rope" width=".06" rgba=".9 .2 .1 1"><site site="a"/><site site="b"/></spatial></tendon>'
CARRIED = '<body name="held" mocap="true" pos=".3 0 .4">{}<site name="b" pos=".1 0 .2"/></body>'
BOX = '<geom name="box" type="box" size=".1 .2 .1"/>'
MODELS = {
    "nothing": "<mujoco/>",
    "light": f"<mujoco><worldbody>{LIGHT}</worldbody></mujoco>",
    "sites": f"<mujoco><worldbody>{LIGHT}{SITES}</worldbody></mujoco>",
    "joint": f'<mujoco><worldbody>{LIGHT}<body><joint/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/></body>'
    "</worldbody></mujoco>",
    "tendon": f"<mujoco><worldbody>{LIGHT}{SITES}</worldbody>{ROPE}</mujoco>",
    "tendon and geom": f"<mujoco><worldbody>{LIGHT}{SITES}{BOX}</worldbody>{ROPE}</mujoco>",
    "mocap and tendon": f'<mujoco><worldbody>{LIGHT}<site name="a" pos="-.8 .1 .2"/>{CARRIED.format("")}</worldbody>'
    f"{ROPE}</mujoco>",
    "mocap, geom and tendon": f'<mujoco><worldbody>{LIGHT}<site name="a" pos="-.8 .1 .2"/>{CARRIED.format(BOX)}'
    f"</worldbody>{ROPE}</mujoco>",
}
FAMILIES, LANES, SIZE = 4, 3, 32


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(MODELS[request.param])


@pytest.fixture
def name(model: mujoco.MjModel) -> Iterator[str]:
    name = files.offer_model(model)
    yield name
    files.withdraw_model(name)


@pytest.mark.parametrize("drive", ["control", "state"])
def test_what_there_is_is_where_mujoco_has_it(model: mujoco.MjModel, name: str, drive: str) -> None:
    """In several families: arrays of simulations that are empty lie anywhere, and elsewhere in each."""
    rng, kept = np.random.default_rng(0), []
    for _ in range(FAMILIES):
        pool = Pool(Mujoco({"model": name, "drive": drive}, AssetLibrary()), Scene(AssetLibrary()))
        kept.append(pool)
        lanes = pool.add(np.zeros(LANES, np.uint64))
        actions = {
            spec.name: rng.uniform(-1, 1, (LANES, 1, *spec.shape)).astype(spec.dtype) for spec in pool.family.actions
        }
        for _ in range(2):  # the first begins an episode, and ignores actions
            pool.step(lanes, actions)
        with CPURenderer(1) as renderer:
            camera = "side" if model.ncam else "free"
            views = pool.views(lanes, camera, width=SIZE, height=SIZE, outputs=SEGMENTATION)
            frames = draw(pool, views, renderer)
        for k in range(LANES):
            data = pose_by_hand(model, {name: values[k, 0] for name, values in actions.items()}, drive)
            check_poses(model, data, pool, int(lanes[k]))
            assert frames[k]["segmentation"].any() == bool(model.ngeom or model.nsite)


def pose_by_hand(model: mujoco.MjModel, actions: dict[str, np.ndarray], drive: str) -> mujoco.MjData:
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    if drive == "state":
        for name, values in actions.items():
            getattr(data, name)[...] = values
    else:
        mujoco.mj_step(model, data)
    mujoco.mj_forward(model, data)
    return data


def check_poses(model: mujoco.MjModel, data: mujoco.MjData, pool: Pool, lane: int) -> None:
    """Compare positions with those of MuJoCo, rounded to float32."""
    scene, labels = pool.scene, list(pool.family.labels)
    rows = scene.rows(pool.scene_lane[[lane]])[0]
    label_of = scene.instances.label[rows]
    poses = scene.instances.pose[rows]
    for kind, count, positions in (("geom", model.ngeom, data.geom_xpos), ("site", model.nsite, data.site_xpos)):
        for k in range(count):
            own = getattr(model, kind)(k).name
            (pose,) = poses[label_of == labels.index(f"{kind}.{own}")]
            np.testing.assert_array_equal(pose[:, 3], positions[k].astype(np.float32))
    if model.ntendon:
        tube, *spheres = poses[label_of == labels.index("tendon.rope")]
        start, end = data.site("a").xpos, data.site("b").xpos
        np.testing.assert_array_equal(tube[:, 3], (0.5 * (start + end)).astype(np.float32))
        # The axis of a tube is half its length; a few roundings of float64, then one to float32.
        np.testing.assert_allclose(tube[:, 2], 0.5 * (end - start), atol=1e-7)
        np.testing.assert_array_equal([one[:, 3] for one in spheres], np.array([start, end], np.float32))
