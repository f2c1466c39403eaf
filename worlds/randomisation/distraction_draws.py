"""Kernels of published distractions: colours of materials, frames of videos, and how both are written to a scene."""

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.compiling import inlined, kernel_holding_gil
from worldloom.kernels.tables import F64, I32, I64, NO_TEXTURE, U8, InstanceTable, LaneTable
from worldloom.worlds.random import scalar_integer, scalar_mix, scalar_normal, scalar_uniform
from worldloom.worlds.randomisation.draws import MOVES

DISTRACTIONS = 0x64697374 << 32
"""Counter of the first axis of a distraction, apart from those of variations."""


@kernel_holding_gil
def find_seeds(lanes: I64, drawn_seed: NDArray[np.uint64], number: I64, axis: int, seeds: NDArray[np.uint64]) -> None:
    """Write the seed of one axis for each of these lanes into `seeds` [n]."""
    for k in range(lanes.size):
        lane = lanes[k]
        seeds[k] = scalar_mix(scalar_mix(drawn_seed[lane], DISTRACTIONS + axis), number[lane])


@kernel_holding_gil
def walk_colors(
    lanes: I64,
    steps: I64,
    seeds: NDArray[np.uint64],
    low: F64,
    high: F64,
    deviation: float,
    known_steps: I64,
    known: F64,
) -> None:
    """Advance colours `known` [lane, materials, 3] to the current steps of lanes, whose seeds are `seeds` [n].

    They begin anywhere within their limits, and then walk there. They only save time: they are functions of seed and
    step.
    """
    for k in range(lanes.size):
        lane = lanes[k]
        if known_steps[lane] < 0 or known_steps[lane] > steps[lane]:
            known_steps[lane] = 0 if deviation > 0.0 else steps[lane]
            for material in range(low.shape[0]):
                for i in range(3):
                    part = scalar_uniform(seeds[k], 3 * material + i)
                    known[lane, material, i] = low[material, i] + part * (high[material, i] - low[material, i])
        if deviation <= 0.0:
            known_steps[lane] = steps[lane]
        while known_steps[lane] < steps[lane]:
            known_steps[lane] += 1
            moves = scalar_mix(seeds[k], MOVES + known_steps[lane])
            for material in range(low.shape[0]):
                for i in range(3):
                    color = known[lane, material, i] + deviation * scalar_normal(moves, 3 * material + i)
                    known[lane, material, i] = min(max(color, low[material, i]), high[material, i])


@kernel_holding_gil
def draw_normal_colors(seeds: NDArray[np.uint64], means: F64, deviation: float, colors: F64) -> None:
    """Write normally distributed colours [n, c, 3] around `means` [c, 3], clipped to 0..1."""
    for k in range(seeds.size):
        for c in range(means.shape[0]):
            for i in range(3):
                color = means[c, i] + deviation * scalar_normal(seeds[k], 3 * c + i)
                colors[k, c, i] = min(max(color, 0.0), 1.0)


@kernel_holding_gil
def draw_films(seeds: NDArray[np.uint64], moves: I64, films: I32, frames: I64) -> None:
    """Write numbers of videos and of their frames [n, 2] after so many moves; `films` [m, 2] have those of frames last.

    Video, first frame and direction are random. A video turns round at its ends.
    """
    for k in range(seeds.size):
        film = scalar_integer(seeds[k], 0, films.shape[0])
        count = films[film, 1]
        is_forward = scalar_uniform(seeds[k], 2) < 0.5
        frames[k, 0] = film
        frames[k, 1] = _turning_frame(count, scalar_integer(seeds[k], 1, count), is_forward, moves[k])


@inlined
def _turning_frame(frames: int, start: int, is_forward: bool, moves: int) -> int:
    """Return the frame after so many moves: the last one shows twice where it turns, the first one does not.

    A video that begins backwards at its first frame shows that twice, too.
    """
    turn = 2 * frames - 1
    if is_forward:
        place = start + moves
    elif start > 0:
        place = turn - start + moves
    else:
        place = max(moves - 1, 0)
    place %= turn
    return place if place < frames else turn - place


@kernel_holding_gil
def draw_looping_films(
    lanes: I64, drawn_seed: NDArray[np.uint64], number: I64, moves: I64, films: I32, frames: I64
) -> None:
    """Write numbers [n, 2] of videos in their order and of their frames, each from its first on, over and over again.

    Lane and variation with the sum n of seed and number show the video n + 1; so seed 0 begins with the second.
    """
    count = np.uint64(films.shape[0])
    for k in range(lanes.size):
        at = (drawn_seed[lanes[k]] % count + np.uint64(number[lanes[k]]) + np.uint64(1)) % count
        frames[k, 0] = np.int64(at)
        frames[k, 1] = moves[k] % films[np.int64(at), 1]


@kernel_holding_gil
def write_colors(
    lanes: I64, row_materials: I32, colors: F64, scene_lanes: I32, table: LaneTable, rows: InstanceTable
) -> None:
    """Write colours [lane, materials, 3] to the rows of lanes that have theirs of a material."""
    for k in range(lanes.size):
        first = table.first_row[scene_lanes[k]]
        for row in range(row_materials.size):
            if row_materials[row] >= 0:
                for i in range(3):
                    rows.color[first + row, i] = colors[lanes[k], row_materials[row], i]


@kernel_holding_gil
def write_floors(textures: I32, floor: U8, scene_lanes: I32, table: LaneTable, rows: InstanceTable) -> None:
    """Write the textures [n] of floors to lanes."""
    for k in range(scene_lanes.size):
        first = table.first_row[scene_lanes[k]]
        for row in range(floor.size):
            if floor[row] != 0 and rows.texture[first + row] != NO_TEXTURE:
                rows.texture[first + row] = textures[k]


@kernel_holding_gil
def write_skies(
    skies: I32, floor: U8, floor_alpha: float, scene_lanes: I32, table: LaneTable, rows: InstanceTable
) -> None:
    """Write the skies [n] of lanes, and the alpha of their floor; 0 hides it."""
    for k in range(scene_lanes.size):
        table.sky_textures[scene_lanes[k]] = skies[k]
        if floor_alpha >= 1.0:
            continue
        first = table.first_row[scene_lanes[k]]
        for row in range(floor.size):
            if floor[row] != 0:
                rows.alpha[first + row] = floor_alpha
