"""Datasets written again in another format, or with another encoding of frames; those of several parts as one.

The new dataset is written beside its place and renamed when it is complete, so that a stopped export leaves nothing.
"""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np

from worldloom.data.check import require_good
from worldloom.data.collection import EpisodeTracker
from worldloom.data.errors import DatasetError
from worldloom.data.files import TEMPORARY_SUFFIX, lock_directory, remove, replace_file
from worldloom.data.finish import finish_dataset
from worldloom.data.index import Index, ShardEntry
from worldloom.data.layout import (
    DESCRIPTION_FILE,
    LOSSY,
    RAW,
    SHARDS_DIRECTORY,
    Description,
    Format,
    Pictures,
)
from worldloom.data.replacing import flush
from worldloom.data.whole import WholeDataset
from worldloom.data.writer import ShardWriter

_SHARD_BYTES = 128 << 20
"""Size of a shard before compression, for datasets of several parts, whose lanes come together in each shard."""
_MAX_WRITERS = 4


def export_dataset(
    source: "str | os.PathLike[str]",
    target: "str | os.PathLike[str]",
    format: Format = "parquet",
    pictures: str | None = None,
    on_progress: Callable[[float], object] | None = None,
) -> Path:
    """Write a complete dataset again into a new directory, and return that.

    Args:
        source: Directory of the dataset.
        target: Directory of the new one, which must not exist.
        format: Format of its shards, `parquet` or `npy`.
        pictures: Encoding of frames in Parquet files, as for collections; `zstd` by default.
        on_progress: Called with the fraction of the rows that are written.
    """
    if format == "npy" and pictures not in (None, RAW):
        raise ValueError(f"pictures are {pictures!r} with the format npy: expected raw, or the format parquet")
    chosen = Pictures.parse(RAW if format == "npy" else pictures or "zstd")
    whole = WholeDataset(source)
    whole.require_complete()
    require_good(source)
    description = _describe(whole.description, format, chosen)
    with beside(Path(target)) as temporary:
        (temporary / SHARDS_DIRECTORY).mkdir()
        replace_file(temporary / DESCRIPTION_FILE, description.to_json())
        index = _write_shards(whole, temporary, description, on_progress)
        finish_dataset(temporary, description, index)
    return Path(target)


@contextlib.contextmanager
def beside(target: Path) -> Iterator[Path]:
    """Make a directory beside a target, and rename it to that at the end of the block; an error removes it."""
    if os.path.lexists(target):
        raise DatasetError(f"{target} exists: expected a new directory")
    temporary = target.with_name(f".{target.name}{TEMPORARY_SUFFIX}")
    temporary.mkdir(parents=True, exist_ok=True)
    try:
        with lock_directory(temporary):
            for path in temporary.iterdir():
                remove(path)  # of an export that was killed
            try:
                yield temporary
                flush(temporary)
                temporary.rename(target)
                flush(target.parent)
            except BaseException:
                remove(temporary)
                raise
    except BlockingIOError:
        raise DatasetError(f"another export to {target} is under way: expected it to end first") from None


def _describe(source: Description, format: Format, pictures: Pictures) -> Description:
    columns = [
        replace(column, encoding=pictures.encoding_of(column.name, column.dtype)) if column.is_frame else column
        for column in source.columns
    ]
    row_bytes = sum(column.row_bytes for column in columns)
    merged = max(1, min(source.steps, _SHARD_BYTES // (row_bytes * source.lanes)))
    return replace(
        source,
        format=format,
        pictures=str(pictures),
        columns=columns,
        parts=(),
        shard_steps=merged if source.parts else source.shard_steps,
        lossy_pictures=source.pictures if source.pictures.startswith(LOSSY) else source.lossy_pictures,
    )


def _write_shards(
    whole: WholeDataset, directory: Path, description: Description, on_progress: Callable[[float], object] | None
) -> Index:
    """Read, encode and write one shard after the other, with as many in memory as there are threads and one more."""
    index = Index()

    def note(entry: ShardEntry) -> None:
        index.shards.append(entry)
        if on_progress is not None:
            on_progress(index.rows / description.rows)

    names = [column.name for column in description.columns]
    threads = min(_MAX_WRITERS, len(os.sched_getaffinity(0)))
    episodes = EpisodeTracker(description)
    writer = ShardWriter(directory, description, threads, note)
    pending: deque[Future[None]] = deque()
    try:
        for shard in range(description.shards):
            begin = shard * description.shard_steps
            steps = slice(begin, begin + description.steps_in(shard))
            found = whole.read(names, slice(0, description.lanes), steps)
            rows = {name: np.ascontiguousarray(array.swapaxes(0, 1)) for name, array in found.items()}
            statistics = episodes.advance(rows)
            entry = ShardEntry(shard=shard, rows=rows["reward"].size, files=[], generator={}, **statistics)
            pending.append(writer.submit(entry, rows))
            if len(pending) > threads:
                pending.popleft().result()
        writer.finish()
    finally:
        writer.stop()
    return index
