"""Lines, and letters made of lines, in pictures for people. NumPy is all it takes."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

Color = tuple[int, int, int]
Points = Sequence[tuple[float, float]]

# Each letter is a few strokes, each stroke a row of points, each point x and y as a digit: x from 0 at the left,
# y from 0 up. The baseline is at y = 2, small letters reach to 6, tall ones to 8.
LETTERS = {
    "0": "03 07 18 38 47 43 32 12 03",
    "1": "07 28 22",
    "2": "07 18 38 47 46 02 42",
    "3": "07 18 38 47 46 35 15|35 44 43 32 12 03",
    "4": "32 38 04 44",
    "5": "48 08 05 35 44 43 32 12 03",
    "6": "47 38 18 07 03 12 32 43 44 35 15 04",
    "7": "08 48 12",
    "8": "15 06 07 18 38 47 46 35 15 04 03 12 32 43 44 35",
    "9": "03 12 32 43 47 38 18 07 06 15 35 46",
    ".": "02 02",
    ",": "12 00",
    "-": "05 35",
    ":": "02 02|06 06",
    "a": "46 42|45 36 16 05 03 12 32 43",
    "b": "08 02|05 16 36 45 43 32 12 03",
    "c": "45 36 16 05 03 12 32 43",
    "d": "48 42|45 36 16 05 03 12 32 43",
    "e": "04 44 45 36 16 05 03 12 32 43",
    "f": "38 28 17 12|06 36",
    "g": "46 41 30 10 01|45 36 16 05 03 12 32 43",
    "h": "08 02|05 16 36 45 42",
    "i": "06 02|08 08",
    "j": "26 21 10 00|28 28",
    "k": "08 02|36 04|15 42",
    "l": "08 02",
    "m": "06 02|05 16 26 35 32|35 46 56 65 62",
    "n": "06 02|05 16 36 45 42",
    "o": "16 05 03 12 32 43 45 36 16",
    "p": "06 00|05 16 36 45 43 32 12 03",
    "q": "46 40|45 36 16 05 03 12 32 43",
    "r": "06 02|05 16 36",
    "s": "45 36 16 05 14 34 43 32 12 03",
    "t": "18 13 22 32|06 36",
    "u": "06 03 12 32 43|46 42",
    "v": "06 22 46",
    "w": "06 12 25 32 46",
    "x": "06 42|46 02",
    "y": "06 22|46 10 00",
    "z": "06 46 02 42",
    "P": "02 08 38 47 46 35 05",
    "O": "03 07 18 48 57 53 42 12 03",
    "A": "02 28 42|14 34",
    "B": "02 08 38 47 46 35 05|35 44 43 32 02",
    "C": "47 38 18 07 03 12 32 43",
    "D": "02 08 28 46 44 22 02",
    "E": "48 08 02 42|05 35",
    "F": "48 08 02|05 35",
    "G": "47 38 18 07 03 12 32 43 45 25",
    "H": "08 02|48 42|05 45",
    "I": "08 02",
    "J": "38 33 22 12 03",
    "K": "08 02|48 05 42",
    "L": "08 02 42",
    "M": "02 08 35 68 62",
    "N": "02 08 42 48",
    "Q": "03 07 18 48 57 53 42 12 03|34 51",
    "R": "02 08 38 47 46 35 05|25 42",
    "S": "47 38 18 07 06 15 35 44 43 32 12 03",
    "T": "08 48|28 22",
    "U": "08 03 12 32 43 48",
    "V": "08 22 48",
    "W": "08 12 35 52 68",
    "X": "08 42|48 02",
    "Y": "08 25 48|25 22",
    "Z": "08 48 02 42",
    "_": "01 41",
    "/": "01 38",
    "%": "02 48|08 17 06|42 33 44",
    "+": "05 45|27 23",
    "=": "06 46|04 44",
    "(": "18 06 04 11",
    ")": "08 16 14 01",
    "×": "06 42|46 02",
    "²": "08 19 29 28 06 26",
    "µ": "06 01|03 12 32 43|46 42",
    "·": "05 05",
    " ": "",
}
UNKNOWN = "02 08 48 42 02"
"""Stands for every other."""


def write(
    canvas: np.ndarray,
    text: str,
    x: float,
    y: float,
    align: float = 0.0,
    color: Color = (0, 0, 0),
    size: float = 2.0,
    thickness: float = 1.9,
) -> None:
    """Text around the height y. Of its width, `align` is left of x; `size` is a ninth of a line's height."""
    lines: list[Points] = []
    pen = 0.0
    for letter in text:
        parts = LETTERS.get(letter, UNKNOWN).split("|")
        points = [[(float(p[0]), float(p[1])) for p in part.split()] for part in parts]
        lines += [[(pen + px, 5.0 - py) for px, py in line] for line in points if line]
        pen += max((px for line in points for px, _ in line), default=1.0) + 2.0
    left = x - align * (pen - 2.0) * size
    for line in lines:
        stroke(canvas, [(left + px * size, y + py * size) for px, py in line], color, thickness)


def stroke(canvas: np.ndarray, points: Points, color: Color, thickness: float) -> None:
    """A line through points with round ends. Pixels at its edge take on as much of it as covers them."""
    way = np.array(points, np.float32)
    reach = thickness / 2 + 1
    corner = np.maximum(np.floor(way.min(axis=0) - reach), 0).astype(int)
    end = np.ceil(way.max(axis=0) + reach).astype(int)
    canvas = canvas[corner[1] : end[1], corner[0] : end[0]]
    way -= corner
    cover = np.zeros(canvas.shape[:2], np.float32)
    for a, b in pairwise(way):
        left, top = np.maximum(np.floor(np.minimum(a, b) - reach), 0).astype(int)
        right, bottom = np.ceil(np.maximum(a, b) + reach).astype(int)
        window = cover[top:bottom, left:right]
        y, x = np.mgrid[top : top + window.shape[0], left : left + window.shape[1]]
        along = b - a
        share = ((x - a[0]) * along[0] + (y - a[1]) * along[1]) / max(float(along @ along), 1e-9)
        share = np.clip(share, 0, 1)
        away = np.hypot(x - a[0] - share * along[0], y - a[1] - share * along[1])
        np.maximum(window, np.clip(thickness / 2 + 0.5 - away, 0, 1), out=window)
    canvas += cover[..., None] * (np.array(color, np.float32) - canvas)
