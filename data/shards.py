"""Rows read across shards: a table of steps and lanes, of which any rectangle can be read."""

import resource
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from worldloom.data.layout import Arrays, Column, Description
from worldloom.data.npy_shards import NpyShard
from worldloom.extras import explain_missing_extra

with explain_missing_extra("worldloom.data", "data"):
    from worldloom.data.parquet_shards import ParquetShard

_LEAST_OPEN_SHARDS = 16


class ShardReader:
    """Reader of the rows of one directory of shards. Files are opened when they are read, and again after pickling."""

    def __init__(self, directory: Path, description: Description) -> None:
        self.directory, self.description = directory, description
        self._kind = ParquetShard if description.format == "parquet" else NpyShard
        files = 1 if description.format == "parquet" else 1 + len(description.frames)
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._open_limit = max(_LEAST_OPEN_SHARDS, limit // 2 // files)
        """Shards that are open at once, so that half of the files that a process may open are left to others."""
        self._open: OrderedDict[int, ParquetShard | NpyShard] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_open": OrderedDict()}

    def read(self, names: Sequence[str], lanes: slice, steps: slice) -> Arrays:
        """Return arrays [lanes, steps, ...] of columns, given slices with a begin and an end.

        Lanes are counted from 0 within this directory. Arrays may be views of mapped files, and so read-only.
        """
        return {name: self.read_column(self.description.column(name), lanes, steps) for name in names}

    def read_column(self, column: Column, lanes: slice, steps: slice) -> np.ndarray:
        """Return an array [lanes, steps, ...] of a column, as `read` does."""
        length = self.description.shard_steps
        if steps.start < steps.stop <= (steps.start // length + 1) * length:
            begin = steps.start // length * length
            return self._shard(steps.start // length).read(
                column, lanes, slice(steps.start - begin, steps.stop - begin)
            )
        found = column.empty(lanes.stop - lanes.start, steps.stop - steps.start)
        for shard in range(steps.start // length, -(-steps.stop // length)):
            begin, end = max(steps.start, shard * length), min(steps.stop, (shard + 1) * length)
            within = slice(begin - shard * length, end - shard * length)
            found[:, begin - steps.start : end - steps.start] = self._shard(shard).read(column, lanes, within)
        return found

    def fill(self, column: Column, lane: int, step: int, out: np.ndarray) -> None:
        """Read rows of one lane, from a step on, into an array [rows, ...]."""
        length = self.description.shard_steps
        shard, within = divmod(step, length)
        if within + len(out) <= length:
            self._shard(shard).fill(column, lane, within, out)
            return
        done = 0
        while done < len(out):
            count = min(length - within, len(out) - done)
            self._shard(shard).fill(column, lane, within, out[done : done + count])
            shard, within, done = shard + 1, 0, done + count

    def _shard(self, shard: int) -> ParquetShard | NpyShard:
        found = self._open.pop(shard, None)
        if found is None:
            found = self._kind(self.directory, self.description, shard)
            if len(self._open) >= self._open_limit:
                self._open.popitem(last=False)
        self._open[shard] = found
        return found
