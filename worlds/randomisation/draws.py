"""Kernels that draw what varies: numbers in 0..1, as functions of a seed, a number of a variation and a step."""

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.compiling import inlined, kernel_holding_gil
from worldloom.kernels.tables import F64, I64
from worldloom.worlds.random import scalar_integer, scalar_mix, scalar_normal, scalar_uniform
from worldloom.worlds.randomisation.settings import MAX_NUMBER, STEP, WALK, WORLD

DRAWS, NUMBERS, MOVES = 0x64726177 << 32, 0x6E756D62 << 32, 0x6D6F7665 << 32
"""Counters apart from those that families count from 0: of variations, of their numbers, of steps."""


@kernel_holding_gil
def choose_variations(
    lanes: I64,
    lane_seed: NDArray[np.uint64],
    episode: I64,
    own_seed: NDArray[np.bool_],
    seed: NDArray[np.uint64],
    count: I64,
    given: I64,
    drawn_seed: NDArray[np.uint64],
    world_number: I64,
    number: I64,
) -> None:
    """Write seed and numbers of the variations of lanes whose episode begins: of the world and of the episode.

    `own_seed`, `seed`, `count` and `given` are the columns of a world's `VariationChoice`.
    """
    for k in range(lanes.size):
        lane = lanes[k]
        drawn_seed[lane] = lane_seed[lane] if own_seed[lane] else seed[lane]
        at = max(episode[lane], 0)
        if given[lane] >= 0:
            world_number[lane] = number[lane] = given[lane]
        elif own_seed[lane] and count[lane] == 0:
            world_number[lane], number[lane] = 0, at
        else:
            below = count[lane] if count[lane] > 0 else MAX_NUMBER
            numbers = scalar_mix(lane_seed[lane], NUMBERS)
            world_number[lane], number[lane] = scalar_integer(numbers, 0, below), scalar_integer(numbers, at, below)


@kernel_holding_gil
def draw_numbers(
    lanes: I64,
    steps: I64,
    first_what: int,
    last_what: int,
    times: I64,
    first: I64,
    laws: F64,
    drawn_seed: NDArray[np.uint64],
    world_number: I64,
    episode_number: I64,
    walked_steps: I64,
    walked: F64,
    moved: F64,
    numbers: F64,
) -> None:
    """Write what is drawn for these lanes, [n, m], as of their step `steps`: the columns of a range of variations.

    A walk has a row in `walked` and `moved` [lane, m], as of the step `walked_steps` [lane, variations]; -1: none. They
    only save time: a walk is a function of seed, number and step.
    """
    for k in range(lanes.size):
        lane = lanes[k]
        for what in range(first_what, last_what + 1):
            start, end = first[what], first[what + 1]
            if start == end:
                continue
            number = world_number[lane] if times[what] == WORLD else episode_number[lane]
            seed = scalar_mix(scalar_mix(drawn_seed[lane], DRAWS + what), number)
            if times[what] == WALK and laws[what, 2] > 0.0:
                walked_steps[lane, what] = _walk(
                    seed,
                    steps[lane],
                    walked_steps[lane, what],
                    laws[what],
                    walked[lane, start:end],
                    moved[lane, start:end],
                )
                for column in range(start, end):
                    numbers[k, column] = walked[lane, column]
                continue
            if times[what] == STEP:
                seed = scalar_mix(seed, MOVES + steps[lane])
            for column in range(start, end):
                numbers[k, column] = scalar_uniform(seed, column - start)


@inlined
def _walk(seed: np.uint64, step: int, known_step: int, law: F64, place: F64, move: F64) -> int:
    """Advance a walk in 0..1 from the step that is known, or from the beginning, to `step`; return that."""
    keeps, deviation, largest = law[0], law[1], law[2]
    if known_step < 0 or known_step > step:
        known_step = 0
        for k in range(place.size):
            place[k] = scalar_uniform(seed, k)
            move[k] = (2.0 * scalar_uniform(seed, place.size + k) - 1.0) * largest if keeps > 0.0 else 0.0
    while known_step < step:
        known_step += 1
        moves = scalar_mix(seed, MOVES + known_step)
        for k in range(place.size):
            wanted = keeps * move[k] + deviation * scalar_normal(moves, k)
            after = min(max(place[k] + min(max(wanted, -largest), largest), 0.0), 1.0)
            move[k], place[k] = after - place[k], after
    return step
