"""Measuring configurations of a sweep: what one is, the servers it needs, and how long its steps take.

A configuration is one choice of family, lanes, size, outputs, renderer and transport. One client steps all lanes for a
while; the engine's timer and the processor time of client and server are read before and after. All clocks of a machine
are the same one, so that the client's steps and the engine's spans can be put on one timeline.
"""

import itertools
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple, Self

import numpy as np
from gymnasium.vector.utils import batch_space

from worldloom.client.connections import AUTO, LOCAL, Credentials
from worldloom.client.spaces import build_action_space
from worldloom.client.vector_world import VectorWorld, create_vector_world
from worldloom.kernels.outputs import OUTPUTS
from worldloom.server.engine.timing import STAGES, Span, Tick
from worldloom.server.launch import ServerProcess

TRANSPORTS = ("local", "socket", "shm", "unix", "tcp", "tls")
"""An engine in this process, or a server in another: by its local socket, or by gRPC with frames in shared memory, over
a Unix socket, over TCP, or over TCP with TLS."""
MAX_CONFIGURATIONS = 2000
MAX_STEP_BYTES = 1 << 30
"""Bytes of all frames of a step, at most."""
_PIXEL_BYTES = {output.name: output.pixel_bytes for output in OUTPUTS}


@dataclass(frozen=True)
class Configuration:
    """One choice of everything that a sweep varies."""

    family: str
    lanes: int
    width: int
    height: int
    outputs: tuple[str, ...]
    renderer: str
    transport: str

    @property
    def pixels(self) -> int:
        """Pixels of one frame."""
        return self.width * self.height

    @property
    def size(self) -> str:
        """Size of a frame as text: 64², 160×120."""
        return f"{self.width}²" if self.width == self.height else f"{self.width}×{self.height}"

    @property
    def output_names(self) -> str:
        """Outputs as text: rgb+depth."""
        return "+".join(self.outputs)

    @property
    def step_bytes(self) -> int:
        """Bytes of all frames of a step."""
        return self.lanes * self.pixels * sum(_PIXEL_BYTES[output] for output in self.outputs)

    @property
    def name(self) -> str:
        """All of it as text."""
        return f"{self.family}, {self.lanes} lanes, {self.size} {self.output_names}, {self.renderer}, {self.transport}"

    def group(self) -> tuple[str, str, str, str]:
        """Return family, outputs, renderer and transport: within a group only lanes and size differ."""
        return self.family, self.output_names, self.renderer, self.transport

    @property
    def series_key(self) -> tuple[str, str, str]:
        """Family, renderer and outputs: what one plot of throughput has in common."""
        return self.family, self.renderer, self.output_names


def list_configurations(
    families: Sequence[str],
    lanes: Sequence[int],
    sizes: Sequence[tuple[int, int]],
    outputs: Sequence[tuple[str, ...]],
    renderers: Sequence[str],
    transports: Sequence[str],
) -> list[Configuration]:
    """Return every combination; ValueError if there are too many, or one is too large."""
    count = len(families) * len(lanes) * len(sizes) * len(outputs) * len(renderers) * len(transports)
    if count > MAX_CONFIGURATIONS:
        raise ValueError(
            f"{count} configurations: expected at most {MAX_CONFIGURATIONS}; give fewer values to some option"
        )
    # Lanes innermost: what is compared is measured close together in time, since the speed of machines varies.
    combined = itertools.product(families, renderers, outputs, transports, sizes, lanes)
    configurations = [
        Configuration(family, lane_count, width, height, names, renderer, transport)
        for family, renderer, names, transport, (width, height), lane_count in combined
    ]
    for one in configurations:
        if one.step_bytes > MAX_STEP_BYTES:
            raise ValueError(
                f"{one.name}: {one.step_bytes:,} bytes of frames a step: expected at most {MAX_STEP_BYTES:,}; "
                "give fewer --lanes or a smaller --size"
            )
    return configurations


MIN_STEPS = 3
"""Steps that are measured at least, however long they take."""
_WARM_UP_FRACTION = 0.15
"""Time to step before measuring, as a fraction of the measured time: memory grows and caches fill."""
_ACTION_COUNT = 8
_TIMELINE_LENGTH = 128
"""Ticks and client steps that are kept for the timeline."""
_TIMEOUT_S = 120.0
_CLIENT_TRANSPORTS: dict[str, Any] = {"local": "auto", "socket": "socket", "shm": "shm"}
"""The client's names of the transports; all others are "grpc"."""


@dataclass(frozen=True)
class Measurement:
    """Times of one configuration."""

    configuration: Configuration
    device: str
    """Device that drew, as the server names it."""
    steps: int
    """Steps; each advances all lanes."""
    seconds: float
    """Time of these steps."""
    step_ms: tuple[float, float]
    """Median and 95th percentile of a step."""
    wall_s: float
    """Time between the two readings of the engine's timer, by the client's clock."""
    stage_s: Mapping[str, float]
    """Time of each stage of the engine within that."""
    client_cpu_s: float
    """Processor time of all threads of the client's process, within `seconds`."""
    server_cpu_s: float | None
    """The same of the server's process; None if the engine is in the client's, or where it cannot be read."""
    spans: tuple[Span, ...] = field(default=(), repr=False)
    """Last spans of the engine's stages."""
    ticks: tuple[Tick, ...] = field(default=(), repr=False)
    client_steps: tuple[tuple[float, float], ...] = field(default=(), repr=False)
    """Start and end of the client's last steps, by the same clock."""

    @property
    def frames_per_s(self) -> float:
        """Frames a second; a frame is one lane's step with all outputs that were requested."""
        return self.steps * self.configuration.lanes / self.seconds

    @property
    def frame_us(self) -> float:
        """Microseconds of a frame."""
        return 1e6 / self.frames_per_s

    @property
    def step_s(self) -> float:
        """Seconds of a step of all lanes: the median, which other load on the machine hardly changes."""
        return self.step_ms[0] / 1e3

    @property
    def shares(self) -> dict[str, float]:
        """Fraction of the time that each stage took."""
        return {stage: seconds / self.wall_s for stage, seconds in self.stage_s.items()}

    @property
    def accounted(self) -> float:
        """Fraction of the time that all stages took together."""
        return sum(self.stage_s.values()) / self.wall_s


class Target(NamedTuple):
    """An engine to measure: in this process, or a server's."""

    address: str = LOCAL
    pid: int | None = None
    """Process of the server."""
    credentials: Credentials = Credentials()


def measure(configuration: Configuration, target: Target, settings: Mapping[str, Any], seconds: float) -> Measurement:
    """Step a world of this configuration for `seconds`."""
    world = create_vector_world(
        target.address,
        [f"eye.{output}" for output in configuration.outputs],
        world_settings={"family": configuration.family, "lanes": configuration.lanes, "seed": 0, **settings},
        join_settings={"width": configuration.width, "height": configuration.height},
        transport=_CLIENT_TRANSPORTS.get(configuration.transport, "grpc"),
        credentials=target.credentials,
        renderer=configuration.renderer if target.address == LOCAL else AUTO,
        timeout_s=_TIMEOUT_S,
    )
    with closing(world):
        world.send_reset()
        world.receive()
        actions = _sample_actions(world, configuration.lanes)
        _step_for(world, actions, seconds * _WARM_UP_FRACTION)
        _read_stage_s(world)  # the first reading takes longer than others
        # The timer is read at the beginning of the tick that handles the request.
        from_s, before = time.perf_counter(), _read_stage_s(world)
        client_s, server_s = time.process_time(), _read_cpu_s(target.pid)
        steps = _step_for(world, actions, seconds)
        client_until_s, server_until_s = time.process_time(), _read_cpu_s(target.pid)
        until_s, after = time.perf_counter(), _read_stage_s(world)
        took_ms = [1e3 * (end - begin) for begin, end in steps]
        cuts = quantiles(took_ms, n=20, method="inclusive")
        spans, ticks = _read_timeline(world, from_s, until_s)
        return Measurement(
            configuration=configuration,
            device=str(world.read_property("server.device")),
            steps=len(steps),
            seconds=steps[-1][1] - steps[0][0],
            step_ms=(cuts[9], cuts[18]),
            wall_s=until_s - from_s,
            stage_s=dict(zip(STAGES, (after - before).tolist(), strict=True)),
            client_cpu_s=client_until_s - client_s,
            server_cpu_s=None if server_s is None or server_until_s is None else server_until_s - server_s,
            spans=spans,
            ticks=ticks,
            client_steps=tuple(steps[-_TIMELINE_LENGTH:]),
        )


def _sample_actions(world: VectorWorld, lanes: int) -> list[dict[str, np.ndarray]]:
    """Return random actions from a fixed seed, sampled beforehand so that it takes no measured time."""
    space: Any = batch_space(build_action_space(world.actions.values(), lanes), lanes)
    space.seed(0)
    return [space.sample() for _ in range(_ACTION_COUNT)]


def _step_for(world: VectorWorld, actions: list[dict[str, np.ndarray]], seconds: float) -> list[tuple[float, float]]:
    """Step for `seconds`; return the start and end of each step."""
    now = time.perf_counter
    steps: list[tuple[float, float]] = []
    began_s = begin_s = now()
    while begin_s - began_s < seconds or len(steps) < MIN_STEPS:
        world.send(actions[len(steps) % _ACTION_COUNT])
        world.receive()
        end_s = now()
        steps.append((begin_s, end_s))
        begin_s = end_s
    return steps


def _read_cpu_s(pid: int | None) -> float | None:
    """Return the processor time of a process, to the nanosecond; None without a process, or where it cannot be read."""
    if pid is None or sys.platform != "linux":
        return None
    # The clock that clock_getcpuclockid(3) names for a process. /proc/PID/stat counts in hundredths of a second, too
    # coarse for short measurements.
    return time.clock_gettime(~pid << 3 | 2)


def _read_stage_s(world: VectorWorld) -> np.ndarray:
    return np.asarray(world.read_property("timers.stage_s"))


def _read_timeline(world: VectorWorld, from_s: float, until_s: float) -> tuple[tuple[Span, ...], tuple[Tick, ...]]:
    """Return the engine's last spans and ticks between two times."""
    spans = read_spans(world.read_property("timers.spans"))
    ticks = read_ticks(world.read_property("timers.ticks"))
    kept = [tick for tick in ticks if from_s <= tick.start_s and tick.end_s <= until_s][-_TIMELINE_LENGTH:]
    begin_s = kept[0].start_s if kept else until_s
    return tuple(span for span in spans if begin_s <= span.start_s and span.end_s <= until_s), tuple(kept)


def read_spans(rows: np.ndarray) -> list[Span]:
    """Parse the property `timers.spans`."""
    return [Span(STAGES[int(stage)], start_s, end_s) for stage, start_s, end_s in rows.tolist()]


def read_ticks(rows: np.ndarray) -> list[Tick]:
    """Parse the property `timers.ticks`."""
    return [Tick(start_s, end_s, *map(int, sizes)) for start_s, end_s, *sizes in rows.tolist()]


class SweepServers:
    """Servers of a sweep, started when first needed. All end with its `with` block.

    There is one for each renderer, and another one with TLS.
    """

    def __init__(self, configurations: Sequence[Configuration], family_places: Sequence[str] = ()) -> None:
        """Take the configurations to make room for; `family_places` are families to add, as MODULE:CLASS."""
        limits = {
            "--max-lanes": max(one.lanes for one in configurations),
            "--max-view-pixels": max(one.pixels for one in configurations),
            "--max-reply-bytes": max(one.step_bytes for one in configurations) + (64 << 20),
            "--max-shared-bytes": 8 * max(one.step_bytes for one in configurations) + (1 << 30),
        }
        self._flags = [word for flag, value in limits.items() for word in (flag, str(value))]
        self._flags += [word for place in family_places for word in ("--family", place)]
        self._servers: dict[tuple[str, bool], tuple[ServerProcess, Credentials]] = {}
        self._cleanup = ExitStack()

    def target(self, renderer: str, transport: str) -> Target:
        """Return the server with a renderer, for a transport; start it where there is none yet."""
        if transport == LOCAL:
            return Target()
        key = renderer, transport == "tls"
        if key not in self._servers:
            folder = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="worldloom-")))
            listen = ["--listen", "127.0.0.1:0", "--listen", f"unix:{folder / 'socket'}"]
            flags = [*listen, "--renderer", renderer, "--log-level", "error", *self._flags]
            credentials = Credentials()
            if transport == "tls":
                certificate, private_key = _make_certificate(folder)
                flags += ["--tls-cert", str(certificate), "--tls-key", str(private_key)]
                credentials = Credentials(tls_ca=certificate)
            server = self._cleanup.enter_context(ServerProcess(*flags, show_stderr=True))
            self._servers[key] = server, credentials
        server, credentials = self._servers[key]
        tcp, unix = server.addresses
        return Target(unix if transport == "unix" else tcp, server.process.pid, credentials)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()


def _make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for this machine and its key, as PEM files; RuntimeError without the program openssl."""
    if shutil.which("openssl") is None:
        raise RuntimeError("transport tls: expected the program openssl, which makes its certificate, found none")
    certificate, private_key = folder / "server.pem", folder / "server-key.pem"
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    name = ["-subj", "/CN=worldloom", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = ["openssl", "req", *kind, *name, "-keyout", str(private_key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, private_key
