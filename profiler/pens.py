"""Two pens with which the same picture is drawn: one writes SVG for the report, the other paints a PNG."""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np

from worldloom.render.png import write_png
from worldloom.render.strokes import Points, stroke, write

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1d2330",
    "soft": "#5b6475",
    "grid": "#e3e6ee",
    "wait": "#c3c9d6",
    "decode": "#8457a8",
    "simulate": "#1f9d68",
    "plan": "#9cbf2e",
    "cull": "#eab308",
    "draw": "#2b6cd4",
    "readback": "#27a3c9",
    "unpack": "#8fcdea",
    "fill": "#e2702f",
    "send": "#c63a86",
    "line0": "#2b6cd4",
    "line1": "#1f9d68",
    "line2": "#e2702f",
    "line3": "#c63a86",
    "line4": "#8457a8",
    "line5": "#8a6d00",
}
"""Colours by what they stand for."""
DARK = {
    **LIGHT,
    "paper": "#14181f",
    "ink": "#e8ebf2",
    "soft": "#9aa4b8",
    "grid": "#2b3240",
    "wait": "#495164",
    "decode": "#a67fca",
    "simulate": "#35c187",
    "plan": "#aecf4a",
    "draw": "#5c96f2",
    "readback": "#3fbbe0",
    "fill": "#f08a4b",
    "send": "#e364a6",
    "line0": "#5c96f2",
    "line1": "#35c187",
    "line2": "#f08a4b",
    "line3": "#e364a6",
    "line4": "#a67fca",
    "line5": "#d6b13a",
}
LINES = 6
_PNG_SCALE = 2
_MARGIN = 16
_TITLE = 26


class Pen(Protocol):
    """Draws in units of a point, from the top left. Colours are the names above."""

    def line(self, points: Points, color: str, width: float = 1.5, dashed: bool = False) -> None:
        """Through all of the points."""

    def box(self, x: float, y: float, width: float, height: float, color: str) -> None:
        """Filled."""

    def dot(self, x: float, y: float, radius: float, color: str) -> None:
        """Filled."""

    def text(self, x: float, y: float, text: str, align: float = 0.0, color: str = "ink", size: float = 12) -> None:
        """Around the height y; of its width, `align` (0, 0.5 or 1) is left of x."""


@dataclass(frozen=True)
class Panel:
    """A picture that can be drawn with either pen."""

    title: str
    width: int
    height: int
    draw: Callable[[Pen], None]


class SvgPen:
    """Writes elements of an SVG."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def line(self, points: Points, color: str, width: float = 1.5, dashed: bool = False) -> None:
        """As a polyline."""
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = ";stroke-dasharray:4 3" if dashed else ""
        self.parts.append(
            f'<polyline points="{way}" style="fill:none;stroke:var(--{color});stroke-width:{width}{dashes}"/>'
        )

    def box(self, x: float, y: float, width: float, height: float, color: str) -> None:
        """As a rect."""
        where = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
        self.parts.append(f'<rect {where} style="fill:var(--{color})"/>')

    def dot(self, x: float, y: float, radius: float, color: str) -> None:
        """As a circle."""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" style="fill:var(--{color})"/>')

    def text(self, x: float, y: float, text: str, align: float = 0.0, color: str = "ink", size: float = 12) -> None:
        """As text."""
        anchor = {0.0: "start", 0.5: "middle", 1.0: "end"}[align]
        style = f"fill:var(--{color});font-size:{size}px;text-anchor:{anchor}"
        self.parts.append(f'<text x="{x:.1f}" y="{y + 0.35 * size:.1f}" style="{style}">{html.escape(text)}</text>')


class PngPen:
    """Paints on a canvas, `left` and `top` units from its corner."""

    def __init__(self, canvas: np.ndarray, left: float, top: float) -> None:
        self._canvas = canvas
        self._origin = (left, top)

    def line(self, points: Points, color: str, width: float = 1.5, dashed: bool = False) -> None:
        """With round ends."""
        placed = [self._place(*point) for point in points]
        for way in _dashes(placed) if dashed else [placed]:
            stroke(self._canvas, way, _rgb(color), width * _PNG_SCALE)

    def box(self, x: float, y: float, width: float, height: float, color: str) -> None:
        """To the nearest pixel."""
        left, top = (round(value) for value in self._place(x, y))
        right, bottom = (round(value) for value in self._place(x + width, y + height))
        self._canvas[top:bottom, left:right] = _rgb(color)

    def dot(self, x: float, y: float, radius: float, color: str) -> None:
        """A line that goes nowhere, with round ends."""
        place = self._place(x, y)
        stroke(self._canvas, [place, place], _rgb(color), 2 * radius * _PNG_SCALE)

    def text(self, x: float, y: float, text: str, align: float = 0.0, color: str = "ink", size: float = 12) -> None:
        """With letters made of lines."""
        unit = size * _PNG_SCALE / 8.4
        write(self._canvas, text, *self._place(x, y), align, _rgb(color), unit, thickness=0.7 * unit)

    def _place(self, x: float, y: float) -> tuple[float, float]:
        left, top = self._origin
        return (left + x) * _PNG_SCALE, (top + y) * _PNG_SCALE


def svg(panel: Panel) -> str:
    """A panel as an element of a page that has the colours as variables."""
    pen = SvgPen()
    panel.draw(pen)
    head = f'<svg viewBox="0 0 {panel.width} {panel.height}" role="img" aria-label="{html.escape(panel.title)}">'
    return f"{head}{''.join(pen.parts)}</svg>"


def save_png(path: Path, panels: Sequence[Panel], columns: int, legend: Sequence[str] = ()) -> None:
    """Panels of one width side by side in rows, each under its title, and above them what colours stand for."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    wide = panels[0].width + _MARGIN
    high = max(panel.height for panel in panels) + _TITLE + _MARGIN
    first = _MARGIN + (_TITLE if legend else 0)
    shape = ((first + rows * high) * _PNG_SCALE, (columns * wide + _MARGIN) * _PNG_SCALE, 3)
    canvas = np.full(shape, _rgb("paper"), np.float32)
    x = 0.0
    for name in legend:
        pen = PngPen(canvas, _MARGIN, _MARGIN)
        pen.box(x, 0, 12, 12, name)
        pen.text(x + 17, 6, name, size=11)
        x += 34 + 7.4 * len(name)
    for number, panel in enumerate(panels):
        left, top = _MARGIN + number % columns * wide, first + number // columns * high
        PngPen(canvas, left, top).text(0, 0.4 * _TITLE, panel.title, size=13)
        panel.draw(PngPen(canvas, left, top + _TITLE))
    write_png(path, np.rint(canvas).astype(np.uint8))


def _rgb(color: str) -> tuple[int, int, int]:
    code = LIGHT[color]
    return int(code[1:3], 16), int(code[3:5], 16), int(code[5:7], 16)


def _dashes(points: Points) -> list[Points]:
    """A line in pieces."""
    pieces: list[Points] = []
    for (x0, y0), (x1, y1) in pairwise(points):
        count = max(1, round(float(np.hypot(x1 - x0, y1 - y0)) / (7 * _PNG_SCALE)))
        for piece in range(count):
            start, end = piece / count, (piece + 0.55) / count
            pieces.append(
                [
                    (x0 + (x1 - x0) * start, y0 + (y1 - y0) * start),
                    (x0 + (x1 - x0) * end, y0 + (y1 - y0) * end),
                ]
            )
    return pieces
