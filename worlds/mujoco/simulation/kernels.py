"""Steps of many MuJoCo simulations, by the addresses of their models and data, without the GIL.

MuJoCo's functions are called through their addresses. What goes wrong in one simulation is noted and ends its own step
only: an error that would end the process, or a warning, which MuJoCo counts in the simulation itself.
"""

import numpy as np

from worldloom.kernels.compiling import inlined, kernel
from worldloom.kernels.intrinsics import fetch_add
from worldloom.kernels.tables import F64, I32, I64, U8
from worldloom.worlds.mujoco.simulation.c_calls import TEXT_BYTES, call_four, call_one

WARNINGS = 7
"""Kinds of warnings that a simulation counts."""
FAILED = 1 << WARNINGS
"""In an alarm: the step ended in an error. The bits below it are the warnings that were new."""


@kernel
def step_lanes(
    lanes: I64,
    models: I64,
    data: I64,
    places: I64,
    ctrl: int,
    counts_at: I64,
    own: U8,
    own_lengths: I64,
    own_at: I64,
    controls: F64,
    calls: I64,
    tools: I64,
    grave: int,
    part: int,
    taken: I64,
    texts: int,
    memory: U8,
    numbers: F64,
    counts: I32,
    alarms: I64,
) -> None:
    """Set each lane's controls [n, nu] and make the calls one after the other, until one gives a grave alarm.

    `models` [2]: the addresses of this thread's model and of a copy that computes no sensors. Before a lane's turn its
    bytes `own` [lanes, b], which are pieces of `own_lengths`, go to the places `own_at` [2, pieces] in memory, where
    the models have what differs from lane to lane. `data`: addresses, `places` [lanes, fields]: of arrays in `numbers`,
    where `ctrl` is the field of controls, and `counts_at`: places in `counts`, all of them by lane. `calls` [m, 2]: the
    addresses of functions of model and data, and which of the models each gets. `tools`: those of the guard's call and
    hook, and of the function that sets a thread's hook. `grave`: the alarms after which a lane's calls end. `texts`:
    the address of room for an error's text for each of `lanes`. Several threads may be at it with the same `taken`:
    each takes the next part.
    """
    before = call_one(tools[2], tools[1])
    first = fetch_add(taken, part)
    while first < lanes.size:
        for k in range(first, min(first + part, lanes.size)):
            lane = lanes[k]
            for actuator in range(controls.shape[1]):
                numbers[places[lane, ctrl] + actuator] = controls[k, actuator]
            for which in range(models.size):
                _fit(own[lane], own_lengths, own_at[which], memory)
            text = texts + TEXT_BYTES * k
            alarms[k] = _run(models, data[lane], calls, tools[0], text, grave, counts, counts_at[lane])
        first = fetch_add(taken, part)
    call_one(tools[2], before)


@inlined
def _fit(own: U8, lengths: I64, places: I64, memory: U8) -> None:
    """Put a lane's own part of the model where it belongs."""
    first = 0
    for piece in range(lengths.size):
        for byte in range(lengths[piece]):
            memory[places[piece] + byte] = own[first + byte]
        first += lengths[piece]


@inlined
def _run(models: I64, data: int, calls: I64, guard: int, text: int, grave: int, counts: I32, counts_at: int) -> int:
    """Make the calls; what alarms they gave, else 0."""
    alarm = 0
    known = _digest(counts, counts_at)
    for step in range(len(calls)):
        if call_four(guard, calls[step, 0], models[calls[step, 1]], data, text) != 0:
            return alarm | FAILED
        seen = _digest(counts, counts_at)
        if seen != known:
            known = seen
            for kind in range(WARNINGS):
                if counts[counts_at + 2 * kind] != 0:
                    alarm |= 1 << kind
            if alarm & grave:
                return alarm
    return alarm


@inlined
def _digest(counts: I32, counts_at: int) -> int:
    """A number that is another when any count is."""
    digest = np.int64(0)
    for kind in range(WARNINGS):
        digest = 1009 * digest + counts[counts_at + 2 * kind]
    return digest


@kernel
def gather(lanes: I64, places: I64, field: int, picks: I64, numbers: F64, out: F64) -> None:
    """Numbers of simulations into `out` [n, m]: of the array at places[lane, field], the elements `picks` [m]."""
    for k in range(lanes.size):
        at = places[lanes[k], field]
        for column in range(picks.size):
            out[k, column] = numbers[at + picks[column]]
