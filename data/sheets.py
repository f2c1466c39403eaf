"""Pictures of a dataset for people: a contact sheet of many lanes and times, and a film of some lanes side by side."""

import io
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from PIL import Image

from worldloom.data.layout import Arrays, Column, Description
from worldloom.demo.images import frame_colors, tile, write_gif
from worldloom.kernels.outputs import OUTPUT_NAMES

_BACKGROUND = (24, 26, 33)
_SHEET_CELL, _SHEET_SIDE, _SHEET_GAP = 128, 1088, 6
"""Size of a frame on a sheet, of a sheet, and of the gaps in it, in pixels, about."""
_MAX_SHEET_CELLS = 12
"""Lanes, and times of each, on a sheet at most."""
_FILM_CELL, _FILM_SIDE, _FILM_GAP = 96, 408, 4
_MAX_FILM_CELLS = 3
"""Lanes side by side in a film at most."""
_FILM_S = 4.0
_MAX_FILM_FRAMES = 100
_MAX_LANE_FILM_FRAMES = 400
_MIN_FRAME_S = 0.02
"""Least time of a frame that programs show GIF files at."""


class Rows(Protocol):
    """Rows that are read in rectangles, as `WholeDataset` and `ShardReader` read them."""

    def read(self, names: Sequence[str], lanes: slice, steps: slice) -> Arrays:
        """Return arrays [lanes, steps, ...] of columns."""


def find_frames(description: Description) -> Column | None:
    """Return the column of frames to show: the first rgb, else gray, depth and so on; None without frames."""
    for output in OUTPUT_NAMES:
        for column in description.frames:
            if column.name.endswith(f".{output}"):
                return column
    return None


def make_dataset_sheet(rows: Rows, description: Description, column: Column, end: int) -> bytes:
    """Return a PNG of lanes and steps that are evenly spread over a dataset up to a step: a row for each lane."""
    columns, lines = _sheet_shape(column)
    steps = _spread(end, columns)
    return _make_sheet(
        rows, column, [(lane, k) for lane in _spread(description.lanes, lines) for k in steps], len(steps)
    )


def make_lane_sheet(rows: Rows, column: Column, lane: int, begin: int, end: int) -> bytes:
    """Return a PNG of steps of a lane, row after row, evenly spread from its step `begin` to before `end`."""
    columns, lines = _sheet_shape(column)
    steps = _spread(end - begin, columns * lines)
    return _make_sheet(rows, column, [(lane, begin + k) for k in steps], min(columns, len(steps)))


def _sheet_shape(column: Column) -> tuple[int, int]:
    """Return the columns and rows of a sheet."""
    sides = [
        -(-side // _scale(column, _SHEET_CELL)[1]) * _scale(column, _SHEET_CELL)[0] for side in column.shape[1::-1]
    ]
    columns, lines = (max(2, min(_MAX_SHEET_CELLS, _SHEET_SIDE // (side + _SHEET_GAP))) for side in sides)
    return columns, lines


def _make_sheet(rows: Rows, column: Column, cells: Sequence[tuple[int, int]], columns: int) -> bytes:
    frames = _zoom(_colors(_read_frames(rows, column, cells), column), column, _SHEET_CELL)
    stream = io.BytesIO()
    Image.fromarray(tile(frames, columns, _SHEET_GAP, _BACKGROUND)).save(stream, "PNG")
    return stream.getvalue()


def _read_frames(rows: Rows, column: Column, cells: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return the frames [N, H, W, ...] of lanes and steps, one by one: they are far from each other."""
    found = column.zeros(len(cells))
    for frame, (lane, step) in zip(found, cells, strict=True):
        frame[...] = rows.read([column.name], slice(lane, lane + 1), slice(step, step + 1))[column.name][0, 0]
    return found


def make_dataset_film(rows: Rows, description: Description, column: Column, end: int) -> bytes:
    """Return a GIF of the first seconds of some lanes side by side, up to a step."""
    larger = max(column.shape[:2]) * _scale(column, _FILM_CELL)[0] // _scale(column, _FILM_CELL)[1]
    columns = max(1, min(_MAX_FILM_CELLS, _FILM_SIDE // (larger + _FILM_GAP)))
    lanes = _spread(description.lanes, columns**2)
    count = max(1, min(end, _MAX_FILM_FRAMES, round(_FILM_S * description.steps_per_s)))
    shown = [rows.read([column.name], slice(lane, lane + 1), slice(0, count))[column.name][0] for lane in lanes]
    films = np.stack([_zoom(_colors(frames, column), column, _FILM_CELL) for frames in shown], axis=1)
    tiled = np.stack([tile(one, min(columns, len(lanes)), _FILM_GAP, _BACKGROUND) for one in films])
    return _encode_gif(tiled, description)


def make_lane_film(rows: Rows, description: Description, column: Column, lane: int, begin: int, end: int) -> bytes:
    """Return a GIF of a lane from its step `begin` to before `end`; of many steps some are left out."""
    stride = -(-(end - begin) // _MAX_LANE_FILM_FRAMES)
    if stride == 1:
        frames = rows.read([column.name], slice(lane, lane + 1), slice(begin, end))[column.name][0]
    else:
        frames = _read_frames(rows, column, [(lane, k) for k in range(begin, end, stride)])
    return _encode_gif(_zoom(_colors(frames, column), column, _FILM_SIDE // 2), description)


def _encode_gif(frames: np.ndarray, description: Description) -> bytes:
    stream = io.BytesIO()
    write_gif(stream, frames, max(_MIN_FRAME_S, 1 / description.steps_per_s))
    return stream.getvalue()


def _spread(count: int, most: int) -> list[int]:
    """Return up to `most` numbers that are evenly spread from 0 to `count - 1`."""
    return sorted({round(one) for one in np.linspace(0, count - 1, min(most, count))})


def _scale(column: Column, side: int) -> tuple[int, int]:
    """Return by how much frames are enlarged to about so many pixels a side, and of how many pixels one is shown."""
    larger = max(column.shape[:2])
    return max(1, side // larger), max(1, -(-larger // (side * 3)))


def _zoom(frames: np.ndarray, column: Column, side: int) -> np.ndarray:
    """Return frames [N, H, W, 3] in about so many pixels a side: enlarged, or with pixels left out."""
    zoom, stride = _scale(column, side)
    return frames[:, ::stride, ::stride].repeat(zoom, axis=1).repeat(zoom, axis=2)


def _colors(frames: np.ndarray, column: Column) -> np.ndarray:
    """Return frames [N, H, W, ...] as colours [N, H, W, 3]."""
    return frame_colors(frames, column.name.rpartition(".")[2])
