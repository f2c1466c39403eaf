"""Seeds: each lane of a world is the world of one lane with the seed that the family's description names."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.determinism import draw, random_actions
from worldloom.render.assets import AssetLibrary
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.worlds.describe import describe
from worldloom.worlds.mujoco.models.files import allow_model_dirs
from worldloom.worlds.pool import Pool
from worldloom.worlds.registry import find_family, known_families

LANES, STEPS = 4, 6
SETTINGS: dict[str, dict[str, Any]] = {
    "dmc": {"domain": "walker", "task": "walk"},
    "gym": {"id": "Hopper-v4"},
    "mujoco": {"model": "arm.xml", "noise": 0.2},
}
MODELS = Path(__file__).parents[2] / "examples/models"


@pytest.fixture(autouse=True)
def model_dirs() -> None:
    allow_model_dirs([MODELS])


def single_seed(family: str, seed: int, lane: int) -> int:
    """Return the seed of the world of one lane, as the pages say."""
    if family == "gym":
        return (seed + lane) % 2**64
    return (seed + lane) % 2**32 if family == "dmc" else (seed + lane * 0x9E3779B97F4A7C15) % 2**64


def record(family: str, seed: int, lanes: int, actions: dict[str, np.ndarray], cpu: Renderer) -> list[list[bytes]]:
    """Return for each lane all that is observed: rewards, numbers and the last frame."""
    assets = AssetLibrary()
    pool = Pool(find_family(family)(SETTINGS.get(family, {}), assets), Scene(assets))
    added = pool.add(pool.family.lane_seeds(seed, lanes))
    seen: list[list[bytes]] = [[] for _ in range(lanes)]
    for step in range(STEPS):
        pool.step(added, {name: values[step] for name, values in actions.items()})
        arrays = [pool.reward[added], *(pool.observe(added, spec.name) for spec in pool.family.observations)]
        for lane in range(lanes):
            seen[lane] += [array[lane].tobytes() for array in arrays]
    for lane, frames in enumerate(draw(pool, pool.views(added, "eye", width=16, height=12), cpu)):
        seen[lane] += [frame.tobytes() for frame in frames.values()]
    return seen


@pytest.mark.parametrize("seed", [0, 7, 2**64 - 2])
@pytest.mark.parametrize("family", ["catch", "cartpole", "dmc", "gym", "maze", "mujoco"])
def test_a_lane_is_the_world_of_one_lane_that_its_description_names(family: str, seed: int, cpu: Renderer) -> None:
    built = find_family(family)(SETTINGS.get(family, {}), AssetLibrary())
    actions = random_actions(built, STEPS, LANES, seed=1)
    together = record(family, seed, LANES, actions, cpu)
    for lane in range(LANES):
        own = {name: values[:, lane : lane + 1] for name, values in actions.items()}
        (alone,) = record(family, single_seed(family, seed, lane), 1, own, cpu)
        assert together[lane] == alone, f"lane {lane}"
    assert len({b"".join(lane) for lane in together}) == LANES


def test_every_family_in_the_box_is_compared_and_says_its_rule() -> None:
    assert set(known_families()) >= {"catch", "cartpole", "dmc", "gym", "maze", "mujoco"}
    for family in ("catch", "cartpole", "maze", "mujoco"):
        assert "(s + k * 0x9E3779B97F4A7C15) mod 2**64" in describe(find_family(family))["seeds"]
    assert "(s + k) mod 2**32" in find_family("dmc").seed_text
    assert "(s + k) mod 2**64" in find_family("gym").seed_text


def test_near_seeds_share_lanes_in_dmc_and_gym_and_nowhere_else() -> None:
    for family in ("catch", "cartpole", "dmc", "gym", "maze", "mujoco"):
        first, second = (set(find_family(family).lane_seeds(seed, 1024).tolist()) for seed in (0, 1))
        assert len(first & second) == (1023 if family in ("dmc", "gym") else 0)
        assert len(first) == 1024
