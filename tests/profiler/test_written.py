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
from tests.support.profile_data import SWEEPS, make_findings, make_measured
from worldloom.profiler import charts
from worldloom.profiler.measure import Case, Measured
from worldloom.profiler.pens import DARK, LIGHT, save_png, svg
from worldloom.profiler.report import STAGE_TEXTS, make_report
from worldloom.profiler.tables import short_time, sweep_lines
from worldloom.profiler.trace import make_trace
from worldloom.server.engine.timing import STAGES

CASE = Case("maze", 64, 64, 64, ("rgb",), "cpu", "tcp")
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
def test_the_trace_is_valid(sweep: list[Measured]) -> None:
    trace = make_trace(sweep)
    check_trace(trace)
    ticks = [event for event in trace["traceEvents"] if event["name"] == "tick"]
    assert len(ticks) == sum(len(one.ticks) for one in sweep)
    assert all(set(tick["args"]) == {"steps", "lanes", "views"} for tick in ticks)


def test_slices_that_cross_would_be_noticed() -> None:
    with pytest.raises(AssertionError, match="cross"):
        check_nesting([{"ts": 0, "dur": 10}, {"ts": 5, "dur": 10}])


def test_stages_lie_within_their_ticks() -> None:
    events = make_trace([make_measured(CASE)])["traceEvents"]
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
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [f"{tag} {name}={value}" for name, value in attributes if name in LINKING]
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
@settings(max_examples=30)
def test_the_page_is_whole_and_needs_nothing_from_elsewhere(sweep: list[Measured]) -> None:
    text = make_report(make_findings(sweep))
    page = Page(text)
    assert page.open == []
    assert page.fetched == []
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert not re.search(r"https?:|//\w|url\(|@import", text)
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
def test_the_shares_add_up(sweep: list[Measured]) -> None:
    written = json.loads(json.dumps(make_findings(sweep).as_dict(), allow_nan=False))
    assert written["stages"] == list(STAGES)
    assert written["is_complete"]
    for one, told in zip(sweep, written["configurations"], strict=True):
        assert sum(told["stage_share"].values()) == pytest.approx(1.0)
        assert told["accounted"] == pytest.approx(1.0)
        assert sum(told["stage_us_per_frame"].values()) == pytest.approx(told["us_per_frame"])
        assert told["frames_per_s"] == pytest.approx(one.case.lanes * told["steps"] / told["seconds"])


def test_what_was_not_measured_is_told() -> None:
    findings = make_findings([make_measured(CASE)], planned=3)
    findings.failed.append((CASE, "it <broke>"))
    assert not findings.as_dict()["is_complete"]
    assert findings.as_dict()["failed"][0]["problem"] == "it <broke>"
    assert "1 of 3 planned" in make_report(findings)
    assert "it &lt;broke&gt;" in make_report(findings)
    assert any("not measured: maze, 64 lanes" in line for line in sweep_lines(findings))


def colors(path: Path) -> set[tuple[int, ...]]:
    red, green, blue = np.moveaxis(read_png(path).astype(np.uint32), 2, 0)
    return {(code >> 16, code >> 8 & 255, code & 255) for code in np.unique(red << 16 | green << 8 | blue).tolist()}


def rgb(name: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(LIGHT[name][1:]))


def test_the_pictures_show_what_was_measured(tmp_path: Path) -> None:
    cases = [Case("maze", lanes, size, size, ("rgb",), "cpu", "tcp") for lanes in (16, 64) for size in (32, 64)]
    measured = [make_measured(case, 1e-4 * case.lanes) for case in cases]
    save_png(tmp_path / "stages.png", [charts.stage_panel(measured)], 1, legend=STAGES)
    assert colors(tmp_path / "stages.png") >= {rgb(stage) for stage in STAGES}
    save_png(tmp_path / "throughput.png", charts.throughput_panels(measured), 3)
    assert colors(tmp_path / "throughput.png") >= {rgb("line3"), rgb("paper")}
    save_png(tmp_path / "growth.png", charts.growth_panels(measured, make_findings(measured).fits), 3)
    assert colors(tmp_path / "growth.png") >= {rgb("line0"), rgb("line1")}
    save_png(tmp_path / "timeline.png", charts.timeline_panels(measured), 2, legend=STAGES)
    assert colors(tmp_path / "timeline.png") >= {rgb(stage) for stage in STAGES}


@given(sweep=SWEEPS)
@settings(max_examples=30)
def test_any_sweep_can_be_drawn(sweep: list[Measured]) -> None:
    panels = [
        *charts.throughput_panels(sweep),
        *charts.growth_panels(sweep, make_findings(sweep).fits),
        *charts.timeline_panels(sweep),
        charts.stage_panel(sweep),
    ]
    for panel in panels:
        numbers = [float(number) for number in re.findall(r' (?:x|y|cx|cy|width|height)="([^"%]+)"', svg(panel))]
        assert all(-1 <= number <= max(panel.width, panel.height) + 1 for number in numbers), panel.title


def test_a_long_sweep_makes_a_picture_of_bounded_size(tmp_path: Path) -> None:
    panel = charts.stage_panel([make_measured(CASE)] * 2000)
    assert panel.height < 3000


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.0, "2 s"), (0.0123, "12.3 ms"), (4.56e-6, "4.56 µs"), (7e-9, "7 ns"), (None, "-")]
)
def test_times_in_words(seconds: float | None, text: str) -> None:
    assert short_time(seconds) == text
