"""Many small pictures as one."""

import math

import numpy as np


def tile(pictures: np.ndarray) -> np.ndarray:
    """Pictures [n, height, width, 3] in rows, as near to a square as it goes; what is left over is black."""
    count, height, width, channels = pictures.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    sheet = np.zeros((rows * columns, height, width, channels), pictures.dtype)
    sheet[:count] = pictures
    by_rows = sheet.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    return by_rows.reshape(rows * height, columns * width, channels)
