"""Cameras of published distractions follow their published law; compared with plain Python and NumPy."""

import math
from collections.abc import Iterator

import mujoco
import numpy as np
import pytest

from tests.support.distractions import (
    ASSETS,
    EXACT,
    LEVELS,
    PUBLISHED,
    ROUNDING,
    SCALES,
    act,
    axis_seeds,
    check_uniform,
    family,
    many,
    name_of,
)
from worldloom.render.scene import Scene
from worldloom.worlds.mujoco.dm_control.distractions import describe_distraction
from worldloom.worlds.mujoco.dm_control.family import Dmc
from worldloom.worlds.mujoco.dm_control.suite import TASKS
from worldloom.worlds.mujoco.models.scene import ModelScene
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import mix, normal, uniform
from worldloom.worlds.randomisation.camera_walks import find_law, move_cameras
from worldloom.worlds.randomisation.distracted_lanes import CAMERA
from worldloom.worlds.randomisation.distractions import OrbitingCamera
from worldloom.worlds.randomisation.draws import MOVES
from worldloom.worlds.randomisation.presets import PRESETS, CameraRange


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
        assert found == pytest.approx(np.array([one[step] for one in expected]), abs=EXACT)


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
        assert (place >= low - EXACT).all()
        assert (place <= high + EXACT).all()
        speeds = np.linalg.norm(way[:, :3], axis=1)
        # A place that is clipped may lie a little farther from the last one. Reacher's changes sides: see above.
        assert domain == "reacher" or speeds.max() <= fastest * 1.001
        assert np.abs(way[:, 3]).max() <= math.pi / 50 * scale + EXACT
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
        assert poses == pytest.approx(own, abs=ROUNDING * max(1, r))


def test_limits_do_not_push_cameras_that_stand_elsewhere() -> None:
    """Cameras behind the origin, in the west and below the ground keep their own place within their limits."""
    for offset in ((1.0, 2.0, 0.5), (-3.0, 0.1, 0.2), (-3.0, -0.01, 0.2), (0.0, 2.0, -1.0)):
        axes = ((1.0, 0.0, 0.0), (0.0, 0.0, -1.0), (0.0, 1.0, 0.0))
        law = find_law(OrbitingCamera(offset, axes), CameraRange(angle=0.3, nearer=0.1, farther=0.3))
        place = np.array([*spherical(*offset), 0.0])
        assert (law.low <= place).all()
        assert (law.high >= place).all()


def test_a_model_without_cameras_has_none_that_move() -> None:
    model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='.1'/></worldbody></mujoco>")
    scene = ModelScene(model, ASSETS)
    assert "eye" in {camera.name for camera in scene.cameras}
    assert describe_distraction(model, scene, ASSETS, PRESETS["dcs-easy"], "own").cameras == {}


def place_of(pose: np.ndarray, origin: np.ndarray) -> tuple[float, float, float, float]:
    """Return bearing, angle from the zenith, roll and distance of a camera, from its pose."""
    r, h, v = spherical(*(pose[:, 3] - origin))
    return h, v, math.atan2(pose[2, 0], pose[2, 1]), r


@pytest.mark.parametrize("moves", [0, 1])
def test_the_observed_places_are_those_of_the_cameras(moves: int) -> None:
    scale = 0.3
    of = family("finger", name_of(scale, moves))
    assert of.distraction is not None
    cameras = [camera.name for camera in of.cameras if camera.name in of.distraction.cameras]
    assert len(cameras) == 3
    pool = Pool(of, Scene(ASSETS))
    lanes = pool.add(of.lane_seeds(8, 6))
    act(pool, lanes, 9)
    observed = pool.observe(lanes, "variation.camera").reshape(6, len(cameras), 4)
    of_eye = limits_of(of.distraction.cameras["eye"].offset, scale, True)
    low, high = np.array(of_eye)[[1, 2, 3, 0]].T
    poses = pool.place_camera(lanes, "eye", 0).pose.astype(np.float64)
    expected = [(np.array(place_of(pose, np.zeros(3))) - low) / (high - low) for pose in poses]
    # Poses are of float32, and the ranges a tenth of a radian or more.
    np.testing.assert_allclose(observed[:, cameras.index("eye")], expected, atol=1e-5)
    assert observed.min() >= 0
    assert observed.max() <= 1
