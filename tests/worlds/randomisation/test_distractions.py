"""Published distractions follow their published laws; compared with plain Python and NumPy, written from the papers."""

import functools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.support.determinism import draw
from worldloom.kernels.tables import F64, I64, ONE_SKY, SCREEN_SKY, TINTED_SKY
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.mujoco.dm_control.distractions import FLOORS, draw_floor_colors
from worldloom.worlds.mujoco.dm_control.family import Dmc
from worldloom.worlds.mujoco.dm_control.suite import TASKS
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds, mix, normal, uniform
from worldloom.worlds.randomisation.camera_walks import find_law, move_cameras
from worldloom.worlds.randomisation.distracted_lanes import (
    BACKGROUND,
    CAMERA,
    COLORS,
    DistractedLanes,
    DrawnLanes,
)
from worldloom.worlds.randomisation.distraction_draws import DISTRACTIONS
from worldloom.worlds.randomisation.distractions import OrbitingCamera
from worldloom.worlds.randomisation.draws import MOVES
from worldloom.worlds.randomisation.pictures import find_films
from worldloom.worlds.randomisation.presets import PRESETS, CameraRange, Preset, distracting_control
from worldloom.worlds.randomisation.settings import BUILT_IN, VariationChoice
from worldloom.worlds.settings import SettingError

ASSETS = AssetLibrary(texture_size=16)
MANY = 10_000
_ROUNDING = 1e-6
"""Values are rounded to float32; those of a scene are of the order of one."""
_EXACT = 1e-12
"""Rounding of float64, over some dozens of steps."""
PUBLISHED = {
    "cartpole": ("swingup", (0.0, -4.0, 1.0)),
    "finger": ("spin", (0.0, -1.0, 0.8)),
    "ball_in_cup": ("catch", (0.0, -1.0, 0.8)),
    "reacher": ("easy", (0.0, 0.0, 0.75)),
    "walker": ("walk", None),
    "cheetah": ("run", None),
}
"""Tasks with published distractions, and where their camera stands if it stands in the world."""
SCALES = {"easy": 0.1, "medium": 0.2, "hard": 0.3}
LEVELS = [pytest.param(scale, moves, id=f"{level}-{moves}") for level, scale in SCALES.items() for moves in (0, 1)]


@functools.cache
def family(domain: str, distraction: str, **chosen: str) -> Dmc:
    task = PUBLISHED.get(domain, (TASKS[domain][0], None))[0]
    return Dmc({"domain": domain, "task": task, "distraction": distraction, **chosen}, ASSETS)


def name_of(scale: float, moves: int) -> str:
    level = next(level for level, known in SCALES.items() if known == scale)
    return f"dcs-{level}" + ("-dynamic" if moves else "")


def many(of: Dmc, count: int = MANY) -> tuple[DistractedLanes, DrawnLanes]:
    """Return distracted lanes without simulations, of variation 5."""
    assert of.distraction is not None
    lanes = DistractedLanes(of, of.distraction, BUILT_IN)
    lanes.resize(count)
    every = np.arange(count)
    lanes.begin(every)
    return lanes, DrawnLanes(every, np.zeros(count, np.int64), lane_seeds(3, count), np.full(count, 5, np.int64))


def axis_seeds(drawn: DrawnLanes, axis: int) -> np.ndarray:
    return mix(mix(drawn.drawn_seed, DISTRACTIONS + axis), drawn.number.astype(np.uint64))


def check_uniform(values: F64, low: float, high: float) -> None:
    """Check that values lie within limits, and everywhere alike: Kolmogorov-Smirnov at one of a million."""
    assert values.min() >= low - _EXACT
    assert values.max() <= high + _EXACT
    parts = (np.sort(values) - low) / (high - low)
    assert np.abs(parts - (np.arange(len(parts)) + 0.5) / len(parts)).max() < 2.7 / np.sqrt(len(parts))


def check_normal(values: F64, deviation: float) -> None:
    """Check mean, deviation and kurtosis of a normal distribution around 0, to five of their own deviations."""
    near = 5 / np.sqrt(values.size)
    assert abs(values.mean()) < near * deviation
    assert abs(values.std() / deviation - 1) < near
    assert abs(((values / values.std()) ** 4).mean() - 3) < near * np.sqrt(24)


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


# Camera.


def clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def spherical(x: float, y: float, z: float) -> tuple[float, float, float]:
    return math.sqrt(x * x + y * y + z * z), math.atan2(y, x), math.atan2(math.hypot(x, y), z)


def cartesian(r: float, h: float, v: float) -> np.ndarray:
    return np.array([r * math.sin(v) * math.cos(h), r * math.sin(v) * math.sin(h), r * math.cos(v)])


def limits_of(start: tuple[float, ...], scale: float, upper: bool) -> list[tuple[float, float]]:
    """Return the limits of radius, bearing, angle from the zenith, and roll."""
    r, h, v = spherical(*start)
    angle = math.pi / 2 * scale
    limits = [(r * (1 - scale / 2), r * (1 + 1.5 * scale)), (h - angle, h + angle), (v - angle, v + angle)]
    if upper:
        limits[1] = max(limits[1][0], -math.pi), min(limits[1][1], 0)
        limits[2] = max(limits[2][0], 0), min(limits[2][1], math.pi / 2)
    return [*limits, (-angle, angle)]


def walked_places(
    start: tuple[float, ...], scale: float, moves: int, upper: bool, seed: int, steps: int
) -> Iterator[list[float]]:
    """Yield radius, bearing, angle and roll at each step, by the published law."""
    max_vel, vel_std = 0.4 * scale * moves, 0.1 * scale * moves
    max_roll_vel, roll_std = math.pi / 50 * scale * moves, math.pi / 300 * scale * moves
    k = spherical(*start)[0] / 4
    limits = limits_of(start, scale, upper)
    drawn = uniform(np.asarray(seed, np.uint64), np.arange(6, dtype=np.uint64))
    h, v, r, roll = (
        low + part * (high - low)
        for part, (low, high) in zip(drawn[:4], [limits[i] for i in (1, 2, 0, 3)], strict=True)
    )
    velocity = normal(mix(np.asarray(seed, np.uint64), MOVES - 1), np.arange(3, dtype=np.uint64))
    velocity = velocity / np.linalg.norm(velocity) * (drawn[4] * max_vel)
    roll_velocity = (2 * drawn[5] - 1) * max_roll_vel
    for step in range(steps + 1):
        noise = normal(mix(np.asarray(seed, np.uint64), MOVES + step), np.arange(4, dtype=np.uint64))
        velocity = velocity + noise[:3] * vel_std * k
        roll_velocity = clip(roll_velocity + noise[3] * roll_std, -max_roll_vel, max_roll_vel)
        speed = np.linalg.norm(velocity)
        if speed > max_vel * k:
            velocity = velocity * (max_vel * k / speed)
        before = cartesian(r, h, v)
        wanted = spherical(*(before + velocity))
        r, h, v = (clip(value, *limit) for value, limit in zip(wanted, limits[:3], strict=True))
        velocity = cartesian(r, h, v) - before
        rolled = clip(roll + roll_velocity, *limits[3])
        roll_velocity, roll = rolled - roll, rolled
        yield [r, h, v, roll]


@pytest.mark.parametrize(("scale", "moves"), LEVELS)
@pytest.mark.parametrize("domain", PUBLISHED)
def test_cameras_follow_the_published_law(domain: str, scale: float, moves: int) -> None:
    of = family(domain, name_of(scale, moves), distraction_axes="camera")
    assert of.distraction is not None
    start = PUBLISHED[domain][1] or of.distraction.cameras["eye"].offset
    assert of.distraction.cameras["eye"].offset == pytest.approx(start)
    lanes, drawn = many(of, 5)
    seeds = axis_seeds(drawn, CAMERA)
    expected = [list(walked_places(start, scale, moves, domain != "reacher", int(seed), 60)) for seed in seeds]
    for step in (0, 1, 2, 30, 60, 7):
        drawn.steps[:] = step
        found = lanes.draw_places(drawn, "eye")[:, :4]
        assert found == pytest.approx(np.array([one[step] for one in expected]), abs=_EXACT)


@pytest.mark.parametrize("scale", SCALES.values())
@pytest.mark.parametrize("domain", ["cartpole", "finger", "reacher", "walker"])
def test_places_are_uniform_within_their_limits(domain: str, scale: float) -> None:
    of = family(domain, name_of(scale, 0), distraction_axes="camera")
    assert of.distraction is not None
    limits = limits_of(of.distraction.cameras["eye"].offset, scale, domain != "reacher")
    lanes, drawn = many(of)
    radius, bearing, angle, roll = lanes.draw_places(drawn, "eye").T[:4]
    check_uniform(radius, *limits[0])
    check_uniform(roll, *limits[3])
    if domain == "reacher":  # below zero the angle turns into one on the other side, and the bearing to its limit
        check_uniform(angle, 0, limits[2][1])
        assert 0.45 < np.isin(np.abs(bearing), limits[1]).mean() < 0.55
        check_uniform(bearing[~np.isin(np.abs(bearing), limits[1])], *limits[1])
    else:
        check_uniform(bearing, *limits[1])
        check_uniform(angle, *limits[2])


@pytest.mark.parametrize("domain", ["cartpole", "reacher", "cheetah"])
def test_no_camera_leaves_its_limits_or_is_too_fast(domain: str) -> None:
    scale = 0.3
    of = family(domain, name_of(scale, 1), distraction_axes="camera")
    assert of.distraction is not None
    start = of.distraction.cameras["eye"].offset
    low, high = np.array(limits_of(start, scale, domain != "reacher")).T
    fastest = 0.4 * scale * np.linalg.norm(start) / 4
    lanes, drawn = many(of)
    for step in range(0, 60, 20):
        drawn.steps[:] = step
        place, way = np.split(lanes.draw_places(drawn, "eye"), 2, axis=1)
        assert (place >= low - _EXACT).all()
        assert (place <= high + _EXACT).all()
        speeds = np.linalg.norm(way[:, :3], axis=1)
        # A place that is clipped may lie a little farther from the last one. Reacher's changes sides: see above.
        assert domain == "reacher" or speeds.max() <= fastest * 1.001
        assert np.abs(way[:, 3]).max() <= math.pi / 50 * scale + _EXACT
        assert np.median(speeds) > 0.2 * fastest


def pose_of(start: np.ndarray, target: np.ndarray, place: np.ndarray, upper: bool) -> np.ndarray:
    """Return the pose [3, 4] of a camera at a place that looks at a target, all from the origin of the sphere."""
    point = cartesian(*place[:3])
    forward = (target - point) / np.linalg.norm(target - point)
    if upper:
        right = np.cross(forward, [0, 0, 1])
        right /= np.linalg.norm(right)
    else:  # the shortest rotation from straight down
        axis = np.cross([0, 0, -1], forward)
        axis /= np.linalg.norm(axis)
        angle = math.acos(-forward[2])
        right = np.array([1.0, 0, 0])
        right = (
            right * math.cos(angle)
            + np.cross(axis, right) * math.sin(angle)
            + axis * (axis @ right) * (1 - math.cos(angle))
        )
    up = np.cross(right, forward)
    c, s = math.cos(place[3]), math.sin(place[3])
    return np.stack([c * right + s * up, c * up - s * right, -forward, point], axis=1)


@pytest.mark.parametrize("domain", PUBLISHED)
def test_cameras_look_at_the_published_point(domain: str) -> None:
    """That is as far ahead of the camera that is not moved as the centre of mass, then or now."""
    pool = Pool(family(domain, "dcs-hard-dynamic", distraction_axes="camera"), Scene(ASSETS))
    lanes = pool.add(pool.family.lane_seeds(0, 3))
    of = pool.family
    assert isinstance(of, Dmc)
    act(pool, lanes, 1)
    first = [simulation.subtree_com[1].copy() for simulation in pool.state.simulation[lanes]]
    act(pool, lanes, 25)
    poses = pool.place_camera(lanes, "eye", 0).pose
    own = of.place_camera(pool.state, lanes, "eye", 0).pose.astype(float)
    assert pool.randomised is not None
    distracted = pool.randomised._distracted
    assert distracted is not None
    places = distracted.draw_places(pool.randomised._drawn(lanes, pool.steps), "eye")
    is_fixed = PUBLISHED[domain][1] is not None
    for k, simulation in enumerate(pool.state.simulation[lanes]):
        origin = np.zeros(3) if is_fixed else simulation.subtree_com[1]
        com = first[k] if is_fixed else simulation.subtree_com[1]
        focus = own[k, :, 3] - own[k, :, 2] * np.linalg.norm(own[k, :, 3] - com)
        expected = pose_of(own[k, :, 3] - origin, focus - origin, places[k], domain != "reacher")
        expected[:, 3] += origin
        assert poses[k] == pytest.approx(expected, abs=1e-5)  # of a camera up to ten metres away, in float32


@pytest.mark.parametrize("domain", TASKS)
def test_a_camera_that_is_not_moved_has_the_pose_that_mujoco_gives_it(domain: str) -> None:
    of = family(domain, "dcs-easy", distraction_axes="camera")
    pool = Pool(of, Scene(ASSETS))
    lanes = pool.add(pool.family.lane_seeds(0, 2))
    act(pool, lanes, 3)
    assert of.distraction is not None
    assert of.distraction.cameras
    for name, camera in of.distraction.cameras.items():
        law = find_law(camera, CameraRange())
        r, h, v = spherical(*camera.offset)
        own = of.place_camera(pool.state, lanes, name, 0).pose
        poses, places = own.copy(), np.array([[r, h, v, 0.0, 0, 0, 0, 0]] * 2)
        focus_m = of.focus_distances_m(pool.state, lanes, name)
        move_cameras(law, places, focus_m, poses, np.empty((7, 3)))
        assert poses == pytest.approx(own, abs=_ROUNDING * max(1, r))


def test_limits_do_not_push_cameras_that_stand_elsewhere() -> None:
    """Cameras behind the origin, in the west and below the ground keep their own place within their limits."""
    for offset in ((1.0, 2.0, 0.5), (-3.0, 0.1, 0.2), (-3.0, -0.01, 0.2), (0.0, 2.0, -1.0)):
        axes = ((1.0, 0.0, 0.0), (0.0, 0.0, -1.0), (0.0, 1.0, 0.0))
        law = find_law(OrbitingCamera(offset, axes), CameraRange(angle=0.3, nearer=0.1, farther=0.3))
        place = np.array([*spherical(*offset), 0.0])
        assert (law.low <= place).all()
        assert (law.high >= place).all()


def act(pool: Pool, lanes: I64, steps: int, repeat: int = 1) -> None:
    rng = np.random.default_rng(1)
    for _ in range(steps):
        controls = rng.uniform(-1, 1, (len(lanes), 1, *pool.family.actions[0].shape))
        pool.step(lanes, {"control": controls}, repeat)


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
    assert first == pytest.approx(expected, abs=_EXACT)
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
    assert later == pytest.approx(expected, abs=_EXACT)
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
    assert np.abs(colors[0] - colors[1])[shown].max() <= 0.3 + _ROUNDING
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
    assert bodies[:, 0] == pytest.approx(expected[:, 0], abs=_EXACT)
    assert skies == pytest.approx(expected[:, 1], abs=_EXACT)
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
