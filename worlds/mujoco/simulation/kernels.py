"""Kernels that step many MuJoCo simulations without the GIL, and read numbers out of them.

MuJoCo's functions are called by their addresses, with the addresses of a model and of an MjData. A fault in one
simulation aborts the step of its own lane only: an error, which would otherwise end the process, or a warning, which
MuJoCo counts in the MjData.
"""

import numpy as np

from worldloom.kernels.compiling import inlined, kernel, kernel_holding_gil
from worldloom.kernels.intrinsics import fetch_add
from worldloom.kernels.tables import F64, I32, I64, U8
from worldloom.worlds.mujoco.simulation.c_calls import MESSAGE_BYTES, call_one, call_six

WARNING_KINDS = 7
"""Kinds of warnings that an MjData counts (mjNWARNING)."""
MUJOCO_ERROR = 1 << WARNING_KINDS
"""Fault bit of a step that ended in an error of MuJoCo. The bits below it are the kinds of new warnings."""

CACHE_LINE_WORDS = 8
"""Words of a cache line: counters of different threads are this far apart."""


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
    thread: int,
    progress: I64,
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
    `memory`, arrays of both these models. `calls` [m, 4]: the address of a function of model and data, the index of the
    model it gets, and its third and fourth argument if it has them. `guard` [3]: addresses of the guard's call, of its
    hook, and of the function that sets this thread's hook. `fatal`: fault bits that abort a lane's step. `messages`:
    address of MESSAGE_BYTES for each of `lanes`.

    Several threads may run this at once, each with its own number `thread` and the same `progress` [threads + 1, words
    of a cache line], at first zeros. The lanes are divided into a block for each thread. In the first column of
    `progress` are the numbers of lanes that are taken of each block, and last that of all lanes that are done. A thread
    takes the lanes of its own block, which it stepped the last time, so that much of what it needs is in the cache of
    its core; then it takes those that are left of other blocks. All take one lane at a time, and so end at nearly the
    same time.
    """
    previous_hook = call_one(guard[2], guard[1])
    threads = progress.shape[0] - 1
    stepped = 0
    for turn in range(threads):
        block = (thread + turn) % threads
        first, end = block * lanes.size // threads, (block + 1) * lanes.size // threads
        k = first + fetch_add(progress[block], 1)
        while k < end:
            lane = lanes[k]
            for actuator in range(controls.shape[1]):
                numbers[addresses[lane, ctrl] + actuator] = controls[k, actuator]
            _write_overrides(overrides[lane], override_lengths, override_addresses, memory)
            message, warnings = messages + MESSAGE_BYTES * k, warning_addresses[lane]
            faults[k] = _make_calls(models, data[lane], calls, guard[0], message, fatal, integers, warnings)
            stepped += 1
            k = first + fetch_add(progress[block], 1)
    call_one(guard[2], previous_hook)
    fetch_add(progress[threads], stepped)


@kernel
def wait_until_done(progress: I64, lanes: int, yield_processor: int, max_yields: int) -> bool:
    """Wait until so many lanes are done; return False if they are not after `max_yields`.

    `progress` is that of `step_lanes`. `yield_processor`: address of a function that lets another thread run, if one
    waits for this processor.
    """
    done = progress[-1]
    for _ in range(max_yields):
        if fetch_add(done, 0) >= lanes:
            return True
        call_one(yield_processor, 0)
    return False


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
        function, model, third, fourth = calls[call, 0], models[calls[call, 1]], calls[call, 2], calls[call, 3]
        if call_six(guarded_call, function, model, data, third, fourth, message) != 0:
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


@kernel_holding_gil
def gather(lanes: I64, addresses: I64, field: int, elements: I64, numbers: F64, out: F64) -> None:
    """Copy some elements [m] of one array of each lane, which begins at addresses[lane, field], to `out` [n, m]."""
    for k in range(lanes.size):
        start = addresses[lanes[k], field]
        for column in range(elements.size):
            out[k, column] = numbers[start + elements[column]]


@kernel_holding_gil
def gather_columns(lanes: I64, addresses: I64, sources: I64, numbers: F64, out: F64) -> None:
    """Copy elements of several arrays of each lane to `out` [m, n]. `sources` [m, 2]: fields, and elements of those."""
    for column in range(sources.shape[0]):
        field, element = sources[column, 0], sources[column, 1]
        for k in range(lanes.size):
            out[column, k] = numbers[addresses[lanes[k], field] + element]
