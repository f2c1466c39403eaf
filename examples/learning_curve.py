"""A learning curve as a PNG, drawn with NumPy alone: lines, and letters made of lines."""

from pathlib import Path

import numpy as np

from worldloom.render.png import write_png
from worldloom.render.strokes import Points, stroke, write

WIDTH, HEIGHT = 1000, 560
LEFT, RIGHT, TOP, BOTTOM = 96, 60, 72, 84
"""Pixels around the plot, for the words."""

WHITE, INK, FAINT = (255, 255, 255), (45, 50, 65), (226, 229, 236)
BLUE, ORANGE = (38, 98, 190), (204, 92, 32)


def draw_learning_curve(
    path: str | Path, curve: Points, random_return: float, between: tuple[float, float], episodes: int
) -> None:
    """Draw mean returns over the steps that were taken for them.

    Args:
        path: The picture to write.
        curve: Steps so far and the mean return then, from first to last.
        random_return: The mean return of an agent that acts at random, drawn as a level.
        between: The least and the greatest return that there can be.
        episodes: In each mean.
    """
    least, greatest = between
    digits = 2 if greatest <= 10 else 0
    last_step, last_return = curve[-1]
    canvas = np.full((HEIGHT, WIDTH, 3), WHITE, np.float32)
    spacing = _round_spacing(last_step)
    most = spacing * np.ceil(last_step / spacing)

    def place(x: float, y: float) -> tuple[float, float]:
        """Where a point of the plot is in the picture, in pixels from the top left."""
        return (
            LEFT + (WIDTH - LEFT - RIGHT) * x / most,
            TOP + (HEIGHT - TOP - BOTTOM) * (greatest - y) / (greatest - least),
        )

    for level in np.linspace(least, greatest, 5):
        x, y = place(0, level)
        stroke(canvas, [(x, y), place(most, level)], FAINT, 1.5)
        write(canvas, f"{level:.{max(digits - 1, 0)}f}", x - 14, y, align=1.0, color=INK)
    for step in np.arange(0, most + 1, spacing):
        x, y = place(step, least)
        stroke(canvas, [(x, y), (x, y + 8)], INK, 1.5)
        write(canvas, f"{step:,.0f}", x, y + 24, align=0.5, color=INK)
    stroke(canvas, [place(0, greatest), place(0, least), place(most, least)], INK, 1.5)

    for start in np.arange(0, most, most / 60):
        stroke(canvas, [place(start, random_return), place(start + most / 110, random_return)], ORANGE, 2.5)
    stroke(canvas, [place(x, y) for x, y in curve], BLUE, 3.0)

    right, y = place(most, random_return)
    below = 22 if random_return > least + 0.1 * (greatest - least) else -22
    write(canvas, f"random agent: {random_return:.{digits}f}", right, y + below, align=1.0, color=ORANGE)
    right, y = place(most, last_return)
    below = 24 if last_return > least + 0.75 * (greatest - least) else -22
    write(canvas, f"PPO: {last_return:.{digits}f}", right, y + below, align=1.0, color=BLUE)
    write(canvas, f"mean return of the last {episodes} episodes", LEFT - 66, 32, color=INK)
    write(canvas, "steps of all lanes together", place(most / 2, least)[0], HEIGHT - 24, align=0.5, color=INK)
    write_png(path, np.rint(canvas).astype(np.uint8))


def _round_spacing(most: float) -> float:
    """Between marks on an axis up to `most`: 1, 2 or 5 with zeros, for four to ten marks."""
    power = 10.0 ** np.floor(np.log10(max(most, 1.0)))
    return float(next(power * part for part in (0.1, 0.2, 0.5, 1.0, 2.0) if most / (power * part) <= 6.0))
