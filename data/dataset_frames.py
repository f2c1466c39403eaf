"""Frames that become columns of a dataset, beside the states that they were drawn from."""

import os
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from worldloom.data.collection import EpisodeTracker
from worldloom.data.errors import DatasetError
from worldloom.data.files import remove, replace_file
from worldloom.data.finish import finish_dataset
from worldloom.data.frame_files import Form, FrameWriter
from worldloom.data.index import Index, ShardEntry, cut_index, read_index
from worldloom.data.layout import (
    DESCRIPTION_FILE,
    LOSSY,
    RAW,
    SHARDS_DIRECTORY,
    Arrays,
    Column,
    Description,
    Pictures,
)
from worldloom.data.replacing import begin_partial, partial_path, put_in_place
from worldloom.data.whole import WholeDataset, read_description
from worldloom.data.writer import ShardWriter

_SHARD_BYTES = 64 << 20
"""Size of a shard before compression; up to three are in memory."""
_MAX_WRITERS = 2


class DatasetFrames(FrameWriter):
    """A dataset with all columns of another and columns of frames, which come in the order of steps, then lanes.

    It may take the place of the other: both are exchanged when it is complete.
    """

    def __init__(
        self,
        out: Path,
        whole: WholeDataset,
        forms: Mapping[str, Form],
        pictures: str | None,
        command: str,
        is_overwriting: bool,
    ) -> None:
        """Describe the new dataset; ValueError if it cannot be. `command` is noted as the origin of the frames.

        Frames that the other dataset has by the same names are replaced if `is_overwriting`.
        """
        self._out, self._whole = out, whole
        source = whole.description
        if is_overwriting:
            source, command = _without_frames(source, forms, command)
        self._description = describe_with_frames(source, forms, pictures, command)
        self._kept_names = [column.name for column in source.columns]
        self._frame_names = list(forms)
        self._is_in_place = out.exists() and out.samefile(whole.directory)
        self._directory = partial_path(out)
        self._threads = min(_MAX_WRITERS, len(os.sched_getaffinity(0)))
        self._index = Index()
        self._writer: ShardWriter | None = None
        self._pending: deque[Future[None]] = deque()
        self._episodes = EpisodeTracker(self._description)
        self._rows: Arrays = {}
        self._filled = 0

    def resume(self, noted: int) -> int:
        """Return the rows of complete shards; 0 and an empty directory if what is there belongs to another run."""
        if noted and self._is_own(self._directory):
            self._index = read_index(self._directory)
            cut_index(self._directory, self._index)
        if not self._index.shards:
            remove(self._directory)
            (begin_partial(self._out) / SHARDS_DIRECTORY).mkdir()
            replace_file(self._directory / DESCRIPTION_FILE, self._description.to_json())
        for entry in self._index.shards:
            names = ("last", "reward", "terminated", "truncated")
            self._episodes.advance(self._read(names, entry.shard))
        self._writer = ShardWriter(self._directory, self._description, self._threads, self._index.shards.append)
        return self._index.rows

    def write(self, first: int, frames: Mapping[str, np.ndarray]) -> None:
        """Collect the frames of a shard, and have it written when it is complete."""
        count, taken = len(frames[self._frame_names[0]]), 0
        while taken < count:
            shard, place = divmod(first + taken, self._description.shard_steps * self._description.lanes)
            size = self._description.steps_in(shard) * self._description.lanes
            if not self._rows:
                while len(self._pending) > self._threads - 1:
                    self._pending.popleft().result()
                self._rows = {name: self._description.column(name).empty(size) for name in self._frame_names}
            some = min(count - taken, size - place)
            for name, array in self._rows.items():
                array[place : place + some] = frames[name][taken : taken + some]
            taken += some
            if place + some == size:
                self._submit(shard)

    def flush(self, done: int) -> int:
        """Return the rows of complete shards: these are on the disk."""
        if self._writer is None:
            return 0
        if done == self._description.rows:
            self._writer.finish()
        self._writer.check()
        return self._index.rows

    def finish(self, arguments: Mapping[str, Any]) -> list[Path]:
        """End the dataset, and put it into its place."""
        if self._index.end is None:
            finish_dataset(self._directory, self._description, self._index)
        put_in_place(self._out, arguments)
        return [self._out]

    def close(self) -> None:
        """Wait for shards that are being written."""
        if self._writer is not None:
            self._writer.stop()

    def remove(self) -> None:
        """Remove what was begun."""
        self.close()
        remove(self._directory)

    def find_existing(self) -> list[Path]:
        """Return the directory if it has files and is not to be exchanged; ValueError if it is no dataset."""
        if self._is_in_place or not self._out.exists() or (self._out.is_dir() and not any(self._out.iterdir())):
            return []
        if not (self._out / DESCRIPTION_FILE).exists():
            raise ValueError(f"{self._out} exists and is no dataset: expected a new or empty directory, or a dataset")
        return [self._out]

    def _is_own(self, directory: Path) -> bool:
        try:
            return read_description(directory).to_json() == self._description.to_json()
        except DatasetError:
            return False

    def _read(self, names: "tuple[str, ...] | list[str]", shard: int) -> Arrays:
        """Return arrays [steps, lanes, ...] of columns of the other dataset, for the rows of a shard."""
        begin = shard * self._description.shard_steps
        steps = slice(begin, begin + self._description.steps_in(shard))
        found = self._whole.read(names, slice(0, self._description.lanes), steps)
        return {name: np.ascontiguousarray(array.swapaxes(0, 1)) for name, array in found.items()}

    def _submit(self, shard: int) -> None:
        assert self._writer is not None
        lanes = self._description.lanes
        frames = {name: array.reshape(-1, lanes, *array.shape[1:]) for name, array in self._rows.items()}
        self._rows = {}
        found = self._read(self._kept_names, shard)
        rows = {column.name: found.get(column.name, frames.get(column.name)) for column in self._description.columns}
        entry = ShardEntry(
            shard=shard, rows=found["reward"].size, files=[], generator={}, **self._episodes.advance(found)
        )
        self._pending.append(self._writer.submit(entry, rows))  # type: ignore[arg-type]  # each is in one of both


def _without_frames(source: Description, names: Iterable[str], command: str) -> tuple[Description, str]:
    """Return the description of a dataset without some frames, and the command that draws them after the others."""
    columns = [column for column in source.columns if column.name not in names or not column.is_frame]
    drawn = {name: one for name, one in source.drawn.items() if name not in names}
    has_frames = any(column.is_frame for column in columns)
    kept = replace(source, columns=columns, drawn=drawn, lossy_pictures=source.lossy_pictures if has_frames else "")
    are_drawn_before = any(source.drawn.get(name) in drawn.values() for name in names)
    return kept, f"{command} --overwrite" if are_drawn_before else command


def describe_with_frames(
    source: Description, forms: Mapping[str, Form], pictures: str | None, command: str
) -> Description:
    """Return the description of a dataset with further columns of frames; ValueError if it has some of them."""
    known = [column.name for column in source.columns]
    for name in forms:
        if name in known:
            raise ValueError(
                f"the dataset has a column {name} already: expected another camera or output; --overwrite draws it anew"
            )
    if source.format == "npy" and pictures not in (None, RAW):
        raise ValueError(f"pictures are {pictures!r}, the shards of the dataset are .npy files: expected raw")
    if pictures is not None and source.frames and pictures != source.pictures:
        raise ValueError(
            f"pictures are {pictures!r}, those of the dataset are {source.pictures!r}: expected the same for all frames"
        )
    chosen = Pictures.parse(pictures or source.pictures)
    frames = [
        Column(name, "observation", form.dtype, form.shape, chosen.encoding_of(name, form.dtype))
        for name, form in forms.items()
    ]
    place = max([0, *(k + 1 for k, column in enumerate(source.columns) if column.role == "observation")])
    columns = [*source.columns[:place], *frames, *source.columns[place:]]
    step_bytes = sum(column.row_bytes for column in columns) * source.lanes
    return replace(
        source,
        pictures=str(chosen),
        columns=columns,
        parts=(),
        lossy_pictures=str(chosen) if source.frames and chosen.kind in LOSSY else source.lossy_pictures,
        shard_steps=max(1, min(source.steps, _SHARD_BYTES // step_bytes)),
        drawn={**source.drawn, **dict.fromkeys(forms, command)},
    )
