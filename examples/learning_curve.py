"""A learning curve as a PNG, drawn with NumPy alone: lines, and letters made of lines."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from worldloom.render.png import write_png

WIDTH, HEIGHT = 1000, 560
LEFT, RIGHT, TOP, BOTTOM = 96, 60, 72, 84
"""Pixels around the plot, for the words."""

WHITE, INK, FAINT = (255, 255, 255), (45, 50, 65), (226, 229, 236)
BLUE, ORANGE = (38, 98, 190), (204, 92, 32)

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
    " ": "",
}

Color = tuple[int, int, int]
Points = Sequence[tuple[float, float]]


def draw_learning_curve(path: str | Path, curve: Points, random_return: float) -> None:
    """Draw mean returns, from -1 to 1, over the steps that were taken for them.

    Args:
        path: The picture to write.
        curve: Steps so far and the mean return then, from first to last.
        random_return: The mean return of an agent that acts at random, drawn as a level.
    """
    last_step, last_return = curve[-1]
    canvas = np.full((HEIGHT, WIDTH, 3), WHITE, np.float32)
    spacing = _round_spacing(last_step)
    most = spacing * np.ceil(last_step / spacing)

    def place(x: float, y: float) -> tuple[float, float]:
        """Where a point of the plot is in the picture, in pixels from the top left."""
        return (
            LEFT + (WIDTH - LEFT - RIGHT) * x / most,
            TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - y) / 2.0,
        )

    for level in (-1.0, -0.5, 0.0, 0.5, 1.0):
        x, y = place(0, level)
        _stroke(canvas, [(x, y), place(most, level)], FAINT, 1.5)
        _write(canvas, f"{level:.1f}", x - 14, y, align=1.0)
    for step in np.arange(0, most + 1, spacing):
        x, y = place(step, -1.0)
        _stroke(canvas, [(x, y), (x, y + 8)], INK, 1.5)
        _write(canvas, f"{step:,.0f}", x, y + 24, align=0.5)
    _stroke(canvas, [place(0, 1.0), place(0, -1.0), place(most, -1.0)], INK, 1.5)

    for start in np.arange(0, most, most / 60):
        _stroke(canvas, [place(start, random_return), place(start + most / 110, random_return)], ORANGE, 2.5)
    _stroke(canvas, [place(x, y) for x, y in curve], BLUE, 3.0)

    right, y = place(most, random_return)
    _write(canvas, f"random agent: {random_return:.2f}", right, y + 22, align=1.0, color=ORANGE)
    right, y = place(most, last_return)
    _write(canvas, f"PPO: {last_return:.2f}", right, y + (24 if last_return > 0.5 else -22), align=1.0, color=BLUE)
    _write(canvas, "mean return of the last 200 episodes", LEFT - 66, 32)
    _write(canvas, "steps of all lanes together", place(most / 2, 0)[0], HEIGHT - 24, align=0.5)
    write_png(path, np.rint(canvas).astype(np.uint8))


def _round_spacing(most: float) -> float:
    """Between marks on an axis up to `most`: 1, 2 or 5 with zeros, for four to ten marks."""
    power = 10.0 ** np.floor(np.log10(max(most, 1.0)))
    return float(next(power * part for part in (0.1, 0.2, 0.5, 1.0, 2.0) if most / (power * part) <= 6.0))


def _write(
    canvas: np.ndarray, text: str, x: float, y: float, align: float = 0.0, color: Color = INK, size: float = 2.0
) -> None:
    """Text around the height y. Of its width, `align` is left of x."""
    strokes: list[Points] = []
    pen = 0.0
    for letter in text:
        points = [[(float(p[0]), float(p[1])) for p in part.split()] for part in LETTERS[letter].split("|")]
        strokes += [[(pen + px, 5.0 - py) for px, py in stroke] for stroke in points if stroke]
        pen += max((px for stroke in points for px, _ in stroke), default=1.0) + 2.0
    left = x - align * (pen - 2.0) * size
    for stroke in strokes:
        _stroke(canvas, [(left + px * size, y + py * size) for px, py in stroke], color, 1.9)


def _stroke(canvas: np.ndarray, points: Points, color: Color, thickness: float) -> None:
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
