"""Collecting on a fleet: the lanes of a dataset are divided into parts, and a collector beside a server collects each.

    with Fleet(servers=4) as fleet:
        collect_on_fleet(fleet, "/shared/maze", "maze", lanes=4096, steps=100_000_000)

Parts and their lanes are fixed when a collection begins. A server has one collector at a time; of more parts than
servers some wait. A part whose server or node is lost is continued at another server from its last complete shard, so
the bytes are those of a run in which nothing was lost. Ray carries jobs, progress and indexes; frames go from a server
to the collector on its node, and from there to the disk.
"""

import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from worldloom.client.arguments import parse_integer
from worldloom.data.collection import Progress
from worldloom.data.collector import Collector
from worldloom.data.errors import DatasetError, PolicyError
from worldloom.data.files import hold_directory, replace_file
from worldloom.data.finish import finish_dataset
from worldloom.data.fleet_servers import FleetServers, FleetView, NodeServer
from worldloom.data.index import Index, cut_index, parse_index, read_index
from worldloom.data.layout import DESCRIPTION_FILE, INDEX_FILE, PARTS_DIRECTORY, Description, PartPlace
from worldloom.data.part_actor import PartReport
from worldloom.data.part_process import PartJob
from worldloom.data.part_run import PartRun, read_on_node
from worldloom.fleet import Fleet
from worldloom.fleet.ray_session import uninterrupted
from worldloom.fleet.spec import DEFAULT_LEARNER

_INTERVAL_S = 0.1
_MISSING_S = 5.0
"""Time that a server may be missing in the status of its fleet before its part moves."""
_RETRY_S = 1.0
"""Time before a part that has failed is tried again; doubled with each failure."""
MAX_FAILURES = 5
"""Failures of a part in a row, without a complete shard between them, that end the collection."""
_LOST_NODE_S = 60.0
"""Time after which a part with a directory of its own begins again elsewhere, if its node has left the cluster."""
_IDLE_S = 180.0
"""Time without any server to go on with after which the collection ends."""
_MAX_LANES = 2**31 - 1
_OWN_ARGUMENTS = ("on_step", "on_shard", "address", "env_arguments", "first_lane", "all_lanes")
"""Arguments of Collector that are not for users of a fleet."""


@dataclass(frozen=True)
class PartEvent:
    """Something that happened to a part, for callbacks."""

    place: PartPlace
    what: str
    """`started`, `collecting`, `failed`, `moved` or `complete`."""
    server: NodeServer
    report: PartReport
    """The collector's last report: its process, transport, progress and error."""


def collect_on_fleet(
    fleet: Fleet,
    directory: str | os.PathLike[str],
    family: str | None = None,
    *,
    parts: int | None = None,
    learner: str = DEFAULT_LEARNER,
    own_directories: bool = False,
    resume: bool = False,
    on_progress: Callable[[Progress], object] | None = None,
    on_part: Callable[[PartEvent], object] | None = None,
    **arguments: Any,
) -> Progress:
    """Collect a dataset on the servers of a fleet until it is complete; return the last progress.

    Whatever stops it, complete shards stay, and `resume` goes on, also with other servers. All collectors end with this
    call, or with this process.

    Args:
        fleet: The fleet.
        directory: Directory of the dataset: on a file system that all nodes share, unless `own_directories`.
        family: The kind of world. May be left out with `resume`, as all arguments that make the dataset.
        parts: Number of parts that the lanes are divided into; by default one for each server that is ready.
        learner: Whose quota the lanes count against.
        own_directories: Have each node write its parts to this path on its own disk.
        resume: Go on with a collection that was stopped. Where there is none, begin one.
        on_progress: Called with the progress of all parts together, several times a second.
        on_part: Called when a part is started, goes to another server, fails or is complete.
        arguments: Those of Collector that make the dataset, and `writers`. The policy is a name or MODULE:CALLABLE that
            can be imported on all nodes.
    """
    for name in _OWN_ARGUMENTS:
        if name in arguments:
            raise TypeError(f"{name} is given: expected none, collectors on a fleet have their own")
    if not isinstance(arguments.get("policy", ""), str):
        raise PolicyError(f"the policy is {arguments['policy']!r}: expected a name or MODULE:CALLABLE, for all nodes")
    if parts is not None:
        parse_integer("parts", parts, 1, arguments.get("lanes", 64))
    path = Path(directory).absolute()
    collector = Collector(path, family, resume=resume, **arguments)
    writers = {"writers": arguments.pop("writers")} if "writers" in arguments else {}
    with hold_directory(path):
        description = collector.find_description()
        if description is not None:
            _check_resumed(path, description, parts, own_directories)
        with FleetServers(fleet) as servers:
            if description is None:
                description = _begin(path, servers, parts, own_directories, {"family": family, **arguments})
            run = _FleetCollection(path, description, servers, writers, on_progress, on_part)
            return run.run(learner)


def divide_lanes(lanes: int, hosts: Sequence[str]) -> list[PartPlace]:
    """Return as many parts as there are hosts, of about as many lanes each; `hosts` are the nodes to name in them."""
    bounds = [lanes * k // len(hosts) for k in range(len(hosts) + 1)]
    return [
        PartPlace(f"{PARTS_DIRECTORY}/{k:03d}", bounds[k], bounds[k + 1] - bounds[k], host)
        for k, host in enumerate(hosts)
    ]


def _check_resumed(path: Path, description: Description, parts: int | None, own_directories: bool) -> None:
    if not description.parts:
        raise DatasetError(f"{path} was not collected on a fleet: expected no --fleet, to go on with it")
    if parts is not None and parts != len(description.parts):
        raise DatasetError(
            f"parts is {parts}: expected {len(description.parts)}, as the collection began; leave it out"
        )
    if own_directories and not description.parts[0].node:
        raise DatasetError(f"{path} was begun in a directory that nodes share: expected no --own-directories")


def _begin(
    path: Path, servers: FleetServers, parts: int | None, own_directories: bool, arguments: dict[str, Any]
) -> Description:
    """Divide the lanes, have a collector describe the dataset, and write its description."""
    deadline_s = time.monotonic() + _IDLE_S
    while not (ready := servers.view().ready):
        _check_time(deadline_s, servers.view())
        time.sleep(_INTERVAL_S)
    lanes = arguments.pop("lanes", 64)
    count = parts or min(lanes, len(ready))
    hosts = [ready[k % len(ready)].host if own_directories else "" for k in range(count)]
    places = divide_lanes(lanes, hosts)
    most = max(place.lanes for place in places)
    arguments |= {"lanes": most, "all_lanes": lanes}
    text = _describe(path, servers, arguments)
    whole = replace(Description.from_json(text.encode(), path), lanes=lanes, first_lane=0, parts=places)
    replace_file(path / DESCRIPTION_FILE, whole.to_json())
    return whole


def _describe(path: Path, servers: FleetServers, arguments: dict[str, Any]) -> str:
    """Have a collector on a node describe a dataset, which needs an env and the policy."""
    deadline_s = time.monotonic() + _IDLE_S
    for attempt in range(MAX_FAILURES):
        while not (ready := servers.view().ready):
            _check_time(deadline_s, servers.view())
            time.sleep(_INTERVAL_S)
        server = ready[attempt % len(ready)]
        job = PartJob(str(path), server.address, servers.token, servers.certificate, arguments=arguments)
        run = PartRun(server, job, servers.python)
        try:
            while not (report := run.ask()).has_ended:
                time.sleep(_INTERVAL_S / 4)
        finally:
            with uninterrupted():
                PartRun.end([run])
        if report.description:
            return report.description
        if not report.is_temporary:
            break
        time.sleep(_RETRY_S * 2**attempt)
    raise _explain(report, server, "")


def _check_time(deadline_s: float, view: FleetView) -> None:
    if time.monotonic() > deadline_s:
        raise DatasetError(
            f"no server could go on for {_IDLE_S:g} s: {view.summary}; --resume goes on from what is complete"
        )


def _explain(report: PartReport, server: NodeServer, part: str) -> DatasetError:
    kind = PolicyError if report.is_policy else DatasetError
    advice = "; expected a policy that every node can import" if report.is_policy and not report.progress else ""
    return kind(f"{part}{server.name} on {server.node}: {report.error}{advice}")


class _Part:
    """A part, and the collector that works on it now."""

    def __init__(self, place: PartPlace) -> None:
        self.place = place
        self.run: PartRun | None = None
        self.index: Index | None = None
        """Its index, once it is complete."""
        self.progress: Progress | None = None
        self.first_rows: int | None = None
        """Rows that were complete when it was first seen."""
        self.failures = 0
        self.failed_rows = 0
        """Rows that were complete at the last failure."""
        self.retry_s = 0.0
        """Time from which it may be tried again."""
        self.seen_s = time.monotonic()
        """Time at which its server, or while it waits its node, was seen last."""
        self.warned = 0
        self.transport = ""

    def note(self, progress: Progress | None) -> None:
        """Take a newer progress."""
        if progress is not None:
            self.progress = progress
            self.first_rows = progress.first_rows if self.first_rows is None else self.first_rows

    def note_index(self, index: Index, description: Description) -> None:
        """Take the index that it has when a collection is resumed, or at its end."""
        if index.end is not None:
            self.index = index
        if self.run is None:
            self.note(Progress.of(index, description))


class _FleetCollection:
    """A run of a collection on a fleet."""

    def __init__(
        self,
        directory: Path,
        description: Description,
        servers: FleetServers,
        writers: dict[str, Any],
        on_progress: Callable[[Progress], object] | None,
        on_part: Callable[[PartEvent], object] | None,
    ) -> None:
        self._directory, self._description, self._servers = directory, description, servers
        self._writers, self._on_progress, self._on_part = writers, on_progress, on_part
        self._parts = [_Part(place) for place in description.parts]
        self._has_own_directories = any(place.node for place in description.parts)
        self._began_s: float | None = None

    def run(self, learner: str) -> Progress:
        """Collect all parts that are not complete, and finish the dataset."""
        self._look()
        whole = read_index(self._directory)
        if whole.end is not None:
            return self.progress()
        missing = sum(part.place.lanes for part in self._parts if part.index is None)
        if missing:
            self._servers.take_lanes(learner, missing)
            self._collect()
        cut_index(self._directory, whole)
        indexes = [part.index for part in self._parts if part.index is not None]
        merged = Index([entry for index in indexes for entry in index.shards])
        finish_dataset(self._directory, self._description, merged)
        return self.progress()

    def progress(self) -> Progress:
        """Return the sum of the parts."""
        known = [part for part in self._parts if part.progress is not None]
        found = [part.progress for part in known if part.progress is not None]
        return Progress(
            rows=sum(one.rows for one in found),
            all_rows=self._description.rows,
            first_rows=sum(part.first_rows or 0 for part in known),
            drawn_rows=sum(one.drawn_rows for one in found),
            elapsed_s=0.0 if self._began_s is None else time.monotonic() - self._began_s,
            episodes=sum(one.episodes for one in found),
            return_sum=sum((one.return_sum for one in found), 0.0),
            size_bytes=sum(one.size_bytes for one in found),
        )

    def _look(self) -> None:
        """Find out which parts are complete already."""
        nodes = self._servers.view().nodes
        for part in self._parts:
            path = self._directory / part.place.path
            if part.place.node in nodes:
                data = read_on_node(nodes[part.place.node], path / INDEX_FILE)
                part.note_index(parse_index(data)[0], self._description.part(part.place))
            elif not part.place.node:
                part.note_index(read_index(path), self._description.part(part.place))

    def _collect(self) -> None:
        idle_s = time.monotonic()
        try:
            while any(part.index is None for part in self._parts):
                view = self._servers.view()
                for part in self._parts:
                    if part.run is not None:
                        self._follow(part, part.run, view)
                self._start(view)
                if any(part.run is not None for part in self._parts):
                    idle_s = time.monotonic()
                _check_time(idle_s + _IDLE_S, view)
                if self._on_progress is not None:
                    self._on_progress(self.progress())
                time.sleep(_INTERVAL_S)
        finally:
            with uninterrupted():
                PartRun.end([part.run for part in self._parts if part.run is not None])

    def _start(self, view: FleetView) -> None:
        """Start collectors for parts that have none, beside servers that have none."""
        now_s = time.monotonic()
        busy = {part.run.server.address for part in self._parts if part.run is not None}
        free = [server for server in view.ready if server.address not in busy]
        for part in self._parts:
            if part.run is not None or part.index is not None or now_s < part.retry_s:
                continue
            server = self._choose_server(part, free, view)
            if server is not None:
                free.remove(server)
                part.run = PartRun(server, self._make_job(part.place, server), self._servers.python)
                part.seen_s, part.warned, part.transport = now_s, 0, ""
                self._tell(part, "started", part.run)

    def _choose_server(self, part: _Part, free: Sequence[NodeServer], view: FleetView) -> NodeServer | None:
        """Return the server for a part. A part with a directory of its own stays on its node as long as there is it."""
        node, now_s = part.place.node, time.monotonic()
        if node in view.nodes:
            part.seen_s = now_s
        for server in free:
            if not node or server.host == node:
                return server
        if not free or now_s - part.seen_s < _LOST_NODE_S:
            return None
        part.place = replace(part.place, node=free[0].host)
        part.progress, part.first_rows, part.failures = None, None, 0
        self._description = replace(self._description, parts=[one.place for one in self._parts])
        replace_file(self._directory / DESCRIPTION_FILE, self._description.to_json())
        return free[0]

    def _make_job(self, place: PartPlace, server: NodeServer) -> PartJob:
        return PartJob(
            str(self._directory),
            server.address,
            self._servers.token,
            self._servers.certificate,
            part=place.path,
            whole_description="" if self._has_own_directories else self._description.to_json().decode(),
            part_description=self._description.part(place).to_json().decode(),
            arguments=self._writers,
        )

    def _follow(self, part: _Part, run: PartRun, view: FleetView) -> None:
        """Take the report of a collector, and act on its end or that of its server."""
        report = run.ask()
        part.note(report.progress)
        if report.transport and not part.transport:
            part.transport = report.transport
            self._began_s = self._began_s or time.monotonic()
            self._tell(part, "collecting", run)
        for text in report.warnings[part.warned :]:
            warnings.warn(f"{part.place.path}, {run.server.name} on {run.server.node}: {text}", stacklevel=2)
        part.warned = len(report.warnings)
        if report.has_ended:
            PartRun.end([run])
            self._conclude(part, run, report)
        elif self._has_to_move(part, run.server, view):
            PartRun.end([run])
            part.run = None
            self._tell(part, "moved", run)

    def _has_to_move(self, part: _Part, server: NodeServer, view: FleetView) -> bool:
        now_s = time.monotonic()
        states = {one.address: one.is_draining for one in view.servers}
        if server.address in states:
            part.seen_s = now_s
        return states.get(server.address, now_s - part.seen_s > _MISSING_S)

    def _conclude(self, part: _Part, run: PartRun, report: PartReport) -> None:
        """Note that a part is complete, or when it is to be tried again; raise the error that ends the collection."""
        part.run = None
        if report.index is not None:
            index, problems = parse_index(report.index.encode())
            if problems or index.end is None:
                raise DatasetError(f"the index of {part.place.path} on {run.server.node} is damaged: {problems}")
            part.index = index
            self._tell(part, "complete", run)
            return
        rows = 0 if part.progress is None else part.progress.rows
        part.failures = 1 if rows > part.failed_rows else part.failures + 1
        part.failed_rows = rows
        part.retry_s = time.monotonic() + _RETRY_S * 2 ** (part.failures - 1)
        self._tell(part, "failed", run)
        if not report.is_temporary or part.failures >= MAX_FAILURES:
            first, last = part.place.first_lane, part.place.first_lane + part.place.lanes - 1
            raise _explain(report, run.server, f"{part.place.path} (lanes {first} to {last}), ")

    def _tell(self, part: _Part, what: str, run: PartRun) -> None:
        if self._on_part is not None:
            self._on_part(PartEvent(part.place, what, run.server, run.report))
