"""Stepping of many lanes: a simulation for each, stepped in parallel by a kernel without the GIL.

A lane's simulation and the addresses in it are kept in the lane's row of a State, so they are created and freed with
the lane. The lanes of a step are divided among threads, one per core; a lane's result does not depend on the thread. An
error or a warning inside MuJoCo is a fault of its lane and affects no other.
"""

import functools
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import mujoco
import numpy as np

from worldloom.kernels.tables import F64, I64
from worldloom.render.arena import PROCESS_FLOAT64, PROCESS_INT32, PROCESS_MEMORY, address_of
from worldloom.worlds.family import State
from worldloom.worlds.mujoco.simulation.c_calls import MESSAGE_BYTES
from worldloom.worlds.mujoco.simulation.data import CTRL, ModelOverrides
from worldloom.worlds.mujoco.simulation.kernels import MUJOCO_ERROR, step_lanes
from worldloom.worlds.mujoco.simulation.library import ModelVariant, function_address, guard_addresses

DIVERGED = sum(1 << kind for kind in (3, 4, 5))
"""Fault bits of positions, velocities or accelerations that are not finite or too large. MuJoCo resets such a
simulation by itself."""
ANY_FAULT = 2 * MUJOCO_ERROR - 1
_WARNING_TEXTS = (
    *("near singular inertia", "too many contacts", "too many constraints"),
    *("bad positions", "bad velocities", "bad accelerations", "bad controls"),
)
_MIN_THREAD_WORK_S = 1e-4
"""Work that another thread is woken for: waking it takes about 50 µs."""
_PARTS_PER_THREAD = 8
_WITH_SENSORS, _WITHOUT_SENSORS = 0, 1
"""Index of the model that a call gets."""


def step_calls(model: mujoco.MjModel, steps: int) -> I64:
    """Return the calls of a step that leaves positions, sensors and all that depends on them up to date.

    The calls begin with the second half of a MuJoCo step, whose first half was the last call of the step before. The
    RK4 integrator has no halves and does whole steps. Only the last two calls compute sensors: nothing reads the
    sensors in between.
    """
    if model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
        names = ["mj_step"] * steps
    else:
        names = ["mj_step2", *["mj_step"] * (steps - 1)]
    calls = [(function_address(name), _WITHOUT_SENSORS) for name in (*names, "mj_step1")]
    calls[-2:] = [(address, _WITH_SENSORS) for address, _ in calls[-2:]]
    return np.array(calls, np.int64)


def forward_calls() -> I64:
    """Return the call that brings everything up to date after positions were set."""
    return np.array([(function_address("mj_forward"), _WITH_SENSORS)], np.int64)


class LaneStepper:
    """Steps of the lanes of one model, on as many threads as the work is worth."""

    def __init__(self, model: mujoco.MjModel, overrides: ModelOverrides, fatal: int) -> None:
        self.fatal = fatal
        """Fault bits that abort a lane's step."""
        self._overrides = overrides
        # Overrides are written into the arrays of the models, so each thread needs its own.
        threads = [overrides.copy_arrays(model) for _ in range(_thread_count())]
        self._models = [_variants(model, own) for own in threads]
        self._model_addresses = [np.array([one.address for one in pair], np.int64) for pair in self._models]
        self._override_addresses: list[I64] = [
            np.array([address_of(array) for array in own.values()], np.int64) for own in threads
        ]
        self.seconds_per_lane = 1e-5
        """Time that one lane takes, as last measured."""

    def run(self, state: State, lanes: I64, controls: F64, calls: I64) -> "StepFaults":
        """Set the controls [n, nu] and make the calls of each lane."""
        faults = np.zeros(len(lanes), np.int64)
        messages = np.zeros((len(lanes), MESSAGE_BYTES), np.uint8)
        worth = int(self.seconds_per_lane * len(lanes) / _MIN_THREAD_WORK_S)
        threads = max(1, min(len(self._models), len(lanes), worth))
        part = -(-len(lanes) // (threads * _PARTS_PER_THREAD)) if threads > 1 else len(lanes)
        taken = np.zeros(1, np.int64)

        def step(thread: int) -> None:
            step_lanes(
                lanes,
                self._model_addresses[thread],
                state.data_address,
                state.addresses,
                CTRL,
                state.warning_address,
                state.overrides,
                self._overrides.lengths_bytes,
                self._override_addresses[thread],
                controls,
                calls,
                guard_addresses(),
                self.fatal | MUJOCO_ERROR,
                part,
                taken,
                messages.ctypes.data,
                PROCESS_MEMORY,
                PROCESS_FLOAT64,
                PROCESS_INT32,
                faults,
            )

        began_s = time.perf_counter()
        others = [_thread_pool(os.getpid()).submit(step, thread) for thread in range(1, threads)]
        step(0)
        for other in others:
            other.result()
        self.seconds_per_lane = (time.perf_counter() - began_s) * threads / max(1, len(lanes))
        return StepFaults(faults, messages)


def _variants(model: mujoco.MjModel, own: dict[str, np.ndarray]) -> tuple[ModelVariant, ModelVariant]:
    """Return a model with these arrays, and the same without sensors, unless some of them keep a history."""
    has_sensors = ModelVariant(model, own)
    if not model.nsensor or model.nhistory or model.nplugin:
        return has_sensors, has_sensors
    return has_sensors, ModelVariant(model, own, has_sensors=False)


class StepFaults(NamedTuple):
    """Errors and warnings of each of the lanes that were stepped."""

    bits: I64
    """Fault bits of each lane: MUJOCO_ERROR and the kinds of warnings, 0 if there were none."""
    messages: np.ndarray
    """Texts of errors, [n, MESSAGE_BYTES], each terminated by a zero byte."""

    def describe(self, k: int) -> str:
        """Return the fault of the k-th lane as text."""
        if self.bits[k] & MUJOCO_ERROR:
            return bytes(self.messages[k]).split(b"\0")[0].decode(errors="replace")
        return ", ".join(text for kind, text in enumerate(_WARNING_TEXTS) if self.bits[k] & 1 << kind)


@functools.cache
def _thread_count() -> int:
    return len(os.sched_getaffinity(0))


@functools.cache
def _thread_pool(process: int) -> ThreadPoolExecutor:
    """Return the threads of this process; a forked process inherits none, so they are cached by process id."""
    return ThreadPoolExecutor(max(1, _thread_count() - 1), thread_name_prefix="worldloom-physics")
