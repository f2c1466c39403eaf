"""Kernels that move cameras on spheres, as the Distracting Control Suite does.

A camera's place is its distance from the origin of its sphere, its bearing, its angle from the zenith and its roll.
Each is drawn uniformly within limits when an episode begins. A step adds a velocity, which a random walk changes, in
Cartesian coordinates; places stay within their limits, and the velocity becomes the way that was really made. One such
step is made before the first frame. The camera then looks at a fixed point.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.compiling import inlined, kernel_holding_gil
from worldloom.kernels.tables import F32, F64, I64
from worldloom.worlds.random import scalar_mix, scalar_normal, scalar_uniform
from worldloom.worlds.randomisation.distractions import OrbitingCamera
from worldloom.worlds.randomisation.draws import MOVES
from worldloom.worlds.randomisation.presets import CameraRange

PLACE = 4
"""Numbers of a place, and as many of what it moves by in a step."""
_TINY = 1e-12
_LEVEL, _ZENITH = math.pi / 2, 0.0
_NEAREST_TO_VERTICAL = 0.999
"""Cosine from which a camera counts as looking straight down."""


class CameraLaw(NamedTuple):
    """Law of the motion of one camera, for kernels: places are (radius, bearing, angle from the zenith, roll)."""

    offset: F64  # [3] of the camera that is not moved, from the origin
    low: F64  # [4] limits of its place
    high: F64  # [4]
    first_speed: float  # largest at the beginning of an episode, metres a step
    speed: float
    speed_deviation: float
    roll_speed: float
    roll_deviation: float
    forward: F64  # [3] direction of the camera that is not moved
    turn: F64  # [3, 3] rotation of its axes within those of `aim`: the identity, but for cameras that are rolled
    looks_down: bool  # it is aimed by the shortest rotation, and without a limit to the upper quadrant


def find_law(camera: OrbitingCamera, within: CameraRange) -> CameraLaw:
    """Return the law of a camera.

    A camera stays above the ground and on its side of the origin, if it is there; one that looks straight down goes
    anywhere.
    """
    x, y, z = camera.offset
    axes = np.array(camera.axes, np.float64)
    radius, bearing, angle = math.hypot(x, y, z), math.atan2(y, x), math.atan2(math.hypot(x, y), z)
    low = [max(radius * (1 - within.nearer), 0.0), bearing - within.angle, angle - within.angle, -within.angle]
    high = [radius * (1 + within.farther), bearing + within.angle, angle + within.angle, within.angle]
    looks_down = bool(axes[2, 2] > _NEAREST_TO_VERTICAL)
    if not looks_down:
        low[1], high[1] = max(low[1], min(-math.pi, bearing)), min(high[1], max(0.0, bearing))
        low[2], high[2] = max(low[2], min(_ZENITH, angle)), min(high[2], max(_LEVEL, angle))
    forward = -axes[:, 2]
    aimed = np.empty((3, 3))
    aim(forward, looks_down, aimed)
    scale = radius / 4
    return CameraLaw(
        offset=np.array(camera.offset, np.float64),
        low=np.array(low),
        high=np.array(high),
        first_speed=within.speed,
        speed=within.speed * scale,
        speed_deviation=within.speed_deviation * scale,
        roll_speed=within.roll_speed,
        roll_deviation=within.roll_deviation,
        forward=forward,
        turn=aimed.T @ axes,
        looks_down=looks_down,
    )


@kernel_holding_gil
def walk_camera(
    lanes: I64, steps: I64, seeds: NDArray[np.uint64], law: CameraLaw, known_steps: I64, known: F64
) -> None:
    """Advance places and velocities `known` [lane, 8] to the current steps of lanes, whose seeds are `seeds` [n].

    They only save time: they are functions of seed and step.
    """
    for k in range(lanes.size):
        lane = lanes[k]
        place, move = known[lane, :PLACE], known[lane, PLACE:]
        if known_steps[lane] < 0 or known_steps[lane] > steps[lane]:
            _begin(seeds[k], law, place, move)
            _advance(scalar_mix(seeds[k], MOVES), law, place, move)
            known_steps[lane] = 0
        while known_steps[lane] < steps[lane]:
            known_steps[lane] += 1
            _advance(scalar_mix(seeds[k], MOVES + known_steps[lane]), law, place, move)


@inlined
def _begin(seed: np.uint64, law: CameraLaw, place: F64, move: F64) -> None:
    """Draw where a camera begins, and how it moves."""
    place[1] = law.low[1] + scalar_uniform(seed, 0) * (law.high[1] - law.low[1])
    place[2] = law.low[2] + scalar_uniform(seed, 1) * (law.high[2] - law.low[2])
    place[0] = law.low[0] + scalar_uniform(seed, 2) * (law.high[0] - law.low[0])
    place[3] = law.low[3] + scalar_uniform(seed, 3) * (law.high[3] - law.low[3])
    directions = scalar_mix(seed, MOVES - 1)
    x, y, z = scalar_normal(directions, 0), scalar_normal(directions, 1), scalar_normal(directions, 2)
    scale = scalar_uniform(seed, 4) * law.first_speed / max(math.sqrt(x * x + y * y + z * z), _TINY)
    move[0], move[1], move[2] = x * scale, y * scale, z * scale
    move[3] = (2.0 * scalar_uniform(seed, 5) - 1.0) * law.roll_speed


@inlined
def _advance(seed: np.uint64, law: CameraLaw, place: F64, move: F64) -> None:
    """Make one step."""
    for i in range(3):
        move[i] += scalar_normal(seed, i) * law.speed_deviation
    roll = move[3] + scalar_normal(seed, 3) * law.roll_deviation
    roll = min(max(roll, -law.roll_speed), law.roll_speed)
    speed = math.sqrt(move[0] * move[0] + move[1] * move[1] + move[2] * move[2])
    scale = law.speed / speed if speed > law.speed else 1.0
    before = to_cartesian(place)
    x, y, z = before[0] + scale * move[0], before[1] + scale * move[1], before[2] + scale * move[2]
    around = math.sqrt(x * x + y * y)
    bearing, middle = math.atan2(y, x), 0.5 * (law.low[1] + law.high[1])
    if bearing < middle - math.pi:  # limits of a camera in the west are on both sides of half a turn
        bearing += 2.0 * math.pi
    elif bearing > middle + math.pi:
        bearing -= 2.0 * math.pi
    place[0] = min(max(math.sqrt(around * around + z * z), law.low[0]), law.high[0])
    place[1] = min(max(bearing, law.low[1]), law.high[1])
    place[2] = min(max(math.atan2(around, z), law.low[2]), law.high[2])
    after = to_cartesian(place)
    for i in range(3):
        move[i] = after[i] - before[i]
    rolled = min(max(place[3] + roll, law.low[3]), law.high[3])
    move[3], place[3] = rolled - place[3], rolled


@inlined
def to_cartesian(place: F64) -> tuple[float, float, float]:
    """Return the point of a place, from the origin of its sphere."""
    around = place[0] * math.sin(place[2])
    return around * math.cos(place[1]), around * math.sin(place[1]), place[0] * math.cos(place[2])


@kernel_holding_gil
def move_cameras(law: CameraLaw, places: F64, focus_m: F64, poses: F32, scratch: F64) -> None:
    """Move cameras [n, 3, 4] to `places` [n, 8], in place; each looks at the point that was so far ahead of it.

    `scratch` is [7, 3].
    """
    axes, aimed, direction = scratch[:3], scratch[3:6], scratch[6]
    for k in range(poses.shape[0]):
        place = places[k, :PLACE]
        point = to_cartesian(place)
        for i in range(3):
            shift = point[i] - law.offset[i]
            direction[i] = law.forward[i] * focus_m[k] - shift
            poses[k, i, 3] += shift
        length = math.sqrt(direction[0] ** 2 + direction[1] ** 2 + direction[2] ** 2)
        for i in range(3):
            direction[i] = direction[i] / length if length > _TINY else law.forward[i]
        aim(direction, law.looks_down, aimed)
        for i in range(3):
            for j in range(3):
                axes[i, j] = aimed[i, 0] * law.turn[0, j] + aimed[i, 1] * law.turn[1, j] + aimed[i, 2] * law.turn[2, j]
        c, s = math.cos(place[3]), math.sin(place[3])
        for i in range(3):
            poses[k, i, 0] = c * axes[i, 0] + s * axes[i, 1]
            poses[k, i, 1] = c * axes[i, 1] - s * axes[i, 0]
            poses[k, i, 2] = axes[i, 2]


@kernel_holding_gil
def aim(direction: F64, looks_down: bool, axes: F64) -> None:
    """Write the axes [3, 3] of a camera that looks in a direction of length 1.

    It is level, or, if it looks down, turned from straight down by the shortest rotation: a level one would spin there.
    """
    x, y, z = direction[0], direction[1], direction[2]
    across = math.sqrt(x * x + y * y)
    if looks_down:
        # About the axis across (0, 0, -1) and the direction, by the angle between them.
        ax, ay = (y / across, -x / across) if across > _TINY else (1.0, 0.0)
        c, s = -z, across
        axes[0, 0], axes[0, 1], axes[0, 2] = c + ax * ax * (1.0 - c), ax * ay * (1.0 - c), ay * s
        axes[1, 0], axes[1, 1], axes[1, 2] = ax * ay * (1.0 - c), c + ay * ay * (1.0 - c), -ax * s
        axes[2, 0], axes[2, 1], axes[2, 2] = -ay * s, ax * s, c
        return
    yaw, pitch = math.atan2(x, y), math.atan2(z, across) + 0.5 * math.pi
    c, s = math.cos(yaw), math.sin(yaw)
    cp, sp = math.cos(pitch), math.sin(pitch)
    axes[0, 0], axes[0, 1], axes[0, 2] = c, s * cp, -s * sp
    axes[1, 0], axes[1, 1], axes[1, 2] = -s, c * cp, -c * sp
    axes[2, 0], axes[2, 1], axes[2, 2] = 0.0, sp, cp
