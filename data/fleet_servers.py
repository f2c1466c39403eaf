"""The servers of a fleet that collectors can be placed beside, watched by a thread that also keeps the lease of lanes.

The reconciler of a fleet may take seconds to answer while it is restarted. Collectors end when nobody asks for them
meanwhile, so the thread that asks for them must not wait for the reconciler.
"""

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from worldloom.fleet import Fleet, FleetError, NoSuchFleet
from worldloom.fleet.actors import list_placements
from worldloom.fleet.directory import FleetDirectory, ask
from worldloom.fleet.ray_session import find_reconciler, ray
from worldloom.fleet.spec import FleetSpec
from worldloom.fleet.status import summarise

_ASK_S = 30.0
_INTERVAL_S = 0.5
_CLOSE_S = 5.0
_SILENT_S = 60.0
"""Time that the fleet may leave questions unanswered."""


@dataclass(frozen=True)
class NodeServer:
    """A server that is ready or drains, and its node."""

    name: str
    address: str
    node: str
    """Address of its node, and the beginning of Ray's id for it."""
    node_id: str
    host: str
    """Name of the node's machine."""
    is_draining: bool = False


@dataclass(frozen=True)
class FleetView:
    """The servers and nodes of a fleet at some time."""

    servers: tuple[NodeServer, ...] = ()
    nodes: dict[str, str] = field(default_factory=dict)
    """Ray's ids of the nodes that are alive, by the names of their machines."""
    summary: str = ""
    """A line about the servers."""

    @property
    def ready(self) -> list[NodeServer]:
        """Servers that are ready."""
        return [one for one in self.servers if not one.is_draining]


class FleetServers:
    """The servers of a fleet, for a collection. Ends with its `with` block."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        spec: FleetSpec = ask(find_reconciler(fleet.name), "describe", timeout_s=_ASK_S)
        self.python = spec.python
        """Python on the nodes; None is the one of Ray."""
        self.token, self.certificate = spec.secrets.token, spec.secrets.authority.certificate_pem
        self._lease: FleetDirectory | None = None
        self._view, self._error = self._look(), ""
        self._answered_s = time.monotonic()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="worldloom-servers", daemon=True)
        self._thread.start()

    def view(self) -> FleetView:
        """Return the servers as of a moment ago; FleetError if the fleet is gone or does not answer any more."""
        if self._error and time.monotonic() - self._answered_s > _SILENT_S:
            raise FleetError(f"the fleet {self._fleet.name!r} has not answered for {_SILENT_S:g} s: {self._error}")
        return self._view

    def take_lanes(self, learner: str, lanes: int) -> None:
        """Count these lanes against a learner's quota until the end; QuotaExceeded if it has not so many left."""
        lease = FleetDirectory(self._fleet.name, ray.get_runtime_context().gcs_address, learner, lanes)
        lease.acquire()
        self._lease = lease

    def close(self) -> None:
        """Give the lanes back."""
        self._ending.set()
        self._thread.join(_CLOSE_S)
        if self._lease is not None:
            self._lease.close()

    def __enter__(self) -> "FleetServers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _watch(self) -> None:
        while not self._ending.wait(_INTERVAL_S):
            try:
                if self._lease is not None:
                    with suppress(FleetError):  # the status tells
                        self._lease.addresses()
                self._view, self._error = self._look(), ""
                self._answered_s = time.monotonic()
            except NoSuchFleet as error:
                self._error, self._answered_s = str(error), -_SILENT_S
            except Exception as error:  # of Ray, such as when its head node is restarted
                self._error = str(error)

    def _look(self) -> FleetView:
        status = self._fleet.status()
        placements = list_placements(self._fleet.name)
        hosts: dict[str, Any] = {one["NodeID"]: one["NodeManagerHostname"] for one in ray.nodes() if one["Alive"]}
        found = []
        for one in status.servers:
            placement = placements.get(int(one.server.removeprefix("server-")))
            is_there = placement is not None and placement.node_id in hosts and one.address is not None
            if is_there and one.state in ("ready", "draining"):
                assert placement is not None
                assert placement.node_id is not None
                assert one.address is not None
                found.append(
                    NodeServer(
                        one.server,
                        one.address,
                        one.node,
                        placement.node_id,
                        hosts[placement.node_id],
                        is_draining=one.state == "draining",
                    )
                )
        return FleetView(tuple(found), {host: node for node, host in hosts.items()}, summarise(status))
