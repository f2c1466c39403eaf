"""Shared memory of a stream, found through its properties and mapped as a client would."""

import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


class MappedSegment:
    """The mapped segment of a stream. `read` reads a property of that stream."""

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
    def is_open_in_server(self) -> bool:
        """The server still has the segment open. The mapping here stays valid either way."""
        try:
            return os.stat(self.name).st_ino == self.inode
        except FileNotFoundError:
            return False

    def open(self) -> int:
        """Return a file descriptor of the segment, which the caller closes."""
        return os.open(self.name, os.O_RDWR | os.O_CLOEXEC)

    def frames(self, locations: np.ndarray, like: np.ndarray) -> np.ndarray:
        """Return the frames at the locations of an @shm observation, [3] or [lanes, 3], as an array like `like`."""
        first = np.reshape(locations, (-1, 3))[0]
        start, size = int(first[1]), int(np.reshape(locations, (-1, 3))[:, 2].sum())
        assert size == like.nbytes
        return self.array[start : start + size].view(like.dtype).reshape(like.shape)


def segment_files(pid: int) -> list[str]:
    """Return the segments that a process has open, by name."""
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
    """Return the inodes of the segments that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [int(line.split()[4]) for line in lines if "memfd:worldloom" in line]
