"""Frames in Parquet files, found by their pages in mapped memory.

The readers of pyarrow decode whole row groups, of which a sequence of frames needs a small part. Here the headers of
pages are read, and then only the pages that have the rows asked for: raw frames are copied out of the file's memory,
compressed ones are decompressed page by page.
"""

import mmap
from bisect import bisect_right
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from worldloom.data.layout import RAW, Column
from worldloom.data.pictures import decode_frame

# Types of fields in the compact protocol of Thrift, which page headers are written in.
_TRUE, _FALSE, _BYTE, _INTEGERS, _STRUCT = 1, 2, 3, (4, 5, 6), 12
_PLAIN_ENCODING = 0


class Page(NamedTuple):
    """A page of a column: consecutive rows that are compressed together."""

    first_row: int
    """Number of its first row in the row group."""
    rows: int
    offset: int
    """Position of its data in the file."""
    size_bytes: int
    plain_bytes: int
    """Size of its data when it is decompressed."""


class FramePages:
    """A column of frames in a mapped Parquet file. Errors in the file are raised as ValueError or ArrowException."""

    def __init__(self, file: mmap.mmap, metadata: pq.FileMetaData, column: Column, leaf: str) -> None:
        """Take the column whose values are the leaf of this path."""
        self._file, self._metadata, self._column = file, metadata, column
        self._data = np.frombuffer(file, np.uint8)
        self._leaf = next(k for k in range(metadata.num_columns) if metadata.schema.column(k).path == leaf)
        self._has_levels = metadata.schema.column(self._leaf).max_definition_level > 0
        rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._first_rows = np.cumsum([0, *rows]).tolist()
        self._pages: dict[int, list[Page]] = {}
        """Pages of the row groups that were read, by the number of the group."""
        self._codec: pa.Codec | None = None
        self._last: tuple[int, np.ndarray] = (-1, np.empty(0))
        """Offset and frames of the page that was decompressed last."""

    def fill(self, row: int, out: np.ndarray) -> None:
        """Read consecutive rows from this one on into an array [rows, *shape]."""
        end, at = row + len(out), row
        while at < end:
            group = bisect_right(self._first_rows, at) - 1
            first = self._first_rows[group]
            pages = self._pages.get(group)
            if pages is None:
                pages = self._pages[group] = self._find_pages(group)
            number = bisect_right(pages, at - first, key=_first_row) - 1
            group_end = min(end, self._first_rows[group + 1])
            while at < group_end:
                page = pages[number]
                begin = at - first - page.first_row
                count = min(page.rows - begin, group_end - at)
                self._fill_from(page, begin, out[at - row : at - row + count])
                at += count
                number += 1

    def _fill_from(self, page: Page, begin: int, out: np.ndarray) -> None:
        if self._column.encoding != RAW:
            self._decode_images(page, begin, out)
            return
        if self._codec is None:
            frames = self._data[page.offset : page.offset + page.size_bytes]
        elif self._last[0] == page.offset:
            frames = self._last[1]
        else:
            packed = memoryview(self._file)[page.offset : page.offset + page.size_bytes]
            frames = np.frombuffer(self._codec.decompress(packed, page.plain_bytes), np.uint8)
            self._last = (page.offset, frames)
        size = self._column.row_bytes
        part = frames[begin * size : (begin + len(out)) * size]
        out[...] = part.view(self._column.dtype).reshape(out.shape)

    def _decode_images(self, page: Page, begin: int, out: np.ndarray) -> None:
        """Decode frames of a page, in which each is preceded by its size in four bytes.

        So are the definition levels before them, which tell nulls: there are none.
        """
        data = memoryview(self._file)[page.offset : page.offset + page.size_bytes]
        at = 4 + int.from_bytes(data[:4], "little") if self._has_levels else 0
        for number in range(begin + len(out)):
            size = int.from_bytes(data[at : at + 4], "little")
            at += 4
            if number >= begin:
                frame = decode_frame(data[at : at + size], self._column)
                if frame.shape != self._column.shape:
                    raise ValueError(f"a frame has the shape {frame.shape}: expected {self._column.shape}")
                out[number - begin] = frame
            at += size

    def _find_pages(self, group: int) -> list[Page]:
        chunk = self._metadata.row_group(group).column(self._leaf)
        if chunk.compression != "UNCOMPRESSED" and self._codec is None:
            self._codec = pa.Codec(chunk.compression.lower())
        at, rows = chunk.data_page_offset, self._metadata.row_group(group).num_rows
        found: list[Page] = []
        first = 0
        while first < rows:
            try:
                header, at = _read_struct(self._file, at)
                about = header[5]  # of data pages of the first version, which pyarrow writes
                page = Page(first, about[1], at, header[3], header[2])
            except (IndexError, KeyError, TypeError) as error:
                raise ValueError(f"the header of a page at byte {at} is damaged: {error!r}") from None
            is_possible = page.rows > 0 and page.size_bytes >= 0 and about[2] == _PLAIN_ENCODING
            if not is_possible or at + page.size_bytes > len(self._file):
                raise ValueError(f"the header of a page before byte {at} is damaged: {header}")
            if self._column.encoding == RAW and page.plain_bytes != page.rows * self._column.row_bytes:
                raise ValueError(f"{page.rows} frames in {page.plain_bytes} bytes, of {self._column.row_bytes} each")
            found.append(page)
            at += page.size_bytes
            first += page.rows
        return found


def _first_row(page: Page) -> int:
    return page.first_row


def _read_struct(data: mmap.mmap, at: int) -> tuple[dict[int, Any], int]:
    """Return the fields of a struct by their numbers, and the position after it."""
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 15
        if head >> 4:
            number += head >> 4
        else:
            number, at = _read_integer(data, at)
        if kind in (_TRUE, _FALSE):
            fields[number] = kind == _TRUE
        elif kind == _BYTE:
            fields[number], at = data[at], at + 1
        elif kind in _INTEGERS:
            fields[number], at = _read_integer(data, at)
        elif kind == _STRUCT:
            fields[number], at = _read_struct(data, at)
        else:
            raise KeyError(f"a field of type {kind}")
    return fields, at + 1


def _read_integer(data: mmap.mmap, at: int) -> tuple[int, int]:
    """Return an integer of seven bits a byte, in which signs alternate, and the position after it."""
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at
        if shift > 63:
            raise KeyError("a number of more than 64 bits")
