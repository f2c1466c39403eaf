"""What a profile writes: a trace by the format's rules, JSON that adds up, a page that needs nothing, real pictures."""

import json
import re
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.support.image_files import read_png
from tests.support.profile_data import SWEEPS, make_measurement, make_result
from worldloom.profiler import plots
from worldloom.profiler.measure import TRANSPORTS, Configuration, Measurement
from worldloom.profiler.plots import DARK, LIGHT, LINES, save_png, svg
from worldloom.profiler.report import STAGE_TEXTS, render_report
from worldloom.profiler.tables import print_sweep, short_time
from worldloom.profiler.trace import sweep_trace
from worldloom.server.engine.timing import STAGES

CONFIGURATION = Configuration("maze", 64, 64, 64, ("rgb",), "cpu", "tcp")
VOID = {"meta", "br", "hr", "img", "input", "link"}
LINKING = {"src", "href", "srcset", "poster", "data", "action", "cite", "xlink:href", "background"}


def check_trace(trace: dict[str, Any]) -> None:
    """The rules of the Chrome trace format, as far as we make use of it."""
    trace = json.loads(json.dumps(trace, allow_nan=False))
    assert set(trace) == {"traceEvents", "displayTimeUnit"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    rows = defaultdict(list)
    named = set()
    for event in trace["traceEvents"]:
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["name"], str)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name", "process_sort_index")
            named.add((event["name"], event["pid"], event["tid"]))
        else:
            assert event["ph"] == "X"
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            rows[event["pid"], event["tid"]].append(event)
    for (process, thread), slices in rows.items():
        assert ("thread_name", process, thread) in named
        assert ("process_name", process, 0) in named
        check_nesting(slices)


def check_nesting(slices: list[dict[str, Any]]) -> None:
    """On one row, of two that overlap one contains the other."""
    open_until: list[float] = []
    for one in sorted(slices, key=lambda event: (event["ts"], -event["dur"])):
        end = round(one["ts"] + one["dur"], 3)
        while open_until and open_until[-1] <= one["ts"]:
            open_until.pop()
        assert not open_until or end <= open_until[-1], "slices that cross"
        open_until.append(end)


@given(sweep=SWEEPS)
@settings(max_examples=30)
def test_the_trace_is_valid(sweep: list[Measurement]) -> None:
    trace = sweep_trace(sweep)
    check_trace(trace)
    ticks = [event for event in trace["traceEvents"] if event["name"] == "tick"]
    assert len(ticks) == sum(len(one.ticks) for one in sweep)
    assert all(set(tick["args"]) == {"steps", "lanes", "views"} for tick in ticks)


def test_slices_that_cross_would_be_noticed() -> None:
    with pytest.raises(AssertionError, match="cross"):
        check_nesting([{"ts": 0, "dur": 10}, {"ts": 5, "dur": 10}])


def test_stages_lie_within_their_ticks() -> None:
    events = sweep_trace([make_measurement(CONFIGURATION)])["traceEvents"]
    ticks = [(event["ts"], event["ts"] + event["dur"]) for event in events if event["name"] == "tick"]
    stages = [event for event in events if event.get("cat") == "stage" and event["name"] != "wait"]
    assert {event["name"] for event in stages} == set(STAGES) - {"wait"}
    for event in stages:
        middle = event["ts"] + event["dur"] / 2
        assert sum(begin <= middle <= end for begin, end in ticks) == 1


class Page(HTMLParser):
    """Notes what a page would fetch, and whether its elements are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.ids: set[str | None] = set()
        self.referred: set[str] = set()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids |= {value for name, value in attributes if name == "id"}
        for name, value in attributes:
            self.referred |= set(re.findall(r"url\(#(.+?)\)", value or ""))
            if name in LINKING and (value or "").startswith("#"):  # of this very page
                self.referred.add((value or "")[1:])
            elif name in LINKING:
                self.fetched.append(f"{tag} {name}={value}")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@given(sweep=SWEEPS)
@settings(max_examples=10, deadline=None)
def test_the_page_is_whole_and_needs_nothing_from_elsewhere(sweep: list[Measurement]) -> None:
    text = render_report(make_result(sweep))
    page = Page(text)
    assert page.open == []
    assert page.fetched == []
    assert page.referred <= page.ids
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert not re.search(r"https?:|//\w|url\((?!#)|@import", text)
    for one in sweep:
        assert f"{one.frames_per_s:,.0f}" in page.words
    assert "a <device> & more" in page.words, "escaped, and readable"
    used = set(re.findall(r"var\(--([\w-]+)\)", text))
    assert used <= set(LIGHT)
    assert set(LIGHT) == set(DARK)


def test_every_stage_is_explained() -> None:
    assert tuple(STAGE_TEXTS) == STAGES
    assert set(STAGES) <= set(LIGHT)


@given(sweep=SWEEPS)
@settings(max_examples=30)
def test_the_shares_add_up(sweep: list[Measurement]) -> None:
    written = json.loads(json.dumps(make_result(sweep).as_dict(), allow_nan=False))
    assert written["stages"] == list(STAGES)
    assert written["is_complete"]
    for one, told in zip(sweep, written["configurations"], strict=True):
        assert sum(told["stage_share"].values()) == pytest.approx(1.0)
        assert told["accounted"] == pytest.approx(1.0)
        assert sum(told["stage_us_per_frame"].values()) == pytest.approx(told["us_per_frame"])
        assert told["frames_per_s"] == pytest.approx(one.configuration.lanes * told["steps"] / told["seconds"])


def test_what_was_not_measured_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    result = make_result([make_measurement(CONFIGURATION)], planned=3)
    result.failed.append((CONFIGURATION, "it <broke>"))
    assert not result.as_dict()["is_complete"]
    assert result.as_dict()["failed"][0]["problem"] == "it <broke>"
    assert "1 of 3 planned" in render_report(result)
    assert "it &lt;broke&gt;" in render_report(result)
    print_sweep(result)
    assert "not measured: maze, 64 lanes" in capsys.readouterr().out


def colors(path: Path) -> set[tuple[int, ...]]:
    red, green, blue = np.moveaxis(read_png(path).astype(np.uint32), 2, 0)
    return {(code >> 16, code >> 8 & 255, code & 255) for code in np.unique(red << 16 | green << 8 | blue).tolist()}


def rgb(name: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(LIGHT[name][1:]))


def test_the_pictures_show_what_was_measured(tmp_path: Path) -> None:
    configurations = [
        Configuration("maze", lanes, size, size, ("rgb",), "cpu", "tcp") for lanes in (16, 64) for size in (32, 64)
    ]
    measured = [make_measurement(one, 1e-4 * one.lanes) for one in configurations]
    save_png(tmp_path / "stages.png", [plots.stage_panel(measured)], 1, stages=STAGES)
    assert colors(tmp_path / "stages.png") >= {rgb(stage) for stage in STAGES}
    save_png(tmp_path / "throughput.png", plots.throughput_panels(measured), 3)
    assert colors(tmp_path / "throughput.png") >= {rgb(LINES[TRANSPORTS.index("tcp")]), rgb("paper")}
    save_png(tmp_path / "growth.png", plots.growth_panels(measured, make_result(measured).fits), 3)
    assert colors(tmp_path / "growth.png") >= {rgb(LINES[0]), rgb(LINES[1])}
    save_png(tmp_path / "timeline.png", plots.timeline_panels(measured), 2, stages=STAGES)
    assert colors(tmp_path / "timeline.png") >= {rgb(stage) for stage in STAGES}


@given(sweep=SWEEPS)
@settings(max_examples=10, deadline=None)
def test_any_sweep_can_be_drawn(sweep: list[Measurement]) -> None:
    panels = [
        *plots.throughput_panels(sweep),
        *plots.growth_panels(sweep, make_result(sweep).fits),
        *plots.timeline_panels(sweep),
        plots.stage_panel(sweep),
    ]
    for panel in panels:
        drawn = svg(panel)
        width, height = (float(number) for number in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)[0])
        assert (width, height) == (panel.width, panel.height)
        points = [(float(x), float(y)) for x, y in re.findall(r'<use [^>]*x="([^"]+)" y="([^"]+)"', drawn)]
        points += [(float(x), float(y)) for x, y in re.findall(r"translate\(([-\d.]+) ([-\d.]+)\)", drawn)]
        assert all(-1 <= x <= width + 1 and -1 <= y <= height + 1 for x, y in points), panel.title


def test_a_long_sweep_makes_a_picture_of_bounded_size(tmp_path: Path) -> None:
    panel = plots.stage_panel([make_measurement(CONFIGURATION)] * 2000)
    assert panel.height < 3000
    many = [Configuration("maze", lanes, lanes, 8, ("rgb",), "cpu", "tcp") for lanes in range(1, 200)]
    assert len(plots.throughput_panels([make_measurement(one) for one in many])) == plots.MAX_PANELS


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.0, "2 s"), (0.0123, "12.3 ms"), (4.56e-6, "4.56 µs"), (7e-9, "7 ns"), (None, "-")]
)
def test_times_in_words(seconds: float | None, text: str) -> None:
    assert short_time(seconds) == text
