"""A timeline in the Chrome trace format: JSON of events that Perfetto and other viewers open.

Each case is a process of the trace with two threads, the client's and the engine's, and begins at 0.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from worldloom.profiler.measure import Measured
from worldloom.server.engine.timing import Span, Tick

CLIENT, ENGINE = 1, 2
"""Threads."""

Event = dict[str, Any]


def make_trace(measured: Sequence[Measured]) -> dict[str, Any]:
    """The last ticks of every case."""
    events: list[Event] = []
    for process, one in enumerate(measured, start=1):
        events += trace_events(process, one.case.name, one.spans, one.ticks, one.client_steps, one.case.lanes)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def trace_events(
    process: int,
    name: str,
    spans: Sequence[Span],
    ticks: Sequence[Tick],
    steps: Sequence[tuple[float, float]] = (),
    lanes: int = 0,
) -> list[Event]:
    """The events of one engine and, if there was one here, its client."""
    begins = [span.start_s for span in spans]
    if not begins:
        return []
    zero_s, end_s = min(begins), max(span.end_s for span in spans)
    events = [_named("process_name", process, 0, name), _sorted(process)]
    kept_steps = [(begin, end) for begin, end in steps if zero_s <= begin and end <= end_s]
    if kept_steps:
        events.append(_named("thread_name", process, CLIENT, "client"))
        events += [
            _slice("step", "client", process, CLIENT, zero_s, begin, end, {"lanes": lanes}) for begin, end in kept_steps
        ]
    events.append(_named("thread_name", process, ENGINE, "engine"))
    events += _ticks(process, zero_s, ticks)
    events += [_slice(span.stage, "stage", process, ENGINE, zero_s, span.start_s, span.end_s, {}) for span in spans]
    return events


def _ticks(process: int, zero_s: float, ticks: Iterable[Tick]) -> list[Event]:
    return [
        _slice(
            "tick",
            "tick",
            process,
            ENGINE,
            zero_s,
            tick.start_s,
            tick.end_s,
            {"steps": tick.steps, "lanes": tick.lanes, "views": tick.views},
        )
        for tick in ticks
        if tick.start_s >= zero_s
    ]


def _slice(
    name: str, category: str, process: int, thread: int, zero_s: float, start_s: float, end_s: float, sizes: Event
) -> Event:
    """Something that begins and ends. Times are microseconds, with nanoseconds after the point."""
    begin_us, end_us = round(1e6 * (start_s - zero_s), 3), round(1e6 * (end_s - zero_s), 3)
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": process,
        "tid": thread,
        "ts": begin_us,
        "dur": round(end_us - begin_us, 3),
        "args": sizes,
    }


def _named(what: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _sorted(process: int) -> Event:
    return {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}}
