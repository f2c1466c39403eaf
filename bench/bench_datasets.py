"""Collecting datasets: against the same stepping with nothing written, and against loops as a user would write them."""

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import minari
import numpy as np
import pytest

from worldloom.bench.measuring import Report, combined_rate
from worldloom.client import VectorEnv
from worldloom.data import Collector, Progress
from worldloom.data.collector import make_columns
from worldloom.data.files import aligned_memory, write_pieces
from worldloom.data.layout import Description, Pictures
from worldloom.data.parquet_shards import ParquetEncoder
from worldloom.data.policies import LoadedPolicy

LANES = 1024
ROUND_S = 2.0
COLLECT_S = 4.0
"""Length of a collection: long against the time that its memory takes to be had from the system, which is once."""
ROUNDS = 3
MAX_ROWS = 700_000
"""Rows of a run at most: 8.6 GB of frames."""
_SHARD_STEPS = 10
PICTURES = ("raw", "zstd:1", "zstd:3", "zstd:9")
FAMILIES = ("maze", "catch")


class Place:
    """A directory to collect into, and its name for the table."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name

    def prepare(self, size_bytes: int) -> None:
        """Get ready for so many bytes."""

    def make_room(self, left_bytes: int) -> None:
        """Get ready for the bytes that are still to come."""


class RamDisk(Place):
    """A directory in memory, which is filled with ballast, of which as much is freed as is written.

    A virtual machine gives memory that is free back to its host within a second, and on the machine of these figures
    gets it again at half a gigabyte a second. Ballast keeps it, so that writing is measured and not the host.
    """

    def prepare(self, size_bytes: int) -> None:
        """Fill the memory that so many bytes will take."""
        block = bytes(1 << 26)
        with (self.path / "ballast").open("wb") as file:
            for _ in range(-(-size_bytes // len(block))):
                file.write(block)

    def make_room(self, left_bytes: int) -> None:
        """Free the memory that is not needed for the bytes that are still to come."""
        size = (self.path / "ballast").stat().st_size
        os.truncate(self.path / "ballast", max(0, min(size, left_bytes)))


@contextlib.contextmanager
def ram_disk() -> Iterator[Place]:
    """Yield a directory in memory, with huge pages where they can be had."""
    with tempfile.TemporaryDirectory() as name:
        mount = ["mount", "-t", "tmpfs", "-o", "huge=always,size=14g", "tmpfs", name]
        if subprocess.run(mount, capture_output=True).returncode:
            with tempfile.TemporaryDirectory(dir="/dev/shm") as shared:
                yield RamDisk(Path(shared), "RAM disk")
            return
        try:
            yield RamDisk(Path(name), "RAM disk (huge pages)")
        finally:
            subprocess.run(["umount", name], check=True)


@contextlib.contextmanager
def disk() -> Iterator[Place]:
    """Yield a directory on the disk."""
    Path("out").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="out") as name:
        yield Place(Path(name), "disk")


class DiskWriting:
    """Memory written to a disk by direct I/O, as shards are: the most that the disk takes."""

    def __init__(self, place: Place) -> None:
        self._path = place.path / "plain"
        self._memory = aligned_memory(1 << 27)
        self._memory[:] = np.random.default_rng(0).bytes(1 << 27)

    def play(self, seconds: float) -> float:
        """Write for some seconds, and remove the files; return the frames a second."""
        began_s = time.perf_counter()
        count = 0
        while time.perf_counter() < began_s + seconds:
            write_pieces(self._path, [self._memory])
            count += 1
        took_s = time.perf_counter() - began_s
        self._path.unlink()
        return count * len(self._memory) / (64 * 64 * 3) / took_s


class Stepping:
    """Steps with random actions into a rollout, and nothing written."""

    def __init__(self, family: str) -> None:
        self.env = VectorEnv("local", family, LANES, seed=1)
        self._policy = LoadedPolicy("random", self.env.single_action_space, LANES)
        self.env.reset()
        self.rollout = self.env.rollout(4 * _SHARD_STEPS)
        self._generator = np.random.default_rng(0)

    def play(self, seconds: float) -> float:
        """Step for some seconds; return the frames a second."""
        began_s = time.perf_counter()
        is_first = np.zeros(LANES, bool)
        for count in itertools.count(1):
            actions = self._policy.act(self.rollout.current_observations, self._generator, is_first)
            self.env.step(actions, out=self.rollout)
            if time.perf_counter() > began_s + seconds:
                return count * LANES / (time.perf_counter() - began_s)
        raise AssertionError("it counts for ever")


class Collecting:
    """Collections into new directories, of as many rows as take some seconds."""

    def __init__(self, place: Place, family: str, **arguments: Any) -> None:
        self._place, self._family, self._arguments = place, family, arguments
        self._rows = 8 * _SHARD_STEPS * LANES
        self.bytes_per_row = 64.0 * 64 * 3

    def play(self, seconds: float) -> float:
        """Collect a dataset, and remove it; return the frames a second from the first step to the last shard."""
        self._place.prepare(int(self._rows * self.bytes_per_row))
        last = Progress(0, 0, 0, 0, 0.0, 0, 0.0, 0)

        def note(progress: Progress) -> None:
            nonlocal last
            last = progress
            self._place.make_room(int((progress.all_rows - progress.rows) * self.bytes_per_row))

        path = self._place.path / "dataset"
        Collector(path, self._family, lanes=LANES, steps=self._rows, seed=1, on_shard=note, **self._arguments).run()
        shutil.rmtree(path)
        self._rows = int(min(MAX_ROWS, max(8 * _SHARD_STEPS * LANES, last.frames_per_s * COLLECT_S)))
        self.bytes_per_row = last.size_bytes / last.rows
        return last.frames_per_s


class Encoding:
    """Shards encoded into memory on both cores, while nothing is drawn."""

    def __init__(self, stepping: Stepping, family: str, pictures: str) -> None:
        columns = make_columns(stepping.env, Pictures.parse(pictures))
        self._description = Description(
            family=family,
            settings={},
            seed=1,
            lanes=LANES,
            first_lane=0,
            all_lanes=LANES,
            steps=_SHARD_STEPS,
            shard_steps=_SHARD_STEPS,
            format="parquet",
            pictures=pictures,
            policy="random",
            policy_hash="",
            arguments={},
            renderer="",
            versions={},
            columns=columns,
        )
        self._rows = {column.name: column.zeros(_SHARD_STEPS, LANES) for column in columns}
        self._rows["eye.rgb"] = stepping.rollout.observations["eye.rgb"][:_SHARD_STEPS]

    def play(self, seconds: float) -> float:
        """Encode for some seconds; return the frames a second."""
        began_s = time.perf_counter()

        def encode(_: int) -> int:
            encoder, count = ParquetEncoder(self._description), 0
            while not count or time.perf_counter() < began_s + seconds:
                encoder.encode(self._rows)
                count += 1
            return count

        with ThreadPoolExecutor(2) as pool:
            shards = sum(pool.map(encode, range(2)))
        return shards * _SHARD_STEPS * LANES / (time.perf_counter() - began_s)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("place", [ram_disk, disk])
def bench_collecting_npy(report: Report, place: Callable[[], Any], family: str) -> None:
    with place() as where:
        stepping, collecting = Stepping(family), Collecting(where, family, format="npy")
        runs = {"stepping": stepping.play, "npy": collecting.play}
        if place is disk:
            runs["disk"] = DiskWriting(where).play
        with stepping.env:
            rounds = report.in_turn(runs, ROUND_S, ROUNDS, compared=("npy", "stepping"))
    name = where.name
    limit = f"; the disk itself takes {rounds.rate('disk'):,.0f}" if place is disk else ""
    report.ratio_row(
        f"{family}, {LANES} lanes, 64² rgb, collected to {name} as .npy, against stepping with nothing written",
        rounds.ratio("npy", "stepping"),
        f"{rounds.rate('npy'):,.0f} against {rounds.rate('stepping'):,.0f} frames/s{limit}; "
        f"{collecting.bytes_per_row:,.0f} bytes a frame",
        at_least=0.8,
        figures={f"{family} {name} npy": rounds.rate("npy"), f"{family} stepping": rounds.rate("stepping")},
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("place", [ram_disk, disk])
@pytest.mark.parametrize("pictures", PICTURES)
def bench_collecting_parquet(report: Report, pictures: str, place: Callable[[], Any], family: str) -> None:
    """The bound is that of steps and encoding one after the other, each with all cores."""
    with place() as where:
        stepping, collecting = Stepping(family), Collecting(where, family, pictures=pictures)
        stepping.play(ROUND_S / 2)
        encoding = Encoding(stepping, family, pictures)
        runs = {"stepping": stepping.play, "encoding": encoding.play, "parquet": collecting.play}
        with stepping.env:
            rounds = report.in_turn(runs, ROUND_S, ROUNDS)
    name = where.name
    shares = [
        rate / combined_rate(a, b)
        for rate, a, b in zip(*(rounds.rates[one] for one in ("parquet", "stepping", "encoding")), strict=True)
    ]
    report.ratio_row(
        f"{family}, {LANES} lanes, 64² rgb, collected to {name} as Parquet, {pictures}, against stepping and encoding "
        "together",
        float(np.median(shares)),
        f"{rounds.rate('parquet'):,.0f} frames/s; stepping {rounds.rate('stepping'):,.0f}, encoding "
        f"{rounds.rate('encoding'):,.0f}; {collecting.bytes_per_row:,.0f} bytes a frame",
        at_least=0.85,
        figures={f"{family} {name} {pictures}": rounds.rate("parquet")},
    )


class PlainHdf5:
    """The loop that a user would write: a growing HDF5 dataset, a step at a time."""

    def __init__(self, folder: Path, family: str, compression: str | None) -> None:
        self._path, self._compression = folder / "frames.h5", compression
        self.env = VectorEnv("local", family, LANES, seed=1)
        self.env.reset()
        self.env.action_space.seed(0)
        self.bytes_per_row = 0.0

    def play(self, seconds: float) -> float:
        """Collect for some seconds, and remove the file; return the frames a second."""
        began_s = time.perf_counter()
        count = 0
        with h5py.File(self._path, "w") as file:
            shape = (LANES, 64, 64, 3)
            frames = file.create_dataset(
                "frames", (0, *shape), "uint8", maxshape=(None, *shape), chunks=(1, 64, *shape[1:]),
                compression=self._compression,
            )  # fmt: skip
            rewards = file.create_dataset("rewards", (0, LANES), "float64", maxshape=(None, LANES))
            while time.perf_counter() < began_s + seconds:
                observations, reward, *_ = self.env.step(self.env.action_space.sample())
                frames.resize(count + 1, axis=0)
                rewards.resize(count + 1, axis=0)
                frames[count], rewards[count] = observations["eye.rgb"], reward
                count += 1
        took_s = time.perf_counter() - began_s
        self.bytes_per_row = self._path.stat().st_size / (count * LANES)
        self._path.unlink()
        return count * LANES / took_s


class PlainMinari:
    """Minari's DataCollector on a single env, which is what it accepts."""

    def __init__(self, family: str) -> None:
        env = gymnasium.make(f"worldloom/{family.capitalize()}-v0")
        self.env = minari.DataCollector(env, record_infos=False)
        self.env.reset(seed=1)
        self.env.action_space.seed(0)

    def play(self, seconds: float) -> float:
        """Step for some seconds; return the frames a second."""
        began_s = time.perf_counter()
        for count in itertools.count(1):
            _, _, terminated, truncated, _ = self.env.step(self.env.action_space.sample())
            if terminated or truncated:
                self.env.reset()
            if time.perf_counter() > began_s + seconds:
                return count / (time.perf_counter() - began_s)
        raise AssertionError("it counts for ever")


@pytest.mark.parametrize("family", FAMILIES)
def bench_plain_loops(report: Report, family: str) -> None:
    with disk() as where:
        plain, packed = PlainHdf5(where.path, family, None), PlainHdf5(where.path, family, "lzf")
        collecting = Collecting(where, family)
        runs = {"worldloom": collecting.play, "h5py": plain.play, "h5py lzf": packed.play}
        with contextlib.ExitStack() as envs:
            envs.enter_context(plain.env)
            envs.enter_context(packed.env)
            if find_spec("jax") is not None:
                minari_loop = PlainMinari(family)
                envs.enter_context(contextlib.closing(minari_loop.env))
                runs["minari"] = minari_loop.play
            rounds = report.in_turn(runs, ROUND_S, ROUNDS)
    sizes = {"worldloom": collecting.bytes_per_row, "h5py": plain.bytes_per_row, "h5py lzf": packed.bytes_per_row}
    for other, text in (
        ("h5py", "a loop with h5py"),
        ("h5py lzf", "a loop with h5py and lzf"),
        ("minari", "Minari's DataCollector on one env"),
    ):
        if other not in runs:
            report.row(f"{family}: {text}", 'not measured: it needs JAX, `pip install "minari[create]"`')
            continue
        sizes_text = f"; {sizes['worldloom']:,.0f} against {sizes[other]:,.0f} bytes a frame" if other in sizes else ""
        report.ratio_row(
            f"{family}, 64² rgb, `worldloom collect` to {where.name} (Parquet, zstd:1), against {text}",
            rounds.ratio("worldloom", other),
            f"{rounds.rate('worldloom'):,.0f} against {rounds.rate(other):,.0f} frames/s{sizes_text}",
        )
