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

from worldloom.kernels.tables import F64, I64
from worldloom.render.arena import PROCESS_FLOAT64, PROCESS_INT32, PROCESS_MEMORY, address_of
from worldloom.worlds.family import State
from worldloom.worlds.mujoco.simulation.c_calls import TEXT_BYTES, make_guard
from worldloom.worlds.mujoco.simulation.data import CTRL, FIELDS, Changes, places_of
from worldloom.worlds.mujoco.simulation.kernels import FAILED, WARNINGS, step_lanes

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
_WORTH_A_THREAD_S = 1e-4
"""Work for which another thread is woken: that alone takes some 50 µs."""
_PARTS_PER_WORKER = 8
_SEEING, _BLIND = 0, 1
"""Which model a call gets: with sensors, or without."""


def take(state: State, lane: int, data: mujoco.MjData) -> None:
    """Give a lane its simulation."""
    counts = data.warning.number
    assert counts.size == WARNINGS
    assert counts.strides == (8,)
    assert counts.dtype == np.int32
    state.simulation[lane] = data
    state.data[lane] = data._address
    state.places[lane] = places_of(data)
    state.counts_at[lane] = address_of(counts) // 4


def calls_of_step(model: mujoco.MjModel, steps: int) -> I64:
    """The calls of a step that leave positions, sensors and all that depends on them up to date.

    They begin in the middle of a step of MuJoCo's, whose first half the last call of the step before has done; but for
    the integrator that has no halves. Sensors are computed in the last two, which is all that anybody sees of them.
    """
    if model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
        names = ["mj_step"] * steps
    else:
        names = ["mj_step2", *["mj_step"] * (steps - 1)]
    calls = [(_address(name), _BLIND) for name in (*names, "mj_step1")]
    calls[-2:] = [(address, _SEEING) for address, _ in calls[-2:]]
    return np.array(calls, np.int64)


def calls_of_start() -> I64:
    """The call that brings everything up to date after positions were set."""
    return np.array([(_address("mj_forward"), _SEEING)], np.int64)


class Stepper:
    """Steps lanes of one model, on as many threads as are worth it."""

    def __init__(self, model: mujoco.MjModel, changes: Changes, grave: int) -> None:
        self.grave = grave
        """The alarms after which a lane's step is given up."""
        self._changes = changes
        blind = _without_sensors(model)
        pairs = [(model, blind)]
        for _ in range(_threads() - 1):
            pairs.append((copy.copy(model), copy.copy(blind)) if changes.size_bytes else (model, blind))
        self._models = pairs
        self._addresses = [np.array([one._address for one in pair], np.int64) for pair in pairs]
        self._own_at = [np.stack([changes.places(one) for one in pair]) for pair in pairs]
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
            step_lanes(
                lanes,
                self._addresses[worker],
                state.data,
                state.places,
                CTRL,
                state.counts_at,
                state.own,
                self._changes.lengths,
                self._own_at[worker],
                controls,
                calls,
                _tools(),
                self.grave | FAILED,
                part,
                taken,
                texts.ctypes.data,
                PROCESS_MEMORY,
                PROCESS_FLOAT64,
                PROCESS_INT32,
                alarms,
            )

        began_s = time.perf_counter()
        others = [_crew(os.getpid()).submit(step, worker) for worker in range(1, workers)]
        step(0)
        for other in others:
            other.result()
        self.lane_s = (time.perf_counter() - began_s) * workers / max(1, len(lanes))
        return Alarms(alarms, texts)


def _without_sensors(model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy of a model that computes no sensors; itself if it has none, or some that remember what they read."""
    if not model.nsensor or model.nhistory or model.nplugin:
        return model
    blind = copy.copy(model)
    blind.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
    return blind


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
