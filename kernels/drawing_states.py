"""Common parts of `MujocoRenderer` and `SceneRenderer`, which draw arrays of states for programs.

Arrays are read from any library without a copy. Memory of frames is used again: fresh memory is zeroed page by page
when it is first written to, which for small frames takes a good part of the time that drawing them takes. All work is
done on a thread of the renderer's own, so that the next part of a stream is drawn while a program uses one.

Clients and renderers use this module, so it imports NumPy alone.
"""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

Forms: TypeAlias = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""Shape and dtype of arrays, by name."""
_MAX_KEPT_BYTES = 256 << 20
"""Memory that is kept for arrays to come, beside that of arrays in use."""
_OWN_REFERENCES = 2
"""References to an array that nobody else has: of the list, and of the call that counts them."""
_INTERRUPTED_WAIT_S = 5.0
"""Longest time that an interrupted call waits for its work to notice."""
IsCancelled: TypeAlias = Callable[[], bool]
_Result = TypeVar("_Result")


class FrameMemory:
    """Arrays for frames, handed out as views of memory that is kept."""

    def __init__(self) -> None:
        self._kept: list[np.ndarray] = []
        """Flat arrays of bytes, the last used last."""

    def take(self, forms: Forms) -> dict[str, np.ndarray]:
        """Return uninitialised arrays of these shapes and dtypes, by name."""
        return {name: self._take(shape, dtype) for name, (shape, dtype) in forms.items()}

    def _take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        size_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        memory = self._find(size_bytes)
        if memory is None:
            memory = np.empty(size_bytes, np.uint8)
        self._keep(memory)
        return memory[:size_bytes].view(dtype).reshape(shape)

    def _find(self, size_bytes: int) -> np.ndarray | None:
        """Remove and return memory of about this size that nobody uses, or None."""
        for k in range(len(self._kept)):
            is_unused = sys.getrefcount(self._kept[k]) == _OWN_REFERENCES
            if is_unused and size_bytes <= self._kept[k].size <= 2 * size_bytes:
                return self._kept.pop(k)
        return None

    def _keep(self, memory: np.ndarray) -> None:
        """Remember memory that is handed out; forget the oldest if it would be too much."""
        self._kept.append(memory)
        kept_bytes = sum(one.size for one in self._kept)
        while kept_bytes > _MAX_KEPT_BYTES and self._kept:
            kept_bytes -= self._kept.pop(0).size


def check_out(out: Mapping[str, np.ndarray], forms: Forms) -> dict[str, np.ndarray]:
    """Return the arrays of `out`; ValueError unless frames of these forms can be drawn into them."""
    if not isinstance(out, Mapping):
        raise TypeError(f"out is a {type(out).__name__}: expected a dict of arrays, by {', '.join(forms)}")
    if out.keys() != forms.keys():
        raise ValueError(f"out has {', '.join(out) or 'nothing'}: expected {', '.join(forms)}")
    for name, (shape, dtype) in forms.items():
        array: Any = out[name]
        if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
            came = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
            raise ValueError(f"out[{name!r}] is {came}: expected an array of {dtype} {list(shape)}")
        if not array.flags.c_contiguous or not array.flags.writeable:
            raise ValueError(f"out[{name!r}] is not C-contiguous or not writable: expected both")
    arrays = list(out.items())
    for k, (name, array) in enumerate(arrays):
        for other, second in arrays[:k]:
            if np.may_share_memory(array, second):  # exact, as both are contiguous
                raise ValueError(f"out[{other!r}] and out[{name!r}] overlap in memory: expected arrays of their own")
    return dict(out)


def read_array(name: str, value: Any) -> np.ndarray:
    """Return an array of any library as NumPy's, without a copy if it is in the memory of the CPU; else ValueError."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError(f"{name} is a masked array with numbers left out: expected all of them, or only whole states")
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        tensor = value.detach() if getattr(value, "requires_grad", False) else value
        if hasattr(tensor, "resolve_neg"):  # torch: memory that has the numbers negated is not marked as such by DLPack
            tensor = tensor.resolve_neg()
        try:
            return np.from_dlpack(tensor)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise ValueError(
                f"{name} is a {kind} that NumPy cannot read ({error}): expected numbers in the memory of the CPU, of "
                "a dtype that NumPy has; convert it first, for instance by .cpu(), .float() or jax.device_get"
            ) from error
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} is no array ({error}): expected numbers, a row for each state") from error


class DrawingThread:
    """The thread that does all the work of a renderer, call after call.

    Work must not refer to the object that owns the thread: when it is the last to do so, that object is closed by the
    thread itself, which it would wait for.
    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._thread = self._pool.submit(threading.get_ident).result()
        self._process = os.getpid()
        self._is_closing = False

    def submit(self, work: Callable[[IsCancelled], _Result]) -> "DrawingJob[_Result]":
        """Have work done after all earlier work; it may ask whether it has been cancelled."""
        if os.getpid() != self._process:
            raise RuntimeError("the renderer was made before this process was forked: expected one made in the process")
        cancelled = threading.Event()
        future = self._pool.submit(work, lambda: cancelled.is_set() or self._is_closing)
        return DrawingJob(future, cancelled)

    def run(self, work: Callable[[IsCancelled], _Result]) -> _Result:
        """Have work done, and wait for its result."""
        return self.submit(work).wait()

    def close(self, last: Callable[[], object]) -> None:
        """Cancel all work, do this last on the thread, and end it.

        Do nothing while the interpreter exits, and in a process that was forked, where the thread does not exist.
        """
        self._is_closing = True
        if os.getpid() != self._process:
            return
        if threading.get_ident() == self._thread:  # the garbage collector can run anywhere
            last()
            self._pool.shutdown(wait=False)
            return
        try:
            done = self._pool.submit(last)
        except RuntimeError:  # the interpreter exits and has ended the thread; what it used goes with the process
            return
        try:
            done.result()
        finally:
            self._pool.shutdown()


class DrawingJob(Generic[_Result]):
    """Work that a drawing thread does, or will do."""

    def __init__(self, future: "Future[_Result]", cancelled: threading.Event) -> None:
        self._future = future
        self._cancelled = cancelled

    def cancel(self) -> None:
        """Have the work end early, or not begin."""
        self._cancelled.set()
        self._future.cancel()

    def wait(self) -> _Result:
        """Return the result, or raise the error. After an interrupt, the work ends early and is waited for."""
        try:
            return self._future.result()
        except BaseException:
            self._cancelled.set()
            if not self._future.cancel():
                wait([self._future], _INTERRUPTED_WAIT_S)
            raise


def wait_one_behind(jobs: Iterable["DrawingJob[_Result]"]) -> Iterator[_Result]:
    """Yield the result of each job after the next one has been submitted, which happens when it is taken from `jobs`.

    An error of `jobs` itself is raised after all results before it.
    """
    pending: deque[DrawingJob[_Result]] = deque()
    source = iter(jobs)
    error: Exception | None = None
    try:
        while True:
            try:
                pending.append(next(source))
            except StopIteration:
                break
            except Exception as raised:
                error = raised
                break
            if len(pending) > 1:
                yield pending.popleft().wait()
        while pending:
            yield pending.popleft().wait()
        if error is not None:
            raise error
    finally:
        for job in pending:
            job.cancel()
