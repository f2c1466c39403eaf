"""Pools of dm_control tasks, and dm_control's own environments to compare them with."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from worldloom.kernels.tables import I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.family import Camera
from worldloom.worlds.mujoco.dm_control.family import Dmc
from worldloom.worlds.mujoco.dm_control.suite import suite
from worldloom.worlds.mujoco.simulation import family as simulated
from worldloom.worlds.pool import Pool

ASSETS = AssetLibrary(texture_size=8)


class EmptyScene:
    """Stand-in for ModelScene that draws nothing: importing all textures would take longer than all the steps."""

    rows_per_lane = 1
    static_rows = 0
    labels = ("sky",)
    cameras = (Camera("eye", "Draws nothing."),)
    not_drawn = ()
    row_groups = (0,)

    def __init__(self, model: Any, assets: AssetLibrary, task_placed: Any = (), eye: Any = None) -> None:
        pass

    def free(self, scene: Scene, scene_lanes: Any) -> None:
        """There is nothing to free."""


@pytest.fixture
def without_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw nothing, neither with worldloom nor with dm_control, one of whose tasks uploads its ground to a renderer."""
    monkeypatch.setattr(simulated, "ModelScene", EmptyScene)
    monkeypatch.setattr(suite.quadruped.Physics, "contexts", None)


def make_pool(domain: str, task: str, **settings: float) -> Pool:
    return Pool(Dmc({"domain": domain, "task": task, **settings}, ASSETS), Scene(ASSETS))


def make_environment(domain: str, task: str, seed: int, **settings: float) -> Any:
    return suite.load(domain, task, task_kwargs={"random": seed, **settings})


def random_controls(environment: Any, rng: np.random.Generator, lanes: int) -> np.ndarray:
    """Return random controls [lanes, nu] in the actuators' ranges, at most from -1 to 1."""
    spec = environment.action_spec()
    return rng.uniform(np.maximum(spec.minimum, -1), np.minimum(spec.maximum, 1), (lanes, *spec.shape))


def step_both(pool: Pool, lanes: I64, environments: Iterable[Any], controls: np.ndarray) -> None:
    """Step lanes and an environment for each; check that all results are the same, to the last bit."""
    pool.step(lanes, {"control": controls[:, None]})
    seen = {spec.name: pool.observe(lanes, spec.name) for spec in pool.family.observations}
    for k, environment in enumerate(environments):
        expected = environment.step(controls[k])
        lane = lanes[k]
        assert int(expected.step_type) == pool.step_type[lane]
        assert (0.0 if expected.first() else expected.reward) == pool.reward[lane, 0]
        assert (1.0 if expected.first() else expected.discount) == pool.discount[lane]
        assert list(expected.observation) == list(seen)
        for name, value in expected.observation.items():
            assert seen[name].dtype == np.asarray(value).dtype
            assert np.array_equal(seen[name][k], value), name
