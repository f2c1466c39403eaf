"""Work shared by threads inside a kernel: every item is done once, by whoever comes, and nobody waits in vain."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldloom.kernels.compiling import device_function
from worldloom.kernels.sharing import (
    _FAILURES,
    _MAX_FAILURES,
    _SEMAPHORE,
    FIRST_THREAD,
    THREAD_WORDS,
    _poll,
    _post,
    allocate_control,
    close_job,
    leave_job,
    open_job,
    stop_threads,
    take_items,
    wait_for_job,
)
from worldloom.kernels.tables import I64

THREADS = 4


@device_function
def _do(control: I64, thread: int, done: I64, by: I64) -> None:
    while True:
        first, end = take_items(control)
        if first == end:
            return
        for item in range(first, end):
            done[item] += 1
            by[item] = thread


@device_function
def _help(control: I64, thread: int, done: I64, by: I64) -> None:
    while wait_for_job(control, thread):
        _do(control, thread, done, by)
        leave_job(control)


@device_function
def _run_jobs(control: I64, jobs: int, items: int, chunk_size: int, threads: int, done: I64, by: I64) -> int:
    """Run jobs one after the other; return how many of them were incomplete when they were closed."""
    incomplete = 0
    for job in range(jobs):
        open_job(control, items, chunk_size, threads)
        _do(control, 0, done, by)
        close_job(control)
        for item in range(items):
            if done[item] != job + 1:
                incomplete += 1
                break
    return incomplete


@contextmanager
def helpers(control: I64, count: int, done: I64, by: I64) -> Iterator[None]:
    started = [threading.Thread(target=_help, args=(control, 1 + k, done, by)) for k in range(count)]
    for thread in started:
        thread.start()
    yield
    stop_threads(control)
    for thread in started:
        thread.join()


@pytest.mark.parametrize("count", [0, 1, THREADS - 1])
@settings(max_examples=15)
@given(
    jobs=st.integers(1, 300), items=st.integers(0, 200), chunk_size=st.integers(1, 70), threads=st.integers(1, THREADS)
)
def test_every_item_is_done_once(count: int, jobs: int, items: int, chunk_size: int, threads: int) -> None:
    control, done, by = allocate_control(THREADS), np.zeros(200, np.int64), np.zeros(200, np.int64)
    with helpers(control, count, done, by):
        assert _run_jobs(control, jobs, items, chunk_size, threads, done, by) == 0
    assert (done[:items] == jobs).all()
    assert not done[items:].any()
    assert (by <= min(count, threads - 1)).all()


def test_helpers_do_come() -> None:
    control, done, by = allocate_control(THREADS), np.zeros(1 << 20, np.int64), np.zeros(1 << 20, np.int64)
    seen: set[int] = set()
    with helpers(control, THREADS - 1, done, by):
        jobs = 0
        while seen != set(range(THREADS)):  # on a busy machine it takes some jobs until all were awake in time
            done[:] = 0
            assert _run_jobs(control, 1, done.size, 64, THREADS, done, by) == 0
            seen |= set(by.tolist())
            jobs += 1
            assert jobs < 100_000, f"only threads {seen} have done anything"


@settings(max_examples=20)
@given(st.lists(st.sampled_from([0.0, 0.00002, 0.0001, 0.0005, 0.003]), min_size=1, max_size=40))
def test_jobs_after_pauses(pauses_s: list[float]) -> None:
    """Each job is done, and so is the next: for threads that still ask for one, that sleep, or are just about to."""
    control, done, by = allocate_control(THREADS), np.zeros(64, np.int64), np.zeros(64, np.int64)
    with helpers(control, THREADS - 1, done, by):
        for pause_s in pauses_s:
            done[:] = 0
            assert _run_jobs(control, 1, done.size, 1, THREADS, done, by) == 0
            assert (done == 1).all()
            time.sleep(pause_s)


def test_threads_without_a_job_sleep() -> None:
    """Half a second costs next to no processor time, right after a job and after many that came seldom."""
    control, done, by = allocate_control(THREADS), np.zeros(64, np.int64), np.zeros(64, np.int64)
    with helpers(control, THREADS - 1, done, by):
        for jobs in (1, 40):
            for _ in range(jobs):
                _run_jobs(control, 1, done.size, 1, THREADS, done, by)
                time.sleep(0.001)
            before_s = time.process_time()
            time.sleep(0.5)
            assert time.process_time() - before_s < 0.02  # other threads of the process may do something


@device_function
def _post_and_poll(control: I64, is_posted: bool) -> bool:
    word = FIRST_THREAD + THREAD_WORDS
    if is_posted:
        _post(control, word + _SEMAPHORE)
    return _poll(control, word)


@pytest.mark.parametrize(
    ("failures", "is_posted", "is_found", "failures_then"),
    [
        (0, True, True, 0),
        (0, False, False, 1),
        (7, True, True, 0),
        (7, False, False, 8),
        (8, True, False, 9),  # it does not poll now: the thread sleeps, and is woken at once
        (31, False, False, 32),
        (32, True, True, 0),
        (32, False, False, 33),
    ],
)
def test_threads_whose_jobs_come_late_poll_seldom(
    failures: int, is_posted: bool, is_found: bool, failures_then: int
) -> None:
    """If another program has the core meanwhile, as many failures are noted as end polling at once."""
    control = allocate_control(2)
    word = FIRST_THREAD + THREAD_WORDS + _FAILURES
    control[word] = failures
    assert _post_and_poll(control, is_posted) == is_found
    assert control[word] in (failures_then, max(failures, _MAX_FAILURES) + 1)


def test_stopping_needs_no_job() -> None:
    control = allocate_control(2)
    nothing = np.zeros(1, np.int64)
    with helpers(control, 1, nothing, nothing):
        pass
    assert not nothing.any()
