"""Samples of a dataset by number: rows, transitions, and sequences of consecutive rows; batches of them, shuffled.

All samples are windows of rows of one lane. The order of a shuffle follows from a seed and an epoch alone, and any part
of it can be computed by itself, so that several processes share an epoch out without telling each other anything.
"""

import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from worldloom.client.arguments import parse_integer
from worldloom.data.layout import Arrays, Column

if TYPE_CHECKING:
    from worldloom.data.dataset import Dataset
    from worldloom.data.torch_datasets import TorchDataset, TorchIterableDataset

Indices: TypeAlias = "Sequence[int] | np.ndarray"
IS_FIRST = "is_first"
NEXT = "next."
"""Beginning of the names of next observations in transitions."""
_SHUFFLED_IN_MEMORY = 1 << 20
"""Greatest number of samples whose shuffled order is held in memory; that of more is computed where it is needed."""
_ROUNDS = 6
_MIXERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class SampleArray(NamedTuple):
    """An array that samples have."""

    name: str
    column: Column
    offset: int = 0
    """Number of the row, within the window, that it begins with."""
    shape: tuple[int, ...] = ()
    dtype: str = ""


class Samples:
    """Windows of consecutive rows, each of one lane, by their number: base class of those that a dataset offers."""

    def __init__(
        self,
        dataset: "Dataset",
        arrays: Sequence[SampleArray],
        length: int,
        *,
        stride: int = 1,
        within_episodes: bool = False,
    ) -> None:
        self.dataset = dataset
        self.arrays = {one.name: one for one in arrays}
        if within_episodes:
            table = dataset.episode_table
            self._lanes, self._begins, rows = table.lanes, table.first_steps, table.lengths + 1
        else:
            self._lanes = np.arange(dataset.lanes)
            self._begins, rows = np.zeros(dataset.lanes, np.int64), np.full(dataset.lanes, dataset.steps)
        counts = np.maximum((rows - length) // stride + 1, 0)
        self._ends = np.cumsum(counts)
        """Number of windows up to the end of each lane or episode."""
        self._firsts = self._ends - counts
        self._stride = stride

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> Arrays:
        """Return one sample."""
        return {name: array[0] for name, array in self.batch([operator.index(index)]).items()}

    def __iter__(self) -> Iterator[Arrays]:
        for index in range(len(self)):
            yield self[index]

    def batch(self, indices: Indices, out: Arrays | None = None) -> Arrays:
        """Return the samples of these numbers as arrays [samples, ...], or write them into the arrays `out`."""
        lanes, steps = self.locate(indices)
        if out is None:
            out = self.empty(len(lanes))
        for one in self.arrays.values():
            target = out[one.name]
            rows = target if len(one.shape) > len(one.column.shape) else target[:, None]
            if one.name == IS_FIRST:
                numbers = np.empty(rows.shape, one.column.dtype)
                self.dataset.fill(one.column, lanes, steps, numbers)
                np.equal(numbers, 0, out=rows)
            else:
                self.dataset.fill(one.column, lanes, steps + one.offset if one.offset else steps, rows)
        return out

    def empty(self, samples: int) -> Arrays:
        """Return arrays for a batch that are not initialized."""
        return {one.name: np.empty((samples, *one.shape), one.dtype) for one in self.arrays.values()}

    def locate(self, indices: Indices) -> tuple[np.ndarray, np.ndarray]:
        """Return the lanes of samples, and the steps that they begin with."""
        found, count = np.asarray(indices, np.int64), len(self)
        if found.ndim != 1:
            raise ValueError(f"indices have the shape {found.shape}: expected a list of integers")
        found = np.where(found < 0, found + count, found)
        if len(found) and not 0 <= found.min() <= found.max() < count:
            raise IndexError(f"an index is out of range: expected indices below {count}")
        place = np.searchsorted(self._ends, found, side="right")
        return self._lanes[place], self._begins[place] + (found - self._firsts[place]) * self._stride

    def batches(
        self, batch_size: int, *, shuffle: bool = True, seed: int = 0, epoch: int = 0, drop_last: bool = True
    ) -> Iterator[Arrays]:
        """Yield all samples once, in batches. The order follows from seed and epoch.

        `drop_last` leaves out the samples at the end that do not fill a batch.
        """
        order = BatchOrder(len(self), batch_size, shuffle=shuffle, seed=seed, epoch=epoch, drop_last=drop_last)
        return (self.batch(order[number]) for number in range(len(order)))

    def torch(self) -> "TorchDataset":
        """Return these samples as a `torch.utils.data.Dataset`, of dicts of tensors."""
        from worldloom.data.torch_datasets import TorchDataset  # nothing else here needs torch

        return TorchDataset(self)

    def torch_batches(
        self, batch_size: int, *, shuffle: bool = True, seed: int = 0, drop_last: bool = True
    ) -> "TorchIterableDataset":
        """Return batches of these samples as a `torch.utils.data.IterableDataset`.

        It is given to `DataLoader(..., batch_size=None, num_workers=N)`, which delivers the same batches in the same
        order with any number of workers: those of `batches`.
        """
        from worldloom.data.torch_datasets import TorchIterableDataset

        return TorchIterableDataset(self, batch_size, shuffle=shuffle, seed=seed, drop_last=drop_last)


class Rows(Samples):
    """Rows, lane after lane."""

    def __init__(self, dataset: "Dataset", columns: Sequence[Column]) -> None:
        super().__init__(dataset, [SampleArray(one.name, one, 0, one.shape, one.dtype) for one in columns], 1)


class Transitions(Samples):
    """Steps with an action, each with the observations before it and after it (`next.NAME`)."""

    def __init__(self, dataset: "Dataset", columns: Sequence[Column]) -> None:
        arrays = [SampleArray(one.name, one, 0, one.shape, one.dtype) for one in columns]
        arrays += [
            SampleArray(NEXT + one.name, one, 1, one.shape, one.dtype) for one in columns if one.role == "observation"
        ]
        super().__init__(dataset, arrays, 2, within_episodes=True)


class Sequences(Samples):
    """Sequences of a number of consecutive rows of a lane, as arrays [length, ...].

    `is_first` is true for rows that an episode begins with.
    """

    def __init__(
        self, dataset: "Dataset", columns: Sequence[Column], length: int, *, stride: int, within_episodes: bool
    ) -> None:
        self.length = length
        arrays = [SampleArray(one.name, one, 0, (length, *one.shape), one.dtype) for one in columns]
        arrays.append(SampleArray(IS_FIRST, dataset.columns["step"], 0, (length,), "bool"))
        super().__init__(dataset, arrays, length, stride=stride, within_episodes=within_episodes)


class BatchOrder:
    """The numbers of the samples in each batch of an epoch."""

    def __init__(
        self,
        count: int,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        epoch: int = 0,
        drop_last: bool = True,
    ) -> None:
        for name, value, least in (("batch_size", batch_size, 1), ("seed", seed, 0), ("epoch", epoch, 0)):
            parse_integer(name, value, least, 2**64 - 1)
        self._count, self._batch_size = count, batch_size
        self._batches = count // batch_size if drop_last else -(-count // batch_size)
        if not self._batches:
            raise ValueError(
                f"batch_size is {batch_size}, of {count} samples: expected at most as many, or drop_last=False"
            )
        self._shuffle = Shuffle(count, seed, epoch) if shuffle else None

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, number: int) -> np.ndarray:
        """Return the samples of a batch."""
        begin = number * self._batch_size
        positions = np.arange(begin, min(begin + self._batch_size, self._count))
        return positions if self._shuffle is None else self._shuffle.at(positions)


class Shuffle:
    """A random permutation of a number of integers, given by a seed and an epoch.

    That of many is a Feistel network: a one-to-one function of pairs of numbers, computed for the positions asked for.
    Values beyond the range are mapped again until they are within.
    """

    def __init__(self, count: int, seed: int, epoch: int) -> None:
        self._count = count
        sequence = np.random.SeedSequence([seed % 2**64, epoch])
        self._order: np.ndarray | None = None
        if count <= _SHUFFLED_IN_MEMORY:
            self._order = np.random.Generator(np.random.PCG64(sequence)).permutation(count)
        self._keys = sequence.generate_state(_ROUNDS, np.uint64)
        self._half = np.uint64((max(count - 1, 1).bit_length() + 1) // 2)
        self._mask = (np.uint64(1) << self._half) - np.uint64(1)

    def at(self, positions: np.ndarray) -> np.ndarray:
        """Return the integers at some positions of the permutation."""
        if self._order is not None:
            return np.asarray(self._order[positions])
        found = self._scatter(positions.astype(np.uint64))
        while (is_beyond := found >= self._count).any():
            found[is_beyond] = self._scatter(found[is_beyond])
        return found.astype(np.int64)

    def _scatter(self, values: np.ndarray) -> np.ndarray:
        left, right = values >> self._half, values & self._mask
        for key in self._keys:
            mixed = right ^ key
            for factor in _MIXERS:
                mixed = (mixed ^ (mixed >> np.uint64(29))) * factor
            left, right = right, left ^ ((mixed >> np.uint64(31)) & self._mask)
        return left << self._half | right
