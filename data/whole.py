"""A dataset with its parts, read as one table of steps and lanes."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from worldloom.data.errors import DatasetError, IncompleteDataset
from worldloom.data.index import Index, read_index
from worldloom.data.layout import DESCRIPTION_FILE, Arrays, Description
from worldloom.data.shards import ShardReader


class WholeDataset:
    """The rows of a dataset and of all its parts that can be reached."""

    def __init__(self, directory: "str | os.PathLike[str]") -> None:
        """Open a dataset; DatasetError if there is none, or if a part cannot be reached."""
        self.directory = Path(directory)
        self.description = read_description(self.directory)
        self.index = read_index(self.directory)
        """Its index; that of a dataset with parts has no shards."""
        self.readers: list[tuple[int, ShardReader]] = []
        """First lane and reader of each part."""
        indexes: list[Index] = []
        for place in self.description.parts:
            path = self.directory / place.path
            if not path.exists():
                where = f" on {place.node}" if place.node else ""
                raise DatasetError(f"the lanes from {place.first_lane} are in {place.path}{where}: expected it here")
            part = read_description(path)
            self.readers.append((place.first_lane, ShardReader(path, part)))
            indexes.append(read_index(path))
        if not self.description.parts:
            self.readers.append((0, ShardReader(self.directory, self.description)))
            indexes.append(self.index)
        self.part_indexes = indexes
        """The indexes of the parts, or its own: together all shards."""

    @property
    def steps(self) -> int:
        """Steps that all lanes have in complete shards."""
        shards = min(len(index.shards) for index in self.part_indexes)
        return min(self.description.steps, shards * self.description.shard_steps)

    @property
    def is_complete(self) -> bool:
        """True if the collection has ended."""
        return self.index.end is not None

    def require_complete(self) -> None:
        """Raise IncompleteDataset unless the collection has ended."""
        if not self.is_complete:
            fleet = " --fleet" if self.description.parts else ""
            raise IncompleteDataset(
                f"{self.directory} is incomplete: expected a complete dataset; go on with "
                f"`worldloom collect --resume{fleet} -o {self.directory}`"
            )

    def read(self, names: Sequence[str], lanes: slice, steps: slice) -> Arrays:
        """Return arrays [lanes, steps, ...] of columns, given slices with a begin and an end."""
        found = []
        for first, reader in self.readers:
            begin, end = max(lanes.start - first, 0), min(lanes.stop - first, reader.description.lanes)
            if begin < end:
                found.append(reader.read(names, slice(begin, end), steps))
        if len(found) == 1:
            return found[0]
        return {name: np.concatenate([one[name] for one in found]) for name in names}

    def find_episodes(self, lane: int) -> list[tuple[int, int, int]]:
        """Return the episodes of a lane in order: number, first step, and the step after the last."""
        if not self.steps:
            return []
        rows = self.read(["episode", "step"], slice(lane, lane + 1), slice(0, self.steps))
        begins = np.flatnonzero(rows["step"][0] == 0).tolist()
        numbers = rows["episode"][0][begins].tolist()
        return list(zip(numbers, begins, [*begins[1:], self.steps], strict=True))


def read_description(directory: Path) -> Description:
    """Read the description of a dataset; DatasetError if there is none."""
    path = directory / DESCRIPTION_FILE
    if not path.exists():
        raise DatasetError(f"{directory} has no {DESCRIPTION_FILE}: expected the directory of a dataset")
    return Description.from_json(path.read_bytes(), path)
