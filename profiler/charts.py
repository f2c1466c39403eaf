"""What was measured, as pictures: frames a second, cost and its fit, shares of stages, and the last ticks."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from worldloom.profiler.findings import Fit
from worldloom.profiler.measure import TRANSPORTS, Measured
from worldloom.profiler.pens import LINES, Panel, Pen
from worldloom.server.engine.timing import STAGES

WIDTH, HEIGHT = 360, 236
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 26, 42
"""Units around a plot, for the words."""
_BARS_WIDTH, _BAR_LABEL, _BAR_HEIGHT = 900, 330, 20
_MOST_BARS = 120
_MOST_TIMELINES = 6
_TICKS_SHOWN = 3
_USUAL_PIXELS = 64 * 64


class Series(NamedTuple):
    """One colour of a plot."""

    name: str
    color: str
    dots: list[tuple[float, float]]
    line: list[tuple[float, float]]


def throughput_panels(measured: Sequence[Measured]) -> list[Panel]:
    """Frames a second over lanes, a line for each transport; a panel for each size, outputs and renderer."""
    panels = []
    for (family, renderer, shown, size), members in _grouped(
        measured, lambda one: (one.case.family, one.case.renderer, one.case.shown, one.case.size)
    ).items():
        series: list[Series] = []
        for (transport,), its in _grouped(members, lambda one: (one.case.transport,)).items():
            points = sorted((float(one.case.lanes), one.frames_per_s) for one in its)
            color = f"line{TRANSPORTS.index(transport)}"  # the same in every panel
            series.append(Series(transport, color, points, points))
        panels.append(_plot(f"{family}, {size} {shown}, {renderer}", series, "frames a second", from_zero=True))
    return panels


def growth_panels(measured: Sequence[Measured], fits: Sequence[Fit]) -> list[Panel]:
    """Milliseconds of a step over lanes, a colour for each size: dots were measured, lines are the fit."""
    by_group: dict[tuple[str, ...], Fit] = {fit.group: fit for fit in fits}
    panels = []
    for group, members in _grouped(measured, lambda one: one.case.group()).items():
        fit = by_group.get(group)
        series: list[Series] = []
        for (size,), its in _grouped(members, lambda one: (one.case.size,)).items():
            dots = sorted((float(one.case.lanes), 1e3 * one.step_s) for one in its)
            line = [] if fit is None else _fitted(fit, [x for x, _ in dots], its[0].case.pixels)
            series.append(Series(size, f"line{len(series) % LINES}", dots, line))
        family, shown, renderer, transport = group
        panels.append(_plot(f"{family}, {shown}, {renderer}, {transport}", series, "ms a step", from_zero=False))
    return panels


def stage_panel(measured: Sequence[Measured]) -> Panel:
    """A bar for each case: the shares of the stages."""
    shown = measured[:_MOST_BARS]
    left_out = len(measured) - len(shown)

    def draw(pen: Pen) -> None:
        for row, one in enumerate(shown):
            y = 2.0 + row * _BAR_HEIGHT
            pen.text(0, y + 7, one.case.name, size=10)
            _bar(pen, one, _BAR_LABEL, y, _BARS_WIDTH - _BAR_LABEL - 60, 14)
            pen.text(_BARS_WIDTH - 4, y + 7, f"{one.frame_us:,.0f} µs", align=1.0, size=10, color="soft")
        if left_out:
            pen.text(0, 9 + len(shown) * _BAR_HEIGHT, f"and {left_out} more in report.html", size=10, color="soft")

    height = 4 + (len(shown) + (left_out > 0)) * _BAR_HEIGHT
    return Panel("Share of each stage, and microseconds of a frame", _BARS_WIDTH, height, draw)


def timeline_panels(measured: Sequence[Measured]) -> list[Panel]:
    """The last ticks of one case of each kind: what the client waits for, and what the engine does.

    Of those with most lanes it is the one with pictures of a usual size.
    """
    panels: list[Panel] = []
    for members in _grouped(measured, lambda one: one.case.group()).values():
        one = max(members, key=lambda each: (each.case.lanes, -abs(math.log(each.case.pixels / _USUAL_PIXELS))))
        if len(one.ticks) > 1 and one.spans and len(panels) < _MOST_TIMELINES:
            panels.append(Panel(one.case.name, WIDTH, 104, _timeline(one)))
    return panels


def _timeline(one: Measured) -> Callable[[Pen], None]:
    ticks = one.ticks[-_TICKS_SHOWN - 1 :]
    start_s, end_s = ticks[0].end_s, ticks[-1].end_s
    left, width = 46, WIDTH - 46 - 10

    def draw(pen: Pen) -> None:
        def boxes(y: float, color: str, spans: Sequence[tuple[float, float]]) -> None:
            for begin, end in spans:
                x0, x1 = (
                    left + width * (min(max(at, start_s), end_s) - start_s) / (end_s - start_s) for at in (begin, end)
                )
                if x1 > x0:
                    pen.box(x0 + 0.25, y, max(x1 - x0 - 0.5, 0.3), 24, color)

        pen.text(0, 22, "client", size=11)
        boxes(10, "soft", one.client_steps)
        pen.text(0, 54, "engine", size=11)
        for stage in STAGES:
            boxes(42, stage, [(span.start_s, span.end_s) for span in one.spans if span.stage == stage])
        pen.line([(left, 74), (left + width, 74)], "grid", 1)
        for part in (0.0, 0.5, 1.0):
            pen.text(left + part * width, 88, f"{1e3 * part * (end_s - start_s):.1f} ms", part, "soft", 11)

    return draw


def _bar(pen: Pen, one: Measured, x: float, y: float, width: float, height: float) -> None:
    for stage, share in one.shares.items():
        pen.box(x, y, width * share, height, stage)
        x += width * share


def _fitted(fit: Fit, lanes: list[float], pixels: int) -> list[tuple[float, float]]:
    """The fit's line, at enough places to look smooth where axes are logarithmic."""
    low, high = min(lanes), max(lanes)
    places = [low * (high / low) ** (step / 24) for step in range(25)] if high > low else [low]
    return [(x, 1e3 * (fit.fixed_s + ((fit.lane_s or 0) + (fit.pixel_s or 0) * pixels) * x)) for x in places]


def _plot(title: str, series: Sequence[Series], unit: str, from_zero: bool) -> Panel:
    xs = sorted({x for one in series for x, _ in one.dots})
    ys = [y for one in series for _, y in (*one.dots, *one.line)]
    marks = _round_marks(max(ys)) if from_zero else _decade_marks(min(ys), max(ys))

    def place_x(x: float) -> float:
        part = 0.5 if xs[0] == xs[-1] else math.log(x / xs[0]) / math.log(xs[-1] / xs[0])
        return _LEFT + 12 + (WIDTH - _LEFT - _RIGHT - 24) * part

    def place_y(y: float) -> float:
        low, high = marks[0], marks[-1]
        part = (y - low) / (high - low) if from_zero else math.log(y / low) / math.log(high / low)
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * part

    def draw(pen: Pen) -> None:
        pen.text(0, 8, unit, color="soft", size=11)
        for mark in marks:
            pen.line([(_LEFT, place_y(mark)), (WIDTH - _RIGHT, place_y(mark))], "grid", 1)
            pen.text(_LEFT - 6, place_y(mark), _short(mark), align=1.0, color="soft", size=11)
        last_x = -math.inf
        for x in xs:
            if place_x(x) - last_x >= 30:
                last_x = place_x(x)
                pen.text(last_x, HEIGHT - _BOTTOM + 12, f"{x:g}", align=0.5, color="soft", size=11)
        pen.text(WIDTH - _RIGHT, 8, "over lanes", align=1.0, color="soft", size=11)
        legend_x = float(_LEFT)
        for one in series:
            if len(one.line) > 1:
                pen.line([(place_x(x), place_y(y)) for x, y in one.line], one.color, 1.8)
            for x, y in one.dots:
                pen.dot(place_x(x), place_y(y), 3, one.color)
            pen.dot(legend_x + 4, HEIGHT - 10, 4, one.color)
            pen.text(legend_x + 13, HEIGHT - 10, one.name, size=11)
            legend_x += 30 + 7.2 * len(one.name)

    return Panel(title, WIDTH, HEIGHT, draw)


def _round_marks(most: float) -> list[float]:
    """From 0 to at least `most`, three to six of them, at round numbers."""
    power = 10.0 ** math.floor(math.log10(most))
    spacing = next(power * part for part in (0.2, 0.5, 1.0, 2.0) if most / (power * part) <= 5)
    return [spacing * number for number in range(math.ceil(most / spacing - 1e-9) + 1)]


def _decade_marks(least: float, most: float) -> list[float]:
    """Numbers that begin with 1, 2 or 5, or only those with 1, from at most `least` to at least `most`."""
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
    marks = [part * 10.0**power for power in range(first, last + 1) for part in (1, 2, 5)]
    low = max(mark for mark in marks if mark <= least * (1 + 1e-9))
    high = next((mark for mark in marks if mark >= most and mark > low), marks[-1])
    kept = [mark for mark in marks if low <= mark <= high]
    return kept if len(kept) <= 7 else [10.0**power for power in range(first, last + 1)]


def _short(number: float) -> str:
    return f"{number / 1000:g}k" if number >= 1000 else f"{number:g}"


def _grouped(
    measured: Sequence[Measured], key: Callable[[Measured], tuple[str, ...]]
) -> dict[tuple[str, ...], list[Measured]]:
    groups: dict[tuple[str, ...], list[Measured]] = {}
    for one in measured:
        groups.setdefault(key(one), []).append(one)
    return groups
