"""Readers of picture files, written from their specifications and nothing of ours."""

import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np


def read_png(path: Path) -> np.ndarray:
    """The pixels of a PNG file whose lines are filtered by nothing, or by what is left of or above them."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, width, height, channels, packed, kinds = 8, 0, 0, 0, b"", []
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length) == (zlib.crc32(kind + content),)
        kinds.append(kind)
        if kind == b"IHDR":
            width, height, depth, color_type, *others = struct.unpack(">IIBBBBB", content)
            assert (depth, others) == (8, [0, 0, 0])
            channels = {0: 1, 2: 3}[color_type]
        if kind == b"IDAT":
            packed += content
        at += 12 + length
    assert (kinds[0], kinds[-1]) == (b"IHDR", b"IEND")
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + channels * width)
    pixels = np.zeros((height, width, channels), np.uint8)
    above = np.zeros((width, channels), np.uint8)
    for y, line in enumerate(lines):
        values = line[1:].reshape(width, channels)
        assert line[0] in (0, 1, 2)
        if line[0] == 1:
            values = np.cumsum(values, axis=0, dtype=np.uint8)
        pixels[y] = above = values + above if line[0] == 2 else values
    return pixels


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
