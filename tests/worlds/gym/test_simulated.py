"""Environments with a MuJoCo model and their own Python code: their numbers, and what is drawn of their state."""

from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest

from tests.support.gym_lanes import GymLanes
from tests.support.odd_environments import POINT, Point
from worldloom.client import VectorEnv
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.worlds.gym.family import Gym
from worldloom.worlds.gym.permissions import allow_gym_ids, import_gym_modules
from worldloom.worlds.gym.simulated import MujocoGym
from worldloom.worlds.pool import Pool

LANES, SEED, SIZE = 3, 7, 96


@pytest.fixture
def robotics() -> None:
    import_gym_modules(["gymnasium_robotics"])
    allow_gym_ids(["PointMaze*", "AntMaze*", "AdroitHand*"])


def run(env_id: str, steps: int, outputs: list[str]) -> dict[str, np.ndarray]:
    """Step lanes beside their own environments, and return the last observations."""
    theirs = GymLanes(env_id, SEED, LANES)
    asked = [*theirs.names, "failed", *outputs]
    with VectorEnv(
        "local",
        "gym",
        LANES,
        width=SIZE,
        height=SIZE,
        observations=asked,
        settings={"id": env_id},
        renderer="cpu",
    ) as env:
        seen: Any = env.reset(seed=SEED)[0]
        theirs.check(seen)
        space: Any = theirs.envs[0].action_space
        rng = np.random.default_rng(0)
        for _ in range(steps):
            actions = rng.uniform(space.low, space.high, (LANES, *space.shape)).astype(space.dtype)
            seen, *outcome, _ = env.step({"action": actions})
            theirs.step(list(actions))
            theirs.check(seen, *outcome)
        assert not seen["failed"].any()
    theirs.close()
    found: dict[str, np.ndarray] = seen
    return found


@pytest.mark.usefixtures("robotics")
def test_a_maze_of_gymnasium_robotics_has_its_own_numbers_and_shows_its_target() -> None:
    seen = run("PointMaze_UMaze-v3", 350, ["eye.rgb", "eye.segmentation"])  # beyond an episode of 300 steps
    family = Gym({"id": "PointMaze_UMaze-v3"}, AssetLibrary())
    target = family.labels.index("site.target")
    centres = []
    for rgb, segmentation in zip(seen["eye.rgb"], seen["eye.segmentation"], strict=True):
        assert (segmentation == target).sum() > 10
        red, green, _ = rgb[segmentation == target].mean(axis=0)
        assert red > 2 * green, "it is red"
        centres.append(np.argwhere(segmentation == target).mean(axis=0))
    # Lanes have goals of their own, and where those differ, so do the frames.
    goals = seen["observation.desired_goal"]
    for k in range(1, LANES):
        if np.abs(goals[k] - goals[0]).max() > 0.5:
            assert np.abs(centres[k] - centres[0]).max() > 2


@pytest.mark.slow
@pytest.mark.usefixtures("robotics")
@pytest.mark.parametrize("env_id", ["AntMaze_UMaze-v5", "AdroitHandRelocate-v1"])
def test_other_tasks_of_gymnasium_robotics(env_id: str) -> None:
    seen = run(env_id, 30, ["eye.rgb"])
    assert all(np.ptp(frame) > 50 for frame in seen["eye.rgb"])


@pytest.mark.parametrize("env_id", ["HalfCheetah-v4", "Hopper-v4"])
def test_older_versions_of_gymnasiums_own_tasks(env_id: str) -> None:
    run(env_id, 60, ["eye.rgb"])


def draw(pool: Pool, lanes: np.ndarray, cpu: Renderer) -> np.ndarray:
    views = pool.views(lanes, "eye", width=SIZE, height=SIZE)
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    cpu.draw(pool.scene, views, arena, offsets)
    return np.stack([arena[start : start + SIZE * SIZE * 3].reshape(SIZE, SIZE, 3) for start in offsets[:, 0]]).copy()


def make_pool(lanes: int) -> tuple[Pool, np.ndarray]:
    allow_gym_ids(["odd/*"])
    assets = AssetLibrary()
    family = Gym({"id": "odd/Point-v0"}, assets)
    assert type(family) is MujocoGym
    pool = Pool(family, Scene(assets))
    added = pool.add(family.lane_seeds(0, lanes))
    pool.begin(added)
    return pool, added


def is_green(frames: np.ndarray) -> np.ndarray:
    return (frames[..., 1] > frames[..., 0] + 60) & (frames[..., 1] > frames[..., 2] + 60)


def test_targets_are_placed_before_a_frame_and_the_simulation_stays_as_it_was(cpu: Renderer) -> None:
    pool, lanes = make_pool(2)
    environments: list[Point] = [pool.state.environment[lane].env.unwrapped for lane in lanes]
    before = [
        np.concatenate([one.data.qpos, one.data.site_xpos.ravel(), one.model.site_pos.ravel(), one.data.qacc_warmstart])
        for one in environments
    ]
    frames = draw(pool, lanes, cpu)
    assert is_green(frames).sum(axis=(1, 2)).min() > 20
    after = [
        np.concatenate([one.data.qpos, one.data.site_xpos.ravel(), one.model.site_pos.ravel(), one.data.qacc_warmstart])
        for one in environments
    ]
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))
    assert np.array_equal(frames, draw(pool, lanes, cpu))


def test_a_lane_shows_the_changes_of_its_own_model(cpu: Renderer) -> None:
    pool, lanes = make_pool(2)
    first = draw(pool, lanes, cpu)
    model = pool.state.environment[lanes[1]].env.unwrapped.model
    model.geom_rgba[1] = (0, 0, 1, 1)
    model.geom_size[1] = 0.4
    second = draw(pool, lanes, cpu)
    assert np.array_equal(first[0], second[0])
    is_blue = (second[1][..., 2] > 60) & (second[1][..., 0] < 40)
    is_red = (first[1][..., 0] > 60) & (first[1][..., 2] < 40)
    assert is_blue.sum() > 2 * is_red.sum() > 0


def test_an_environment_may_replace_its_simulation(cpu: Renderer) -> None:
    pool, lanes = make_pool(2)
    unwrapped = pool.state.environment[lanes[1]].env.unwrapped
    before = draw(pool, lanes, cpu)
    unwrapped.data = mujoco.MjData(unwrapped.model)
    mujoco.mj_forward(unwrapped.model, unwrapped.data)
    after = draw(pool, lanes, cpu)
    assert np.array_equal(before[0], after[0])
    assert not np.array_equal(before[1], after[1])


SMALL = mujoco.MjModel.from_xml_string("<mujoco/>")
LARGE = mujoco.MjModel.from_xml_string(POINT.replace("</worldbody>", '<geom name="more" size="1"/></worldbody>'))


def replace_by(unwrapped: Any, fault: str) -> None:
    """Break an environment for the renderer, in the way that `fault` says."""
    model = unwrapped.model
    if fault == "no data":
        unwrapped.data = None
    elif fault == "no attributes":
        del unwrapped.model, unwrapped.data
    elif fault == "another model":
        unwrapped.model, unwrapped.data = LARGE, mujoco.MjData(LARGE)
    elif fault == "model alone":
        unwrapped.model = SMALL
    elif fault == "data alone":
        unwrapped.data = mujoco.MjData(SMALL)
    elif fault == "material":
        model.geom_matid[:] = 55
    elif fault == "mesh":
        model.geom_type[:], model.geom_dataid[:] = mujoco.mjtGeom.mjGEOM_MESH, 77
        model.geom_size[:] *= 2


@pytest.mark.parametrize(
    "fault", ["no data", "no attributes", "another model", "model alone", "data alone", "material", "mesh"]
)
def test_a_lane_that_cannot_be_drawn_is_black_and_others_are_not_disturbed(
    fault: str, cpu: Renderer, caplog: pytest.LogCaptureFixture
) -> None:
    pool, lanes = make_pool(3)
    unwrapped = pool.state.environment[lanes[1]].env.unwrapped
    model, data, size = unwrapped.model, unwrapped.data, unwrapped.model.geom_size.copy()
    ids = {name: getattr(model, name).copy() for name in ("geom_type", "geom_dataid", "geom_matid")}
    before = draw(pool, lanes, cpu)
    replace_by(unwrapped, fault)
    for _ in range(2):
        after = draw(pool, lanes, cpu)
        assert not after[1].any()
        assert np.array_equal(after[[0, 2]], before[[0, 2]])
    assert len([one for one in caplog.records if "when it was drawn: its frames are black" in one.message]) == 1
    unwrapped.model, unwrapped.data = model, data
    model.geom_size[:] = size
    for name, values in ids.items():
        getattr(model, name)[:] = values
    assert np.array_equal(draw(pool, lanes, cpu), before), "it is drawn again when it can be"
    pool.free(lanes)


def test_lanes_that_have_not_begun_are_drawn(cpu: Renderer) -> None:
    allow_gym_ids(["odd/*"])
    assets = AssetLibrary()
    pool = Pool(Gym({"id": "odd/Point-v0"}, assets), Scene(assets))
    lanes = pool.add(np.arange(2, dtype=np.uint64))
    assert np.ptp(draw(pool, lanes, cpu)) > 50
    pool.begin(lanes)
    assert np.ptp(draw(pool, lanes, cpu)) > 50
    pool.free(lanes)


def test_eye_is_the_camera_of_gymnasiums_renderer() -> None:
    allow_gym_ids(["HalfCheetah-v4"])
    family = Gym({"id": "HalfCheetah-v4"}, AssetLibrary())
    pool = Pool(family, Scene(family.assets))
    lanes = pool.add(np.zeros(1, np.uint64))
    pool.begin(lanes)
    placed = family.place_camera(pool.state, lanes, "eye", 0)
    environment: Any = family.template.unwrapped
    config = environment.mujoco_renderer.default_cam_config
    position, forward = np.reshape(placed.pose, (3, 4))[:, 3], -np.reshape(placed.pose, (3, 4))[:, 2]
    data = mujoco.MjData(environment.model)
    mujoco.mj_forward(environment.model, data)
    # float32 poses, of a scene of a few metres
    assert np.allclose(position + config["distance"] * forward, np.median(data.geom_xpos, axis=0), atol=1e-5)
    assert {camera.name for camera in family.cameras} == {"eye", "free", "track"}
    assert isinstance(family.template, gymnasium.wrappers.TimeLimit)
