"""Pictures as PNG files, with nothing but the standard library."""

import struct
import zlib
from pathlib import Path

import numpy as np

from worldloom.kernels.tables import U8

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOR_TYPES = {1: 0, 3: 2}
_UP = 2
"""The filter: a byte is kept as its difference to the one above, which pictures compress better with."""


def write_png(path: str | Path, pixels: U8) -> None:
    """Write a uint8 picture, [H, W] in gray or [H, W, 3] in colour."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise ValueError(f"a PNG picture: expected uint8 [H, W] or [H, W, 3], got {pixels.dtype} {list(pixels.shape)}")
    if not pixels.size:
        raise ValueError(f"a PNG picture: expected at least one pixel, got {list(pixels.shape)}")
    height, width = pixels.shape[:2]
    lines = pixels.reshape(height, -1)
    filtered = np.empty((height, 1 + lines.shape[1]), np.uint8)
    filtered[:, 0] = _UP
    filtered[0, 1:] = lines[0]
    filtered[1:, 1:] = lines[1:] - lines[:-1]
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[lines.shape[1] // width], 0, 0, 0)
    data = zlib.compress(filtered.tobytes(), 9)
    chunks = (_chunk(b"IHDR", header), _chunk(b"IDAT", data), _chunk(b"IEND", b""))
    Path(path).write_bytes(_SIGNATURE + b"".join(chunks))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
