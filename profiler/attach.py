"""A running server, looked at twice: what it did in between, and where its time went."""

import importlib.metadata
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from google.rpc import code_pb2

from worldloom.client.connections import LOCAL, Connection, Credentials, open_connection
from worldloom.client.errors import ClientError, ServerError
from worldloom.client.world import decode_property, encode_property_request
from worldloom.kernels.outputs import OUTPUT_NAMES
from worldloom.profiler.findings import FORMAT
from worldloom.profiler.measure import read_spans, read_ticks
from worldloom.profiler.tables import in_table, short_time, stages_in_use
from worldloom.server.engine.timing import STAGES, Span, Tick

_COUNTED = ("requests", "refusals", "ticks", "steps", "lane_steps", "draws", "views")
_FRAMES = tuple(f"frames.{output}" for output in OUTPUT_NAMES)
_NOW = ("streams", "worlds", "lanes")
_ABOUT = ("server.version", "server.renderer", "server.device", "timers.is_on")
_BAR = 30
_TIMEOUT_S = 30.0
_FLAGS = {
    "token=TEXT": "--token-file FILE",
    "tls_ca=FILE": "--tls-ca FILE",
    "tls_cert=FILE": "--tls-cert FILE",
    "tls_key=FILE": "--tls-key FILE",
}
"""What the client's arguments are called on the command line."""


@dataclass(frozen=True)
class Watched:
    """What a server did while it was looked at."""

    address: str
    when: str
    about: dict[str, Any]
    now: dict[str, int]
    """What there is: streams, worlds, lanes."""
    seconds: float
    counted: dict[str, int]
    """By how much each counter grew."""
    stage_s: dict[str, float]
    """All 0 if the server has no timers."""
    spans: tuple[Span, ...]
    ticks: tuple[Tick, ...]

    @property
    def shares(self) -> dict[str, float]:
        """The part of the time that each stage took."""
        return {stage: took_s / self.seconds for stage, took_s in self.stage_s.items()}

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "format": FORMAT,
            "kind": "attach",
            "address": self.address,
            "when": self.when,
            "server": {key.partition(".")[2]: value for key, value in self.about.items()},
            **self.now,
            "seconds": self.seconds,
            "per_s": {name: count / self.seconds for name, count in self.counted.items()},
            "mean_batch": _ratio(self.counted["steps"], self.counted["ticks"]),
            "stages": list(STAGES),
            "stage_share": self.shares,
            "accounted": sum(self.shares.values()),
        }


def watch(address: str, credentials: Credentials, seconds: float) -> Watched:
    """Read a server's counters, and again after so long. RuntimeError says what went wrong."""
    if address == LOCAL:
        raise ValueError("--attach local: expected HOST:PORT or unix:PATH of a server that runs")
    try:
        with closing(open_connection(address, credentials, "auto", _TIMEOUT_S)) as connection:
            return _watch(connection, address, seconds)
    except ServerError as error:
        if error.code == code_pb2.NOT_FOUND:
            here = importlib.metadata.version("worldloom")
            raise RuntimeError(f"the server at {address} has no such counters: expected worldloom {here}") from error
        raise RuntimeError(in_flags(str(error))) from error
    except ClientError as error:
        raise RuntimeError(in_flags(str(error))) from error


def in_flags(text: str) -> str:
    """What a client says, in words of the command line."""
    for argument, flag in _FLAGS.items():
        text = text.replace(argument, flag)
    return text


def watched_lines(of: Watched) -> list[str]:
    """For a terminal."""
    now = ", ".join(f"{count:,} {name}" for name, count in of.now.items())
    lines = [
        f"{of.address}: worldloom {of.about['server.version']}, {of.about['server.renderer']} "
        f"({of.about['server.device']}); {now}",
        "",
        f"a second, over {of.seconds:.1f} s",
    ]
    rates = [(name.replace("_", " "), f"{count / of.seconds:,.1f}") for name, count in of.counted.items() if count]
    lines += in_table([*rates, ("steps in a tick", f"{_ratio(of.counted['steps'], of.counted['ticks']):,.1f}")], 1)
    lines += ["", "share of each stage, and time of a step"]
    if not of.about["timers.is_on"]:
        return [*lines, "  not measured: the server was started with --no-timers"]
    shares = of.shares
    rows = [
        (
            stage,
            ("#" * round(_BAR * shares[stage])).ljust(_BAR),
            f"{100 * shares[stage]:.1f} %",
            short_time(_ratio(of.stage_s[stage], of.counted["steps"])) if of.counted["steps"] else "-",
        )
        for stage in stages_in_use([shares])
    ]
    return [*lines, *in_table(rows, 2)]


def _watch(connection: Connection, address: str, seconds: float) -> Watched:
    about = dict(zip(_ABOUT, _read(connection, _ABOUT), strict=True))
    keys = [f"counters.{name}" for name in (*_COUNTED, *_FRAMES)]
    from_s = time.perf_counter()
    before, *earlier = _read(connection, ("timers.stage_s", *keys))
    time.sleep(seconds)
    until_s = time.perf_counter()
    after, *later = _read(connection, ("timers.stage_s", *keys))
    now = _read(connection, [f"counters.{name}" for name in _NOW])
    spans, ticks = _read(connection, ("timers.spans", "timers.ticks"))
    counted = [int(new) - int(old) for new, old in zip(later, earlier, strict=True)]
    return Watched(
        address=address,
        when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        about={key: value.item() if hasattr(value, "item") else value for key, value in about.items()},
        now={name: int(value) for name, value in zip(_NOW, now, strict=True)},
        seconds=until_s - from_s,
        counted=dict(zip((*_COUNTED, *_FRAMES), counted, strict=True)),
        stage_s=dict(zip(STAGES, (after - before).tolist(), strict=True)),
        spans=tuple(read_spans(spans)),
        ticks=tuple(read_ticks(ticks)),
    )


def _read(connection: Connection, keys: Sequence[str]) -> list[Any]:
    """All of them at once: questions go out together, and are answered within a tick or two."""
    for key in keys:
        connection.send(encode_property_request(key))
    return [decode_property(connection.receive(), key) for key in keys]


def _ratio(of: float, to: float) -> float:
    return of / to if to else 0.0
