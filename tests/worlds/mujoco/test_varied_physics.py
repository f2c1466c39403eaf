"""Masses, friction, damping and gains that vary: lanes are simulated as MuJoCo simulates a model with these values."""

import copy
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest

from tests.support.determinism import draw
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.mujoco.dm_control.family import Dmc
from worldloom.worlds.mujoco.dm_control.suite import suite
from worldloom.worlds.mujoco.family import Mujoco, register_reward
from worldloom.worlds.mujoco.models.files import allow_model_dirs, offer_model, withdraw_model
from worldloom.worlds.mujoco.simulation.data import LaneArrays
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds, mix, uniform
from worldloom.worlds.randomisation.draws import DRAWS
from worldloom.worlds.randomisation.settings import EPISODE, PHYSICS, VARIATIONS, WORLD, Randomisation
from worldloom.worlds.registry import find_family
from worldloom.worlds.settings import SettingError

ASSETS = AssetLibrary(texture_size=32)
AMOUNT = 0.7
CART = """
<mujoco><worldbody><geom type="plane" size="3 3 .1"/>
<body pos="0 0 .3"><freejoint/><geom size=".2" mass="2"/>
 <body pos=".4 0 0"><joint name="hinge" axis="0 1 0" damping=".3"/><geom type="capsule" size=".05 .2"/></body></body>
</worldbody><actuator><motor joint="hinge" gear="2"/><position joint="hinge" kp="3"/></actuator>
<sensor><subtreecom body="world"/></sensor></mujoco>
"""


def randomisation(*names: str, when: int = EPISODE) -> Randomisation:
    amounts = tuple(AMOUNT if one.name in names else 0.0 for one in VARIATIONS)
    return Randomisation(amounts, (when,) * len(VARIATIONS))


EVERYTHING = randomisation("masses", "friction", "damping", "gains")


def numbers(what: int, seed: np.ndarray, episode: int, count: int) -> np.ndarray:
    return uniform(mix(mix(seed, DRAWS + what), episode)[:, None], np.arange(count, dtype=np.uint64))


def vary(model: mujoco.MjModel, seed: np.ndarray, lane: int, episode: int) -> None:
    """Give a model the values of a lane."""
    counts = (model.nbody, model.ngeom, model.nv, model.nu)
    masses, friction, damping, gains = (
        2 ** (AMOUNT * (2 * numbers(what, seed, episode, count)[lane] - 1))
        for what, count in zip(PHYSICS, counts, strict=True)
    )
    model.body_mass *= masses
    model.body_inertia *= masses[:, None]
    model.geom_friction[:, 0] *= friction
    model.dof_damping *= damping
    model.actuator_gainprm *= gains[:, None]
    model.actuator_biasprm *= gains[:, None]
    mujoco.mj_setConst(model, mujoco.MjData(model))


def test_lanes_are_simulated_with_their_own_values(tmp_path: Path) -> None:
    (tmp_path / "cart.xml").write_text(CART)
    allow_model_dirs([tmp_path])
    try:
        family = Mujoco({"model": "cart.xml", "max_steps": 5}, ASSETS)
    finally:
        allow_model_dirs([])
    pool = Pool(family, Scene(ASSETS), EVERYTHING)
    seeds = lane_seeds(3, 4)
    lanes = pool.add(seeds)
    rng = np.random.default_rng(0)
    names = [spec.name for spec in family.observations if spec.name not in ("qpos", "qvel", "unstable")]
    for episode in range(2):
        theirs = []
        for lane in range(4):
            model = mujoco.MjModel.from_xml_string(CART)
            vary(model, seeds, lane, episode)
            data = mujoco.MjData(model)
            mujoco.mj_forward(model, data)
            theirs.append((model, data))
        controls = rng.uniform(-1, 1, (6, 4, 1, 2))
        for step in range(6):
            pool.step(lanes, {"control": controls[step]})
            for lane, (model, data) in enumerate(theirs):
                if step:
                    data.ctrl[:] = controls[step, lane, 0]
                    mujoco.mj_step(model, data)
                    mujoco.mj_step1(model, data)
                assert (pool.observe(lanes, "qpos")[lane] == data.qpos).all()
                assert (pool.observe(lanes, "qvel")[lane] == data.qvel).all()
                assert (pool.observe(lanes, names[0])[lane] == data.sensordata[:3]).all()
    assert len(np.unique(pool.observe(lanes, "qpos")[:, 0])) == 4


def told(
    settings: dict[str, Any], what: Randomisation, seeds: list[int], own: int, renderer: CPURenderer
) -> list[bytes]:
    """Return everything of one of the lanes with these seeds, over three episodes."""
    pool = Pool(Dmc({**settings, "time_limit": 0.1}, ASSETS), Scene(ASSETS), what)
    lanes = pool.add(np.array(seeds, np.uint64))
    found = []
    for step in range(18):
        pool.step(lanes, {"control": np.full((len(seeds), 1, *pool.family.actions[0].shape), np.sin(step))})
        found += [pool.observe(lanes, spec.name)[own].tobytes() for spec in pool.family.observations]
        found.append(pool.reward[lanes[own]].tobytes())
        if step % 3 == 0:
            views = pool.views(lanes, "eye", width=16, height=16)
            found.append(draw(pool, views, renderer)[own]["rgb"].tobytes())
    return found


@pytest.mark.parametrize("when", [WORLD, EPISODE])
@pytest.mark.parametrize("domain", ["reacher", "walker"])
def test_a_lane_of_a_task_depends_on_its_seed_alone(domain: str, when: int) -> None:
    """One whose task changes its model when an episode begins, too."""
    settings = {"domain": domain, "task": {"reacher": "easy", "walker": "walk"}[domain]}
    what = randomisation("masses", "friction", "gains", "colors", when=when)
    with CPURenderer(1) as renderer:
        alone = told(settings, what, [7], 0, renderer)
        assert told(settings, what, [3, 7, 9, 7], 1, renderer) == alone
        assert told(settings, what, [3, 7, 9, 7], 3, renderer) == alone
        assert told(settings, what, [8], 0, renderer) != alone


def episodes(settings: dict[str, Any], what: Randomisation | None, count: int = 2) -> np.ndarray:
    """Return positions of the first states of some episodes, and of a few steps of each."""
    pool = Pool(Dmc(settings, ASSETS), Scene(ASSETS), what)
    lanes = pool.add(Dmc.lane_seeds(1, 3))
    found = []
    for _ in range(count):
        pool.interrupt(lanes)
        for _ in range(4):
            pool.step(lanes, {"control": np.full((3, 1, *pool.family.actions[0].shape), 0.5)})
            found.append(
                np.concatenate(
                    [pool.observe(lanes, spec.name).reshape(3, -1) for spec in pool.family.observations], axis=1
                )
            )
    return np.stack(found)


def test_what_does_not_vary_is_as_ever() -> None:
    """Factors of one, and the first states of episodes, which do not depend on masses here."""
    settings = {"domain": "reacher", "task": "easy"}
    plain = episodes(settings, None)
    slight = Randomisation(
        tuple(1e-9 if one.name == "gains" else 0.0 for one in VARIATIONS), (EPISODE,) * len(VARIATIONS)
    )
    assert episodes(settings, slight) == pytest.approx(plain, abs=1e-6)
    heavy = episodes(settings, randomisation("gains"))
    assert heavy[0] == pytest.approx(plain[0])
    assert heavy[4] == pytest.approx(plain[4])
    assert np.abs(heavy[3] - plain[3]).max() > 1e-4


def test_gymnasiums_tasks_vary_too() -> None:
    family = find_family("gym")({"id": "HalfCheetah-v5"}, ASSETS)
    plain = find_family("gym")({"id": "HalfCheetah-v5"}, ASSETS)
    rewards = []
    for made, what in ((plain, None), (family, randomisation("masses", "gains"))):
        pool = Pool(made, Scene(ASSETS), what)
        lanes = pool.add(lane_seeds(1, 3))
        for _ in range(10):
            pool.step(lanes, {"action": np.full((3, 1, 6), 0.5, np.float32)})
        rewards.append(pool.reward[lanes, 0].copy())
    assert (rewards[0] != rewards[1]).all()


def test_the_model_that_rewards_read_is_not_that_of_a_lane_that_was_drawn() -> None:
    model = mujoco.MjModel.from_xml_string(CART)
    name = offer_model(model)
    register_reward(name, lambda lanes: np.full(len(lanes), lanes.model.body_mass.sum()))
    pool = Pool(Mujoco({"model": name}, ASSETS), Scene(ASSETS), randomisation("masses"))
    withdraw_model(name)
    lanes = pool.add(lane_seeds(3, 4))
    for _ in range(3):
        pool.step(lanes, {"control": np.zeros((4, 1, 2))})
        pool.views(lanes, "free")
    assert (pool.reward[lanes, 0] == mujoco.MjModel.from_xml_string(CART).body_mass.sum()).all()


@pytest.mark.parametrize(("domain", "task"), [("hopper", "stand"), ("swimmer", "swimmer6"), ("walker", "walk")])
def test_cameras_and_lights_follow_the_centre_of_mass_of_their_lane(domain: str, task: str) -> None:
    family = Dmc({"domain": domain, "task": task}, ASSETS)
    pool = Pool(family, Scene(ASSETS), EVERYTHING)
    seeds = Dmc.lane_seeds(5, 3)
    lanes = pool.add(seeds)
    plain = suite.load(domain, task).physics.model.ptr
    for _ in range(3):
        pool.step(lanes, {"control": np.zeros((3, 1, plain.nu))})
    pool.views(lanes, "eye")
    arrays = LaneArrays(plain, pool.state, lanes)
    for lane in range(3):
        model = copy.copy(plain)
        vary(model, seeds, lane, 0)
        assert not np.allclose(model.body_mass, plain.body_mass)
        data = mujoco.MjData(model)
        data.qpos[:] = arrays.qpos[lane]
        mujoco.mj_forward(model, data)
        for name in (model.camera(k).name for k in range(model.ncam)):
            pose = pool.place_camera(lanes, name, 0).pose[lane]
            # Poses are of single precision.
            assert pose[:, 3] == pytest.approx(data.camera(name).xpos, abs=1e-5)
            assert pose[:, :3].ravel() == pytest.approx(data.camera(name).xmat, abs=1e-5)
        follows = model.light_mode == mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM  # the task of swimmer places another
        assert follows.any() or mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM in model.cam_mode
        assert arrays.light_xpos[lane][follows] == pytest.approx(data.light_xpos[follows], abs=1e-12)


@pytest.mark.parametrize("env_id", ["Humanoid-v5", "HumanoidStandup-v5", "Ant-v5"])
@pytest.mark.parametrize("lanes", [1, 3])
def test_gymnasiums_tasks_have_its_bits_with_the_masses_of_their_lanes(env_id: str, lanes: int) -> None:
    """Gymnasium's own environments, whose models have these values. Humanoid's speed is that of the centre of mass."""
    family = find_family("gym")({"id": env_id, "max_steps": 7}, ASSETS)
    pool = Pool(family, Scene(ASSETS), EVERYTHING)
    seeds = family.lane_seeds(5, lanes)
    added = pool.add(seeds)
    environments: list[Any] = [gymnasium.make(env_id, max_episode_steps=7).unwrapped for _ in range(lanes)]
    plain = [copy.copy(environment.model) for environment in environments]
    rng, space = np.random.default_rng(0), environments[0].action_space
    for episode in range(2):
        for step in range(8):
            actions = rng.uniform(space.low, space.high, (lanes, *space.shape)).astype(space.dtype)
            pool.step(added, {"action": actions[:, None]})
            pool.views(added, "eye")  # which writes the sizes of each lane's model
            observations = pool.observe(added, "observation")
            for lane, environment in enumerate(environments):
                if step:
                    observation, reward, *_ = environment.step(actions[lane])
                    assert pool.reward[added[lane], 0].tobytes() == np.float64(reward).tobytes()
                else:
                    vary_from(plain[lane], environment.model, seeds, lane, episode)
                    observation, _ = environment.reset(seed=None if episode else 5 + lane)
                assert observations[lane].tobytes() == observation.tobytes()


def vary_from(plain: mujoco.MjModel, model: mujoco.MjModel, seed: np.ndarray, lane: int, episode: int) -> None:
    """Give a model the values of a lane, from those of another."""
    for name in ("body_mass", "body_inertia", "geom_friction", "dof_damping", "actuator_gainprm", "actuator_biasprm"):
        getattr(model, name)[:] = getattr(plain, name)
    vary(model, seed, lane, episode)


@pytest.mark.parametrize("name", ["catch", "maze"])
def test_families_without_a_simulation_of_mujoco_refuse(name: str) -> None:
    expected = f"setting 'vary_masses' is 0.7: this world of '{name}' has no masses that could vary"
    with pytest.raises(SettingError, match=expected):
        Pool(find_family(name)({}, ASSETS), Scene(ASSETS), EVERYTHING)
