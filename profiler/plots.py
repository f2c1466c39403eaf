"""Plots of a sweep, drawn by matplotlib: PNG files, and SVG elements for the HTML report.

A panel draws itself into axes it is given, so that one function serves both: the report shows every panel as an SVG of
its own, which the page arranges, and a PNG file holds all panels in a grid. matplotlib comes with the extra `report`;
import this module only where the extra may be required.
"""

import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, LogLocator, NullLocator

from worldloom.profiler.measure import TRANSPORTS, Configuration, Measurement
from worldloom.profiler.results import CostFit
from worldloom.server.engine.timing import STAGES

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
    "line5": "#8a6d00",
}
"""Colours of plots and report on a light background, by what they stand for."""
DARK = {
    "paper": "#14181f",
    "ink": "#e8ebf2",
    "soft": "#9aa4b8",
    "grid": "#2b3240",
    "wait": "#495164",
    "decode": "#a67fca",
    "simulate": "#35c187",
    "plan": "#aecf4a",
    "cull": "#eab308",
    "draw": "#5c96f2",
    "readback": "#3fbbe0",
    "unpack": "#8fcdea",
    "fill": "#f08a4b",
    "send": "#e364a6",
    "line5": "#d6b13a",
}
"""The same on a dark background."""
LINES = ("draw", "simulate", "fill", "send", "decode", "line5")
"""Colours of lines: those of the stages serve again."""
MAX_PANELS = 36
"""Panels of one kind that are drawn at most: a sweep of 2000 configurations could have hundreds."""
_MAX_TIMELINES = 6
_MAX_BARS = 120
_TIMELINE_TICKS = 3
_TYPICAL_PIXELS = 64 * 64
_WIDTH, _HEIGHT, _TIMELINE_HEIGHT = 360, 250, 116
_BARS_WIDTH, _BAR_HEIGHT = 900, 20
_POINTS_PER_INCH = 72
_PNG_DPI = 144
_NAMES = {code: name for name, code in LIGHT.items()}
_STYLE: Any = {
    "axes.edgecolor": LIGHT["grid"],
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": LIGHT["soft"],
    "axes.labelsize": 11,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "figure.facecolor": LIGHT["paper"],
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 11,
    "grid.color": LIGHT["grid"],
    "legend.fontsize": 11,
    "legend.frameon": False,
    "legend.handlelength": 1.2,
    "legend.columnspacing": 1.4,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "svg.fonttype": "none",  # text stays text: small, and in the font of the page
    "text.color": LIGHT["ink"],
    "xtick.color": LIGHT["soft"],
    "xtick.major.size": 0,
    "ytick.color": LIGHT["soft"],
    "ytick.major.size": 0,
}
Key = TypeVar("Key")


@dataclass(frozen=True)
class Panel:
    """One plot, `width` by `height` points, that `draw` puts into axes."""

    title: str
    width: int
    height: int
    draw: Callable[[Axes], None]


def throughput_panels(measured: Sequence[Measurement]) -> list[Panel]:
    """Return panels of frames a second over lanes: a line for each transport, a panel for all else that differs."""
    panels = []
    groups = _group(measured, lambda one: (one.configuration.series_key, one.configuration.size))
    for members in list(groups.values())[:MAX_PANELS]:
        of = members[0].configuration
        title = f"{of.family}, {of.size} {of.output_names}, {of.renderer}"
        panels.append(Panel(title, _WIDTH, _HEIGHT, _throughput_plot(members)))
    return panels


def growth_panels(measured: Sequence[Measurement], fits: Sequence[CostFit]) -> list[Panel]:
    """Return panels of milliseconds of a step over lanes: a colour for each size, dots measured, lines fitted."""
    fit_of: dict[tuple[str, ...], CostFit] = {fit.group: fit for fit in fits}
    groups = _group(measured, lambda one: one.configuration.group())
    return [
        Panel(_join(group), _WIDTH, _HEIGHT, _growth_plot(members, fit_of.get(group)))
        for group, members in list(groups.items())[:MAX_PANELS]
    ]


def timeline_panels(measured: Sequence[Measurement]) -> list[Panel]:
    """Return panels of the last ticks, one for each group: the client's steps above the engine's stages.

    Of the configurations with most lanes each shows the one whose frames are closest to a typical size.
    """
    panels: list[Panel] = []
    for members in _group(measured, lambda one: one.configuration.group()).values():
        one = max(members, key=lambda each: _typicality(each.configuration))
        if len(one.ticks) > 1 and one.spans and len(panels) < _MAX_TIMELINES:
            panels.append(Panel(one.configuration.name, _WIDTH, _TIMELINE_HEIGHT, _timeline_plot(one)))
    return panels


def stage_panel(measured: Sequence[Measurement]) -> Panel:
    """Return a panel with a bar for each configuration: the shares of the stages, and microseconds of a frame."""
    shown = measured[:_MAX_BARS]
    left_out = len(measured) - len(shown)

    def draw(axes: Axes) -> None:
        start = [0.0] * len(shown)
        for stage in STAGES:
            widths = [one.shares[stage] for one in shown]
            axes.barh(range(len(shown)), widths, height=0.72, left=start, color=LIGHT[stage])
            start = [begin + width for begin, width in zip(start, widths, strict=True)]
        axes.set_yticks(range(len(shown)), [one.configuration.name for one in shown], color=LIGHT["ink"])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.0f} %"))
        axes.grid(visible=False)
        for row, one in enumerate(shown):
            axes.annotate(
                f"{one.frame_us:,.0f} µs",
                (1, row),
                (6, 0),
                textcoords="offset points",
                va="center",
                color=LIGHT["soft"],
            )
        if left_out:
            axes.set_xlabel(f"and {left_out} more in report.html", loc="left")

    return Panel("Share of each stage, and microseconds of a frame", _BARS_WIDTH, 40 + len(shown) * _BAR_HEIGHT, draw)


def svg(panel: Panel) -> str:
    """Return a panel as an element for a page that defines the colours as CSS variables."""
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": panel.title}):
        figure = Figure((panel.width / _POINTS_PER_INCH, panel.height / _POINTS_PER_INCH))
        panel.draw(figure.subplots())
        file = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    head, _, body = text.partition(">")
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    body = re.sub(r"(?<=: )#[0-9a-f]{6}", lambda code: f"var(--{_NAMES[code[0]]})", body)
    return f'<svg {box[0]} role="img">{body}'


def save_png(path: Path, panels: Sequence[Panel], columns: int, stages: Sequence[str] = ()) -> None:
    """Write panels of one size as a PNG, in a grid, with a legend of stages above."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    width, height = panels[0].width, panels[0].height
    with matplotlib.rc_context(
        {**_STYLE, "figure.constrained_layout.w_pad": 0.12, "figure.constrained_layout.h_pad": 0.12}
    ):
        figure = Figure(
            ((columns * (width + 24)) / _POINTS_PER_INCH, (rows * (height + 40) + 40) / _POINTS_PER_INCH), dpi=_PNG_DPI
        )
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, panel in zip(grid, panels, strict=False):
            axes.set_title(panel.title)
            panel.draw(axes)
        for axes in grid[len(panels) :]:
            axes.remove()
        if stages:
            handles = [Patch(color=LIGHT[stage], label=stage) for stage in stages]
            figure.legend(handles=handles, loc="outside upper left", ncols=len(stages) if width > _WIDTH else 5)
        figure.savefig(path)


def _throughput_plot(members: Sequence[Measurement]) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for transport, of in _group(members, lambda one: one.configuration.transport).items():
            points = sorted((one.configuration.lanes, one.frames_per_s) for one in of)
            color = LIGHT[LINES[TRANSPORTS.index(transport)]]  # the same in every panel
            axes.plot(*zip(*points, strict=True), color=color, marker="o", label=transport)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
        _finish_axes(axes, members, "frames a second")

    return draw


def _growth_plot(members: Sequence[Measurement], fit: CostFit | None) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        axes.set_yscale("log")
        for index, (size, of) in enumerate(_group(members, lambda one: one.configuration.size).items()):
            color = LIGHT[LINES[index % len(LINES)]]
            lanes = sorted(one.configuration.lanes for one in of)
            axes.plot(
                [one.configuration.lanes for one in of], [1e3 * one.step_s for one in of], "o", color=color, label=size
            )
            if fit is not None:
                smooth = [lanes[0] * (lanes[-1] / lanes[0]) ** (step / 24) for step in range(25)]
                fitted = [1e3 * fit.step_s(x, of[0].configuration.pixels) for x in smooth]
                axes.plot(smooth, fitted, color=color)
        low, high = axes.get_ylim()
        axes.set_ylim(low / 1.3, high * 1.3)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 100 else (1,)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        _finish_axes(axes, members, "ms a step")

    return draw


def _timeline_plot(one: Measurement) -> Callable[[Axes], None]:
    ticks = one.ticks[-_TIMELINE_TICKS - 1 :]
    start_s, end_s = ticks[0].end_s, ticks[-1].end_s

    def clip(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
        """Return the start and length in milliseconds of the parts within the ticks that are shown."""
        parts = [(max(begin, start_s), min(end, end_s)) for begin, end in spans]
        return [(1e3 * (begin - start_s), 1e3 * (end - begin)) for begin, end in parts if end > begin]

    def draw(axes: Axes) -> None:
        axes.broken_barh(clip(one.client_steps), (0.6, 0.8), color=LIGHT["soft"], ec=LIGHT["paper"], linewidth=0.5)
        for stage in STAGES:
            spans = clip((span.start_s, span.end_s) for span in one.spans if span.stage == stage)
            axes.broken_barh(spans, (-0.4, 0.8), facecolor=LIGHT[stage], linewidth=0)
        axes.set_yticks([1, 0], ["client", "engine"], color=LIGHT["ink"])
        axes.set_ylim(-0.6, 1.6)
        axes.set_xlim(0, 1e3 * (end_s - start_s))
        axes.set_xlabel("ms")
        axes.grid(visible=False)

    return draw


def _finish_axes(axes: Axes, members: Sequence[Measurement], label: str) -> None:
    """Add what plots over lanes have in common: a logarithmic axis that marks the lanes measured, and a legend."""
    lanes = sorted({one.configuration.lanes for one in members})
    axes.set_xscale("log")
    margin = (lanes[-1] / lanes[0]) ** 0.06 if len(lanes) > 1 else 2.0
    axes.set_xlim(lanes[0] / margin, lanes[-1] * margin)
    marked: list[int] = []
    for count in lanes:  # those too close to their neighbour are not marked
        if not marked or math.log(count / marked[-1]) > 0.13 * math.log(lanes[-1] / lanes[0]):
            marked.append(count)
    axes.xaxis.set_major_locator(FixedLocator(marked))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.set_xlabel("lanes")
    axes.set_ylabel(label)
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.17), ncols=4, borderaxespad=0)


def _typicality(configuration: Configuration) -> tuple[int, float]:
    return configuration.lanes, -abs(math.log(configuration.pixels / _TYPICAL_PIXELS))


def _join(words: Iterable[str]) -> str:
    return ", ".join(words)


def _group(measured: Iterable[Measurement], key: Callable[[Measurement], Key]) -> dict[Key, list[Measurement]]:
    groups: dict[Key, list[Measurement]] = {}
    for one in measured:
        groups.setdefault(key(one), []).append(one)
    return groups
