"""Shards as directories of .npy files, which are read by memory map: arrays [steps, lanes, ...].

Each column of frames is a file of its own, in which rows are as they were drawn; all other columns are the fields of
`rows.npy`.
"""

import struct
from pathlib import Path
from tokenize import TokenError

import numpy as np

from worldloom.data.errors import DamagedDataset
from worldloom.data.files import BLOCK_BYTES, aligned_memory
from worldloom.data.layout import SHARDS_DIRECTORY, Arrays, Column, Description, shard_name

_ROWS = "rows"


def npy_directory(shard: int) -> str:
    """Return the path of a shard, relative to the directory of the dataset."""
    return f"{SHARDS_DIRECTORY}/{shard_name(shard)}"


def npy_files(description: Description, rows: Arrays) -> dict[str, list[memoryview]]:
    """Return the bytes of the files of a shard, in pieces, by their names; `rows` are arrays [steps, lanes, ...]."""
    files = {f"{column.name}.npy": _npy_pieces(rows[column.name]) for column in description.frames}
    fields = [column for column in description.columns if not column.is_frame]
    table = np.zeros(rows[fields[0].name].shape[:2], [(one.name, one.dtype, one.shape) for one in fields])
    for column in fields:
        table[column.name] = rows[column.name]
    return files | {f"{_ROWS}.npy": _npy_pieces(table)}


def _npy_pieces(array: np.ndarray) -> list[memoryview]:
    """Return the bytes of a .npy file in pieces: a header of whole blocks, and the array's own memory."""
    array = np.ascontiguousarray(array)
    about = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
    text = repr(about).encode()
    size = -(-(len(text) + 11) // BLOCK_BYTES) * BLOCK_BYTES
    header = aligned_memory(size)  # so that it can be written without the page cache, like the rest
    header[:] = b"\x93NUMPY\x01\x00" + struct.pack("<H", size - 10) + text.ljust(size - 11) + b"\n"
    return [header, array.reshape(-1).view(np.uint8).data]


class NpyShard:
    """A shard that is read."""

    def __init__(self, directory: Path, description: Description, shard: int) -> None:
        self._path = directory / npy_directory(shard)
        self._shape = (description.steps_in(shard), description.lanes)
        self._arrays: Arrays = {}
        """Mapped files by name, without suffix."""
        self._columns: Arrays = {}

    def read(self, column: Column, lanes: slice, steps: slice) -> np.ndarray:
        """Return an array [lanes, steps, ...] in the memory of the file. Slices have a begin and an end."""
        return self._column(column)[steps, lanes].swapaxes(0, 1)

    def fill(self, column: Column, lane: int, step: int, out: np.ndarray) -> None:
        """Read rows of one lane, from a step of the shard on, into an array [rows, ...]."""
        out[...] = self._column(column)[step : step + len(out), lane]

    def _column(self, column: Column) -> np.ndarray:
        found = self._columns.get(column.name)
        if found is not None:
            return found
        array: np.ndarray = self._map(column.name) if column.is_frame else self._map(_ROWS)[column.name]
        expected = (*self._shape, *column.shape)
        if array.shape != expected or array.dtype != column.dtype:
            raise DamagedDataset(
                f"{column.name} in {self._path} is {array.dtype} {array.shape}: expected {column.dtype} {expected}"
            )
        self._columns[column.name] = array
        return array

    def _map(self, name: str) -> np.ndarray:
        if name not in self._arrays:
            path = self._path / f"{name}.npy"
            try:
                self._arrays[name] = np.load(path, mmap_mode="r").view(np.ndarray)
            except (OSError, ValueError, TypeError, EOFError, SyntaxError, TokenError) as error:  # of a damaged header
                raise DamagedDataset(f"{path} cannot be read ({error}): `worldloom data check` says more") from None
        return self._arrays[name]
