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
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from worldloom.client.arguments import parse_integer
from worldloom.data.collection import Progress
from worldloom.data.collector import DEFAULT_LANES, Collector
from worldloom.data.errors import DatasetError, PolicyError
from worldloom.data.files import hold_directory, replace_file
from worldloom.data.fleet_parts import (
    IDLE_S,
    INTERVAL_S,
    MAX_FAILURES,
    RETRY_S,
    FleetCollection,
    PartEvent,
    check_time,
    explain_failure,
)
from worldloom.data.fleet_servers import FleetServers, NodeServer
from worldloom.data.layout import DESCRIPTION_FILE, PARTS_DIRECTORY, Description, PartPlace
from worldloom.data.part_process import PartJob
from worldloom.data.part_run import PartRun
from worldloom.fleet import Fleet
from worldloom.fleet.ray_session import uninterrupted
from worldloom.fleet.spec import DEFAULT_LEARNER, check_learner

__all__ = ["PartEvent", "collect_on_fleet", "divide_lanes"]

MAX_PARTS = 1000
_OWN_ARGUMENTS = ("on_step", "on_shard", "address", "env_arguments", "first_lane", "all_lanes")
"""Arguments of Collector that are not for users of a fleet."""


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
        parse_integer("parts", parts, 1, MAX_PARTS)
    check_learner(learner)
    path = Path(directory).absolute()
    collector = Collector(path, family, resume=resume, **arguments)
    writers = {"writers": arguments.pop("writers")} if "writers" in arguments else {}
    with hold_directory(path):
        description = collector.find_description()
        if description is not None:
            _check_resumed(path, description, parts, own_directories)
        with FleetServers(fleet) as servers:
            if is_new := description is None:
                servers.take_lanes(learner, arguments.setdefault("lanes", DEFAULT_LANES))
                description = _begin(path, servers, parts, own_directories, {"family": family, **arguments})
            run = FleetCollection(path, description, servers, writers, on_progress, on_part)
            if not is_new and run.missing_lanes:
                servers.take_lanes(learner, run.missing_lanes)
            return run.run()


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
    lanes = arguments["lanes"]
    if parts is not None and parts > lanes:
        raise ValueError(f"parts is {parts}: expected {lanes} at most, the number of lanes")
    ready = _wait_for_servers(servers)
    count = parts or min(lanes, len(ready), MAX_PARTS)
    hosts = [ready[k % len(ready)].host if own_directories else "" for k in range(count)]
    places = divide_lanes(lanes, hosts)
    largest = max(place.lanes for place in places)
    text = _describe(path, servers, {**arguments, "lanes": largest, "all_lanes": lanes})
    whole = replace(Description.from_json(text.encode(), path), lanes=lanes, first_lane=0, parts=places)
    replace_file(path / DESCRIPTION_FILE, whole.to_json())
    return whole


def _wait_for_servers(servers: FleetServers) -> list[NodeServer]:
    """Wait until there is a server that is ready; return all that are."""
    deadline_s = time.monotonic() + IDLE_S
    while not (ready := servers.view().ready):
        check_time(deadline_s, servers.view())
        time.sleep(INTERVAL_S)
    return ready


def _describe(path: Path, servers: FleetServers, arguments: dict[str, Any]) -> str:
    """Have a collector on a node describe a dataset, which needs an env and the policy."""
    for attempt in range(MAX_FAILURES):
        ready = _wait_for_servers(servers)
        server = ready[attempt % len(ready)]
        job = PartJob(str(path), server.address, servers.token, servers.certificate, arguments=arguments)
        run = PartRun(server, job, servers.python)
        try:
            while not (report := run.ask()).has_ended:
                time.sleep(INTERVAL_S / 4)
        finally:
            with uninterrupted():
                PartRun.end([run])
        if report.description:
            return report.description
        if not report.is_temporary:
            break
        time.sleep(RETRY_S * 2**attempt)
    raise explain_failure(report, server)
