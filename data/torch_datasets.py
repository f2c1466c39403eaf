"""Datasets for `torch.utils.data.DataLoader`: samples by number, and shuffled batches that workers share out.

batches = dataset.sequences(16, ["eye.rgb", "action"]).torch_batches(64, seed=1)
for epoch in range(10):
    batches.set_epoch(epoch)
    for batch in DataLoader(batches, batch_size=None, num_workers=2): …
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from worldloom.data.layout import Arrays
from worldloom.data.lent_memory import LentMemory, Loan, borrow
from worldloom.data.samples import BatchOrder, Samples
from worldloom.extras import explain_missing_extra

with explain_missing_extra("worldloom.data.torch_datasets", "torch"):
    import torch
    from torch.utils.data import Dataset as TorchBase
    from torch.utils.data import IterableDataset, get_worker_info

Tensors: TypeAlias = dict[str, torch.Tensor]


class TorchDataset(TorchBase[Tensors]):
    """Samples of a dataset by number, as dicts of tensors."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Tensors:
        """Return one sample."""
        return {name: tensor[0] for name, tensor in _to_tensors(self.samples.batch([index])).items()}


class TorchIterableDataset(IterableDataset[Tensors]):
    """Batches of samples, as dicts of tensors [batch, ...].

    A DataLoader with `batch_size=None` delivers the batches of an epoch in the same order with any number of workers:
    each of W workers makes every Wth batch, and the loader takes one from each in turn.
    """

    def __init__(
        self, samples: Samples, batch_size: int, *, shuffle: bool = True, seed: int = 0, drop_last: bool = True
    ) -> None:
        """Take the samples, and the order of their batches: see `Samples.batches`."""
        self.samples = samples
        self._options: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "drop_last": drop_last}
        self._batch_size = batch_size
        self._batches = len(self._order(0))
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # which workers see that live on
        self._memory: LentMemory | None = None
        """Memory of a worker, which is used again in all epochs."""

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which the order follows from together with the seed; it holds from the next iteration on."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return self._batches

    def __iter__(self) -> Iterator[Tensors]:
        worker, order = get_worker_info(), self._order(int(self._epoch))
        if worker is None:
            for number in range(len(order)):
                yield _to_tensors(self.samples.batch(order[number]))
            return
        if self._memory is None and hasattr(os, "memfd_create") and os.path.exists("/proc/self/fd"):
            self._memory = LentMemory()
        for number in range(worker.id, len(order), worker.num_workers):
            indices = order[number]
            yield (
                _to_tensors(self.samples.batch(indices)) if self._memory is None else self._lend(self._memory, indices)
            )

    def _order(self, epoch: int) -> BatchOrder:
        return BatchOrder(len(self.samples), self._batch_size, epoch=epoch, **self._options)

    def _lend(self, memory: LentMemory, indices: np.ndarray) -> "_LentBatch":
        shapes = {one.name: ((len(indices), *one.shape), one.dtype) for one in self.samples.arrays.values()}
        arrays, buffer = memory.take(shapes)
        return _LentBatch(_to_tensors(self.samples.batch(indices, out=arrays)), buffer)


class _LentBatch(dict[str, torch.Tensor]):
    """A batch in memory of a worker. What is sent to another process is where it is; tensors that were replaced, as a
    `collate_fn` may do, are sent as torch sends them."""

    def __init__(self, tensors: Tensors, buffer: Any) -> None:
        super().__init__(tensors)
        self._lent, self._buffer = dict(tensors), buffer

    def __copy__(self) -> "_LentBatch":
        copied = _LentBatch(self._lent, self._buffer)
        copied.clear()
        copied.update(self)
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        lent = [name for name, tensor in self.items() if tensor is self._lent.get(name)]
        others = {name: tensor for name, tensor in self.items() if name not in lent}
        return (_receive, (self._buffer.lend(), lent, others)) if lent else (dict, (others,))


def _receive(loan: Loan, names: list[str], others: Mapping[str, Any]) -> dict[str, Any]:
    arrays = borrow(loan)
    return {**_to_tensors({name: arrays[name] for name in names}), **others}


def _to_tensors(arrays: Arrays) -> Tensors:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
