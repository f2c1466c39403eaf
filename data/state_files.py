"""States of MuJoCo models in files, read some at a time: .npy, .npz and Parquet files, and datasets.

Memory does not grow with the number of states. Files that cannot be read at any place, such as compressed ones, are
read from their beginning on. State k of a dataset is its row k: rows are counted lane after lane.
"""

import math
import struct
import zipfile
import zlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from worldloom.client.state_arrays import QPOS
from worldloom.extras import explain_missing_extra

DESCRIPTION_FILE, INDEX_FILE = "dataset.json", "index.jsonl"
"""Files that datasets are known by, as in `data/layout.py`, which needs an extra."""
_STATE_DIMENSIONS = {QPOS: 1, "act": 1, "mocap_pos": 2, "mocap_quat": 2, "geom_rgba": 2}
"""Arrays of a state, and how many dimensions the array of one state has."""
_BATCH_ROWS = 4096
"""Rows of a Parquet file that are decoded at once."""
_DAMAGES = (ValueError, EOFError, SyntaxError, KeyError, struct.error, zlib.error, zipfile.BadZipFile)
"""Errors that NumPy and zipfile raise for damaged files."""

Arrays = dict[str, np.ndarray]


class StateFile(ABC):
    """States in a file or a dataset: arrays by name, with a row for each state."""

    def __init__(self, path: Path, qpos: str) -> None:
        self.path = path
        self._columns = {name: qpos if name == QPOS else name for name in _STATE_DIMENSIONS}
        """Names of the arrays in the file, by their names in a state."""
        self.count = 0
        self.shapes: dict[str, tuple[int, ...]] = {}
        """Shape of the array of one state, by name."""
        self.constants: Arrays = {}
        """Arrays that all states share."""
        files = [path / DESCRIPTION_FILE, path / INDEX_FILE] if path.is_dir() else [path]
        self.identity = [[one.name, one.stat().st_size, one.stat().st_mtime_ns] for one in files]
        """Name, size and time of change of the files that tell whether these are the same states as before."""

    @abstractmethod
    def read(self, first: int, end: int) -> Arrays:
        """Return the arrays of states `first` to before `end`, by name."""

    def number_of(self, state: int) -> int:
        """Return the number that people know a state by."""
        return state

    def fit(self, arrays: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> Arrays:
        """Return arrays in the shapes that the model has them in, with those that all states share."""
        return {
            name: array.reshape(len(array), *shapes[name]) for name, array in arrays.items() if name in shapes
        } | self.constants

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raise ValueError unless states are of a model whose states have these arrays, by shape of one state."""
        if not self.count:
            raise ValueError(f"{self.path} has no states: expected at least one")
        found = {**self.shapes, **{name: array.shape for name, array in self.constants.items()}}
        for name, shape in found.items():
            size, expected = math.prod(shape), math.prod(shapes.get(name, (0,)))
            if size != expected and name == QPOS:
                raise ValueError(
                    f"the states of {self.path} have {size} positions, the model has {expected}: expected states of "
                    "this model"
                )
            if size != expected:
                raise ValueError(
                    f"{name} in {self.path} has {size} numbers for each state, the model has {expected}: expected "
                    "states of this model"
                )
        for group in (self.shapes, self.constants):
            for name in [name for name in group if name not in shapes]:
                del group[name]  # an array without numbers, such as act [N, 0]

    def _require_qpos(self, found: Mapping[str, Any]) -> None:
        if self._columns[QPOS] not in found:
            raise ValueError(
                f"{self.path} has no {self._columns[QPOS]!r}: expected joint positions of that name; it has "
                f"{', '.join(found) or 'nothing'}; --qpos NAME tells another name"
            )


def open_states(path: Path, qpos: str = QPOS) -> StateFile:
    """Open a file or a dataset of states; `qpos` is the name of its joint positions. ValueError if it is none."""
    if path.is_dir():
        if not (path / DESCRIPTION_FILE).exists():
            raise ValueError(f"{path} has no {DESCRIPTION_FILE}: expected the directory of a dataset, or a file")
        return DatasetStates(path, qpos)
    if not path.exists():
        raise ValueError(f"{path} does not exist: expected a file of states, .npy, .npz or .parquet, or a dataset")
    kinds: dict[str, type[StateFile]] = {".npy": NpyStates, ".npz": NpzStates, ".parquet": ParquetStates}
    kind = kinds.get(path.suffix)
    if kind is None:
        raise ValueError(f"{path} ends with {path.suffix!r}: expected .npy, .npz or .parquet, or a dataset")
    try:
        return kind(path, qpos)
    except _DAMAGES as error:
        text = str(error)
        raise ValueError(text if str(path) in text else f"{path} cannot be read: {error}") from error


class NpyStates(StateFile):
    """Joint positions in a .npy file, mapped into memory."""

    def __init__(self, path: Path, qpos: str) -> None:
        super().__init__(path, qpos)
        array = np.load(path, mmap_mode="r")
        _check_array(path, QPOS, array.dtype, array.shape, 1)
        self._array = array.view(np.ndarray)
        self.count, self.shapes = len(array), {QPOS: array.shape[1:]}

    def read(self, first: int, end: int) -> Arrays:
        """Return joint positions in the memory of the file."""
        return {QPOS: self._array[first:end]}


class NpzStates(StateFile):
    """Arrays in a .npz file, compressed or not. Those in the order of Fortran are read at once."""

    def __init__(self, path: Path, qpos: str) -> None:
        super().__init__(path, qpos)
        with zipfile.ZipFile(path) as file:
            members = {name.removesuffix(".npy"): name for name in file.namelist()}
        self._require_qpos(members)
        self._arrays: dict[str, _ZippedArray] = {}
        for name, column in self._columns.items():
            if column not in members:
                continue
            array = _ZippedArray(path, members[column])
            if name != QPOS and len(array.shape) == _STATE_DIMENSIONS[name]:
                self.constants[name] = array.read(0, array.shape[0])
                continue
            _check_array(path, column, array.dtype, array.shape, _STATE_DIMENSIONS[name])
            self._arrays[name] = array
            self.shapes[name] = array.shape[1:]
        self.count = self._arrays[QPOS].shape[0]
        for name, array in self._arrays.items():
            if array.shape[0] != self.count:
                raise ValueError(
                    f"{name} in {path} has {array.shape[0]:,} states: expected {self.count:,}, as qpos has"
                )

    def read(self, first: int, end: int) -> Arrays:
        """Return the arrays of states."""
        try:
            return {name: self._arrays[name].read(first, end) for name in self.shapes}
        except _DAMAGES as error:
            raise ValueError(f"{self.path} cannot be read: {error}") from error


class _ZippedArray:
    """An array of a .npz file, of which rows are read one after the other."""

    def __init__(self, path: Path, member: str) -> None:
        self._stream: IO[bytes] = zipfile.ZipFile(path).open(member)  # noqa: SIM115  # open as long as this
        version = np.lib.format.read_magic(self._stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        self.shape, is_fortran, self.dtype = read_header(self._stream)
        if self.dtype.hasobject:
            raise ValueError(f"{member} in {path} has Python objects: expected numbers")
        self._begin = self._stream.tell()
        self._whole: np.ndarray | None = None
        if is_fortran and len(self.shape) > 1:
            with np.load(path) as arrays:
                self._whole = arrays[member.removesuffix(".npy")]

    def read(self, first: int, end: int) -> np.ndarray:
        """Return rows; those before the last that were read cost reading from the beginning."""
        if self._whole is not None:
            return self._whole[first:end]
        rows = np.empty((end - first, *self.shape[1:]), self.dtype)
        memory = memoryview(rows.reshape(-1).view(np.uint8).data)
        self._stream.seek(self._begin + first * rows[:1].nbytes)
        done = 0
        while done < len(memory):
            piece = self._stream.read(len(memory) - done)
            if not piece:
                raise EOFError("it ends too early")
            memory[done : done + len(piece)] = piece
            done += len(piece)
        return rows


class ParquetStates(StateFile):
    """Columns of a Parquet file: lists of numbers, of fixed size or not, which are read row group by row group."""

    def __init__(self, path: Path, qpos: str) -> None:
        super().__init__(path, qpos)
        with explain_missing_extra("states in Parquet files", "data"):
            import pyarrow as pa
            import pyarrow.parquet as pq
        self._list_types = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
        try:
            # Read ahead, it would hold all of a column.
            self._file = pq.ParquetFile(path, memory_map=True, pre_buffer=False)
        except pa.ArrowException as error:
            raise ValueError(f"{path} cannot be read: {error}") from error
        self._error = pa.ArrowException
        names = self._file.schema_arrow.names
        self._require_qpos(dict.fromkeys(names))
        self._used = {name: column for name, column in self._columns.items() if column in names}
        metadata = self._file.metadata
        self.count = metadata.num_rows
        self._begins = [0]
        for group in range(metadata.num_row_groups):
            self._begins.append(self._begins[-1] + metadata.row_group(group).num_rows)
        self._batches: Iterator[Arrays] = iter(())
        self._rest: Arrays = {}
        self._next = -1
        if self.count:
            self.shapes = {name: array.shape[1:] for name, array in self.read(0, 1).items()}

    def read(self, first: int, end: int) -> Arrays:
        """Return the arrays of states. Reading where the last call has ended goes on from there."""
        if first != self._next:
            group = bisect_right(self._begins, first) - 1
            self._batches, self._rest = self._decode(group), {}
            self._skip(first - self._begins[group])
        pieces = [self._rest] if self._rest else []
        missing = end - first - sum(len(piece[QPOS]) for piece in pieces)
        while missing > 0:
            pieces.append(next(self._batches))
            missing -= len(pieces[-1][QPOS])
        found = {name: np.concatenate([piece[name] for piece in pieces]) for name in self._used}
        self._rest = {name: array[end - first :] for name, array in found.items()}
        self._next = end
        return {name: array[: end - first] for name, array in found.items() if not self.shapes or name in self.shapes}

    def _skip(self, rows: int) -> None:
        while rows:
            batch = next(self._batches)
            count = min(rows, len(batch[QPOS]))
            self._rest = {name: array[count:] for name, array in batch.items()}
            rows -= count

    def _decode(self, group: int) -> Iterator[Arrays]:
        """Yield rows of some size from a row group on."""
        for number in range(group, len(self._begins) - 1):
            first = self._begins[number]
            batches = self._file.iter_batches(_BATCH_ROWS, row_groups=[number], columns=list(self._used.values()))
            while True:
                try:
                    batch = next(batches, None)
                except (self._error, OSError) as error:
                    raise ValueError(f"{self.path} cannot be read: {error}") from error
                if batch is None:
                    break
                yield {name: self._to_array(name, batch.column(column), first) for name, column in self._used.items()}
                first += batch.num_rows

    def _to_array(self, name: str, column: Any, first: int) -> np.ndarray:
        """Return lists of equal length as an array; ValueError tells the number of a row that is not as the others."""
        count, values = len(column), column
        shape: list[int] = []
        while any(is_list(values.type) for is_list in self._list_types):
            self._check_nulls(name, values, first, count)
            flat = values.flatten()
            is_fixed = hasattr(values.type, "list_size")
            lengths = np.full(len(values), values.type.list_size) if is_fixed else _lengths(values)
            size = self.shapes[name][len(shape)] if name in self.shapes else int([*lengths[:1], 0][0])
            if (lengths != size).any():
                wrong = int(np.flatnonzero(lengths != size)[0])
                row = first + wrong * count // max(1, len(values))
                raise ValueError(
                    f"{self._columns[name]} of state {row} in {self.path} has {lengths[wrong]} numbers: expected "
                    f"{size}, as the first state has"
                )
            shape.append(size)
            values = flat
        self._check_nulls(name, values, first, count)
        found = values.to_numpy(zero_copy_only=False)
        if found.dtype.kind not in "fiu":
            raise ValueError(f"{self._columns[name]} in {self.path} is {column.type}: expected lists of numbers")
        array: np.ndarray = found.reshape(count, *shape)
        return array

    def _check_nulls(self, name: str, values: Any, first: int, rows: int) -> None:
        if values.null_count:
            wrong = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
            row = first + wrong * rows // max(1, len(values))
            raise ValueError(f"{self._columns[name]} of state {row} in {self.path} is null: expected numbers")


def _lengths(lists: Any) -> np.ndarray:
    found: np.ndarray = lists.value_lengths().to_numpy(zero_copy_only=False)
    return found


class DatasetStates(StateFile):
    """Columns of a complete dataset. State k is row k, counted lane after lane."""

    def __init__(self, path: Path, qpos: str) -> None:
        super().__init__(path, qpos)
        from worldloom.data.whole import WholeDataset

        self.whole = WholeDataset(path)
        self.whole.require_complete()
        columns = {column.name: column for column in self.whole.description.columns}
        self._require_qpos(columns)
        self.count = self.whole.description.rows
        self.shapes = {name: columns[column].shape for name, column in self._columns.items() if column in columns}

    @property
    def names(self) -> dict[str, str]:
        """Names of the columns that states are read from, by the names that the arrays of a state have."""
        return {name: self._columns[name] for name in self.shapes}

    def read(self, first: int, end: int) -> Arrays:
        """Return the arrays of rows, lane after lane."""
        steps = self.whole.steps
        pieces: list[Arrays] = []
        while first < end:
            lane, step = divmod(first, steps)
            lanes = max(1, (end - first) // steps) if step == 0 else 1
            count = min(end - first, lanes * steps - step)
            found = self.whole.read(
                list(self.names.values()), slice(lane, lane + lanes), slice(step, step + count // lanes)
            )
            pieces.append({n: found[c].reshape(count, *found[c].shape[2:]) for n, c in self.names.items()})
            first += count
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in self.names}


class StepOrderedStates(StateFile):
    """The states of a dataset in the order of its shards: the first step of all lanes, then the second, and so on."""

    def __init__(self, dataset: DatasetStates) -> None:
        self._dataset = dataset
        self._lanes, self._steps = dataset.whole.description.lanes, dataset.whole.steps
        vars(self).update({name: value for name, value in vars(dataset).items() if name != "whole"})

    def number_of(self, state: int) -> int:
        """Return the row of a state, counted lane after lane."""
        step, lane = divmod(state, self._lanes)
        return lane * self._steps + step

    def read(self, first: int, end: int) -> Arrays:
        """Return the arrays of states, step after step."""
        begin, stop = first // self._lanes, -(-end // self._lanes)
        found = self._dataset.whole.read(list(self._dataset.names.values()), slice(0, self._lanes), slice(begin, stop))
        skipped = first - begin * self._lanes
        rows = {}
        for name, column in self._dataset.names.items():
            ordered = found[column].swapaxes(0, 1)
            rows[name] = ordered.reshape(-1, *ordered.shape[2:])[skipped : skipped + end - first]
        return rows


def _check_array(path: Path, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], dimensions: int) -> None:
    if dtype.kind not in "fiu" or len(shape) != dimensions + 1:
        raise ValueError(
            f"{name} in {path} is {dtype} {list(shape)}: expected numbers in {dimensions + 1} dimensions, a row for "
            "each state"
        )
