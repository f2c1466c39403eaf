"""Metrics of a server for Prometheus, read from the samples that its engine takes.

Names begin with `worldloom_` and tell the unit; labels have few values, none of them named by clients: nothing is
labelled by world, stream or trial. docs/metrics.md lists them all. A scrape asks nothing of the engine's thread.
"""

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from worldloom.server.engine.sampling import EngineSample
from worldloom.server.engine.timing import Histogram
from worldloom.server.web.watched_server import CODE_NAMES, VERSION, WatchedServer

TICK_BUCKETS_S = (*(float(f"{step}e{power}") for power in range(-5, 1) for step in (1, 2, 5)), 10.0)
"""Bounds of tick times: a part of those that the engine counts by, so that the counts are exact."""
BATCH_BUCKETS = tuple(1 << power for power in range(14))
"""Bounds of batch sizes, of which the same holds."""
_REFUSAL_CODES = {code: name for code, name in CODE_NAMES.items() if name != "OK"}
"""Names of google.rpc.Code. All of them are shown from the beginning, so that a first refusal is an increase."""

_Values: TypeAlias = float | Mapping[str, float]


@dataclass(frozen=True)
class _Number:
    """A counter or gauge: its name, what it means, and its value, or the values by a label."""

    kind: type[CounterMetricFamily] | type[GaugeMetricFamily]
    name: str
    text: str
    read: Callable[[WatchedServer, EngineSample], _Values]
    label: str | None = None

    def family(self) -> CounterMetricFamily | GaugeMetricFamily:
        """Return it without values."""
        return self.kind(f"worldloom_{self.name}", self.text, labels=[] if self.label is None else [self.label])

    def take(self, server: WatchedServer, sample: EngineSample) -> Metric:
        """Return it with its values."""
        family, values = self.family(), self.read(server, sample)
        for label, value in values.items() if isinstance(values, Mapping) else [(None, values)]:
            family.add_metric([] if label is None else [label], value)
        return family


def _count(name: str, text: str, read: Callable[[EngineSample], _Values], label: str | None = None) -> _Number:
    return _Number(CounterMetricFamily, name, text, lambda _, sample: read(sample), label)


def _gauge(name: str, text: str, read: Callable[[WatchedServer, EngineSample], float]) -> _Number:
    return _Number(GaugeMetricFamily, name, text, read)


def _limit(field: str, text: str) -> _Number:
    return _gauge(field, text, lambda server, _: getattr(server.engine.limits, field))


_NUMBERS = (
    _count("steps_total", "Steps answered.", lambda sample: sample.counters.steps),
    _count("lane_steps_total", "Lanes in the steps answered.", lambda sample: sample.counters.lane_steps),
    _count("ticks_total", "Ticks of the engine that answered steps.", lambda sample: sample.counters.ticks),
    _count(
        "draws_total",
        "Calls of the renderer, those for viewers alone among them.",
        lambda sample: sample.counters.draws,
    ),
    _count("views_total", "Views drawn for clients, each with all its outputs.", lambda sample: sample.counters.views),
    _count("frames_total", "Frames drawn for clients, by output.", lambda sample: sample.counters.frames, "output"),
    _count(
        "stage_seconds_total",
        "Time of the engine's thread, by stage of its ticks; wait is the time without work.",
        lambda sample: sample.stage_s if sample.tick_s is not None else {},
        "stage",
    ),
    _count("requests_total", "Requests received.", lambda sample: sample.counters.requests),
    _count(
        "refusals_total",
        "Requests answered with an error, by its code in google.rpc.Code.",
        lambda sample: {name: sample.counters.refusals_by_code.get(code, 0) for code, name in _REFUSAL_CODES.items()},
        "code",
    ),
    _count(
        "rejected_streams_total",
        "Calls refused before a stream was opened: too many streams, no or a wrong token, a shutdown.",
        lambda sample: sample.counters.rejected_streams,
    ),
    _count("live_pictures_total", "Pictures drawn for viewers of the live view.", lambda sample: sample.pictures),
    _count("live_tiles_total", "Frames in the pictures of the live view.", lambda sample: sample.tiles),
    _count(
        "live_late_pictures_total",
        "Pictures of the live view that came later than asked for, since steps go first.",
        lambda sample: sample.late_pictures,
    ),
    _gauge("live_viewers", "People who watch the live view.", lambda server, _: server.viewers),
    _gauge("waiting_requests", "Requests read and not answered yet.", lambda server, _: server.count_waiting()),
    _gauge("streams", "Open streams.", lambda _, sample: sample.counters.streams),
    _gauge("worlds", "Existing worlds.", lambda _, sample: sample.worlds),
    _gauge("lanes", "Lanes of all worlds.", lambda _, sample: sample.lanes),
    _gauge("trials", "Trials that this server orchestrates.", lambda _, sample: sample.trials_played),
    _gauge("trial_worlds", "Trials whose worlds are on this server.", lambda _, sample: sample.counters.trials),
    _gauge("shared_bytes", "Shared memory allocated.", lambda _, sample: sample.shared_bytes),
    _gauge(
        "memory_bytes",
        "Memory of worlds by estimate, of reply buffers and of shared memory.",
        lambda _, sample: sample.memory_bytes,
    ),
    _limit("max_streams", "Most streams at a time: --max-streams."),
    _limit("max_worlds", "Most worlds at a time: --max-worlds."),
    _limit("max_lanes", "Most lanes at a time: --max-lanes."),
    _limit("max_shared_bytes", "Most shared memory: --max-shared-bytes."),
    _limit("max_memory_bytes", "Most memory: --max-memory-bytes."),
    _gauge(
        "ready", "1 while the server takes new clients, 0 while it starts or stops.", lambda server, _: server.is_ready
    ),
    _gauge(
        "sample_age_seconds",
        "Age of these numbers; the engine takes them once a second, between two ticks.",
        lambda _, sample: time.monotonic() - sample.taken_at_s,
    ),
)


class ServerCollector(Collector):
    """The metrics of one server. Before the engine's first sample there is only what the server is made of."""

    def __init__(self, server: WatchedServer) -> None:
        self._server = server
        renderer = server.engine.renderer
        self._build = {
            "version": VERSION,
            "renderer": renderer.name,
            "device": renderer.device,
            "python": platform.python_version(),
        }

    def describe(self) -> Iterator[Metric]:
        """Yield all metrics without values."""
        yield _build_info()
        for number in _NUMBERS:
            yield number.family()
        yield _tick_seconds()
        yield _batch_steps()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of the latest sample."""
        yield _build_info(self._build)
        sample = self._server.sample
        if sample is None:
            return
        for number in _NUMBERS:
            yield number.take(self._server, sample)
        if sample.tick_s is not None and sample.batch is not None:
            yield _tick_seconds(sample.tick_s)
            yield _batch_steps(sample.batch)


def make_registry(server: WatchedServer) -> CollectorRegistry:
    """Return the metrics of a server whose engine has started, and of its process."""
    registry = CollectorRegistry()
    registry.register(ServerCollector(server))
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def cumulative_buckets(histogram: Histogram, bounds: Sequence[float]) -> list[tuple[str, float]]:
    """Return how many values are not above each of these bounds, which are some of the histogram's, and infinity."""
    sums: list[float] = list(accumulate(histogram.counts))
    places = {bound: place for place, bound in enumerate(histogram.bounds)}
    return [(str(float(bound)), sums[places[bound]]) for bound in bounds] + [("+Inf", sums[-1])]


def _build_info(values: Mapping[str, str] | None = None) -> InfoMetricFamily:
    text = "Version of worldloom and Python, and what it draws with; always 1."
    return InfoMetricFamily("worldloom_build", text, None if values is None else dict(values))


def _tick_seconds(histogram: Histogram | None = None) -> HistogramMetricFamily:
    text = "Time of the ticks that answered steps, from the end of the wait to the last stage."
    return _histogram("tick_seconds", text, histogram, TICK_BUCKETS_S)


def _batch_steps(histogram: Histogram | None = None) -> HistogramMetricFamily:
    return _histogram("batch_steps", "Steps answered in one tick.", histogram, BATCH_BUCKETS)


def _histogram(name: str, text: str, histogram: Histogram | None, bounds: Sequence[float]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(f"worldloom_{name}", text)
    if histogram is not None:
        family.add_metric([], cumulative_buckets(histogram, bounds), histogram.total)
    return family
