"""Poses of what moves in a MuJoCo world, copied from the arrays of simulations into the scene by one kernel.

Objects, lamps, tendons and skins are written for one lane after the other, so all that a lane needs of its simulation
is read while it is in the cache. `worldloom.worlds.mujoco.states` does the same for each state that it has posed.
"""

from typing import NamedTuple

from worldloom.kernels.compiling import inlined, kernel_holding_gil
from worldloom.kernels.tables import F32, F64, I32, I64
from worldloom.worlds.mujoco.models.lights import write_lamp_poses
from worldloom.worlds.mujoco.models.skins import write_skin_poses
from worldloom.worlds.mujoco.models.tendons import write_tendon_poses
from worldloom.worlds.mujoco.simulation.data import LIGHT_XDIR, LIGHT_XPOS, WRAP_XPOS, XMAT, XPOS


class PoseTables(NamedTuple):
    """The sources of all poses of a model's lanes, as arrays for kernels."""

    objects: I32
    """For each instance row of a geom or site the fields of positions and of rotations, and the id in both, [n, 3]."""
    light_ids: I32
    """The model's light of each lamp, or -1."""
    tendon_offsets: I64
    """Offsets from wrap_xpos of ten_length, in float64, and of ten_wrapadr, ten_wrapnum and wrap_obj, in int32."""
    tendons: I32
    """Integer columns of the tendons, as in `tendons.py`."""
    tendon_values: F64
    """Float columns of the tendons, as in `tendons.py`."""
    gravity: F64
    skin_links: I32
    """A row and a body that moves it, in the order of the rows, [n, 2]."""
    skin_transforms: F64
    """For each link the weight of the body, then the weight times the transform from the skin to the body, [n, 13]."""


class PoseTarget(NamedTuple):
    """The columns of the scene that poses are written into."""

    first_row: I32
    pose: F32
    color: F32
    lamps: F32


@kernel_holding_gil
def write_lane_poses(
    numbers: F64,
    integers: I32,
    addresses: I64,
    tables: PoseTables,
    scales: F32,
    lanes: I64,
    scene_lanes: I32,
    target: PoseTarget,
) -> None:
    """Write all poses of lanes.

    `addresses` [n, fields] are those of the lanes' arrays in `numbers`, the memory of the process as float64;
    `integers` is the same memory as int32. `scales` [lane, row, 3]: the scale of each row along its own axes, for
    `lanes` [n].
    """
    for k in range(scene_lanes.size):
        one = slice(k, k + 1)
        write_poses_of(numbers, integers, addresses[one], tables, scales, lanes[one], scene_lanes[one], target)


@inlined
def write_poses_of(
    numbers: F64,
    integers: I32,
    addresses: I64,
    tables: PoseTables,
    scales: F32,
    lanes: I64,
    scene_lanes: I32,
    target: PoseTarget,
) -> None:
    """Write all poses of lanes, kind after kind; see `write_lane_poses`."""
    first_row, pose = target.first_row, target.pose
    write_object_poses(numbers, addresses, tables.objects, scales, lanes, scene_lanes, first_row, pose)
    write_lamp_poses(numbers, addresses, LIGHT_XPOS, LIGHT_XDIR, tables.light_ids, scene_lanes, target.lamps)
    if tables.tendons.shape[0] > 0:
        write_tendon_poses(
            numbers,
            integers,
            addresses,
            WRAP_XPOS,
            tables.tendon_offsets,
            tables.tendons,
            tables.tendon_values,
            tables.gravity,
            scene_lanes,
            first_row,
            pose,
            target.color,
        )
    if tables.skin_links.shape[0] > 0:
        write_skin_poses(
            numbers,
            addresses,
            XPOS,
            XMAT,
            tables.skin_links,
            tables.skin_transforms,
            scene_lanes,
            first_row,
            pose,
        )


@inlined
def write_object_poses(
    numbers: F64,
    addresses: I64,
    sources: I32,
    scales: F32,
    lanes: I64,
    scene_lanes: I32,
    first_row: I32,
    pose: F32,
) -> None:
    """Write the poses of all rows that are geoms or sites; `sources` is `PoseTables.objects`."""
    for k in range(scene_lanes.size):
        lane, first = lanes[k], first_row[scene_lanes[k]]
        for row in range(sources.shape[0]):
            position = addresses[k, sources[row, 0]] + 3 * sources[row, 2]
            rotation = addresses[k, sources[row, 1]] + 9 * sources[row, 2]
            for i in range(3):
                for j in range(3):
                    pose[first + row, i, j] = numbers[rotation + 3 * i + j] * scales[lane, row, j]
                pose[first + row, i, 3] = numbers[position + i]
