"""Shards written beside drawing: threads encode and store them, and one after the other they enter the index.

Encoding, hashing and writing do their work without Python's lock. A shard is given as views of memory that is drawn
into; `submit` returns an object that tells when that memory is free again. There are as many shards in memory as the
caller has memory for, so a slow disk slows drawing down, and nothing grows.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from worldloom.data.files import TEMPORARY_SUFFIX, StoredFile, remove, write_pieces
from worldloom.data.index import ShardEntry, append_entry
from worldloom.data.layout import Arrays, Description
from worldloom.data.npy_shards import npy_directory, npy_files
from worldloom.data.parquet_shards import ParquetEncoder, parquet_path
from worldloom.data.replacing import flush


class ShardStore:
    """Encoder and writer of shards of one dataset. Each thread has one of its own."""

    def __init__(self, directory: Path, description: Description) -> None:
        self._directory, self._description = directory, description
        self._encoder = ParquetEncoder(description) if description.format == "parquet" else None

    def store(self, shard: int, rows: Arrays) -> list[StoredFile]:
        """Write a shard and return its files; `rows` are arrays [steps, lanes, ...] by column."""
        if self._encoder is not None:
            return self._store_parquet(self._encoder, shard, rows)
        place = self._directory / npy_directory(shard)
        temporary = place.with_name(place.name + TEMPORARY_SUFFIX)
        remove(temporary)
        try:
            temporary.mkdir()
            files = []
            for name, pieces in npy_files(self._description, rows).items():
                size, checksum = write_pieces(temporary / name, pieces)
                files.append(StoredFile(f"{npy_directory(shard)}/{name}", size, checksum))
            flush(temporary)
        except BaseException:
            remove(temporary)
            raise
        remove(place)  # of a run that stopped before the shard entered the index
        temporary.rename(place)
        flush(place.parent)
        return files

    def _store_parquet(self, encoder: ParquetEncoder, shard: int, rows: Arrays) -> list[StoredFile]:
        place = self._directory / parquet_path(shard)
        temporary = place.with_name(place.name + TEMPORARY_SUFFIX)
        size, checksum = write_pieces(temporary, [encoder.encode(rows)])
        temporary.rename(place)
        flush(place.parent)
        return [StoredFile(parquet_path(shard), size, checksum)]


class ShardWriter:
    """Threads that write shards, and enter them into the index in the order in which they were submitted."""

    def __init__(
        self, directory: Path, description: Description, threads: int, on_entry: Callable[[ShardEntry], None]
    ) -> None:
        """Start the threads. `on_entry` is called by one of them for each shard that is in the index."""
        self._directory = directory
        self._description = description
        self._on_entry = on_entry
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(threads, "worldloom-shard-writer")
        self._last: Future[None] | None = None
        self._error: BaseException | None = None

    def submit(self, entry: ShardEntry, rows: Arrays) -> "Future[None]":
        """Have a shard written. The future ends when `rows` are not needed any more, or with an error."""
        self.check()
        is_stored: Future[None] = Future()
        before, is_entered = self._last, Future[None]()
        self._last = is_entered
        self._pool.submit(self._write, entry, rows, is_stored, before, is_entered)
        return is_stored

    def check(self) -> None:
        """Raise the error that a shard could not be written with."""
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Wait until all shards are in the index, and end the threads; raise the first error."""
        self._pool.shutdown(wait=True)
        self.check()

    def stop(self) -> None:
        """Wait for shards that are submitted, and end the threads, whatever failed."""
        self._pool.shutdown(wait=True)

    def _write(
        self,
        entry: ShardEntry,
        rows: Arrays,
        is_stored: "Future[None]",
        before: "Future[None] | None",
        is_entered: "Future[None]",
    ) -> None:
        try:
            if self._error is not None:
                raise self._error
            if not hasattr(self._local, "store"):
                self._local.store = ShardStore(self._directory, self._description)
            files = self._local.store.store(entry.shard, rows)
            rows.clear()
            is_stored.set_result(None)
            if before is not None:
                before.result()  # the shards before it enter first
            entry = replace(entry, files=files)
            append_entry(self._directory, entry)
            self._on_entry(entry)
        except BaseException as error:
            if self._error is None:
                self._error = error
            if not is_stored.done():
                is_stored.set_exception(error)
            is_entered.set_exception(error)
        else:
            is_entered.set_result(None)
