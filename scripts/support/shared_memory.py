"""Shared memory as a client sees it: found through properties, mapped, and looked at."""

import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


class Mapped:
    """A stream's segment, mapped. `read` reads a property of that stream."""

    def __init__(self, read: Callable[[str], Any]) -> None:
        self.name, self.token = str(read("shm.name")), str(read("shm.token"))
        self.size_bytes, self.slots = int(read("shm.size_bytes")), int(read("shm.slots"))
        file = self.open()
        try:
            self.inode = os.fstat(file).st_ino
            self.memory = mmap.mmap(file, self.size_bytes)
        finally:
            os.close(file)
        self.array: np.ndarray = np.frombuffer(self.memory, np.uint8)
        assert self.array[: len(self.token)].tobytes() == self.token.encode()

    @property
    def is_open_at_its_server(self) -> bool:
        """Whether the server holds it. We do either way: the array is there for as long as we want it."""
        try:
            return os.stat(self.name).st_ino == self.inode
        except FileNotFoundError:
            return False

    def open(self) -> int:
        """A file descriptor of it, to be closed by whoever asked."""
        return os.open(self.name, os.O_RDWR | os.O_CLOEXEC)

    def pictures(self, places: np.ndarray, like: np.ndarray) -> np.ndarray:
        """What lies at these places ([3] or [lanes, 3] of slot, byte and bytes): an array as `like`, without a copy."""
        first = np.reshape(places, (-1, 3))[0]
        start, size = int(first[1]), int(np.reshape(places, (-1, 3))[:, 2].sum())
        assert size == like.nbytes
        return self.array[start : start + size].view(like.dtype).reshape(like.shape)


def segment_files(pid: int) -> list[str]:
    """Segments that a process has open, as its table of files names them."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(link)
        except FileNotFoundError:  # closed by now
            continue
        if "memfd:worldloom" in target:
            found.append(target)
    return found


def segment_mappings(pid: int) -> list[int]:
    """Inodes of the segments that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [int(line.split()[4]) for line in lines if "memfd:worldloom" in line]
