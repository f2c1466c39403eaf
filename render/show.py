"""Pictures for people: depth and labels as colours, and many pictures as one sheet. No renderer needs this."""

import colorsys

import numpy as np

from worldloom.kernels.tables import F32, U8

WHITE = (255, 255, 255)
_NEAR_TO_FAR = ("fdf3c3", "fcc77b", "f7945d", "df6265", "b0447a", "7a3478", "472a6b", "1f1d4a", "0d1030")
"""The stops of the depth colours, evenly spaced."""
_NOTHING = "070a1e"
"""The colour of depth where there is nothing."""
_SHARE_WITH_COLORS = 0.95
_FIRST_LABELS = (
    "20242f",  # 0, the sky's
    "7d8597", "e4b363", "e2725b", "2a9d8f", "5a78b8", "b56bb0", "8ab17d", "f2cc8f", "d1495b", "4cb5d6", "9a7b4f",
)  # fmt: skip
"""The colours of the smallest labels, chosen to go together; those of the others follow a formula."""
_GOLDEN = 0.6180339887
"""Steps of this part of a circle never come close to where they have been."""


def depth_colors(depth: F32, far: float | F32) -> U8:
    """Depth pictures [..., H, W] as colours [..., H, W, 3]: light is near, and dark far; darkest, where nothing is.

    Each picture has the whole range of colours for itself, from its nearest point on; the farthest twentieth of its
    pixels share the last. `far` is the far plane of all of them or of each, which is the depth where nothing is.
    """
    empty = depth >= np.asarray(far, np.float32)[..., None, None]
    nearest = np.where(empty, np.inf, depth).min(axis=(-2, -1), keepdims=True)
    nearest = np.where(np.isfinite(nearest), nearest, 0.0)
    beyond = np.where(empty, 0.0, depth - nearest)
    farthest = np.quantile(beyond, _SHARE_WITH_COLORS, axis=(-2, -1), keepdims=True)
    # The root gives what is near more of the colours: that is where shapes are.
    at = np.sqrt(np.clip(beyond / np.maximum(farthest, 1e-6), 0, 1)) * (len(_NEAR_TO_FAR) - 1)
    stops = _from_hex(*_NEAR_TO_FAR).astype(np.float32)
    low = np.minimum(at.astype(np.int64), len(stops) - 2)
    colors = stops[low] + (at - low)[..., None] * (stops[low + 1] - stops[low])
    colors[empty] = _from_hex(_NOTHING)[0]
    rounded: U8 = np.rint(colors).astype(np.uint8)
    return rounded


def label_colors(labels: U8) -> U8:
    """Label pictures [..., H, W] as colours [..., H, W, 3], the same for a label wherever it is."""
    colors: U8 = LABEL_PALETTE[labels]
    return colors


def tile(pictures: U8, columns: int, gap: int = 0, background: tuple[int, int, int] = WHITE) -> U8:
    """Pictures [N, H, W, 3] side by side, row after row, as one picture with `gap` pixels between and around them."""
    if pictures.ndim != 4 or pictures.shape[3] != 3 or not len(pictures):
        raise ValueError(f"pictures to tile: expected [N, H, W, 3] with N of at least 1, got {list(pictures.shape)}")
    if columns < 1 or gap < 0:
        raise ValueError(f"{columns} columns with a gap of {gap}: expected at least 1, and at least 0")
    count, height, width, _ = pictures.shape
    rows = -(-count // columns)
    cells = np.empty((rows * columns, height + gap, width + gap, 3), np.uint8)
    cells[...] = background
    cells[:count, :height, :width] = pictures
    grid = cells.reshape(rows, columns, *cells.shape[1:]).swapaxes(1, 2)
    sheet = np.empty((rows * (height + gap) + gap, columns * (width + gap) + gap, 3), np.uint8)
    sheet[...] = background
    sheet[gap:, gap:] = grid.reshape(rows * (height + gap), columns * (width + gap), 3)
    return sheet


def _from_hex(*colors: str) -> U8:
    return np.array([list(bytes.fromhex(color)) for color in colors], np.uint8)


def _make_palette() -> U8:
    numbers = range(len(_FIRST_LABELS), 256)
    others = [colorsys.hsv_to_rgb(k * _GOLDEN % 1, 0.45 + 0.1 * (k % 3), 0.92 - 0.13 * (k % 4)) for k in numbers]
    return np.concatenate([_from_hex(*_FIRST_LABELS), np.rint(np.array(others) * 255).astype(np.uint8)])


LABEL_PALETTE = _make_palette()
"""Colours [256, 3] of the labels."""
