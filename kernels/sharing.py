"""Work shared by threads that stay inside a kernel: one opens a job, the others wait on semaphores until one is open.

Nobody waits for a thread to wake up. A job is a number of items, taken one chunk at a time from a counter; a thread
that wakes while the job is open takes some, one that wakes later finds it closed and sleeps again. Only threads that
have entered are waited for, so a job is never slower than without them by more than waking them, some 5 µs each. None
of this needs the GIL.

A thread takes some 50 µs to wake up, as long as a small batch takes to draw. So after a job a thread polls for the next
one for a while before it sleeps, and lets other threads run in between. Where jobs come too seldom for that, or another
program uses the core, it polls only now and then: a thread that lets others run gets the core back late, while one that
sleeps gets it as soon as it is woken.

A control block is an array of int64, `allocate_control`, that all threads have. Thread 0 opens jobs.
"""

import ctypes
import time
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from worldloom.kernels.compiling import inlined
from worldloom.kernels.simd import Generated
from worldloom.kernels.tables import I64

# Indices of a control block. What threads write at the same time is in cache lines (8 words) of its own.
NEXT_ITEM, STATE = 0, 8
ITEM_COUNT, CHUNK_SIZE, STOPPING = 16, 17, 18
FIRST_THREAD = 24
THREAD_WORDS = 8
"""Words of a thread, from FIRST_THREAD on: whether it waits, a semaphore of four words, and failures in a row."""
_WAITING, _SEMAPHORE, _FAILURES = 0, 1, 5
_CLOSED = 1 << 32
"""Bit of STATE: no thread may enter. The bits below count the threads that are inside."""
_SLEEPING = 1 << 33
"""Bit of STATE: thread 0 sleeps until the last of them has left."""
_SPINS = 2000
"""Reads of STATE before thread 0 sleeps until the others have left: some microseconds, less than waking takes."""
_POLLS = 400
"""Times that a thread looks for the next job before it sleeps: some 100 µs, the time between two small steps."""
_LONG_NS = 2_000_000
"""Time of these polls beyond which a busy program has had the core meanwhile: longer than most work of a server's other
threads, such as those of gRPC, and shorter than the system lets a busy program run."""
_MAX_FAILURES, _POLL_EVERY = 8, 32
"""After so many jobs that did not come in time, or one during which another program had the core, a thread polls only
after every 32nd."""

_libc = ctypes.CDLL(None)


def allocate_control(threads: int) -> I64:
    """Return a control block with no job."""
    control = np.zeros(FIRST_THREAD + threads * THREAD_WORDS, np.int64)
    control[STATE] = _CLOSED
    for thread in range(threads):
        if _libc.sem_init(_semaphore_address(control, thread), 0, 0) != 0:
            raise OSError("sem_init failed: this system has no unnamed semaphores")
    return control


def stop_threads(control: I64) -> None:
    """Make all threads in `wait_for_job` return, now or when they next would wait."""
    control[STOPPING] = 1
    for thread in range(1, (control.size - FIRST_THREAD) // THREAD_WORDS):
        _libc.sem_post(_semaphore_address(control, thread))


def _semaphore_address(control: I64, thread: int) -> ctypes.c_void_p:
    word = FIRST_THREAD + thread * THREAD_WORDS + _SEMAPHORE
    return ctypes.c_void_p(control.__array_interface__["data"][0] + 8 * word)


@inlined
def open_job(control: I64, items: int, chunk_size: int, threads: int) -> None:
    """Open a job of so many items for the first `threads` threads, and wake those that wait."""
    control[NEXT_ITEM], control[ITEM_COUNT], control[CHUNK_SIZE] = 0, items, chunk_size
    _exchange(control, STATE, 0)
    for thread in range(1, threads):
        word = FIRST_THREAD + thread * THREAD_WORDS
        if _exchange(control, word + _WAITING, 0) == 1:
            _post(control, word + _SEMAPHORE)


@inlined
def take_items(control: I64) -> tuple[int, int]:
    """Take the next chunk of the job: return its first item and the one after its last, equal if none is left."""
    first = min(_add(control, NEXT_ITEM, control[CHUNK_SIZE]), control[ITEM_COUNT])
    return first, min(first + control[CHUNK_SIZE], control[ITEM_COUNT])


@inlined
def close_job(control: I64) -> None:
    """Let no more threads enter, and wait until those that have are done."""
    if _add(control, STATE, _CLOSED) == 0:
        return
    for _ in range(_SPINS):
        if _add(control, STATE, 0) == _CLOSED:
            return
    if _add(control, STATE, _SLEEPING) != _CLOSED:
        _wait(control, FIRST_THREAD + _SEMAPHORE)


@inlined
def wait_for_job(control: I64, thread: int) -> bool:
    """Wait until a job is open and enter it; return False when the threads are to stop."""
    word = FIRST_THREAD + thread * THREAD_WORDS
    while True:
        _exchange(control, word + _WAITING, 1)
        if not _poll(control, word):
            _wait(control, word + _SEMAPHORE)
        if _add(control, STOPPING, 0) == 1:
            return False
        state = _add(control, STATE, 0)
        while state < _CLOSED:
            found = _compare_exchange(control, STATE, state, state + 1)
            if found == state:
                return True
            state = found


@inlined
def _poll(control: I64, word: int) -> bool:
    """Look for a while if the semaphore of a thread was posted, unless that mostly fails; return whether it was."""
    failures = control[word + _FAILURES]
    is_posted = False
    if failures < _MAX_FAILURES or failures % _POLL_EVERY == 0:
        since_ns = _now_ns()
        for _ in range(_POLLS):
            if _wait_if_posted(control, word + _SEMAPHORE) == 0:
                is_posted = True
                break
            _let_others_run()
        if _now_ns() - since_ns > _LONG_NS:
            failures = max(failures, _MAX_FAILURES)
        elif is_posted:
            failures = -1
    control[word + _FAILURES] = failures + 1
    return is_posted


@inlined
def leave_job(control: I64) -> None:
    """Leave a job that this thread has entered; the last one wakes thread 0 if it sleeps."""
    if _add(control, STATE, -1) == _CLOSED + _SLEEPING + 1:
        _post(control, FIRST_THREAD + _SEMAPHORE)


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    return builder.gep(data, [arguments[1]])


@intrinsic  # type: ignore[untyped-decorator]
def _add(typing_context: Any, array: Any, index: Any, number: Any) -> Generated:
    """Add to an element atomically; return its value before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(context, builder, signature, arguments), arguments[2], "seq_cst")

    return types.int64(array, types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _exchange(typing_context: Any, array: Any, index: Any, number: Any) -> Generated:
    """Replace an element atomically; return its value before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("xchg", _pointer(context, builder, signature, arguments), arguments[2], "seq_cst")

    return types.int64(array, types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _compare_exchange(typing_context: Any, array: Any, index: Any, expected: Any, number: Any) -> Generated:
    """Replace an element atomically if it has the expected value; return its value before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature, arguments)
        return builder.extract_value(builder.cmpxchg(pointer, arguments[2], arguments[3], "seq_cst", "seq_cst"), 0)

    return types.int64(array, types.int64, types.int64, types.int64), generate


def _semaphore_call(name: str) -> Any:
    """Return an intrinsic that calls a function of the C library for the semaphore at an element."""

    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing_context: Any, array: Any, index: Any) -> Generated:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            byte_pointer = ir.IntType(8).as_pointer()
            function_type = ir.FunctionType(ir.IntType(32), [byte_pointer])
            function = cgutils.get_or_insert_function(builder.module, function_type, name)
            pointer = _pointer(context, builder, signature, arguments)
            return builder.call(function, [builder.bitcast(pointer, byte_pointer)])

        return types.int32(array, types.int64), generate

    return call


_post = _semaphore_call("sem_post")
_wait_once = _semaphore_call("sem_wait")
"""Returns 0, or -1 if a signal came first."""
_wait_if_posted = _semaphore_call("sem_trywait")
"""Returns 0, or -1 if it was not posted."""


@intrinsic  # type: ignore[untyped-decorator]
def _let_others_run(typing_context: Any) -> Generated:
    """Let another thread run on this core, if one waits for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.IntType(32), []), "sched_yield")
        return builder.call(function, [])

    return types.int32(), generate


@intrinsic  # type: ignore[untyped-decorator]
def _now_ns(typing_context: Any) -> Generated:
    """Return the time of a clock that never goes back, in nanoseconds."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        seconds_and_rest = cgutils.alloca_once(builder, ir.ArrayType(word, 2))
        function_type = ir.FunctionType(ir.IntType(32), [ir.IntType(32), seconds_and_rest.type])
        function = cgutils.get_or_insert_function(builder.module, function_type, "clock_gettime")
        builder.call(function, [ir.Constant(ir.IntType(32), time.CLOCK_MONOTONIC), seconds_and_rest])
        seconds, rest = (builder.load(cgutils.gep_inbounds(builder, seconds_and_rest, 0, k)) for k in range(2))
        return builder.add(builder.mul(seconds, ir.Constant(word, 1_000_000_000)), rest)

    return types.int64(), generate


@inlined
def _wait(control: I64, index: int) -> None:
    """Wait for the semaphore at an element, whatever signals come."""
    while _wait_once(control, index) != 0:
        pass
