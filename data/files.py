"""Files that are complete or not there: written beside their place, flushed to the disk, then renamed.

Large pieces that are aligned go to the disk without passing the system's page cache, which takes almost no processor
time; a file system that does not support it gets ordinary writes.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from worldloom.data.errors import DatasetError
from worldloom.data.replacing import flush
from worldloom.extras import explain_missing_extra

with explain_missing_extra("worldloom.data", "data"):
    import xxhash

TEMPORARY_SUFFIX = ".tmp"
BLOCK_BYTES = 4096
"""Alignment of memory, offsets and sizes for writes without the page cache."""
_DIRECT_BYTES = 1 << 20
"""Smallest file that is written without the page cache."""
_READ_BYTES = 8 << 20


class StoredFile(NamedTuple):
    """A file that was written: its name, relative to the directory of the dataset, its size and its checksum."""

    name: str
    size_bytes: int
    checksum: str


def checksum_of(*pieces: "bytes | memoryview") -> str:
    """Return the checksum of bytes: XXH3 of 128 bits."""
    digest = xxhash.xxh3_128()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def checksum_of_file(path: Path) -> tuple[int, str]:
    """Return the size of a file and its checksum."""
    digest, size = xxhash.xxh3_128(), 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
            size += len(piece)
    return size, digest.hexdigest()


def aligned_memory(size: int) -> memoryview:
    """Return memory that begins at a page; pages that are never written take no space."""
    return memoryview(mmap.mmap(-1, max(1, size)))


def write_pieces(path: Path, pieces: Sequence[bytes | memoryview]) -> tuple[int, str]:
    """Write a file and flush it to the disk; return its size and checksum. A file that fails is removed."""
    total = sum(len(piece) for piece in pieces)
    try:
        with _open_for_writing(path, total >= _DIRECT_BYTES) as file:
            for piece in pieces:
                file.write(piece)
        return total, checksum_of(*pieces)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def replace_file(path: Path, data: bytes) -> StoredFile:
    """Write a small file so that the old one or the new one is there at any time; return its entry."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    size, checksum = write_pieces(temporary, [data])
    temporary.rename(path)
    flush(path.parent)
    return StoredFile(path.name, size, checksum)


def remove(path: Path) -> None:
    """Remove a file or a directory, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def lock_directory(path: Path) -> Iterator[None]:
    """Hold the lock of a directory, which ends with the process at the latest; BlockingIOError if another has it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def hold_directory(path: Path) -> Iterator[None]:
    """Make the directory of a dataset and hold its lock; remove it again if an error leaves it empty.

    DatasetError if that is not possible, or if another collector holds it.
    """
    is_new = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatasetError(
            f"cannot create {path}: {error.strerror}; expected a directory that you may write to"
        ) from error
    try:
        with lock_directory(path):
            yield
    except BlockingIOError:
        raise DatasetError(f"another collector works on {path}: expected it to end first") from None
    except BaseException:
        if is_new and not any(path.iterdir()):
            path.rmdir()
        raise


def is_locked(path: Path) -> bool:
    """Return True if a process has the lock of a directory. A file system without locks has none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


class _open_for_writing:  # noqa: N801  # used as a function
    """A new file that is written from its beginning, and flushed to the disk at the end of the `with` block."""

    def __init__(self, path: Path, direct: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._is_direct = direct and hasattr(os, "O_DIRECT")
        try:
            self._descriptor = os.open(path, flags | (os.O_DIRECT if self._is_direct else 0), 0o666)
        except OSError as error:
            if not self._is_direct or error.errno != errno.EINVAL:
                raise
            self._is_direct = False
            self._descriptor = os.open(path, flags, 0o666)
        self._offset = 0

    def __enter__(self) -> "_open_for_writing":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)

    def write(self, piece: "bytes | memoryview") -> None:
        """Write a piece: its whole blocks directly if it is aligned, the rest through the page cache."""
        data = memoryview(piece).cast("B")
        whole = len(data) - len(data) % BLOCK_BYTES
        if self._is_direct and not (whole and self._offset % BLOCK_BYTES == 0 and _is_aligned(data)):
            whole = 0
        if self._is_direct and whole < len(data):
            self._write_all(data[:whole])
            self._stop_direct()
            data = data[whole:]
        self._write_all(data)

    def _write_all(self, data: memoryview) -> None:
        while len(data):
            try:
                written = os.write(self._descriptor, data)
            except OSError as error:
                if not self._is_direct or error.errno != errno.EINVAL:
                    raise
                self._stop_direct()  # an alignment that this file system does not support
                continue
            data = data[written:]
            self._offset += written
            if self._is_direct and len(data) and written % BLOCK_BYTES:
                self._stop_direct()

    def _stop_direct(self) -> None:
        self._is_direct = False
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)


def _is_aligned(data: memoryview) -> bool:
    return int(np.frombuffer(data, np.uint8).ctypes.data) % BLOCK_BYTES == 0
