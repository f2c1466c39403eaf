"""Rows read across shards: a table of steps and lanes, of which any rectangle can be read."""

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from worldloom.data.layout import Arrays, Description
from worldloom.data.npy_shards import NpyShard
from worldloom.data.parquet_shards import ParquetShard

_OPEN_SHARDS = 64
"""Shards whose files are open at once. Each has a descriptor for each column that was read."""


class ShardReader:
    """Reader of the rows of one directory of shards."""

    def __init__(self, directory: Path, description: Description) -> None:
        self.directory, self.description = directory, description
        self._kind = ParquetShard if description.format == "parquet" else NpyShard
        self._open: OrderedDict[int, ParquetShard | NpyShard] = OrderedDict()

    def read(self, names: Sequence[str], lanes: slice, steps: slice) -> Arrays:
        """Return arrays [lanes, steps, ...] of columns, given slices with a begin and an end.

        Lanes are counted from 0 within this directory. Arrays may be views of mapped files, and so read-only.
        """
        length = self.description.shard_steps
        parts = []
        for shard in range(steps.start // length, -(-steps.stop // length)):
            begin = shard * length
            within = slice(max(steps.start - begin, 0), min(steps.stop - begin, self.description.steps_in(shard)))
            parts.append(self._shard(shard).read(list(names), lanes, within))
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts], axis=1) for name in names}

    def _shard(self, shard: int) -> ParquetShard | NpyShard:
        found = self._open.pop(shard, None)
        if found is None:
            found = self._kind(self.directory, self.description, shard)
            if len(self._open) >= _OPEN_SHARDS:
                self._open.popitem(last=False)
        self._open[shard] = found
        return found
