"""Pictures as the messages that the page reads: a header in JSON, then the frames as they were drawn, or as a JPEG.

How many pixels viewers may ask for at a time, and the bytes of their pictures, are limited for all of them together.
"""

import asyncio
import contextlib
import io
import itertools
import json
import math
import struct
from collections.abc import AsyncIterator, Iterable
from typing import Any, Literal

import numpy as np
from PIL import Image

from worldloom.server.engine.picture_requests import PictureRequest

PictureFormat = Literal["raw", "jpeg"]
PICTURE_COPIES = 3
"""Copies of a picture: its frames, its message, and the buffer of the socket; with a JPEG, the strip before it too."""
KEPT_BYTES = 4 << 20
"""Memory of one viewer's picture that is kept for the next."""
_JPEG_QUALITY = 90
_MAX_STRIP_PIXELS = 65_500
"""Largest height of a JPEG."""
_IN_A_JPEG = ("rgb", "gray")
"""Outputs that a JPEG can show."""


class Allowance:
    """An amount that all viewers have together, such as bytes; they get it in the order in which they come."""

    def __init__(self, amount: int) -> None:
        self._amount = self._left = amount
        self._turn = asyncio.Lock()
        self._is_more = asyncio.Event()

    async def take(self, amount: int) -> int:
        """Wait until there is so much, or all if it is more than that; return the amount to give back."""
        taken = min(amount, self._amount)
        async with self._turn:
            while self._left < taken:
                self._is_more.clear()
                await self._is_more.wait()
            self._left -= taken
        return taken

    def give_back(self, taken: int) -> None:
        """Give back what was taken."""
        self._left += taken
        self._is_more.set()


class PictureMemory:
    """Memory of pictures under way to all viewers. Large ones have as much again, so that they hold up no others."""

    def __init__(self, memory_bytes: int) -> None:
        self._small, self._large = Allowance(memory_bytes), Allowance(memory_bytes)

    @contextlib.asynccontextmanager
    async def room(self, frame_bytes: int) -> AsyncIterator[None]:
        """Wait until there is memory for frames of so many bytes, and have it for the time of the block."""
        allowance = self._large if frame_bytes > KEPT_BYTES else self._small
        taken = await allowance.take(PICTURE_COPIES * frame_bytes)
        try:
            yield
        finally:
            allowance.give_back(taken)


def to_json(message: object) -> str:
    """Return a message as JSON, in which numbers that are not finite, which JSON does not have, are null."""
    try:
        return json.dumps(message, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_without_nan(message), separators=(",", ":"))


def encode_picture(picture: PictureRequest, number: int, watch: int, wanted: PictureFormat) -> bytes:
    """Return the message with a picture.

    `number` counts the pictures of a viewer; `watch` is the viewer's number of the views that it shows.
    """
    drawn = [index for index, frame in enumerate(picture.frames) if frame.start >= 0]
    is_jpeg = wanted == "jpeg" and bool(drawn) and _fits_jpeg(picture, drawn)
    if is_jpeg:
        frames: list[Any] = [_encode_strip(picture, drawn)]
        starts = list(range(len(drawn)))
    else:
        frames = [picture.frame_bytes(index) for index in drawn]
        starts = list(itertools.accumulate((one.nbytes for one in frames), initial=0))
    offsets = dict(zip(drawn, starts, strict=False))
    followed = picture.steps
    header = to_json(
        {
            "picture": number,
            "watch": watch,
            "size": picture.size,
            "format": "jpeg" if is_jpeg else "raw",
            "frames": [
                [index, frame.state, frame.episode, frame.step, offsets.get(index, -1)]
                for index, frame in enumerate(picture.frames)
            ],
            "followed": None if followed is None else followed._asdict(),
            "is_late": picture.is_late,
        }
    ).encode()
    return b"".join((struct.pack("<I", len(header)), header, *frames))


def _fits_jpeg(picture: PictureRequest, drawn: list[int]) -> bool:
    return len(drawn) * picture.size <= _MAX_STRIP_PIXELS and all(
        picture.frames[index].view.output in _IN_A_JPEG for index in drawn
    )


def _encode_strip(picture: PictureRequest, drawn: Iterable[int]) -> bytes:
    """Return a JPEG of these frames, one below the other."""
    frames = [picture.frame(index) for index in drawn]
    shape = (picture.size, picture.size, 3)
    strip = np.concatenate([np.broadcast_to(frame.reshape(*shape[:2], -1), shape) for frame in frames])
    file = io.BytesIO()
    # Without subsampling: colours of small frames would bleed over several of their pixels.
    Image.fromarray(strip).save(file, "JPEG", quality=_JPEG_QUALITY, subsampling=0)
    return file.getvalue()


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return value
