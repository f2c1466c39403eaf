"""Dataset: reads what a collection has written, by rows, transitions, episodes and sequences."""

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from worldloom.data.errors import DatasetError
from worldloom.data.layout import Arrays, Column, Description, Role
from worldloom.data.samples import Indices, Rows, Sequences, Transitions
from worldloom.data.whole import WholeDataset

_ALL = slice(None)


class Dataset:
    """A dataset that is read: a table of `steps` rows for each of `lanes` lanes.

    One whose collection has not ended has the rows of its complete shards. Files are opened when they are read, mapped
    into memory. Instances can be pickled, and used in forked processes.

        dataset = Dataset("out/maze")
        dataset.read(["eye.rgb", "action"], lanes=slice(0, 8), steps=slice(100, 116))
        for episode in dataset.episodes(): …
        for batch in dataset.sequences(16).batches(64, seed=1): …
    """

    def __init__(self, directory: "str | os.PathLike[str]") -> None:
        """Open the dataset in a directory; DatasetError if there is none, or if a part of it cannot be reached."""
        self._whole = WholeDataset(directory)
        self.directory: Path = self._whole.directory
        self.description: Description = self._whole.description
        self.is_complete: bool = self._whole.is_complete
        """False if the collection has not ended."""
        self.lanes: int = self.description.lanes
        self.steps: int = self._whole.steps
        """Rows of each lane."""
        self.columns: dict[str, Column] = {column.name: column for column in self.description.columns}
        self._first_lanes = [first for first, _ in self._whole.readers]

    def __repr__(self) -> str:
        state = "" if self.is_complete else ", incomplete"
        return f"<Dataset {self.directory}: {self.description.family}, {self.lanes} lanes × {self.steps} steps{state}>"

    @property
    def num_rows(self) -> int:
        """Number of rows of all lanes."""
        return self.lanes * self.steps

    @property
    def num_episodes(self) -> int:
        """Number of episodes, those included that the end of the collection has cut."""
        return len(self.episode_table.lanes)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.num_rows

    def __getitem__(self, index: "int | Indices") -> Arrays:
        """Return the columns of one row, or of several as arrays [rows, ...]; rows count lane after lane."""
        rows = self._all_rows
        return rows[int(index)] if isinstance(index, int | np.integer) else rows.batch(index)

    def __iter__(self) -> Iterator[Arrays]:
        return iter(self._all_rows)

    def read(self, columns: Sequence[str] | None = None, *, lanes: slice = _ALL, steps: slice = _ALL) -> Arrays:
        """Return a rectangle of the table as arrays [lanes, steps, ...] by column; all columns unless given.

        Arrays may be the memory of mapped files, and so read-only: copy what is to be changed.
        """
        within = [_bounds("lanes", lanes, self.lanes), _bounds("steps", steps, self.steps)]
        chosen = self._choose(columns)
        if any(one.start >= one.stop for one in within):
            sizes = [one.stop - one.start for one in within]
            return {column.name: column.empty(*sizes) for column in chosen}
        return self._whole.read([column.name for column in chosen], *within)

    def rows(self, columns: Sequence[str] | None = None) -> Rows:
        """Return all rows as samples, lane after lane."""
        return Rows(self, self._choose(columns))

    def transitions(self, columns: Sequence[str] | None = None) -> Transitions:
        """Return all steps with an action as samples, with the observations after it as `next.NAME`."""
        return Transitions(self, self._choose(columns))

    def sequences(
        self,
        length: int,
        columns: Sequence[str] | None = None,
        *,
        stride: int | None = None,
        within_episodes: bool = False,
    ) -> Sequences:
        """Return sequences of consecutive rows of a lane as samples: arrays [length, ...], with `is_first`.

        Args:
            length: Rows of each sequence.
            columns: Names of columns; all by default.
            stride: Rows between the beginnings of neighbouring sequences; `length` by default, so that they do not
                overlap.
            within_episodes: Have sequences end with their episode, and leave out what is shorter. Otherwise they go on
                in the next episode of the lane, whose first row has `is_first`.
        """
        for name, value in (("length", length), ("stride", stride)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: expected at least 1")
        return Sequences(self, self._choose(columns), length, stride=stride or length, within_episodes=within_episodes)

    def episodes(self, columns: Sequence[str] | None = None, *, whole_only: bool = False) -> "Episodes":
        """Return the episodes, lane after lane; with `whole_only` without those that the end of the collection cut."""
        table = self.episode_table
        if whole_only:
            table = EpisodeTable(*(values[table.is_whole] for values in table))
        return Episodes(self, self._choose(columns), table)

    @cached_property
    def episode_table(self) -> "EpisodeTable":
        """Lane, place and length of each episode. The first use reads three small columns of the dataset."""
        return _find_episodes(self)

    def fill(self, column: Column, lanes: np.ndarray, steps: np.ndarray, out: np.ndarray) -> None:
        """Read windows of rows into an array [windows, length, ...]: of lanes, each from a step on."""
        readers = self._whole.readers
        if len(readers) == 1:
            fill = readers[0][1].fill
            for lane, step, rows in zip(lanes.tolist(), steps.tolist(), out, strict=True):
                fill(column, lane, step, rows)
            return
        for lane, step, rows in zip(lanes.tolist(), steps.tolist(), out, strict=True):
            first, reader = readers[bisect_right(self._first_lanes, lane) - 1]
            reader.fill(column, lane - first, step, rows)

    @cached_property
    def _all_rows(self) -> Rows:
        return self.rows()

    def _choose(self, columns: Sequence[str] | None) -> list[Column]:
        if isinstance(columns, str):
            raise TypeError(f"columns is {columns!r}: expected a list of names, such as [{columns!r}]")
        return list(self.columns.values()) if columns is None else [self.description.column(name) for name in columns]


class EpisodeTable(NamedTuple):
    """Arrays with an entry for each episode, lane after lane."""

    numbers: np.ndarray
    """Values of the column `episode`."""
    lanes: np.ndarray
    first_steps: np.ndarray
    """Steps of the lane that they begin with."""
    lengths: np.ndarray
    """Steps with an action: one less than there are rows."""
    is_whole: np.ndarray
    """False for those that the end of the collection has cut."""


@dataclass(frozen=True)
class Episode:
    """An episode: its rows, of which the last has only observations."""

    number: int
    """Value of the column `episode`."""
    lane: int
    length: int
    """Steps with an action."""
    is_whole: bool
    """False if the end of the collection has cut it."""
    rows: Arrays
    """The chosen columns, of length + 1 rows."""
    columns: Sequence[Column] = field(repr=False)

    @property
    def observations(self) -> Arrays:
        """Observations by name, [length + 1, ...]."""
        return self._of_role("observation")

    @property
    def actions(self) -> Arrays:
        """Actions by column, [length, ...]."""
        return {name: values[:-1] for name, values in self._of_role("action").items()}

    @property
    def rewards(self) -> np.ndarray:
        """Rewards of the actions, [length]."""
        return self.rows["reward"][:-1]

    @property
    def terminated(self) -> np.ndarray:
        """True for an action that ended the episode by reaching a terminal state, [length]."""
        return self.rows["terminated"][:-1]

    @property
    def truncated(self) -> np.ndarray:
        """True for an action after which the episode was ended from outside, such as by a time limit, [length]."""
        return self.rows["truncated"][:-1]

    def _of_role(self, role: Role) -> Arrays:
        return {column.name: self.rows[column.name] for column in self.columns if column.role == role}


class Episodes(Sequence[Episode]):
    """Episodes of a dataset, each read when it is asked for."""

    def __init__(self, dataset: Dataset, columns: Sequence[Column], table: EpisodeTable) -> None:
        self._dataset, self._columns = dataset, columns
        self.table = table

    def __len__(self) -> int:
        return len(self.table.lanes)

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> "Episodes": ...
    def __getitem__(self, index: int | slice) -> "Episode | Episodes":
        """Return one episode, or those of a slice."""
        if isinstance(index, slice):
            return Episodes(self._dataset, self._columns, EpisodeTable(*(values[index] for values in self.table)))
        number, lane, first, length, is_whole = (values[index].item() for values in self.table)
        rows: Arrays = {}
        for column in self._columns:
            rows[column.name] = column.empty(length + 1)
            self._dataset.fill(column, np.array([lane]), np.array([first]), rows[column.name][None])
        return Episode(number, lane, length, is_whole, rows, self._columns)


def _find_episodes(dataset: Dataset) -> EpisodeTable:
    """Find where episodes end, some steps of all lanes at a time."""
    lanes, ends, wholes = [], [], []
    has_ended = np.zeros((dataset.lanes, 1), bool)
    """True for lanes whose episode ended with the action before these steps."""
    for begin in range(0, dataset.steps, dataset.description.shard_steps):
        steps = slice(begin, begin + dataset.description.shard_steps)
        rows = dataset.read(["last", "terminated", "truncated"], steps=steps)
        ended = np.concatenate([has_ended, rows["terminated"] | rows["truncated"]], axis=1)
        is_end = rows["last"].copy()
        if steps.stop >= dataset.steps:
            is_end[:, -1] = True  # in an incomplete dataset, too
        where = np.nonzero(is_end)
        lanes.append(where[0])
        ends.append(where[1] + begin)
        wholes.append(ended[:, :-1][where])
        has_ended = ended[:, -1:]
    if not lanes:
        empty = np.zeros(0, np.int64)
        return EpisodeTable(empty, empty, empty, empty, empty.astype(bool))
    lane, end, is_whole = np.concatenate(lanes), np.concatenate(ends), np.concatenate(wholes)
    order = np.lexsort((end, lane))
    lane, end, is_whole = lane[order], end[order], is_whole[order]
    is_first = np.diff(lane, prepend=-1) != 0
    first_step = np.where(is_first, 0, np.roll(end, 1) + 1)
    count = np.arange(len(lane))
    in_lane = count - np.maximum.accumulate(np.where(is_first, count, 0))
    number = lane + dataset.description.first_lane + dataset.description.all_lanes * in_lane
    return EpisodeTable(number, lane, first_step, end - first_step, is_whole)


def _bounds(name: str, given: Any, count: int) -> slice:
    if not isinstance(given, slice) or given.step not in (None, 1):
        raise DatasetError(f"{name} is {given!r}: expected a slice of consecutive {name}, such as slice(0, 8)")
    begin, end, _ = given.indices(count)
    return slice(begin, max(begin, end))
