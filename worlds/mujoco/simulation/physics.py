"""Stepping of many lanes: a simulation for each, stepped in parallel by a kernel without the GIL.

A lane's simulation and the addresses in it are kept in the lane's row of a State, so they are created and freed with
the lane. The lanes of a step are divided among threads, one per core; a lane's result does not depend on the thread. An
error or a warning inside MuJoCo is a fault of its lane and affects no other.
"""

import functools
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import mujoco
import numpy as np

from worldloom.kernels.tables import F64, I64
from worldloom.render.arena import PROCESS_FLOAT64, PROCESS_INT32, PROCESS_MEMORY, address_of
from worldloom.worlds.family import State
from worldloom.worlds.mujoco.simulation.c_calls import MESSAGE_BYTES, libc_address
from worldloom.worlds.mujoco.simulation.data import CTRL, ModelOverrides
from worldloom.worlds.mujoco.simulation.kernels import CACHE_LINE_WORDS, MUJOCO_ERROR, step_lanes, wait_until_done
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
_MAX_YIELDS = 1000
"""Yields, some tenths of a millisecond, for which the other threads' last lanes are waited for without sleeping: waking
up again would take as long as a small model's lane."""
_RK4_STAGES = 4
_WITH_SENSORS, _WITHOUT_SENSORS = 0, 1
"""Index of the model that a call gets."""


def step_calls(model: mujoco.MjModel, steps: int) -> I64:
    """Return the calls of a step that leaves positions, sensors and all that depends on them up to date.

    The calls begin with the second half of a MuJoCo step, whose first half was the last call of the step before: what
    depends on positions and velocities is up to date. `mj_step2` is that half, but not for the RK4 integrator: there it
    is what `mj_step` calls after that. Only the last step and `mj_step1` compute sensors: nothing reads the sensors in
    between.
    """
    if model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
        skipped = int(mujoco.mjtStage.mjSTAGE_VEL)
        second_half = [("mj_forwardSkip", skipped), ("mj_checkAcc", 0), ("mj_RungeKutta", _RK4_STAGES)]
    else:
        second_half = [("mj_step2", 0)]
    *earlier, last = [second_half, *[[("mj_step", 0)]] * (steps - 1)]
    return np.array(
        [
            *(_call(name, _WITHOUT_SENSORS, argument) for calls in earlier for name, argument in calls),
            *(_call(name, _WITH_SENSORS, argument) for name, argument in (*last, ("mj_step1", 0))),
        ],
        np.int64,
    )


def plain_calls(*names: str) -> I64:
    """Return the calls of functions of model and data, in this order and with nothing left out."""
    return np.array([_call(name, _WITH_SENSORS) for name in names], np.int64)


def forward_calls() -> I64:
    """Return the call that brings everything up to date after positions were set."""
    return plain_calls("mj_forward")


def _call(name: str, model: int, third: int = 0) -> tuple[int, int, int, int]:
    """Return a row of calls, as `step_lanes` takes them; no function here has a fourth argument other than 0."""
    return function_address(name), model, third, 0


class LaneStepper:
    """Steps of the lanes of one model, on as many threads as the work is worth."""

    def __init__(self, model: mujoco.MjModel, overrides: ModelOverrides, fatal: int) -> None:
        self.fatal = fatal
        """Fault bits that abort a lane's step."""
        self._overrides = overrides
        # Overrides are written into the arrays of the models, so each thread needs its own.
        threads = [overrides.copy_arrays(model) for _ in range(thread_count())]
        self._models = [_variants(model, own) for own in threads]
        self._model_addresses = [np.array([one.address for one in pair], np.int64) for pair in self._models]
        self._override_addresses: list[I64] = [
            np.array([address_of(array) for array in own.values()], np.int64) for own in threads
        ]
        self.sharing = WorkSharing()

    def run(self, state: State, lanes: I64, controls: F64, calls: I64) -> "StepFaults":
        """Set the controls [n, nu] and make the calls of each lane."""
        faults = np.zeros(len(lanes), np.int64)
        messages = np.zeros((len(lanes), MESSAGE_BYTES), np.uint8)

        def step(thread: int, progress: I64) -> None:
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
                thread,
                progress,
                messages.ctypes.data,
                PROCESS_MEMORY,
                PROCESS_FLOAT64,
                PROCESS_INT32,
                faults,
            )

        self.sharing.run(step, len(lanes))
        return StepFaults(faults, messages)


class WorkSharing:
    """Division of the work on many lanes among threads, as many as it is worth."""

    def __init__(self) -> None:
        self.seconds_per_lane = 1e-5
        """Time that one lane takes, as last measured."""
        self.max_threads = thread_count()

    def run(self, work: Callable[[int, I64], None], lanes: int) -> None:
        """Have each thread call `work(thread, progress)`, a kernel that takes lanes as `step_lanes` does."""
        worth = int(self.seconds_per_lane * lanes / _MIN_THREAD_WORK_S)
        threads = max(1, min(self.max_threads, lanes, worth))
        progress = np.zeros((threads + 1, CACHE_LINE_WORDS), np.int64)
        began_s = time.perf_counter()
        others: list[Future[None]] = []
        with suppress(RuntimeError):  # while the interpreter exits, this thread takes all lanes
            others = [_thread_pool(os.getpid()).submit(work, thread, progress) for thread in range(1, threads)]
        work(0, progress)
        # Threads that have not begun yet, as on a busy machine, will find no lane to take: they are not waited for.
        if others and not wait_until_done(progress, lanes, libc_address("sched_yield"), _MAX_YIELDS):
            for other in others:
                other.result()
        self.seconds_per_lane = (time.perf_counter() - began_s) * threads / max(1, lanes)


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
def thread_count() -> int:
    """Return the number of threads that simulate: one per core."""
    return len(os.sched_getaffinity(0))


@functools.cache
def _thread_pool(process: int) -> ThreadPoolExecutor:
    """Return the threads of this process; a forked process inherits none, so they are cached by process id."""
    return ThreadPoolExecutor(max(1, thread_count() - 1), thread_name_prefix="worldloom-physics")
