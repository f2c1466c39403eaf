"""Kernels that step many MuJoCo simulations without the GIL, and read numbers out of them.

MuJoCo's functions are called by their addresses, with the addresses of a model and of an MjData. A fault in one
simulation aborts the step of its own lane only: an error, which would otherwise end the process, or a warning, which
MuJoCo counts in the MjData.
"""

import numpy as np

from worldloom.kernels.compiling import inlined, kernel
from worldloom.kernels.intrinsics import fetch_add
from worldloom.kernels.tables import F64, I32, I64, U8
from worldloom.worlds.mujoco.simulation.c_calls import MESSAGE_BYTES, call_five, call_one

WARNING_KINDS = 7
"""Kinds of warnings that an MjData counts (mjNWARNING)."""
MUJOCO_ERROR = 1 << WARNING_KINDS
"""Fault bit of a step that ended in an error of MuJoCo. The bits below it are the kinds of new warnings."""


@kernel
def step_lanes(
    lanes: I64,
    models: I64,
    data: I64,
    addresses: I64,
    ctrl: int,
    warning_addresses: I64,
    overrides: U8,
    override_lengths: I64,
    override_addresses: I64,
    controls: F64,
    calls: I64,
    guard: I64,
    fatal: int,
    part: int,
    taken: I64,
    messages: int,
    memory: U8,
    numbers: F64,
    integers: I32,
    faults: I64,
) -> None:
    """Set the controls [n, nu] of each lane and make its calls in order, until one raises a fatal fault.

    By lane: `data`, addresses of MjData; `addresses` [lanes, fields] of their arrays, as indices into `numbers`;
    `warning_addresses` of their warning counts, as indices into `integers`; `overrides` [lanes, b], model bytes.
    `ctrl`: the field of the controls. `models` [2]: addresses of this thread's model and of the same without sensors.
    Before a lane's calls its overrides, pieces of `override_lengths` bytes, are copied to `override_addresses` in
    `memory`, arrays of both these models. `calls` [m, 2]: the address of a function of model and data, and the
    index of the model it gets. `guard` [3]: addresses of the guard's call, of its hook, and of the function that sets
    this thread's hook. `fatal`: fault bits that abort a lane's step. `messages`: address of MESSAGE_BYTES for each of
    `lanes`. Several threads may run this with the same `taken`: each takes `part` lanes at a time.
    """
    previous_hook = call_one(guard[2], guard[1])
    first = fetch_add(taken, part)
    while first < lanes.size:
        for k in range(first, min(first + part, lanes.size)):
            lane = lanes[k]
            for actuator in range(controls.shape[1]):
                numbers[addresses[lane, ctrl] + actuator] = controls[k, actuator]
            _write_overrides(overrides[lane], override_lengths, override_addresses, memory)
            message = messages + MESSAGE_BYTES * k
            faults[k] = _make_calls(
                models, data[lane], calls, guard[0], message, fatal, integers, warning_addresses[lane]
            )
        first = fetch_add(taken, part)
    call_one(guard[2], previous_hook)


@inlined
def _write_overrides(overrides: U8, lengths: I64, addresses: I64, memory: U8) -> None:
    """Copy a lane's model bytes into a model."""
    first = 0
    for piece in range(lengths.size):
        for byte in range(lengths[piece]):
            memory[addresses[piece] + byte] = overrides[first + byte]
        first += lengths[piece]


@inlined
def _make_calls(
    models: I64, data: int, calls: I64, guarded_call: int, message: int, fatal: int, integers: I32, warnings: int
) -> int:
    """Make the calls of one lane and return its fault bits, 0 if there were none."""
    fault = 0
    known = _hash_warnings(integers, warnings)
    for call in range(len(calls)):
        if call_five(guarded_call, calls[call, 0], models[calls[call, 1]], data, 0, message) != 0:
            return fault | MUJOCO_ERROR
        current = _hash_warnings(integers, warnings)
        if current != known:
            known = current
            for kind in range(WARNING_KINDS):
                if integers[warnings + 2 * kind] != 0:
                    fault |= 1 << kind
            if fault & fatal:
                return fault
    return fault


@inlined
def _hash_warnings(integers: I32, warnings: int) -> int:
    """Return a number that changes when any warning count does."""
    digest = np.int64(0)
    for kind in range(WARNING_KINDS):
        digest = 1009 * digest + integers[warnings + 2 * kind]
    return digest


@kernel
def gather(lanes: I64, addresses: I64, field: int, elements: I64, numbers: F64, out: F64) -> None:
    """Copy some elements [m] of one array of each lane, which begins at addresses[lane, field], to `out` [n, m]."""
    for k in range(lanes.size):
        start = addresses[lanes[k], field]
        for column in range(elements.size):
            out[k, column] = numbers[start + elements[column]]
