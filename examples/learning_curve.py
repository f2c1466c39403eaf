"""Plot of a learning curve as a PNG, drawn by matplotlib: `pip install "worldloom[report]"`."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

WIDTH, HEIGHT, DPI = 1000, 560, 100
"""Pixels of the image, and how many of them are an inch."""
LEFT, RIGHT, TOP, BOTTOM = 96, 60, 72, 84
"""Pixels around the axes, for texts."""
INK, FAINT, BLUE, ORANGE = "#2d3241", "#e2e5ec", "#2662be", "#cc5c20"


def draw_learning_curve(
    path: str | Path,
    curve: Sequence[tuple[float, float]],
    random_return: float,
    between: tuple[float, float],
    episodes: int,
) -> None:
    """Draw mean returns over the steps that were taken for them.

    Args:
        path: The image to write.
        curve: Steps so far and the mean return then, from first to last.
        random_return: The mean return of a random agent, drawn as a dashed level.
        between: The least and the greatest return possible.
        episodes: Number of episodes in each mean.
    """
    least, greatest = between
    digits = 2 if greatest <= 10 else 0
    steps, returns = zip(*curve, strict=True)
    figure = Figure((WIDTH / DPI, HEIGHT / DPI), dpi=DPI)
    axes = figure.add_axes(
        (LEFT / WIDTH, BOTTOM / HEIGHT, (WIDTH - LEFT - RIGHT) / WIDTH, (HEIGHT - TOP - BOTTOM) / HEIGHT)
    )
    axes.axhline(
        random_return, color=ORANGE, linestyle="--", linewidth=2, label=f"random agent: {random_return:.{digits}f}"
    )
    axes.plot(steps, returns, color=BLUE, linewidth=2.5, label=f"PPO: {returns[-1]:.{digits}f}")
    axes.set_xlim(0, steps[-1])
    axes.set_ylim(least, greatest)
    axes.set_yticks([least + (greatest - least) * k / 4 for k in range(5)])
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(axis="y", color=FAINT)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)
    axes.set_xlabel("steps of all lanes together", color=INK)
    axes.set_title(f"mean return of the last {episodes} episodes", loc="left", color=INK, fontsize=12)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
    figure.savefig(path)
