"""Frames as images that people look at: colours for depth and labels, contact sheets, and GIF files.

Renderers do not need this. PNG files are written with Pillow directly: `Image.fromarray(pixels).save(path)`.
"""

import colorsys
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image

from worldloom.kernels.tables import F32, U8

WHITE = (255, 255, 255)
_NEAR_TO_FAR = ("fdf3c3", "fcc77b", "f7945d", "df6265", "b0447a", "7a3478", "472a6b", "1f1d4a", "0d1030")
"""Colours of depth from near to far, evenly spaced."""
_EMPTY = "070a1e"
"""Colour of depth where there is no surface."""
_SCALED_FRACTION = 0.95
"""Fraction of a frame's pixels that the depth colours are spread over; the farthest rest has the last colour."""
_FIRST_LABELS = (
    "20242f",  # 0, the sky's
    "7d8597", "e4b363", "e2725b", "2a9d8f", "5a78b8", "b56bb0", "8ab17d", "f2cc8f", "d1495b", "4cb5d6", "9a7b4f",
)  # fmt: skip
"""Colours of the smallest labels, chosen by hand; the others are computed."""
_GOLDEN_RATIO = 0.6180339887
"""Hue step of the computed label colours: multiples of it stay far apart on the circle of hues."""
_GIF_COLORS = 255
"""Colours of a GIF's palette; the 256th entry marks pixels that did not change since the frame before."""
_GIF_SAMPLE = 1 << 18
"""Pixels that the palette is computed from, at most."""
_MAX_GIF_SIDE = 0xFFFF
_MAX_GIF_FRAME_S = 655.35


def depth_colors(depth: F32, far: float | F32) -> U8:
    """Return depth frames [..., H, W] as colours [..., H, W, 3], light for near and dark for far.

    Each frame is scaled by itself: the colours start at its nearest point, and its farthest 5 % of pixels have the last
    one. `far` is the far plane of all frames or of each; pixels at that depth show no surface and are darkest.
    """
    is_empty = depth >= np.asarray(far, np.float32)[..., None, None]
    nearest = np.where(is_empty, np.inf, depth).min(axis=(-2, -1), keepdims=True)
    nearest = np.where(np.isfinite(nearest), nearest, 0.0)
    beyond = np.where(is_empty, 0.0, depth - nearest)
    farthest = np.quantile(beyond, _SCALED_FRACTION, axis=(-2, -1), keepdims=True)
    # The square root gives near surfaces more of the colours: most shapes are there.
    at = np.sqrt(np.clip(beyond / np.maximum(farthest, 1e-6), 0, 1)) * (len(_NEAR_TO_FAR) - 1)
    stops = _from_hex(*_NEAR_TO_FAR).astype(np.float32)
    low = np.minimum(at.astype(np.int64), len(stops) - 2)
    colors = stops[low] + (at - low)[..., None] * (stops[low + 1] - stops[low])
    colors[is_empty] = _from_hex(_EMPTY)[0]
    rounded: U8 = np.rint(colors).astype(np.uint8)
    return rounded


def label_colors(labels: U8) -> U8:
    """Return segmentation frames [..., H, W] as colours [..., H, W, 3], one fixed colour for each label."""
    colors: U8 = LABEL_PALETTE[labels]
    return colors


def normal_colors(normals: F32) -> U8:
    """Return normals [..., H, W, 3] as colours: -1 to 1 as 0 to 255, as in normal maps; what has none is mid-grey."""
    rounded: U8 = np.rint(np.clip(normals, -1, 1) * 127.5 + 127.5).astype(np.uint8)
    return rounded


def flow_colors(flow: F32, largest: float | None = None) -> U8:
    """Return flow [..., H, W, 2] as colours [..., H, W, 3]: a hue for each direction, paler for less, white for none.

    Flow of `largest` pixels has the full colour; by default that is the largest there is.
    """
    right, down = np.asarray(flow, np.float64)[..., 0], np.asarray(flow, np.float64)[..., 1]
    length = np.hypot(right, down)
    most = max(float(length.max(initial=0.0)) if largest is None else largest, 1e-6)
    strength = np.clip(length / most, 0, 1)[..., None]
    turned = np.arctan2(down, right)[..., None] - np.array([0, 2, 4]) * np.pi / 3
    hue = np.clip(0.5 + np.cos(turned), 0, 1)
    rounded: U8 = np.rint(255 * (1 - strength * (1 - hue))).astype(np.uint8)
    return rounded


def frame_colors(frames: np.ndarray, output: str) -> U8:
    """Return frames [N, H, W, ...] of an output, such as `depth`, as colours [N, H, W, 3]."""
    if output == "depth":
        farthest = frames.max()
        is_far_plane = (frames == farthest).mean() > 0.01  # one surface is hardly ever just so far in many pixels
        return depth_colors(frames, float(farthest) if is_far_plane else np.inf)
    if output == "segmentation":
        return label_colors(frames)
    if output == "normals":
        return normal_colors(frames)
    if output == "flow":
        return flow_colors(frames)
    return np.repeat(frames[..., None], 3, axis=3) if frames.ndim == 3 else frames


def tile(frames: U8, columns: int, gap: int = 0, background: tuple[int, int, int] = WHITE) -> U8:
    """Return frames [N, H, W, 3] as one image, row after row, with `gap` pixels between and around them."""
    if frames.ndim != 4 or frames.shape[3] != 3 or not len(frames):
        raise ValueError(f"frames to tile: expected shape [N, H, W, 3] with N >= 1, got {list(frames.shape)}")
    if columns < 1 or gap < 0:
        raise ValueError(f"tile: expected at least 1 column and a gap of at least 0, got {columns} and {gap}")
    count, height, width, _ = frames.shape
    rows = -(-count // columns)
    cells = np.empty((rows * columns, height + gap, width + gap, 3), np.uint8)
    cells[...] = background
    cells[:count, :height, :width] = frames
    grid = cells.reshape(rows, columns, *cells.shape[1:]).swapaxes(1, 2)
    sheet = np.empty((rows * (height + gap) + gap, columns * (width + gap) + gap, 3), np.uint8)
    sheet[...] = background
    sheet[gap:, gap:] = grid.reshape(rows * (height + gap), columns * (width + gap), 3)
    return sheet


def write_gif(path: str | Path | BinaryIO, frames: U8, frame_s: float = 0.08) -> None:
    """Write uint8 frames [T, H, W, 3] as an endless GIF that shows each for `frame_s` seconds.

    All frames share one palette, and each stores only the pixels that changed since the frame before. Equal frames in
    a row become one that is shown longer.
    """
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3 or not frames.size:
        raise ValueError(f"GIF frames: expected uint8 [T, H, W, 3], got {frames.dtype} {list(frames.shape)}")
    count, height, width, _ = frames.shape
    if max(height, width) > _MAX_GIF_SIDE:
        raise ValueError(f"GIF frames of {width} x {height} pixels: expected at most {_MAX_GIF_SIDE} a side")
    if not 0 <= frame_s <= _MAX_GIF_FRAME_S:
        raise ValueError(f"GIF frame duration of {frame_s} s: expected 0 to {_MAX_GIF_FRAME_S}")
    pixels = frames.reshape(1, -1, 3)
    sample = np.ascontiguousarray(pixels[:, :: -(-pixels.shape[1] // _GIF_SAMPLE)])
    palette = Image.fromarray(sample).quantize(_GIF_COLORS, Image.Quantize.MEDIANCUT, kmeans=1)
    stacked = Image.fromarray(frames.reshape(count * height, width, 3)).quantize(
        palette=palette, dither=Image.Dither.NONE
    )
    colors = _fill_palette(bytes(palette.getpalette() or ()))
    stacked.putpalette(colors)
    images = [stacked.crop((0, top, width, top + height)) for top in range(0, count * height, height)]
    images[0].save(
        path,
        format="GIF",
        save_all=True,
        append_images=images[1:],
        palette=colors,  # given: no frame gets one of its own
        transparency=_GIF_COLORS,
        duration=round(1000 * frame_s),
        loop=0,
        disposal=1,
        interlace=0,
        optimize=True,
    )


def _fill_palette(colors: bytes) -> bytes:
    """Return a palette with other colours up to 256: Pillow takes 30 ms more for each frame if some are the same."""
    taken = {colors[k : k + 3] for k in range(0, len(colors), 3)}
    others = (bytes((k, k, k)) for k in range(256))
    unused = [color for color in others if color not in taken]
    return colors + b"".join(unused[: 256 - len(colors) // 3])


def _from_hex(*colors: str) -> U8:
    return np.array([list(bytes.fromhex(color)) for color in colors], np.uint8)


def _build_label_palette() -> U8:
    computed = [
        colorsys.hsv_to_rgb(k * _GOLDEN_RATIO % 1, 0.45 + 0.1 * (k % 3), 0.92 - 0.13 * (k % 4))
        for k in range(len(_FIRST_LABELS), 256)
    ]
    return np.concatenate([_from_hex(*_FIRST_LABELS), np.rint(np.array(computed) * 255).astype(np.uint8)])


LABEL_PALETTE = _build_label_palette()
"""Colours [256, 3] of the labels."""
