"""Skins of a MuJoCo model: where their pieces are."""

from worldloom.kernels.compiling import brief
from worldloom.kernels.tables import F32, F64, I32, I64


@brief
def dress_skins(
    numbers: F64,
    places: I64,
    position_column: int,
    rotation_column: int,
    links: I32,
    shares: F64,
    scene_lanes: I32,
    first_row: I32,
    pose: F32,
) -> None:
    """Poses of pieces that several bodies pull at.

    `links` [n, 2] is a row and a body that pulls at it, in the order of the rows; `shares` [n, 13] how much it does,
    and that times the way from the skin's space into the body's, 3 x 4.
    """
    for k in range(scene_lanes.size):
        first = first_row[scene_lanes[k]]
        for link in range(links.shape[0]):
            row, body, share = first + links[link, 0], links[link, 1], shares[link]
            is_first = link == 0 or links[link - 1, 0] != links[link, 0]
            at = places[k, position_column] + 3 * body
            turned = places[k, rotation_column] + 9 * body
            for i in range(3):
                for j in range(4):
                    sum_ = 0.0 if is_first else pose[row, i, j]
                    for middle in range(3):
                        sum_ += numbers[turned + 3 * i + middle] * share[1 + 4 * middle + j]
                    pose[row, i, j] = sum_ + (share[0] * numbers[at + i] if j == 3 else 0.0)
