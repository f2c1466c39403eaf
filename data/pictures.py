"""Frames as PNG, JPEG and WebP, encoded and decoded without Python's lock held."""

import io
from collections.abc import Callable

import numpy as np
import simplejpeg
from PIL import Image, PngImagePlugin, WebPImagePlugin  # noqa: F401  # else Pillow imports them in a writer's thread

from worldloom.data.layout import Column, Pictures


def frame_encoder(column: Column, pictures: Pictures) -> Callable[[np.ndarray], bytes]:
    """Return the function that encodes one frame of a column."""
    level = pictures.level
    if column.encoding == "jpeg":  # Pillow would hold the lock meanwhile
        colorspace = "RGB" if len(column.shape) == 3 else "GRAY"
        subsampling = "444" if colorspace == "RGB" else "Gray"
        return lambda frame: bytes(
            simplejpeg.encode_jpeg(
                np.ascontiguousarray(frame.reshape(*column.shape[:2], -1)),
                quality=level,
                colorspace=colorspace,
                colorsubsampling=subsampling,
            )
        )
    arguments = {"compress_level": level} if column.encoding == "png" else {"quality": level, "method": 0}

    def encode(frame: np.ndarray) -> bytes:
        stream = io.BytesIO()
        Image.fromarray(frame).save(stream, column.encoding, **arguments)
        return stream.getvalue()

    return encode


def decode_frame(data: "bytes | memoryview", column: Column) -> np.ndarray:
    """Return a frame that was encoded."""
    if column.encoding == "jpeg":
        colorspace = "RGB" if len(column.shape) == 3 else "GRAY"
        return np.asarray(simplejpeg.decode_jpeg(data, colorspace=colorspace)).reshape(column.shape)
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB" if len(column.shape) == 3 else "L"))
