"""Reading datasets: shuffled sequences into torch, against h5py with the same frames; `.venv-learners` has torch."""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import h5py

from worldloom.bench.measuring import RateFunction, Report
from worldloom.data import Collector, Dataset

PYTHON = Path(".venv-learners/bin/python")
LANES, STEPS, SIDE = 256, 400, 64
ROUND_S = 2.0
FORMATS: dict[str, dict[str, Any]] = {
    "npy": {"format": "npy"},
    "Parquet, raw": {"pictures": "raw"},
    "Parquet, zstd:1": {"pictures": "zstd:1"},
}
PLAIN, SEQUENCES, PACKED = "h5py as collected", "h5py in chunks of sequences", "h5py in chunks of sequences, lzf"
CHUNKS: dict[str, tuple[tuple[int, int], str | None]] = {
    PLAIN: ((1, 64), None),
    SEQUENCES: ((16, 1), None),
    PACKED: ((16, 1), "lzf"),
}
"""Steps and lanes of the chunks of HDF5 files: those of the plain loop in bench_datasets.py, and those of someone who
knows how the file will be read."""


def make_hdf5(path: Path, source: Dataset, chunks: tuple[int, int], compression: str | None) -> None:
    """Write the frames and rewards of a dataset as a user would."""
    shape = (source.steps, source.lanes, SIDE, SIDE, 3)
    with h5py.File(path, "w") as file:
        options = {"chunks": (*chunks, SIDE, SIDE, 3), "compression": compression}
        frames = file.create_dataset("frames", shape, "uint8", **options)
        file["rewards"] = source.read(["reward"])["reward"].T
        for begin in range(0, source.steps, chunks[0]):
            steps = slice(begin, begin + chunks[0])
            frames[steps] = source.read(["eye.rgb"], steps=steps)["eye.rgb"].swapaxes(0, 1)


def make_run(path: Path, kind: str) -> RateFunction:
    """Return the function that measures a loader in a process of its own."""

    def run(seconds: float) -> float:
        command = [str(PYTHON), "-m", "worldloom.bench.reading", str(path), kind, "--seconds", str(seconds)]
        return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)

    return run


def bench_sequences_into_torch(report: Report) -> None:
    """Files are in memory, so that reading is measured and not the disk, which is the same for all."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        measure_in(Path(folder), report)


def measure_in(folder: Path, report: Report) -> None:
    """Make the files in a folder, and compare the readers."""
    what = "maze, 64² rgb, shuffled sequences of 64 × 16 into torch by two workers, from {}, against {}"
    if not PYTHON.exists():
        report.not_measured(what.format("a dataset", "h5py"), "`make learners` sets torch up")
        return
    runs: dict[str, RateFunction] = {}
    for number, (name, arguments) in enumerate(FORMATS.items()):
        path = folder / f"dataset{number}"
        Collector(path, "maze", lanes=LANES, steps=LANES * STEPS, width=SIDE, height=SIDE, seed=1, **arguments).run()
        runs[name] = make_run(path, "worldloom")
    for number, (name, (chunks, compression)) in enumerate(CHUNKS.items()):
        path = folder / f"frames{number}.h5"
        make_hdf5(path, Dataset(folder / "dataset0"), chunks, compression)
        runs[name] = make_run(path, "h5py")
    rounds = report.in_turn(runs, ROUND_S, 3, compared=("Parquet, zstd:1", PLAIN))
    for name in FORMATS:
        for other in CHUNKS:
            if other == PACKED and not name.endswith("zstd:1"):
                continue
            report.ratio_row(
                what.format(name, other),
                rounds.ratio(name, other),
                f"{rounds.rate(name):,.0f} against {rounds.rate(other):,.0f} frames/s",
                at_least=2 if other == PLAIN else None,
                figures={f"reading {name}": rounds.rate(name), f"reading {other}": rounds.rate(other)},
            )
