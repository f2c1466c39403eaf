"""Published distractions follow their published laws; compared with plain Python and NumPy, written from the papers.

Those of cameras are in `test_distracted_cameras.py`, those of observations in `test_observed_distractions.py`.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.support.determinism import draw
from tests.support.distractions import (
    ASSETS,
    EXACT,
    LEVELS,
    MANY,
    ROUNDING,
    act,
    axis_seeds,
    check_normal,
    check_uniform,
    family,
    many,
    name_of,
)
from worldloom.kernels.tables import ONE_SKY, SCREEN_SKY, TINTED_SKY
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.mujoco.dm_control.distractions import FLOORS, draw_floor_colors
from worldloom.worlds.mujoco.dm_control.family import Dmc
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import mix, normal, uniform
from worldloom.worlds.randomisation.distracted_lanes import BACKGROUND, COLORS
from worldloom.worlds.randomisation.draws import MOVES
from worldloom.worlds.randomisation.pictures import find_films
from worldloom.worlds.randomisation.presets import PRESETS, Preset, distracting_control
from worldloom.worlds.randomisation.settings import BUILT_IN, VariationChoice
from worldloom.worlds.settings import SettingError

# The published numbers.


@pytest.mark.parametrize(("scale", "moves"), LEVELS)
def test_presets_have_the_published_ranges(scale: float, moves: int) -> None:
    preset = PRESETS[name_of(scale, moves)]
    assert preset.camera is not None
    assert preset.colors is not None
    assert preset.background is not None
    degrees, speeds, rolls = {0.1: (9, 0.04, 0.36), 0.2: (18, 0.08, 0.72), 0.3: (27, 0.12, 1.08)}[scale]
    assert math.degrees(preset.camera.angle) == pytest.approx(degrees)
    assert (preset.camera.nearer, preset.camera.farther) == pytest.approx((degrees / 180, degrees / 60))
    assert preset.camera.speed == pytest.approx(moves * speeds)
    assert preset.camera.speed_deviation == pytest.approx(moves * speeds / 4)
    assert math.degrees(preset.camera.roll_speed) == pytest.approx(moves * rolls)
    assert math.degrees(preset.camera.roll_deviation) == pytest.approx(moves * rolls / 6)
    assert (preset.colors.most, preset.colors.deviation) == pytest.approx((scale, moves * 0.03 * scale))
    assert preset.background.videos == {0.1: 4, 0.2: 8, 0.3: 0}[scale]
    assert preset.background.plays == bool(moves)


# Colours.


@pytest.mark.parametrize(("scale", "moves"), [LEVELS[0], LEVELS[3], LEVELS[5]])
def test_colors_of_materials_follow_the_published_law(scale: float, moves: int) -> None:
    of = family("cartpole", name_of(scale, moves), distraction_axes="colors")
    assert of.distraction is not None
    means = of.distraction.material_colors
    assert means.shape == (13, 3)
    assert means[0].tolist() == [1, 1, 1]  # the floor's, which multiplies its texture: it can only be darker
    low, high = np.clip(means - scale, 0, 1), np.clip(means + scale, 0, 1)
    assert high[0].tolist() == [1, 1, 1]
    lanes, drawn = many(of)
    seeds = axis_seeds(drawn, COLORS)[:, None]
    columns = np.arange(39, dtype=np.uint64)
    expected = low + uniform(seeds, columns).reshape(-1, 13, 3) * (high - low)
    first = lanes.draw_colors(drawn)
    assert first == pytest.approx(expected, abs=EXACT)
    for material in (0, 1, 7):
        for channel in range(3):
            check_uniform(first[:, material, channel], low[material, channel], high[material, channel])
    varied = first.reshape(MANY, -1)
    assert np.abs(np.corrcoef(varied.T) - np.eye(39)).max() < 0.06  # six deviations of 1 / sqrt(n)
    for step in range(1, 3):
        noise = 0.03 * scale * moves * normal(mix(seeds, MOVES + step), columns).reshape(-1, 13, 3)
        expected = np.clip(expected + noise, low, high)
    drawn.steps[:] = 2
    later = lanes.draw_colors(drawn)
    assert later == pytest.approx(expected, abs=EXACT)
    if moves:
        inside = (np.abs(first - low) > 6 * 0.009 * scale * 3) & (np.abs(first - high) > 6 * 0.009 * scale * 3)
        check_normal((later - first)[inside], math.sqrt(2) * 0.03 * scale)


def test_rows_with_a_material_have_its_color_and_others_their_own() -> None:
    of = family("finger", "dcs-hard", distraction_axes="colors")
    assert of.distraction is not None
    pool, plain = Pool(of, Scene(ASSETS)), Pool(family("finger", "none"), Scene(ASSETS))
    colors = []
    for one in (pool, plain):
        lanes = one.add(one.family.lane_seeds(0, 4))
        act(one, lanes, 2)
        one.views(lanes, "eye")
        colors.append(one.scene.instances.color[one.scene.rows(one.scene_lane[lanes])])
    materials = of.distraction.row_materials
    assert (colors[0][:, materials < 0] == colors[1][:, materials < 0]).all()
    assert (colors[0][:, materials >= 0] != colors[1][:, materials >= 0]).any()
    assert len(np.unique(colors[0][0, materials == 1], axis=0)) == 1
    shown = pool.scene.instances.alpha[pool.scene.rows(pool.scene_lane[lanes])] > 0
    assert np.abs(colors[0] - colors[1])[shown].max() <= 0.3 + ROUNDING
    grid = np.asarray(of.distraction.floor, bool)
    assert (colors[0][:, grid] <= colors[1][:, grid]).all()


@pytest.mark.parametrize(("name", "deviation"), [("gb-color-easy", 0.1), ("gb-color-hard", 0.2)])
def test_colors_of_dmcontrol_gb_are_normal(name: str, deviation: float) -> None:
    of = family("cartpole", name)
    lanes, drawn = many(of)
    bodies, skies = lanes.draw_normal_colors(drawn)
    numbers = normal(axis_seeds(drawn, COLORS)[:, None], np.arange(6, dtype=np.uint64)).reshape(MANY, 2, 3)
    check_normal(numbers, 1.0)
    means = np.array([[0.7, 0.5, 0.3], [0.4, 0.6, 0.8]])
    expected = np.clip(means + deviation * numbers, 0, 1)
    assert bodies[:, 0] == pytest.approx(expected[:, 0], abs=EXACT)
    assert skies == pytest.approx(expected[:, 1], abs=EXACT)
    floors = draw_floor_colors(deviation, MANY)
    inside = (floors > 0) & (floors < 1)
    assert (floors >= 0).all()
    offsets = (floors - (0.1, 0.2, 0.3)) / deviation
    # Clipped below, so each column has the share of the normal distribution that is left, and the same median.
    for channel, mean in enumerate((0.1, 0.2, 0.3)):
        left = 0.5 * (1 + math.erf(mean / deviation / math.sqrt(2)))
        assert inside[:, channel].mean() == pytest.approx(left, abs=0.02)
        assert abs(np.median(offsets[:, channel])) < 0.06


def test_floors_of_dmcontrol_gb_have_two_colors_a_tenth_apart() -> None:
    size, deviation, assets = 32, 0.2, AssetLibrary(texture_size=32)
    of = Dmc({"domain": "cartpole", "task": "swingup", "distraction": "gb-color-hard"}, assets)
    assert of.distraction is not None
    assert len(of.distraction.floors) == FLOORS
    darker = draw_floor_colors(deviation, FLOORS)
    for k in (0, 17, 99):
        texels = assets.table.texels[of.distraction.floors[k], : size * size].view(np.uint8).reshape(size, size, 4)
        pair = [tuple(texels[size // 4, column, :3].tolist()) for column in (size // 4, 3 * size // 4)]
        expected = [tuple((255 * np.minimum(darker[k] + more, 1)).astype(int).tolist()) for more in (0, 0.1)]
        assert sorted(pair) == sorted(expected)
    pool = Pool(of, Scene(assets))
    lanes = pool.add(pool.family.lane_seeds(0, 40))
    act(pool, lanes, 1)
    pool.views(lanes, "eye")
    rows, table = pool.scene.rows(pool.scene_lane[lanes]), pool.scene.lanes
    shown = pool.scene.instances.texture[rows][:, np.asarray(of.distraction.floor, bool)]
    assert len(np.unique(shown)) > 20
    assert np.isin(shown, of.distraction.floors).all()
    assert (table.sky_textures[pool.scene_lane[lanes]] == TINTED_SKY + of.distraction.sky).all()
    assert len(np.unique(table.sky_zenith[pool.scene_lane[lanes]], axis=0)) == 40


# Background.


def turning_frames(frames: int, start: int, direction: int, steps: int) -> list[int]:
    """Return the frame at each step, by the published law."""
    index, shown = start, [start]
    for _ in range(steps):
        index += direction
        if index <= 0:
            index, direction = 0, 1
        elif index >= frames:
            index, direction = frames - 1, -1
        shown.append(index)
    return shown


@pytest.mark.parametrize("moves", [0, 1])
def test_videos_turn_round_at_their_ends(moves: int) -> None:
    of = family("cartpole", name_of(0.1, moves), distraction_axes="background")
    lanes, drawn = many(of, 300)
    films = find_films(ASSETS, BUILT_IN, 4)
    assert len(films) == 4
    parts = uniform(axis_seeds(drawn, BACKGROUND)[:, None], np.arange(3, dtype=np.uint64))
    expected = []
    for film, start, direction in parts:
        first, frames = films[int(film * 4)]
        shown = turning_frames(frames, int(start * frames), 1 if direction < 0.5 else -1, 60)
        expected.append([first + frame for frame in (shown if moves else shown[:1] * 61)])
    for step in (0, 1, 2, 11, 12, 13, 23, 24, 25, 59, 60):
        drawn.steps[:] = step
        assert lanes.draw_skies(drawn).tolist() == [ONE_SKY - one[step] for one in expected]


def test_all_videos_frames_and_directions_are_as_likely() -> None:
    lanes, drawn = many(family("cartpole", "dcs-medium-dynamic", distraction_axes="background"))
    films = find_films(ASSETS, BUILT_IN, 8)
    first = ONE_SKY - lanes.draw_skies(drawn)
    counts = np.unique(first, return_counts=True)[1]
    assert len(counts) == sum(frames for _, frames in films) == 96
    assert np.abs(counts - MANY / 96).max() < 6 * np.sqrt(MANY / 96)
    drawn.steps[:] = 1
    forward = (ONE_SKY - lanes.draw_skies(drawn)) > first
    assert abs(forward.mean() - 0.5) < 0.05


@pytest.mark.parametrize("name", ["gb-video-easy", "gb-video-hard"])
def test_videos_of_dmcontrol_gb_go_on_with_each_action(name: str) -> None:
    of = Dmc({"domain": "cartpole", "task": "swingup", "time_limit": 0.6, "distraction": name}, ASSETS)
    pool = Pool(of, Scene(ASSETS))
    lanes = pool.add(pool.family.lane_seeds(8, 3))
    films = find_films(ASSETS, BUILT_IN, 0)
    for episode in range(3):
        for action in range(16):  # 60 steps, four for each action; the first begins the episode
            act(pool, lanes, 1, repeat=4)
            pool.views(lanes, "eye")
            assert pool.steps[lanes].tolist() == [4 * action] * 3
            shown = SCREEN_SKY - pool.scene.lanes.sky_textures[pool.scene_lane[lanes]]
            chosen = [films[(8 + k + episode + 1) % len(films)] for k in range(3)]
            assert shown.tolist() == [first + action % frames for first, frames in chosen]


@pytest.mark.parametrize(
    ("domain", "name", "alpha"),
    [
        ("reacher", "dcs-easy", 0.0),
        ("walker", "dcs-easy", 1.0),
        ("cartpole", "dcs-easy", 0.3),
        ("reacher", "gb-video-easy", 1.0),
        ("cartpole", "gb-video-hard", 0.0),
    ],
)
def test_floors_have_the_published_alpha(domain: str, name: str, alpha: float) -> None:
    of = family(domain, name)
    pool = Pool(of, Scene(ASSETS))
    lanes = pool.add(pool.family.lane_seeds(0, 2))
    act(pool, lanes, 1)
    pool.views(lanes, "eye")
    assert of.distraction is not None
    floor = np.asarray(of.distraction.floor, bool)
    alphas = pool.scene.instances.alpha[pool.scene.rows(pool.scene_lane[lanes])]
    assert floor.any()
    # MuJoCo blends twice, our renderers once.
    np.testing.assert_allclose(alphas[:, floor], 1 - (1 - alpha) ** 2, rtol=1e-6)
    assert (alphas[:, ~floor] == 1).all()


# All of it.


def test_a_distraction_of_scale_0_changes_nothing() -> None:
    frames = []
    for preset in (None, distracting_control("nothing", 0.0, 4, True)):
        of = family("finger", "none")
        if preset is not None:
            distracted = family("finger", "dcs-easy").distraction
            assert distracted is not None
            is_none = Preset("nothing", preset.camera, preset.colors)
            of = family.__wrapped__("finger", "dcs-easy")
            of.distraction = replace(distracted, preset=is_none)
        pool = Pool(of, Scene(ASSETS))
        lanes = pool.add(pool.family.lane_seeds(0, 4))
        with CPURenderer(1) as renderer:
            for _ in range(3):
                act(pool, lanes, 3)
                views = pool.views(lanes, "eye", width=40, height=40)
                frames.append([one["rgb"].tobytes() for one in draw(pool, views, renderer)])
    assert frames[:3] == frames[3:]


def recorded(of: Dmc, seeds: list[int], draw_every: int, calls: int) -> list[bytes]:
    """Return the frames of the lane with seed 7 at the first and last steps of three episodes, among others."""
    pool, found = Pool(of, Scene(ASSETS)), []
    pool.free(pool.add(np.arange(90, 95, dtype=np.uint64))[::2])
    lanes = pool.add(np.array(seeds, np.uint64))
    (own,) = lanes[[seed == 7 for seed in seeds]].tolist()
    with CPURenderer(1) as renderer:
        for step in range(18):
            for part in np.array_split(lanes, calls):
                pool.step(part, {"control": np.full((len(part), 1, 1), np.sin(step))}, 2)
            if step % draw_every == 0:
                pool.views(lanes, "eye")
                views = pool.views(np.array([own]), "eye", width=24, height=24)
                if step % 4 == 0:
                    found.append(draw(pool, views, renderer)[0]["rgb"].tobytes())
    return found


@pytest.mark.parametrize("name", ["dcs-hard-dynamic", "gb-color-hard", "gb-video-hard"])
def test_a_lane_depends_on_its_seed_alone(name: str) -> None:
    """In any pool, with other lanes before and behind it, however seldom it is drawn, over three episodes."""
    of = Dmc({"domain": "cartpole", "task": "swingup", "time_limit": 0.1, "distraction": name}, ASSETS)
    expected = recorded(of, [7], 4, 1)
    assert len(set(expected)) > 2
    assert recorded(of, [3, 9, 7, 8], 1, 3) == expected
    assert recorded(of, [7, 1, 2, 4, 5], 2, 2) == expected


def test_lanes_with_the_same_seed_and_number_are_distracted_alike() -> None:
    """Whatever they simulate, and the numbers of different lanes and episodes differ."""
    pool = Pool(family("cartpole", "dcs-hard-dynamic"), Scene(ASSETS))
    lanes = pool.add(pool.family.lane_seeds(4, 6))
    pool.choose_variations(lanes, VariationChoice(seed=9, numbers=(3, 3, 4, 5, 3, 6)))
    act(pool, lanes, 9)
    pool.views(lanes, "eye")
    skies = pool.scene.lanes.sky_textures[pool.scene_lane[lanes]]
    poses = pool.place_camera(lanes, "eye", 0).pose[:, :, 3]
    assert (skies[[0, 1, 4]] == skies[0]).all()
    assert (poses[[0, 1, 4]] == poses[0]).all()
    assert len(np.unique(poses, axis=0)) == 4


def test_a_restored_step_has_the_distraction_of_that_step() -> None:
    pool = Pool(family("cartpole", "dcs-hard-dynamic"), Scene(ASSETS))
    lanes = pool.add(pool.family.lane_seeds(4, 3))

    def shown() -> list[bytes]:
        pool.views(lanes, "eye")
        rows = pool.scene.rows(pool.scene_lane[lanes])
        return [pool.scene.instances.color[rows].tobytes(), pool.place_camera(lanes, "eye", 0).pose.tobytes()]

    act(pool, lanes, 4)
    expected, saved = shown(), pool.randomised and [one.copy() for one in pool.randomised.arrays()]
    steps = pool.steps.copy()
    pool.steps[lanes] += 12
    assert shown() != expected
    assert saved
    assert pool.randomised is not None
    for array, before in zip(pool.randomised.arrays(), saved, strict=True):
        array[...] = before
    pool.steps[...] = steps
    assert shown() == expected


def test_axes_that_a_benchmark_lacks_are_refused() -> None:
    with pytest.raises(SettingError, match="'gb-color-easy' varies nothing else"):
        family("cartpole", "gb-color-easy", distraction_axes="camera")
    with pytest.raises(SettingError, match="without a 'distraction'"):
        family("cartpole", "none", distraction_axes="camera")
    with pytest.raises(SettingError, match="expected one of none, dcs-easy"):
        family("cartpole", "dcs-extreme")


@pytest.mark.parametrize("domain", ["fish", "swimmer", "stacker", "quadruped", "point_mass"])
def test_tasks_without_published_distractions_are_distracted_too(domain: str) -> None:
    of = family(domain, "dcs-hard-dynamic")
    pool = Pool(of, Scene(ASSETS))
    lanes = pool.add(pool.family.lane_seeds(0, 2))
    act(pool, lanes, 3)
    with CPURenderer(1) as renderer:
        for camera in of.cameras:
            frames = draw(pool, pool.views(lanes, camera.name, width=16, height=16), renderer)
            assert frames[0]["rgb"].any()
