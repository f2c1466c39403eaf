"""Where the things of a MuJoCo model are: read where MuJoCo keeps it, written into the rows and lamps of a scene.

`numbers` is all memory as float64. `places` [n, …] says where in it the arrays of each lane's simulation begin; which
column of it is which, the caller says.
"""

import numpy as np

from worldloom.kernels.compiling import kernel_holding_gil
from worldloom.kernels.tables import F32, F64, I32, I64, LAMP_DIRECTION, LAMP_POSITION


@kernel_holding_gil
def dress_things(
    numbers: F64,
    places: I64,
    thing: I32,
    scales: F32,
    scene_lanes: I32,
    first_row: I32,
    pose: F32,
) -> None:
    """Poses of all rows that belong to a thing with a place and a rotation.

    `thing` [rows, 3] is the column of the places' array of positions, that of rotations, and the number in both;
    `scales` [lane of the scene, row, 3] how large each is along its own axes.
    """
    for k in range(scene_lanes.size):
        lane = scene_lanes[k]
        first = first_row[lane]
        for row in range(thing.shape[0]):
            at = places[k, thing[row, 0]] + 3 * thing[row, 2]
            turned = places[k, thing[row, 1]] + 9 * thing[row, 2]
            for i in range(3):
                for j in range(3):
                    pose[first + row, i, j] = numbers[turned + 3 * i + j] * scales[lane, row, j]
                pose[first + row, i, 3] = numbers[at + i]


@kernel_holding_gil
def dress_lamps(
    numbers: F64,
    places: I64,
    position_column: int,
    direction_column: int,
    lights: I32,
    scene_lanes: I32,
    lamps: F32,
) -> None:
    """Where lamps are and which way they shine; `lights` is the number of the model's light for each lamp, or -1."""
    for k in range(scene_lanes.size):
        for lamp in range(lights.size):
            if lights[lamp] < 0:
                continue
            at = places[k, position_column] + 3 * lights[lamp]
            along = places[k, direction_column] + 3 * lights[lamp]
            for i in range(3):
                lamps[scene_lanes[k], lamp, LAMP_POSITION + i] = numbers[at + i]
                lamps[scene_lanes[k], lamp, LAMP_DIRECTION + i] = numbers[along + i]


@kernel_holding_gil
def look_through(numbers: F64, places: I64, position_column: int, rotation_column: int, camera: int, pose: F32) -> None:
    """Poses [n, 3, 4] of one of the model's cameras. Where a simulation has lost its numbers, it stands at the origin:
    a camera that is nowhere would be refused, and with it everybody's pictures."""
    for k in range(places.shape[0]):
        at = places[k, position_column] + 3 * camera
        turned = places[k, rotation_column] + 9 * camera
        is_finite = True
        for i in range(3):
            for j in range(3):
                pose[k, i, j] = numbers[turned + 3 * i + j]
                is_finite &= np.isfinite(pose[k, i, j])
            pose[k, i, 3] = numbers[at + i]
            is_finite &= np.isfinite(pose[k, i, 3])
        if not is_finite:
            for i in range(3):
                for j in range(4):
                    pose[k, i, j] = 1.0 if i == j else 0.0
