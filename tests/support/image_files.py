"""Readers of image files. That of GIF files is written from the specification: it checks what viewers need."""

import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image


def read_png(path: Path) -> np.ndarray:
    """Return the pixels [H, W, 3] of a PNG file; Pillow checks its checksums."""
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"))


class Gif(NamedTuple):
    """What a viewer shows."""

    frames: np.ndarray
    """[T, H, W, 3]."""
    delays_s: list[float]
    is_endless: bool
    size_bytes: int


def read_gif(path: Path) -> Gif:
    """All frames of a GIF file with one palette, as they stand on the screen."""
    data = path.read_bytes()
    assert data[:6] == b"GIF89a"
    width, height, flags, _, aspect = struct.unpack_from("<HHBBB", data, 6)
    assert flags & 0x80, "a palette for all frames"
    assert aspect == 0
    colors = 2 << (flags & 7)
    palette = np.frombuffer(data, np.uint8, 3 * colors, 13).reshape(colors, 3)
    screen = np.zeros((height, width, 3), np.uint8)
    frames, delays, is_endless, unchanged = [], [], False, -1
    at = 13 + 3 * colors
    while data[at] != 0x3B:
        if data[at] == 0x21:
            label, (content, at) = data[at + 1], _blocks(data, at + 2)
            if label == 0xF9:
                packed, delay, unchanged = struct.unpack("<BHB", content)
                assert packed >> 2 & 7 == 1, "each frame stays for the next"
                unchanged = unchanged if packed & 1 else -1
                delays.append(delay / 100)
            elif content.startswith(b"NETSCAPE2.0"):
                is_endless = content[11:] == b"\x01\0\0"
        else:
            assert data[at] == 0x2C
            left, top, columns, rows, packed = struct.unpack_from("<HHHHB", data, at + 1)
            assert packed == 0, "neither a palette of its own nor interlaced"
            content, end = _blocks(data, at + 11)
            values = np.frombuffer(_expand(content, data[at + 10]), np.uint8).reshape(rows, columns)
            part = screen[top : top + rows, left : left + columns]
            assert part.shape[:2] == (rows, columns), "within the screen"
            part[values != unchanged] = palette[values[values != unchanged]]
            frames.append(screen.copy())
            at = end
    assert at == len(data) - 1
    return Gif(np.stack(frames), delays, is_endless, len(data))


def _blocks(data: bytes, at: int) -> tuple[bytes, int]:
    """The content of blocks of a length each, and where they end."""
    content = b""
    while data[at]:
        content += data[at + 1 : at + 1 + data[at]]
        at += 1 + data[at]
    return content, at + 1


def _expand(data: bytes, first_bits: int) -> bytes:
    """Undo the compression: codes that grow from `first_bits` + 1 bits to 12."""
    clear, end = 1 << first_bits, (1 << first_bits) + 1
    bits = int.from_bytes(data, "little")
    known: list[bytes] = []
    out: list[bytes] = []
    before, width, at = b"", first_bits + 1, 0
    while True:
        assert at + width <= 8 * len(data), "the end is marked"
        code = bits >> at & (1 << width) - 1
        at += width
        if code == end:
            return b"".join(out)
        if code == clear:
            known, before, width = [bytes([k]) for k in range(clear)] + [b"", b""], b"", first_bits + 1
            continue
        assert code <= len(known), "no code before its time"
        now = known[code] if code < len(known) else before + before[:1]
        if before and len(known) < 4096:
            known.append(before + now[:1])
        if len(known) == 1 << width and width < 12:
            width += 1
        out.append(now)
        before = now
