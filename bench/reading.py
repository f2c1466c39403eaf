"""Frames a second of a DataLoader that reads sequences: a program for .venv-learners, which has torch.

    python -m worldloom.bench.reading PATH KIND [--seconds 3]

Prints the rate. KIND is `worldloom` for the directory of a dataset, or `h5py` for an HDF5 file that has `frames`
[steps, lanes, ...] and `rewards` [steps, lanes], read by the torch dataset that a user would write for it. Both read
the same sequences: shuffled, not overlapping, frames and rewards, in batches made by two workers. `bench_reading.py`
makes the files, and compares.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import h5py

import worldloom.data
from worldloom.extras import explain_missing_extra

with explain_missing_extra("worldloom.bench.reading", "torch"):
    import torch
    from torch.utils.data import DataLoader, Dataset

BATCH, LENGTH, WORKERS = 64, 16, 2
FRAMES, REWARDS = "eye.rgb", "reward"


class Hdf5Sequences(Dataset[Any]):
    """Sequences of an HDF5 file by their number."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._frames: Any = None
        self._rewards: Any = None
        with h5py.File(path) as file:
            self._steps, self._lanes = file["frames"].shape[:2]

    def __len__(self) -> int:
        return int(self._lanes * (self._steps // LENGTH))

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return one sequence."""
        if self._frames is None:  # each worker opens them for itself, once: an open dataset keeps its cache of chunks
            file = h5py.File(self._path)
            self._frames, self._rewards = file["frames"], file["rewards"]
        lane, number = divmod(index, self._steps // LENGTH)
        steps = slice(number * LENGTH, (number + 1) * LENGTH)
        return {
            FRAMES: torch.from_numpy(self._frames[steps, lane]),
            REWARDS: torch.from_numpy(self._rewards[steps, lane]),
        }


def make_loader(path: Path, kind: str) -> "DataLoader[Any]":
    """Make the loader of a kind."""
    options: dict[str, Any] = {"num_workers": WORKERS, "persistent_workers": True, "multiprocessing_context": "fork"}
    if kind == "h5py":
        return DataLoader(Hdf5Sequences(path), BATCH, shuffle=True, drop_last=True, **options)
    sequences = worldloom.data.Dataset(path).sequences(LENGTH, [FRAMES, REWARDS])
    return DataLoader(sequences.torch_batches(BATCH), batch_size=None, **options)


def measure(loader: "DataLoader[Any]", seconds: float) -> float:
    """Return the frames a second of batches in a number of seconds, after an epoch that opens and maps all files."""
    for _ in loader:
        pass
    began, frames = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        for batch in loader:
            frames += batch[FRAMES].shape[0] * batch[FRAMES].shape[1]
            if time.perf_counter() > began + seconds:
                break
    return frames / (time.perf_counter() - began)


def main() -> int:
    """Measure one loader, and print its rate."""
    parser = argparse.ArgumentParser(description="Frames a second of a DataLoader that reads sequences.")
    parser.add_argument("path", type=Path, help="directory of a dataset, or HDF5 file")
    parser.add_argument("kind", choices=["worldloom", "h5py"])
    parser.add_argument("--seconds", type=float, default=3.0, help="time to measure (%(default)s)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(measure(make_loader(args.path, args.kind), args.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
