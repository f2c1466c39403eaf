"""Shards as Parquet files: a row for each step, lane after lane, in row groups of about 4 MiB of frames.

Frames are fixed-size binary without nulls, so that reading them is a copy; those encoded as images are a struct of
bytes and path, as Hugging Face `datasets` stores images. Other arrays are fixed-size lists. The metadata of a field
says its shape, dtype and encoding.
"""

import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from worldloom.data.errors import DamagedDataset
from worldloom.data.files import aligned_memory
from worldloom.data.layout import (
    KEY_COLUMNS,
    PAGE_BYTES,
    RAW,
    SHARDS_DIRECTORY,
    Arrays,
    Column,
    Description,
    Pictures,
    group_rows,
    group_shape,
    shard_name,
)
from worldloom.data.parquet_pages import FramePages
from worldloom.data.pictures import frame_encoder

_IMAGE_TYPE = pa.struct([pa.field("bytes", pa.binary()), pa.field("path", pa.string())])
_IMAGE_MARGIN_BYTES = 4096
"""Bytes by which an encoded frame may be larger than its pixels."""
_GROUP_MARGIN_BYTES = 1024
"""Headers and metadata of a column in a row group, at most."""


def parquet_path(shard: int) -> str:
    """Return the path of a shard, relative to the directory of the dataset."""
    return f"{SHARDS_DIRECTORY}/{shard_name(shard)}.parquet"


def make_schema(description: Description) -> pa.Schema:
    """Return the schema of the Parquet files of a dataset."""
    fields = [_make_field(column) for column in description.columns]
    about = {"family": description.family, "settings": dict(description.settings), "seed": description.seed}
    metadata = {"worldloom": json.dumps(about)}
    images = {column.name: {"_type": "Image"} for column in description.columns if _is_image(column)}
    if images:  # so that Hugging Face `datasets` shows them
        plain = {one.name: _feature(one) for one in description.columns if not _is_image(one)}
        ordered = {one.name: images.get(one.name) or plain[one.name] for one in description.columns}
        metadata["huggingface"] = json.dumps({"info": {"features": ordered}})
    return pa.schema(fields, metadata=metadata)


def _is_image(column: Column) -> bool:
    return column.encoding not in ("", "raw")


def _make_field(column: Column) -> pa.Field:
    about = {"dtype": column.dtype, "shape": json.dumps(list(column.shape)), "role": column.role}
    if column.encoding:
        about["encoding"] = column.encoding
    is_nullable = _is_image(column)  # no image is missing, but Hugging Face `datasets` knows them by a type with nulls
    return pa.field(column.name, _arrow_type(column), nullable=is_nullable, metadata=about)


def _arrow_type(column: Column) -> pa.DataType:
    if column.encoding:
        return _IMAGE_TYPE if _is_image(column) else pa.binary(column.row_bytes)
    scalar = pa.from_numpy_dtype(np.dtype(column.dtype))
    for side in reversed(column.shape):
        scalar = pa.list_(pa.field("element", scalar, nullable=False), side)
    return scalar


def _feature(column: Column) -> dict[str, Any]:
    """Return the description of a column for Hugging Face `datasets`."""
    if column.encoding:
        return {"dtype": str(pa.binary(column.row_bytes)), "_type": "Value"}
    found: dict[str, Any] = {"dtype": column.dtype, "_type": "Value"}
    for side in reversed(column.shape):
        found = {"feature": found, "length": side, "_type": "List"}
    return found


class ParquetEncoder:
    """Encoder of shards into memory of its own, which is used again for the next shard."""

    def __init__(self, description: Description) -> None:
        self._description = description
        self._schema = make_schema(description)
        self._pictures = Pictures.parse(description.pictures)
        columns, lanes, steps = description.columns, description.lanes, description.shard_steps
        group_lanes, group_steps = group_shape(columns, lanes, steps)
        groups = -(-lanes // group_lanes) * -(-steps // group_steps)
        margins = sum(_IMAGE_MARGIN_BYTES for column in columns if _is_image(column))
        row_bytes = sum(column.row_bytes for column in columns) + margins
        size = int(row_bytes * lanes * steps * 1.05) + groups * len(columns) * _GROUP_MARGIN_BYTES + (1 << 20)
        self._memory = aligned_memory(size)
        self._scratch = {column.name: column.zeros(group_rows(columns)) for column in columns}
        self._encoders = {column.name: frame_encoder(column, self._pictures) for column in columns if _is_image(column)}
        codec, level = self._pictures.compression
        leaves = {column.name: _leaf_path(column) for column in columns}
        codecs = {path: "NONE" if _is_image(columns[k]) else codec for k, path in enumerate(leaves.values())}
        self._options: dict[str, Any] = {
            "compression": codecs,
            "compression_level": None if level is None else {p: level for p, one in codecs.items() if one != "NONE"},
            "use_dictionary": False,
            "write_statistics": [leaves[name] for name in KEY_COLUMNS],
        }
        if self._pictures.kind != RAW:  # raw frames are read one by one from pages of any size
            greatest = max([column.row_bytes for column in columns])
            self._options |= {"write_batch_size": max(1, PAGE_BYTES // greatest), "data_page_size": PAGE_BYTES // 2}

    def encode(self, rows: Arrays) -> memoryview:
        """Return the bytes of a shard. `rows` are arrays [steps, lanes, ...] by column; the bytes are valid until the
        next call."""
        steps, lanes = next(iter(rows.values())).shape[:2]
        group_lanes, group_steps = group_shape(self._description.columns, self._description.lanes, steps)
        sink = pa.FixedSizeBufferWriter(pa.py_buffer(self._memory))
        with pq.ParquetWriter(sink, self._schema, **self._options) as writer:
            for lane in range(0, lanes, group_lanes):
                for step in range(0, steps, group_steps):
                    part = (slice(step, step + group_steps), slice(lane, lane + group_lanes))
                    arrays = [self._make_array(column, rows[column.name][part]) for column in self._description.columns]
                    table = pa.Table.from_arrays(arrays, schema=self._schema)
                    writer.write_table(table, row_group_size=table.num_rows)
        size = sink.tell()
        sink.close()
        return self._memory[:size]

    def _make_array(self, column: Column, values: np.ndarray) -> pa.Array:
        """Return an array of Arrow, lane after lane, from values [steps, lanes, ...]."""
        steps, lanes = values.shape[:2]
        scratch = self._scratch[column.name][: steps * lanes]
        np.copyto(scratch.reshape(lanes, steps, *column.shape), values.swapaxes(0, 1))
        if column.name in self._encoders:
            encode = self._encoders[column.name]
            data = pa.array([encode(frame) for frame in scratch], pa.binary())
            return pa.StructArray.from_arrays([data, pa.nulls(len(scratch), pa.string())], fields=list(_IMAGE_TYPE))
        if column.encoding:
            return pa.Array.from_buffers(pa.binary(column.row_bytes), len(scratch), [None, pa.py_buffer(scratch)])
        if column.dtype == "bool":
            return pa.array(scratch.reshape(-1))
        array = pa.array(scratch.reshape(-1))
        kind = _arrow_type(column)
        return _nest(array, kind, column.shape)


def _nest(array: pa.Array, kind: pa.DataType, shape: tuple[int, ...]) -> pa.Array:
    for number in range(len(shape) - 1, -1, -1):
        inner = kind
        for _ in range(number):
            inner = inner.value_type
        array = pa.FixedSizeListArray.from_arrays(array, type=inner)
    return array


def _leaf_path(column: Column) -> str:
    if column.encoding:
        return f"{column.name}.bytes" if _is_image(column) else column.name
    return column.name + ".list.element" * len(column.shape)


class ParquetShard:
    """A shard that is read. Frames come from the pages that have them; other columns are read as a whole, and kept."""

    def __init__(self, directory: Path, description: Description, shard: int) -> None:
        self._path = directory / parquet_path(shard)
        self._shape = (description.lanes, description.steps_in(shard))
        self._file: pq.ParquetFile | None = None
        self._map: mmap.mmap | None = None
        self._frames: dict[str, FramePages] = {}
        self._values: Arrays = {}
        """Columns that are no frames, [lanes, steps, ...]."""

    def read(self, column: Column, lanes: slice, steps: slice) -> np.ndarray:
        """Return an array [lanes, steps, ...]. Slices have a begin and an end within the shard."""
        if not column.is_frame:
            return self._read_values(column)[lanes, steps]
        found = column.empty(lanes.stop - lanes.start, steps.stop - steps.start)
        for lane in range(lanes.start, lanes.stop):
            self.fill(column, lane, steps.start, found[lane - lanes.start])
        return found

    def fill(self, column: Column, lane: int, step: int, out: np.ndarray) -> None:
        """Read rows of one lane, from a step of the shard on, into an array [rows, ...]."""
        if not column.is_frame:
            out[...] = self._read_values(column)[lane, step : step + len(out)]
            return
        try:
            pages = self._frames.get(column.name)
            if pages is None:
                file, mapped = self._open()
                pages = self._frames[column.name] = FramePages(mapped, file.metadata, column, _leaf_path(column))
            pages.fill(lane * self._shape[1] + step, out)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._damage(error) from error

    def _read_values(self, column: Column) -> np.ndarray:
        found = self._values.get(column.name)
        if found is None:
            try:
                file, _ = self._open()
                values = _to_numpy(file.read([column.name], use_threads=False)[column.name], column)
                found = self._values[column.name] = values.reshape(*self._shape, *column.shape)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise self._damage(error) from error
        return found

    def _open(self) -> tuple[pq.ParquetFile, mmap.mmap]:
        """Return the file, open and mapped, and check that it has the rows that it should have."""
        if self._file is None or self._map is None:
            with self._path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            found = pq.ParquetFile(pa.BufferReader(pa.py_buffer(mapped)))
            if found.metadata.num_rows != self._shape[0] * self._shape[1]:
                raise ValueError(f"{found.metadata.num_rows} rows: expected {self._shape[0] * self._shape[1]}")
            self._file, self._map = found, mapped
        return self._file, self._map

    def _damage(self, error: Exception) -> DamagedDataset:
        return DamagedDataset(f"{self._path} cannot be read ({error}): `worldloom data check` says more")


def _to_numpy(chunked: pa.ChunkedArray, column: Column) -> np.ndarray:
    """Return the values of a column that is no frame as an array [rows, *shape]."""
    array = pa.concat_arrays(chunked.chunks)
    for _ in column.shape:
        array = array.flatten()
    return np.asarray(array.to_numpy(zero_copy_only=False)).reshape(-1, *column.shape)
