"""Simulations of many lanes: an MjData for each, stepped side by side by a kernel without the GIL.

What a lane's simulation is (addresses, places, and the objects that own the memory) is kept in the lane's row of a
State, so it comes and goes with the lane. Steps of many lanes are shared among threads, one a core; which thread steps
a lane changes nothing in it. An error or a warning inside MuJoCo is an alarm of that lane, and of no other.
"""

import copy
import ctypes
import functools
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import mujoco
import numpy as np

from worldloom.kernels.guarded import TEXT_BYTES, make_guard
from worldloom.kernels.mujoco_step import FAILED, WARNINGS, step_lanes
from worldloom.kernels.tables import F64, I32, I64
from worldloom.render.memory import MEMORY, NUMBERS, place_of
from worldloom.worlds.family import State
from worldloom.worlds.mujoco.changes import Changes
from worldloom.worlds.mujoco.places import CTRL, FIELDS, places_of

STATE: dict[str, tuple[str, tuple[int, ...]]] = {
    "simulation": ("object", ()),
    "data": ("int64", ()),
    "places": ("int64", (len(FIELDS),)),
    "counts_at": ("int64", ()),
}
"""What a lane's state holds of its simulation: the MjData, its address, and places in it. With it goes `own`, bytes of
the model that are the lane's own."""

BAD = sum(1 << kind for kind in (3, 4, 5))
"""Alarms of numbers that are none, or far too large: MuJoCo begins such a simulation anew by itself."""
ANY = 2 * FAILED - 1
_WORDS = (
    *("near singular inertia", "too many contacts", "too many constraints"),
    *("bad positions", "bad velocities", "bad accelerations", "bad controls"),
)
_COUNTS: I32 = MEMORY.view(np.int32)
_WORTH_A_THREAD_S = 1e-4
"""Work for which another thread is woken: that alone takes some 50 µs."""
_PARTS_PER_WORKER = 8


def take(state: State, lane: int, data: mujoco.MjData) -> None:
    """Give a lane its simulation."""
    counts = data.warning.number
    assert counts.size == WARNINGS
    assert counts.strides == (8,)
    assert counts.dtype == np.int32
    state.simulation[lane] = data
    state.data[lane] = data._address
    state.places[lane] = places_of(data)
    state.counts_at[lane] = place_of(counts) // 4


def calls_of_step(model: mujoco.MjModel, steps: int) -> I64:
    """The calls of a step that leave positions, sensors and all that depends on them up to date.

    They begin in the middle of a step of MuJoCo's, whose first half the last call of the step before has done; but for
    the integrator that has no halves.
    """
    if model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
        names = ["mj_step"] * steps
    else:
        names = ["mj_step2", *["mj_step"] * (steps - 1)]
    return np.array([_address(name) for name in (*names, "mj_step1")], np.int64)


def calls_of_start() -> I64:
    """The call that brings everything up to date after positions were set."""
    return np.array([_address("mj_forward")], np.int64)


class Stepper:
    """Steps lanes of one model, on as many threads as are worth it."""

    def __init__(self, model: mujoco.MjModel, changes: Changes, grave: int) -> None:
        self.grave = grave
        """The alarms after which a lane's step is given up."""
        self._changes = changes
        copies = [model] + [copy.copy(model) if changes.size_bytes else model for _ in range(_threads() - 1)]
        self._models = [(one, changes.places(one)) for one in copies]
        self.lane_s = 1e-5
        """What one lane takes, as last measured."""

    def run(self, state: State, lanes: I64, controls: F64, calls: I64) -> "Alarms":
        """Set the controls [n, nu] and make the calls of each lane."""
        alarms = np.zeros(len(lanes), np.int64)
        texts = np.zeros((len(lanes), TEXT_BYTES), np.uint8)
        workers = max(1, min(len(self._models), len(lanes), int(self.lane_s * len(lanes) / _WORTH_A_THREAD_S)))
        part = -(-len(lanes) // (workers * _PARTS_PER_WORKER)) if workers > 1 else len(lanes)
        taken = np.zeros(1, np.int64)

        def step(worker: int) -> None:
            model, own_at = self._models[worker]
            step_lanes(
                lanes,
                model._address,
                state.data,
                state.places,
                CTRL,
                state.counts_at,
                state.own,
                self._changes.lengths,
                own_at,
                controls,
                calls,
                _tools(),
                self.grave | FAILED,
                part,
                taken,
                texts.ctypes.data,
                MEMORY,
                NUMBERS,
                _COUNTS,
                alarms,
            )

        began_s = time.perf_counter()
        others = [_crew(os.getpid()).submit(step, worker) for worker in range(1, workers)]
        step(0)
        for other in others:
            other.result()
        self.lane_s = (time.perf_counter() - began_s) * workers / max(1, len(lanes))
        return Alarms(alarms, texts)


class Alarms(NamedTuple):
    """What went wrong in each of the lanes that were stepped."""

    bits: I64
    texts: np.ndarray

    def words(self, k: int) -> str:
        """The alarm of the k-th lane, in words."""
        if self.bits[k] & FAILED:
            return bytes(self.texts[k]).split(b"\0")[0].decode(errors="replace")
        return ", ".join(words for kind, words in enumerate(_WORDS) if self.bits[k] & 1 << kind)


@functools.cache
def _library() -> ctypes.CDLL:
    (path,) = Path(mujoco.__file__).parent.glob("libmujoco.so.*")
    return ctypes.CDLL(str(path))


def _address(name: str) -> int:
    found = ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value
    assert found is not None
    return found


@functools.cache
def _tools() -> I64:
    guard = make_guard()
    return np.array([guard.call, guard.hook, _address("_mjPRIVATE_setTlsLogHandler")], np.int64)


@functools.cache
def _threads() -> int:
    return len(os.sched_getaffinity(0))


@functools.cache
def _crew(process: int) -> ThreadPoolExecutor:
    """The threads of this process; a fork has none of its parent's."""
    return ThreadPoolExecutor(max(1, _threads() - 1), thread_name_prefix="worldloom-physics")
