"""Observations of what published distractions draw, compared with what is in the scene."""

import math

import numpy as np
import pytest

from tests.support.distractions import ASSETS, act, family
from worldloom.kernels.tables import I64, ONE_SKY, SCREEN_SKY
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.mujoco.dm_control.family import Dmc
from worldloom.worlds.pool import Pool
from worldloom.worlds.randomisation.pictures import find_films
from worldloom.worlds.randomisation.settings import BACKGROUND, BUILT_IN, NOTHING, VARIATIONS, Randomisation


def shown_pool(domain: str, distraction: str, randomisation: Randomisation | None = None) -> tuple[Pool, I64]:
    """Return a pool some steps into an episode, as it was drawn last."""
    pool = Pool(family(domain, distraction), Scene(ASSETS), randomisation)
    lanes = pool.add(pool.family.lane_seeds(8, 6))
    act(pool, lanes, 7)
    pool.views(lanes, "eye")
    return pool, lanes


@pytest.mark.parametrize("name", ["dcs-medium", "dcs-hard-dynamic"])
def test_observed_colors_are_those_of_the_rows(name: str) -> None:
    pool, lanes = shown_pool("finger", name)
    materials = family("finger", name).distraction.row_materials  # type: ignore[union-attr]
    observed = pool.observe(lanes, "variation.colors").reshape(len(lanes), -1, 3)
    shown = pool.scene.instances.color[pool.scene.rows(pool.scene_lane[lanes])]
    has_material = materials >= 0
    assert (shown[:, has_material] == observed[:, materials[has_material]]).all()
    assert len(np.unique(observed.reshape(len(lanes), -1), axis=0)) == len(lanes)


def test_observed_colors_are_those_of_body_sky_and_floor() -> None:
    size, assets = 32, AssetLibrary(texture_size=32)
    of = Dmc({"domain": "cartpole", "task": "swingup", "distraction": "gb-color-hard"}, assets)
    assert of.distraction is not None
    pool = Pool(of, Scene(assets))
    lanes = pool.add(of.lane_seeds(8, 6))
    act(pool, lanes, 3)
    pool.views(lanes, "eye")
    body, sky, floor = pool.observe(lanes, "variation.colors").reshape(6, 3, 3).transpose(1, 0, 2)
    rows, scene_lanes = pool.scene.rows(pool.scene_lane[lanes]), pool.scene_lane[lanes]
    is_body, is_floor = of.distraction.row_materials == 0, of.distraction.floor == 1
    assert (pool.scene.instances.color[rows][:, is_body] == body[:, None]).all()
    assert (pool.scene.lanes.sky_zenith[scene_lanes] == sky).all()
    textures = pool.scene.instances.texture[rows][:, is_floor][:, 0]
    texels = assets.table.texels[textures, : size * size].view(np.uint8).reshape(6, size, size, 4)
    squares = texels[:, size // 4, [size // 4, 3 * size // 4], :3].min(axis=1)
    assert (squares == (255 * floor).astype(np.uint8)).all()


@pytest.mark.parametrize("name", ["dcs-easy", "dcs-hard-dynamic", "gb-video-easy"])
def test_the_observed_frame_is_that_of_the_sky(name: str) -> None:
    pool, lanes = shown_pool("cartpole", name)
    videos = find_films(ASSETS, BUILT_IN, 4 if name == "dcs-easy" else 10)
    first_of = SCREEN_SKY if name == "gb-video-easy" else ONE_SKY
    shown = first_of - pool.scene.lanes.sky_textures[pool.scene_lane[lanes]]
    observed = pool.observe(lanes, "variation.background")
    assert [videos[int(video)][0] + frame for video, frame in observed] == shown.tolist()
    assert len(np.unique(shown)) > 1


def test_what_randomisation_draws_is_observed_before_what_a_distraction_draws() -> None:
    amounts = [0.0] * len(VARIATIONS)
    amounts[BACKGROUND] = 0.5
    randomisation = Randomisation(tuple(amounts), NOTHING.times)
    (plain, lanes), (both, _) = shown_pool("cartpole", "dcs-hard"), shown_pool("cartpole", "dcs-hard", randomisation)
    name = "variation.background"
    alone = Pool(family("cartpole", "none"), Scene(ASSETS), randomisation)
    alone.add(alone.family.lane_seeds(8, 6))
    act(alone, lanes, 7)
    expected = [alone.observe(lanes, name), plain.observe(lanes, name)]
    assert (both.observe(lanes, name) == np.concatenate(expected, axis=1)).all()
    (spec,) = (one for one in both.variation_specs if one.name == name)
    assert (spec.shape, spec.maximum) == ((6,), (1.0,) * 4 + (math.inf,) * 2)
    assert spec.hidden


def test_axes_that_do_not_vary_are_no_observations() -> None:
    chosen = ("gb-color-easy", "gb-video-hard")
    names = {name: [spec.name for spec in shown_pool("cartpole", name)[0].variation_specs] for name in chosen}
    assert names == {
        "gb-color-easy": ["variation", "variation.colors"],
        "gb-video-hard": ["variation", "variation.background"],
    }
