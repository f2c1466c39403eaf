"""The memory budget of a server, and giving freed memory back to the operating system.

Pools, segments and reply buffers count against the budget before they are allocated. A pool counts with the estimate of
its family (`Family.memory_bytes`), the others with their size.

The C library keeps what is freed for later allocations. That is memory of the process for good where models and
simulations of hundreds of megabytes come and go, so after a large release the library is told to give it back.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from worldloom.protos.errors import ResourceExhausted

_SHARE = 0.75
"""Part of the available memory that is the budget by default: estimates are not exact, and others need some, too."""
_LARGE_BYTES = 16 << 20
"""Memory that is given back at once when it is released."""
_REPLY_BUFFERS, _SMALL_REPLY_BYTES = 2, 1 << 20
"""Buffers of a reply that must fit: one is filled while the other is sent. Size up to which they are counted only."""
_DELAY_S = 0.2
"""Time between a release and giving its memory back: a large release is one of many objects in a row."""
_M_ARENA_MAX = -8
"""Number of the option of mallopt, from malloc.h."""
_MEMORY_INFO = Path("/proc/meminfo")
_OWN_CGROUPS = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")


class MemoryBudget:
    """Memory that a server may take, and what it holds. Used by the engine's thread only."""

    def __init__(self, max_bytes: int | None) -> None:
        self.max_bytes = int(_SHARE * available_bytes()) if max_bytes is None else max_bytes
        self._readers: list[Callable[[], int]] = []
        self._heap = _Heap()

    def count(self, read_bytes: Callable[[], int]) -> None:
        """Count what this function returns as held."""
        self._readers.append(read_bytes)

    @property
    def held_bytes(self) -> int:
        """Bytes held by everything that counts."""
        return sum(read_bytes() for read_bytes in self._readers)

    @property
    def left_bytes(self) -> int:
        """Bytes that may be allocated."""
        return max(0, self.max_bytes - self.held_bytes)

    def check(self, size_bytes: int, what: str, instead: str, held_bytes: int = 0) -> None:
        """Raise ResourceExhausted if so many bytes more would exceed the budget; `instead`: how to do with less.

        `held_bytes` are a part of what is needed that is counted as held already, and would be released.
        """
        if size_bytes > self.left_bytes:
            left_bytes = max(0, self.max_bytes - self.held_bytes + held_bytes)
            size_bytes += held_bytes
            raise ResourceExhausted(
                f"{what} would take about {size_bytes} bytes of memory: expected {left_bytes} at most, which is what "
                f"is left of {self.max_bytes}; {instead}, or raise --max-memory-bytes"
            )

    def check_replies(self, size_bytes: int, instead: str) -> None:
        """Raise ResourceExhausted if the buffers of replies of this size would exceed the budget.

        Small ones always pass, so that worlds can be stepped whatever else there is.
        """
        if size_bytes > _SMALL_REPLY_BYTES:
            self.check(_REPLY_BUFFERS * size_bytes, "replies to this step", instead)

    def note_release(self, size_bytes: int) -> None:
        """Give memory that was released, or is about to be, back to the operating system if it is much."""
        if size_bytes >= _LARGE_BYTES:
            self._heap.trim_soon()


class _Heap:
    """The heap of the C library. Calls of `trim_soon` may come from any thread, also while objects are destroyed."""

    def __init__(self) -> None:
        self._trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
        self._is_pending = False

    def trim_soon(self) -> None:
        """Give free memory back to the operating system, in a moment and on another thread."""
        if self._trim is not None and not self._is_pending:
            self._is_pending = True
            timer = threading.Timer(_DELAY_S, self._run)
            timer.daemon = True
            timer.start()

    def _run(self) -> None:
        self._is_pending = False
        assert self._trim is not None
        self._trim(0)


def use_one_heap() -> None:
    """Have all threads of this process allocate from one heap; call it before there are other threads.

    Of the heaps that the C library makes for threads, up to 64 MB each are never given back.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_ARENA_MAX, 1)


def available_bytes() -> int:
    """Return the memory that this process may still take: that of the machine, or of its cgroup if that is less."""
    return min([_machine_bytes(), *_cgroup_bytes()])


def _machine_bytes() -> int:
    try:
        lines = dict(line.split(":", 1) for line in _MEMORY_INFO.read_text().splitlines())
    except OSError:  # /proc has no more than processes, say: then all that the machine has
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(lines["MemAvailable"].split()[0]) * 1024


def _cgroup_bytes() -> Iterator[int]:
    """Yield what is left of the limit of each cgroup that this process is in; nothing where there is no limit."""
    for line in _OWN_CGROUPS.read_text().splitlines() if _OWN_CGROUPS.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, limit_name, usage_name = _CGROUPS, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            root, limit_name, usage_name = _CGROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        own = root / path.lstrip("/")
        # In a container the path is that of the host, while the container's own cgroup is mounted as the root.
        for folder in (root, own, *(parent for parent in own.parents if parent.is_relative_to(root))):
            try:
                limit, usage = int((folder / limit_name).read_text()), int((folder / usage_name).read_text())
                statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            except (OSError, ValueError):  # no such cgroup, or its limit is `max`
                continue
            # The page cache counts as usage, but makes room for processes.
            yield max(0, limit - usage + int(statistics.get("inactive_file", 0)))
