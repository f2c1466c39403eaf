"""Timelines in the Chrome trace format: JSON of events, for Perfetto and other viewers.

Each configuration is a process of the trace with two threads, the client's and the engine's, and starts at time 0.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from worldloom.profiler.measure import Measurement
from worldloom.server.engine.timing import Span, Tick

CLIENT, ENGINE = 1, 2
"""Thread ids."""

Event = dict[str, Any]


def sweep_trace(measured: Sequence[Measurement]) -> dict[str, Any]:
    """Return the trace of a sweep: the last ticks of every configuration."""
    events: list[Event] = []
    for process, one in enumerate(measured, start=1):
        events += trace_events(
            process, one.configuration.name, one.spans, one.ticks, one.client_steps, one.configuration.lanes
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def trace_events(
    process: int,
    name: str,
    spans: Sequence[Span],
    ticks: Sequence[Tick],
    steps: Sequence[tuple[float, float]] = (),
    lanes: int = 0,
) -> list[Event]:
    """Return the events of one engine and, where its steps are given, of its client."""
    begins = [span.start_s for span in spans]
    if not begins:
        return []
    origin_s, end_s = min(begins), max(span.end_s for span in spans)
    events = [_name_event("process_name", process, 0, name), _sort_event(process)]
    kept_steps = [(begin, end) for begin, end in steps if origin_s <= begin and end <= end_s]
    if kept_steps:
        events.append(_name_event("thread_name", process, CLIENT, "client"))
        events += [
            _slice("step", "client", process, CLIENT, origin_s, begin, end, {"lanes": lanes})
            for begin, end in kept_steps
        ]
    events.append(_name_event("thread_name", process, ENGINE, "engine"))
    events += _tick_events(process, origin_s, ticks)
    events += [_slice(span.stage, "stage", process, ENGINE, origin_s, span.start_s, span.end_s, {}) for span in spans]
    return events


def _tick_events(process: int, origin_s: float, ticks: Iterable[Tick]) -> list[Event]:
    return [
        _slice(
            "tick",
            "tick",
            process,
            ENGINE,
            origin_s,
            tick.start_s,
            tick.end_s,
            {"steps": tick.steps, "lanes": tick.lanes, "views": tick.views},
        )
        for tick in ticks
        if tick.start_s >= origin_s
    ]


def _slice(
    name: str, category: str, process: int, thread: int, origin_s: float, start_s: float, end_s: float, sizes: Event
) -> Event:
    """Return an event with start and duration, in microseconds with three decimals."""
    begin_us, end_us = round(1e6 * (start_s - origin_s), 3), round(1e6 * (end_s - origin_s), 3)
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


def _name_event(what: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _sort_event(process: int) -> Event:
    return {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}}
