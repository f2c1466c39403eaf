"""Moving pictures as GIF files, with nothing but NumPy and the standard library.

A file has one palette of 255 colours for all its frames; the last number means "as before". Each frame after the first
holds only the rectangle in which something changed.
"""

import heapq
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from worldloom.kernels.tables import U8

COLORS = 255
_AS_BEFORE = 255
_BITS = 6
"""Of each channel, by which colours are told apart."""
_CLEAR, _END, _FIRST_FREE, _MOST_CODES = 256, 257, 258, 4096
_WIDEST = 12
_BLOCK_BYTES = 255


def write_gif(path: str | Path, frames: U8, frame_s: float = 0.08) -> None:
    """Write uint8 frames [T, H, W, 3] that are shown for so long each, over and over."""
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3 or not frames.size:
        raise ValueError(f"GIF frames: expected uint8 [T, H, W, 3], got {frames.dtype} {list(frames.shape)}")
    if max(frames.shape[1:3]) > 0xFFFF:
        raise ValueError(f"GIF frames of {list(frames.shape[1:3])} pixels: expected at most 65535 a side")
    delay = round(frame_s * 100)
    if not 0 <= delay <= 0xFFFF:
        raise ValueError(f"a GIF frame of {frame_s} s: expected 0 to 655.35")
    keys = _keys(frames)
    palette, numbers = make_palette(np.bincount(keys.ravel(), minlength=1 << 3 * _BITS))
    height, width = frames.shape[1:3]
    parts = [
        b"GIF89a",
        struct.pack("<HHBBB", width, height, 0xF7, 0, 0),
        np.concatenate([palette, np.zeros((256 - len(palette), 3), np.uint8)]).tobytes(),
        b"\x21\xff\x0bNETSCAPE2.0" + struct.pack("<BBHB", 3, 1, 0, 0),
    ]
    shown = None
    for frame in keys:
        indices = numbers[frame]
        parts += _frame(indices, shown, delay)
        shown = indices
    parts.append(b"\x3b")
    Path(path).write_bytes(b"".join(parts))


def make_palette(counts: np.ndarray) -> tuple[U8, U8]:
    """The colours [C, 3] that stand for colours counted by their keys, and which of them is each key's: [2^18]."""
    used = np.flatnonzero(counts)
    # Stretched, so that black stays black and white white.
    colors = (np.stack([used >> 2 * _BITS, used >> _BITS & 63, used & 63], axis=1) * 255 / 63).astype(np.float32)
    weights = counts[used].astype(np.float64)
    boxes = [_box(np.arange(len(used)), colors, weights)]
    while len(boxes) < COLORS and -boxes[0][0] > 0:
        _, _, members = heapq.heappop(boxes)
        for half in _halves(members, colors, weights):
            heapq.heappush(boxes, _box(half, colors, weights))
    means = [np.average(colors[members], axis=0, weights=weights[members]) for _, _, members in boxes]
    palette = np.rint(np.array(means)).astype(np.uint8)
    numbers = np.zeros(len(counts), np.uint8)
    numbers[used] = _nearest(colors, palette)
    return palette, numbers


def _keys(frames: U8) -> np.ndarray:
    """The colour of each pixel as one number."""
    high = (frames >> 8 - _BITS).astype(np.int32)
    keys: np.ndarray = high[..., 0] << 2 * _BITS | high[..., 1] << _BITS | high[..., 2]
    return keys


def _box(members: np.ndarray, colors: np.ndarray, weights: np.ndarray) -> tuple[float, int, np.ndarray]:
    """Colours that one of the palette stands for, worst first by how far they are from it in all."""
    _, spread = _spread(members, colors, weights)
    return -float(spread.max()), int(members[0]), members  # the second decides between equals: no two boxes share it


def _spread(members: np.ndarray, colors: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean, and the sum of squared distances from it, in each channel."""
    mean = np.average(colors[members], axis=0, weights=weights[members])
    return mean, ((colors[members] - mean) ** 2 * weights[members, None]).sum(axis=0)


def _halves(members: np.ndarray, colors: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split where colours differ most, at their mean there. Both have some: their spread is not 0."""
    mean, spread = _spread(members, colors, weights)
    channel = int(spread.argmax())
    is_low = colors[members, channel] <= mean[channel]
    return members[is_low], members[~is_low]


def _nearest(colors: np.ndarray, palette: U8) -> np.ndarray:
    points = palette.astype(np.float32)
    lengths = (points**2).sum(axis=1)
    found = [
        np.argmin(lengths - 2 * chunk @ points.T, axis=1) for chunk in np.array_split(colors, len(colors) // 8192 + 1)
    ]
    return np.concatenate(found)


def _frame(indices: U8, shown: U8 | None, delay: int) -> Sequence[bytes]:
    """One frame as blocks of the file; `shown` is what stands there before it."""
    top, left = 0, 0
    if shown is not None:
        changed = indices != shown
        rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
        if not len(rows):
            rows = columns = np.zeros(1, np.int64)  # a frame has at least one pixel
        top, left = int(rows[0]), int(columns[0])
        part = np.s_[top : int(rows[-1]) + 1, left : int(columns[-1]) + 1]
        indices = np.where(changed[part], indices[part], np.uint8(_AS_BEFORE))
    height, width = indices.shape
    data = _compress(indices.tobytes())
    blocks = [data[start : start + _BLOCK_BYTES] for start in range(0, len(data), _BLOCK_BYTES)]
    return [
        b"\x21\xf9" + struct.pack("<BBHBB", 4, 0b00101, delay, _AS_BEFORE, 0),
        b"\x2c" + struct.pack("<HHHHBB", left, top, width, height, 0, 8),
        *(bytes([len(block)]) + block for block in blocks),
        b"\0",
    ]


def _compress(values: bytes) -> bytes:
    """By the method of Lempel, Ziv and Welch, in the form that GIF has."""
    codes = np.array(_codes(values))
    place = np.arange(len(codes))
    since = np.maximum.accumulate(np.where(np.concatenate([[False], codes[:-1] == _CLEAR]), place, 0))
    # A code has as many bits as the largest one needs that its reader can know of by then.
    known = np.where(place == 0, 0, 257 + place - since)
    widths = np.clip(np.ceil(np.log2(known + 1)), 9, _WIDEST)
    bits = codes[:, None] >> np.arange(_WIDEST) & 1
    return np.packbits(bits[np.arange(_WIDEST) < widths[:, None]].astype(np.uint8), bitorder="little").tobytes()


def _codes(values: bytes) -> list[int]:
    codes = [_CLEAR]
    add = codes.append
    table: dict[int, int] = {}
    find = table.get
    free = _FIRST_FREE
    prefix = values[0]
    for value in memoryview(values)[1:]:
        key = prefix << 8 | value
        code = find(key)
        if code is not None:
            prefix = code
            continue
        add(prefix)
        if free < _MOST_CODES:
            table[key] = free
            free += 1
        else:
            add(_CLEAR)
            table.clear()
            free = _FIRST_FREE
        prefix = value
    return [*codes, prefix, _END]
