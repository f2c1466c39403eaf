"""`worldloom profile --attach`: read a running server's counters twice, and show what it did in between."""

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
from worldloom.profiler.measure import read_spans, read_ticks
from worldloom.profiler.results import FORMAT
from worldloom.profiler.tables import short_time, stages_in_use
from worldloom.server.engine.timing import STAGES, Span, Tick
from worldloom.terminal import print_heading, print_table, print_text

_COUNTERS = ("requests", "refusals", "ticks", "steps", "lane_steps", "draws", "views")
_FRAMES = tuple(f"frames.{output}" for output in OUTPUT_NAMES)
_GAUGES = ("streams", "worlds", "lanes")
_ABOUT = ("server.version", "server.renderer", "server.device", "timers.is_on")
_BAR_WIDTH = 30
_TIMEOUT_S = 30.0
_OPTION_OF = {
    "token=TEXT": "--token-file FILE",
    "tls_ca=FILE": "--tls-ca FILE",
    "tls_cert=FILE": "--tls-cert FILE",
    "tls_key=FILE": "--tls-key FILE",
}
"""Options of the command line for arguments that the client's errors name."""


@dataclass(frozen=True)
class ServerActivity:
    """Activity of a server between two readings of its counters."""

    address: str
    when: str
    about: dict[str, Any]
    now: dict[str, int]
    """Streams, worlds and lanes at the second reading."""
    seconds: float
    counted: dict[str, int]
    """Increase of each counter."""
    stage_s: dict[str, float]
    """Time of each stage; all 0 if the server has no timers."""
    spans: tuple[Span, ...]
    ticks: tuple[Tick, ...]

    @property
    def shares(self) -> dict[str, float]:
        """Fraction of the time that each stage took."""
        return {stage: took_s / self.seconds for stage, took_s in self.stage_s.items()}

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
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


def observe_server(address: str, credentials: Credentials, seconds: float) -> ServerActivity:
    """Read a server's counters now and after `seconds`. RuntimeError says what went wrong."""
    if address == LOCAL:
        raise ValueError("--attach local: expected HOST:PORT or unix:PATH of a running server")
    try:
        with closing(open_connection(address, credentials, "auto", _TIMEOUT_S)) as connection:
            return _observe(connection, address, seconds)
    except ServerError as error:
        if error.code == code_pb2.NOT_FOUND:
            here = importlib.metadata.version("worldloom")
            raise RuntimeError(f"the server at {address} lacks some counters: expected worldloom {here}") from error
        raise RuntimeError(_name_options(str(error))) from error
    except ClientError as error:
        raise RuntimeError(_name_options(str(error))) from error


def _name_options(text: str) -> str:
    """Return an error of the client with options in place of its arguments."""
    for argument, flag in _OPTION_OF.items():
        text = text.replace(argument, flag)
    return text


def print_activity(of: ServerActivity) -> None:
    """Print the rates of counters and the share of each stage."""
    now = ", ".join(f"{count:,} {name}" for name, count in of.now.items())
    print_text(
        f"{of.address}: worldloom {of.about['server.version']}, {of.about['server.renderer']} "
        f"({of.about['server.device']}); {now}"
    )
    print()
    print_heading(f"a second, over {of.seconds:.1f} s")
    rates = [(name.replace("_", " "), f"{count / of.seconds:,.1f}") for name, count in of.counted.items() if count]
    batch = _ratio(of.counted["steps"], of.counted["ticks"])
    print_table([*rates, ("steps in a tick", f"{batch:,.1f}")], text_columns=1)
    print()
    print_heading("share of each stage, and time of a step")
    if not of.about["timers.is_on"]:
        print_text("not measured: the server was started with --no-timers", indent=2)
        return
    steps = of.counted["steps"]
    rows = [
        (
            stage,
            "#" * round(_BAR_WIDTH * of.shares[stage]),
            f"{100 * of.shares[stage]:.1f} %",
            short_time(of.stage_s[stage] / steps) if steps else "-",
        )
        for stage in stages_in_use([of.shares])
    ]
    print_table(rows, text_columns=2)


def _observe(connection: Connection, address: str, seconds: float) -> ServerActivity:
    about = dict(zip(_ABOUT, _read(connection, _ABOUT), strict=True))
    keys = [f"counters.{name}" for name in (*_COUNTERS, *_FRAMES)]
    from_s = time.perf_counter()
    before, *earlier = _read(connection, ("timers.stage_s", *keys))
    time.sleep(seconds)
    until_s = time.perf_counter()
    after, *later = _read(connection, ("timers.stage_s", *keys))
    now = _read(connection, [f"counters.{name}" for name in _GAUGES])
    spans, ticks = _read(connection, ("timers.spans", "timers.ticks"))
    counted = [int(new) - int(old) for new, old in zip(later, earlier, strict=True)]
    return ServerActivity(
        address=address,
        when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        about={key: value.item() if hasattr(value, "item") else value for key, value in about.items()},
        now={name: int(value) for name, value in zip(_GAUGES, now, strict=True)},
        seconds=until_s - from_s,
        counted=dict(zip((*_COUNTERS, *_FRAMES), counted, strict=True)),
        stage_s=dict(zip(STAGES, (after - before).tolist(), strict=True)),
        spans=tuple(read_spans(spans)),
        ticks=tuple(read_ticks(ticks)),
    )


def _read(connection: Connection, keys: Sequence[str]) -> list[Any]:
    """Read properties with one round trip: all requests are sent before the first reply is read."""
    for key in keys:
        connection.send(encode_property_request(key))
    values = []
    for key in keys:
        values.append(decode_property(connection.receive(), key))
        connection.taken += 1
        connection.release()
    return values


def _ratio(count: float, total: float) -> float:
    return count / total if total else 0.0
