"""The parts of a collection on a fleet: started beside servers, followed, and moved when servers or nodes are lost."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from worldloom.data.collection import Progress
from worldloom.data.errors import DatasetError, PolicyError
from worldloom.data.files import replace_file
from worldloom.data.finish import finish_dataset
from worldloom.data.fleet_servers import FleetServers, FleetView, NodeServer
from worldloom.data.index import Index, cut_index, parse_index, read_index
from worldloom.data.layout import DESCRIPTION_FILE, INDEX_FILE, Description, PartPlace
from worldloom.data.part_actor import PartReport
from worldloom.data.part_process import PartJob
from worldloom.data.part_run import PartRun, read_on_nodes
from worldloom.fleet.ray_session import uninterrupted

INTERVAL_S = 0.2
_MISSING_S = 5.0
"""Time that a server may be missing in the status of its fleet before its part moves."""
RETRY_S = 1.0
"""Time before a part that has failed is tried again; doubled with each failure."""
MAX_FAILURES = 5
"""Failures of a part in a row, without a complete shard between them, that end the collection."""
_LOST_NODE_S = 60.0
"""Time after which a part with a directory of its own begins again elsewhere, if its node has left the cluster."""
IDLE_S = 180.0
"""Time without any server to go on with after which the collection ends."""


@dataclass(frozen=True)
class PartEvent:
    """Something that happened to a part, for callbacks."""

    place: PartPlace
    what: str
    """`started`, `collecting`, `failed`, `moved` or `complete`."""
    server: NodeServer
    report: PartReport
    """The collector's last report: its process, transport, progress and error."""


def check_time(deadline_s: float, view: FleetView, nodes: Sequence[str] = ()) -> None:
    """Raise DatasetError if no server could go on by a time; `nodes` are those that parts wait for, if not for any."""
    if time.monotonic() > deadline_s:
        where = f" on {', '.join(nodes)}" if any(nodes) else ""
        raise DatasetError(
            f"no server{where} could go on for {IDLE_S:g} s: {view.summary}; --resume goes on from what is complete"
        )


def explain_failure(report: PartReport, server: NodeServer, part: str = "") -> DatasetError:
    """Return the error of a collector that has failed, with its server and node."""
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


class FleetCollection:
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
        self._find_complete()

    @property
    def missing_lanes(self) -> int:
        """Lanes of the parts that are not complete."""
        return sum(part.place.lanes for part in self._parts if part.index is None)

    def run(self) -> Progress:
        """Collect all parts that are not complete, and finish the dataset."""
        whole = read_index(self._directory)
        if whole.end is not None:
            return self.progress()
        self._collect()
        cut_index(self._directory, whole)
        indexes = [part.index for part in self._parts if part.index is not None]
        finish_dataset(self._directory, self._description, whole, indexes if self._has_own_directories else None)
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

    def _find_complete(self) -> None:
        """Find out which parts are complete already."""
        nodes, paths = self._servers.view().nodes, [self._directory / part.place.path for part in self._parts]
        remote = [k for k, part in enumerate(self._parts) if part.place.node in nodes]
        found = read_on_nodes([(nodes[self._parts[k].place.node], paths[k] / INDEX_FILE) for k in remote])
        indexes = {k: parse_index(data)[0] for k, data in zip(remote, found, strict=True)}
        indexes |= {k: read_index(paths[k]) for k, part in enumerate(self._parts) if not part.place.node}
        for k, index in indexes.items():
            self._parts[k].note_index(index, self._description.part(self._parts[k].place))

    def _collect(self) -> None:
        idle_s = time.monotonic()
        try:
            while self.missing_lanes:
                view = self._servers.view()
                self._follow(view)
                self._start(view)
                if any(part.run is not None for part in self._parts):
                    idle_s = time.monotonic()
                check_time(idle_s + IDLE_S, view, sorted({part.place.node for part in self._parts if not part.index}))
                if self._on_progress is not None:
                    self._on_progress(self.progress())
                time.sleep(INTERVAL_S)
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

    def _follow(self, view: FleetView) -> None:
        """Take the reports of the collectors, and act on their ends or those of their servers."""
        ended = []
        for part in self._parts:
            if (run := part.run) is not None:
                self._take_report(part, run)
                if run.report.has_ended or self._has_to_move(part, run.server, view):
                    ended.append((part, run))
        PartRun.end([run for _, run in ended])  # all at once: while this waits, nobody asks the others
        for part, run in ended:
            part.run, part.retry_s = None, run.ended_s
            if run.report.has_ended:
                self._conclude(part, run, run.report)
            else:
                self._tell(part, "moved", run)

    def _take_report(self, part: _Part, run: PartRun) -> None:
        report = run.ask()
        part.note(report.progress)
        if report.transport and not part.transport:
            part.transport = report.transport
            self._began_s = self._began_s or time.monotonic()
            self._tell(part, "collecting", run)
        for text in report.warnings[part.warned :]:
            warnings.warn(f"{part.place.path}, {run.server.name} on {run.server.node}: {text}", stacklevel=2)
        part.warned = len(report.warnings)

    def _has_to_move(self, part: _Part, server: NodeServer, view: FleetView) -> bool:
        now_s = time.monotonic()
        states = {one.address: one.is_draining for one in view.servers}
        if server.address in states:
            part.seen_s = now_s
        return states.get(server.address, now_s - part.seen_s > _MISSING_S)

    def _conclude(self, part: _Part, run: PartRun, report: PartReport) -> None:
        """Note that a part is complete, or when it is to be tried again; raise the error that ends the collection."""
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
        part.retry_s = time.monotonic() + RETRY_S * 2 ** (part.failures - 1)
        self._tell(part, "failed", run)
        if not report.is_temporary or part.failures >= MAX_FAILURES:
            first, last = part.place.first_lane, part.place.first_lane + part.place.lanes - 1
            raise explain_failure(report, run.server, f"{part.place.path} (lanes {first} to {last}), ")

    def _tell(self, part: _Part, what: str, run: PartRun) -> None:
        if self._on_part is not None:
            self._on_part(PartEvent(part.place, what, run.server, run.report))
