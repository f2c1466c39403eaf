"""The metrics of a server: their numbers are those of the engine's sample, and a page lists them all."""

import platform
import re
import sys
import time
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from scripts.support.engine_streams import EngineHarness, refused
from worldloom.render.cpu import CPURenderer
from worldloom.server.config import Limits, WebOptions
from worldloom.server.engine.sampling import take_sample
from worldloom.server.engine.timing import BATCH_BOUNDS, TICK_BOUNDS_S, Histogram
from worldloom.server.transports.open_streams import OpenStreams
from worldloom.server.web.metrics import (
    BATCH_BUCKETS,
    TICK_BUCKETS_S,
    ServerCollector,
    cumulative_buckets,
    make_registry,
)
from worldloom.server.web.watched_server import VERSION, WatchedServer

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/metrics.md"
LABELS = {
    "worldloom_build": ("version", "renderer", "device", "python"),
    "worldloom_frames": ("output",),
    "worldloom_stage_seconds": ("stage",),
    "worldloom_refusals": ("code",),
}


def watched(harness: EngineHarness) -> WatchedServer:
    return WatchedServer(harness.engine, WebOptions(), OpenStreams(Limits()), lambda: 3, is_ready=True, viewers=2)


def scraped(registry: CollectorRegistry) -> dict[str, float]:
    """The values of a scrape, by name and labels as Prometheus writes them."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        one.name + "".join(f"{{{name}={value}}}" for name, value in one.labels.items()): one.value
        for family in families
        for one in family.samples
    }


def stepped(harness: EngineHarness) -> WatchedServer:
    """A server of two worlds of catch, in which one tick answers two steps, then three ticks one each; one refusal."""
    streams = [harness.stream(), harness.stream()]
    for stream in streams:
        stream.join(stream.create("catch", lanes=5), width=8, height=8)
    for stream in streams:
        stream.post_step("eye.rgb", "eye.depth")
    harness.settle()
    for stream in streams:
        stream.step_reply()
    for _ in range(3):
        streams[0].step("eye.rgb", paddle=np.zeros(5))
    with refused("NOT_FOUND"):
        streams[1].read("no.such")
    harness.tick()
    harness.engine.sample = take_sample(harness.engine)
    return watched(harness)


def test_before_the_first_sample_there_is_what_the_server_is_made_of(harness: EngineHarness) -> None:
    values = scraped(make_registry(watched(harness)))
    renderer = harness.engine.renderer
    made_of = f"{{device={renderer.device}}}{{python={platform.python_version()}}}{{renderer=cpu}}{{version={VERSION}}}"
    assert {name: one for name, one in values.items() if name.startswith("worldloom")} == {
        f"worldloom_build_info{made_of}": 1.0
    }


def test_numbers_are_those_of_the_steps(harness: EngineHarness) -> None:
    values = scraped(make_registry(stepped(harness)))
    found = {name.removeprefix("worldloom_"): value for name, value in values.items() if value and "stage" not in name}
    limits = harness.engine.limits
    expected = {
        "steps_total": 5,
        "lane_steps_total": 25,
        "ticks_total": 4,
        "draws_total": 4,
        "views_total": 25,
        "requests_total": 10,
        "frames_total{output=rgb}": 25,
        "frames_total{output=depth}": 10,
        "refusals_total{code=NOT_FOUND}": 1,
        "batch_steps_bucket{le=1.0}": 3,
        "batch_steps_count": 4,
        "batch_steps_sum": 5,
        "tick_seconds_count": 4,
        "waiting_requests": 3,
        "live_viewers": 2,
        "ready": 1,
        "streams": 2,
        "worlds": 2,
        "lanes": 10,
        "max_lanes": limits.max_lanes,
        "max_worlds": limits.max_worlds,
        "max_streams": limits.max_streams,
        "max_shared_bytes": limits.max_shared_bytes,
        "max_memory_bytes": limits.max_memory_bytes,
        "memory_bytes": harness.engine.directory.memory.held_bytes,
    }
    assert {name: found[name] for name in expected} == expected


def test_codes_outputs_and_stages_are_there_before_they_occur(harness: EngineHarness) -> None:
    values = scraped(make_registry(stepped(harness)))
    codes = [name for name in values if name.startswith("worldloom_refusals_total")]
    assert len(codes) == 16
    assert values["worldloom_refusals_total{code=RESOURCE_EXHAUSTED}"] == 0
    assert values["worldloom_frames_total{output=segmentation}"] == 0
    stages = {name: value for name, value in values.items() if name.startswith("worldloom_stage_seconds_total")}
    assert stages["worldloom_stage_seconds_total{stage=draw}"] > 0
    assert values["worldloom_tick_seconds_sum"] < sum(stages.values())


def test_without_timers_nothing_is_said_of_times(cpu: CPURenderer) -> None:
    values = scraped(make_registry(stepped(EngineHarness(cpu, timers=False))))
    assert values["worldloom_steps_total"] == 5
    assert [name for name in values if re.search("stage|tick_s|batch", name)] == []


def test_the_sample_ages(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = make_registry(stepped(harness))
    sample = harness.engine.sample
    assert sample is not None
    monkeypatch.setattr(time, "monotonic", lambda: sample.taken_at_s + 7.0)
    assert scraped(registry)["worldloom_sample_age_seconds"] == 7.0


def test_a_scrape_calls_nothing_of_the_engine(harness: EngineHarness) -> None:
    registry = make_registry(stepped(harness))
    called: set[str] = set()

    def record(frame: FrameType, event: str, _argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT) and ".venv" not in path.parts:
            called.add(path.name)

    sys.setprofile(record)
    try:
        generate_latest(registry)
    finally:
        sys.setprofile(None)
    assert called == {
        "metrics.py",
        "watched_server.py",
        Path(__file__).name,
    }  # the last one: the count of waiting requests


@given(
    st.lists(st.one_of(st.floats(0.0, 30.0), st.sampled_from(TICK_BOUNDS_S)), max_size=50),
    st.lists(st.integers(1, 10_000), max_size=50),
)
def test_buckets_have_what_numpy_counts(seconds: list[float], steps: list[int]) -> None:
    cases = ((TICK_BOUNDS_S, TICK_BUCKETS_S, np.array(seconds)), (BATCH_BOUNDS, BATCH_BUCKETS, np.array(steps, int)))
    for all_bounds, bounds, values in cases:
        counts, _ = np.histogram(values, [-np.inf, *np.nextafter(all_bounds, np.inf), np.inf])
        histogram = Histogram(all_bounds, tuple(counts.tolist()), float(values.sum()))
        found = [(float(bound), count) for bound, count in cumulative_buckets(histogram, bounds)]
        assert found == [(bound, int(np.count_nonzero(values <= bound))) for bound in (*bounds, np.inf)]


def test_the_page_lists_all_metrics(harness: EngineHarness) -> None:
    families = ServerCollector(watched(harness)).describe()
    rows = []
    for family in families:
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = LABELS.get(family.name, ())
        name = family.name + suffix + (f"{{{','.join(labels)}}}" if labels else "")
        rows.append(f"| `{name}` | {'gauge' if suffix == '_info' else family.type} | {family.documentation} |")
    shown = re.findall(r"^\| `worldloom_.*$", PAGE.read_text(), re.MULTILINE)
    assert sorted(shown) == sorted(rows)


def test_labels_are_those_of_the_page(harness: EngineHarness) -> None:
    families = ServerCollector(stepped(harness)).collect()
    found = {family.name: {tuple(one.labels) for one in family.samples} - {()} for family in families}
    bounds = {"worldloom_tick_seconds": ("le",), "worldloom_batch_steps": ("le",)}
    assert {name: labels for name, labels in found.items() if labels} == {
        name: {labels} for name, labels in {**LABELS, **bounds}.items()
    }
