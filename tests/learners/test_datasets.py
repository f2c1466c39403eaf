"""Datasets in torch's DataLoader: the same batches in the same order with any number of workers."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from worldloom.data import Collector, Dataset
from worldloom.data.lent_memory import LentMemory, borrow

COLUMNS = ["eye.rgb", "action", "reward", "seed", "last"]
KINDS: list[dict[str, Any]] = [{"format": "npy"}, {"pictures": "raw"}, {"pictures": "zstd"}, {"pictures": "png"}]


@pytest.fixture(scope="module", params=KINDS, ids=str)
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("datasets") / "d"
    size: dict[str, Any] = {"lanes": 5, "steps": 5 * 60, "width": 8, "height": 8, "seed": 3, "shard_mb": 0.02}
    Collector(folder, "catch", **size, **request.param).run()
    found = Dataset(folder)
    assert found.description.shards > 3
    return found


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("small") / "d"
    Collector(folder, "catch", lanes=3, steps=3 * 40, width=8, height=8, seed=3).run()
    return Dataset(folder)


def assert_same(batches: list[dict[str, torch.Tensor]], expected: list[dict[str, np.ndarray]]) -> None:
    assert len(batches) == len(expected)
    for batch, arrays in zip(batches, expected, strict=True):
        assert batch.keys() == arrays.keys()
        for name, tensor in batch.items():
            np.testing.assert_array_equal(tensor.numpy(), arrays[name], err_msg=name)
            assert tensor.numpy().dtype == arrays[name].dtype


def load(source: Any, workers: int, method: str, **options: Any) -> DataLoader[Any]:
    """Make a loader whose workers are started by a method: TorchRL, where it is imported, changes torch's default."""
    context = method if workers else None
    return DataLoader(source, num_workers=workers, multiprocessing_context=context, **{"batch_size": None, **options})


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")  # on two processors
@pytest.mark.parametrize("workers", [0, 2, 3])
def test_batches_do_not_depend_on_workers(dataset: Dataset, workers: int) -> None:
    sequences = dataset.sequences(6, COLUMNS, stride=4)
    source = sequences.torch_batches(4, seed=8, drop_last=False)
    loader = load(source, workers, "fork")
    assert len(loader) == len(source) == -(-len(sequences) // 4)
    for epoch in (0, 3):
        source.set_epoch(epoch)
        expected = list(sequences.batches(4, seed=8, epoch=epoch, drop_last=False))
        assert_same(list(loader), expected)


def test_spawned_workers_open_the_files_themselves(small: Dataset) -> None:
    samples = small.transitions(["eye.rgb", "action"])
    source = samples.torch_batches(16, seed=2)
    loader = load(source, 2, "spawn", persistent_workers=True)
    for epoch in (0, 1, 2):  # of which the workers, which live on, are told
        source.set_epoch(epoch)
        assert_same(list(loader), list(samples.batches(16, seed=2, epoch=epoch)))


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_by_number(dataset: Dataset, workers: int) -> None:
    for samples in (dataset.rows(COLUMNS), dataset.sequences(7, COLUMNS, within_episodes=True)):
        loader = load(samples.torch(), workers, "fork", batch_size=25)
        assert_same(list(loader), list(samples.batches(25, shuffle=False, drop_last=False)))


def test_a_batch_stays_as_it_is_while_someone_has_it(small: Dataset) -> None:
    """Tensors of one column of every batch are kept, while the workers go on for several epochs."""
    sequences = small.sequences(5, ["eye.rgb", "reward"], stride=2)
    source = sequences.torch_batches(4)
    loader = load(source, 2, "fork", persistent_workers=True, prefetch_factor=1)
    kept, expected = [], []
    for epoch in range(3):
        source.set_epoch(epoch)
        kept += [batch["eye.rgb"][1:] for batch in loader]
        expected += [batch["eye.rgb"][1:] for batch in sequences.batches(4, epoch=epoch)]
    for tensor, array in zip(kept, expected, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), array)


def test_a_loop_that_is_left_early_can_begin_again(small: Dataset) -> None:
    sequences = small.sequences(5, ["eye.rgb"], stride=2)
    loader = load(sequences.torch_batches(4), 2, "fork", persistent_workers=True)
    for _ in range(4):
        first = next(iter(loader))
    assert_same([first], [next(sequences.batches(4))])
    assert_same(list(loader), list(sequences.batches(4)))


def _halve(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    batch["half"] = batch.pop("reward") / 2
    batch["eye.rgb"] += 1
    return batch


def _replace(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.float() for name, tensor in batch.items()}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collate", [_halve, _replace])
def test_a_collate_function_changes_batches(small: Dataset, workers: int, collate: Callable[..., Any]) -> None:
    sequences = small.sequences(5, ["eye.rgb", "reward"])
    loader = load(sequences.torch_batches(4), workers, "fork", collate_fn=collate)
    tensors = [{name: torch.from_numpy(array) for name, array in batch.items()} for batch in sequences.batches(4)]
    expected = [{name: tensor.numpy() for name, tensor in collate(batch).items()} for batch in tensors]
    assert_same(list(loader), expected)


def test_lent_memory_is_used_again_when_it_is_free() -> None:
    memory = LentMemory()
    shapes: dict[str, Any] = {"a": ((3, 5), "float64"), "b": ((7,), "uint8")}

    def lend(value: int) -> tuple[dict[str, np.ndarray], int]:
        arrays, buffer = memory.take(shapes)
        arrays["a"][:], arrays["b"][:] = value, value
        loan = buffer.lend()
        del arrays
        return borrow(loan), loan.descriptor

    first, place = lend(1)
    second, other = lend(2)
    assert place != other
    view = first["a"][1:2, 2:3]
    del first
    gc.collect()
    third, another = lend(3)
    assert another not in (place, other)  # a view of the first is still there
    assert view.item() == 1
    del view
    gc.collect()
    fourth, again = lend(4)
    assert again == place
    assert [arrays["b"].tolist() for arrays in (second, third, fourth)] == [[2] * 7, [3] * 7, [4] * 7]
    arrays, _ = memory.take(shapes)
    del arrays  # which was never lent
    gc.collect()
    assert len(memory._buffers) == 4
    memory.take(shapes)
    assert len(memory._buffers) == 4
