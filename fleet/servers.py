"""The servers of a fleet as the reconciler knows them: placing them, asking their actors, noticing lost ones.

Ray's word for who is alive comes 15 to 65 seconds late. So actors are asked directly, and are given up when they do not
answer; the health of servers is checked over the network.
"""

import math
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from worldloom.extras import explain_missing_extra
from worldloom.fleet import actors
from worldloom.fleet.health import HealthProbe
from worldloom.fleet.plan import Phase, choose_processors, nodes_to_avoid
from worldloom.fleet.ray_session import ray
from worldloom.fleet.server_actor import ServerReport
from worldloom.fleet.spec import FleetSpec
from worldloom.fleet.status import ServerStatus
from worldloom.protos.addresses import parse_address
from worldloom.server.web.page_url import PageError, reachable_url

with explain_missing_extra("worldloom.fleet", "fleet"):
    from ray.exceptions import ActorDiedError, RayError

ACTOR_SILENT_S = 5.0
"""Time without an answer after which an actor is given up."""
BOTH_SILENT_S = 2.0
"""The same if its server does not answer either."""
_FIRST_ANSWER_S = 60.0
"""The same for one that was just created: Ray starts a process for it."""
FROZEN_S = 3.0
"""Time that a server may be stopped by a signal."""
HEALTH_SILENT_S = 6.0
"""Time that a server may leave health checks unanswered."""
_ATTEMPT_S = 1.0
"""Time for resources on the nodes that are preferred, before others are allowed."""
_RESERVE_S = 0.3
"""Time in which Ray reserves resources that are free."""
_SUSPECT_S = 90.0
"""Time that a node on which an actor was lost is avoided. Ray takes as long to notice that a node is gone."""


@dataclass
class Server:
    """A server as the reconciler knows it."""

    number: int
    generation: int
    began_s: float
    """Time at which it was placed, or asked for."""
    group: Any = None
    node_id: str | None = None
    """Node that its resources are reserved on."""
    attempt: int = 0
    """Attempts to reserve its resources so far."""
    attempt_s: float = 0.0
    actor: Any = None
    processors: tuple[int, ...] = ()
    """Processors that were chosen for it."""
    question: Any = None
    """Reference to the report that the actor was asked for."""
    answered_s: float = 0.0
    report: ServerReport | None = None
    is_started: bool = False
    """True once its actor was told to start it."""
    is_draining: bool = False
    was_ready: bool = False
    stopped_since_s: float | None = None
    problem: str | None = None
    """Reason why it is lost."""
    is_unreachable: bool = False
    """True if it is lost since its actor is: perhaps its node is."""

    @property
    def name(self) -> str:
        """Its name in the status."""
        return f"server-{self.number}"

    @property
    def phase(self) -> Phase:
        """Its phase: placing, starting, ready or draining."""
        if self.is_draining:
            return "draining"
        if self.actor is None:
            return "placing"
        return "ready" if self.report is not None and self.report.state == "listening" else "starting"

    @property
    def address(self) -> str | None:
        """Address for clients, while it listens."""
        is_listening = self.report is not None and self.report.state == "listening"
        return self.report.address if self.report is not None and is_listening else None

    @property
    def page(self) -> str | None:
        """URL of its page, while it listens."""
        if self.address is None or self.report is None or self.report.page is None:
            return None
        try:
            return reachable_url(self.report.page, parse_address(self.address))
        except PageError:  # it can be opened on the server's node alone
            return self.report.page

    @property
    def node(self) -> str:
        """Address of its node, and the beginning of Ray's id for it."""
        ip = "" if self.report is None else self.report.node_ip
        return f"{ip} {(self.node_id or '')[:6]}".strip()


class Servers:
    """All servers of a fleet. Used by the thread that reconciles alone."""

    def __init__(self, fleet: str, probe: HealthProbe) -> None:
        self._fleet = fleet
        self._probe = probe
        self._servers: dict[int, Server] = {}
        self._next_number = 1
        self._suspects: dict[str, float] = {}
        """Nodes on which an actor was lost, each with the time until which it is avoided."""

    def __iter__(self) -> Iterator[Server]:
        return iter(list(self._servers.values()))

    def __len__(self) -> int:
        return len(self._servers)

    def __getitem__(self, number: int) -> Server:
        return self._servers[number]

    def add(self, generation: int) -> None:
        """Add a server, to be placed with the next tick."""
        self._servers[self._next_number] = Server(self._next_number, generation, time.monotonic())
        self._next_number += 1

    def take_over(self, spec: FleetSpec, timeout_s: float) -> None:
        """Take over the servers that there are, when the reconciler was restarted."""
        now_s = time.monotonic()
        handles, placements = actors.find_server_actors(self._fleet), actors.list_placements(self._fleet)
        for number, handle in handles.items():
            placement = placements.pop(number, None)
            server = Server(number, spec.generation, now_s, actor=handle, answered_s=now_s)
            if placement is not None:
                server.group, server.node_id = placement.group, placement.node_id
            self._servers[number] = server
        for placement in placements.values():  # reserved, but the actor was not created any more
            actors.release(placement.group)
        self._next_number = max(handles, default=0) + 1
        self.ask(spec, timeout_s)

    def place(self, spec: FleetSpec) -> None:
        """Find nodes for servers that have none, one after another, so that they spread."""
        waiting = [one for one in self._servers.values() if one.actor is None]
        if not waiting:
            return
        placements = actors.list_placements(self._fleet)
        alive = [one["NodeID"] for one in ray.nodes() if one["Alive"]]
        can_wait = True
        for server in waiting:
            found = placements.get(server.number)
            server.node_id = None if found is None else found.node_id
            if server.node_id is None and self._should_reserve(server):
                self._reserve(server, spec, alive)
                if can_wait := can_wait and actors.wait_for_reservation(server.group, _RESERVE_S):
                    server.node_id = actors.list_placements(self._fleet)[server.number].node_id
            if server.node_id is not None:
                server.actor = actors.create_server_actor(
                    self._fleet, server.number, server.generation, spec.resources, server.group
                )
                server.began_s = server.answered_s = time.monotonic()

    def _should_reserve(self, server: Server) -> bool:
        if server.group is None:
            return True
        return server.attempt <= len(self._servers) + 1 and time.monotonic() - server.attempt_s > _ATTEMPT_S

    def _reserve(self, server: Server, spec: FleetSpec, alive: list[str]) -> None:
        """Ask for the resources of a server, at each attempt on more nodes than before."""
        now_s = time.monotonic()
        suspects = [node for node, until_s in self._suspects.items() if until_s > now_s]
        counts = Counter(one.node_id for one in self._servers.values() if one.node_id is not None)
        if server.group is not None:
            actors.release(server.group)
            server.attempt += 1
        avoid = nodes_to_avoid(alive, counts, suspects, server.attempt)
        server.group = actors.reserve(self._fleet, server.number, spec.resources, avoid)
        server.attempt_s = now_s

    def ask(self, spec: FleetSpec, timeout_s: float) -> None:
        """Ask all server actors for a report, and take those that have come."""
        asked = [one for one in self._servers.values() if one.actor is not None]
        for server in asked:
            if server.question is None:
                server.question = server.actor.report.remote()
        if not asked:
            return
        done, _ = ray.wait([one.question for one in asked], num_returns=len(asked), timeout=timeout_s)
        answered = set(done)
        for server in asked:
            if server.question in answered:
                self._take_report(server, spec)

    def _take_report(self, server: Server, spec: FleetSpec) -> None:
        question, server.question = server.question, None
        try:
            report: ServerReport = ray.get(question)
        except ActorDiedError as error:
            reason = " ".join(str(error).split("\n")[-1].split())
            server.problem, server.is_unreachable = f"its actor has ended ({reason})", True
            return
        except RayError:  # it cannot be reached now: its silence decides
            return
        server.report, server.answered_s = report, time.monotonic()
        server.generation, server.node_id = report.generation, report.node_id
        server.is_draining |= report.is_draining
        server.is_started |= report.state != "idle"
        server.was_ready |= report.state == "listening"
        server.processors = report.processors or server.processors
        if report.spec_version < spec.version and server.is_started:
            server.actor.keep.remote(spec)

    def start_idle(self, spec: FleetSpec) -> None:
        """Start servers whose actors are there, on the processors of the machine that the fewest are bound to."""
        for server in self._servers.values():
            report = server.report
            if report is None or server.is_started:
                continue
            taken = Counter(
                processor
                for other in self._servers.values()
                if other.report is not None and other.report.host == report.host
                for processor in other.processors
            )
            count = math.ceil(spec.cpus_per_server)
            server.processors = choose_processors(report.usable_processors, taken, count)
            server.actor.start.remote(spec, server.processors)
            server.is_started = True

    def find_lost(self) -> list[tuple[Server, str]]:
        """Return the servers that have ended or have to be given up, with the reasons.

        A server that has stopped serving by itself counts as draining from then on.
        """
        now_s = time.monotonic()
        lost = []
        for server in self:
            if server.actor is None:
                continue
            reason = server.problem or self._find_problem(server, now_s)
            if reason is not None:
                lost.append((server, reason))
                if server.node_id is not None and server.is_unreachable:
                    self._suspects[server.node_id] = now_s + _SUSPECT_S
            elif server.phase == "ready":
                health = self._probe.health_of(server.name)
                server.is_draining = health is not None and health.answered_s is not None and not health.is_serving
        return lost

    def _find_problem(self, server: Server, now_s: float) -> str | None:
        report = server.report
        if report is None:
            server.is_unreachable = now_s - server.answered_s > _FIRST_ANSWER_S
            return "its actor did not start" if server.is_unreachable else None
        if report.state == "ended":
            return _describe_end(report)
        health = self._probe.health_of(server.name)
        server_is_silent = report.state == "listening" and health is not None and health.silent_s(now_s) > 0
        if now_s - server.answered_s > (BOTH_SILENT_S if server_is_silent else ACTOR_SILENT_S):
            server.is_unreachable = True
            return "neither its actor nor it answered" if server_is_silent else "its actor did not answer"
        if not report.is_stopped:
            server.stopped_since_s = None
        elif server.stopped_since_s is None:
            server.stopped_since_s = now_s
        elif now_s - server.stopped_since_s > FROZEN_S:
            return f"it was stopped by a signal for {FROZEN_S:g} s"
        if report.state == "listening" and health is not None and health.silent_s(now_s) > HEALTH_SILENT_S:
            return f"it did not answer health checks for {HEALTH_SILENT_S:g} s"
        return None

    def drain(self, server: Server) -> None:
        """Have a server hand its lanes over and end; one that serves nobody yet is ended at once."""
        if server.phase == "ready":
            server.is_draining = True
            server.actor.drain.remote()
        elif server.phase != "draining":
            self.drop(server)

    def drop(self, server: Server) -> None:
        """End a server's actor, with which its server ends, and give back its resources."""
        del self._servers[server.number]
        if server.actor is not None:
            ray.kill(server.actor, no_restart=True)
        if server.group is not None:
            actors.release(server.group)

    def stop_all(self, timeout_s: float) -> None:
        """End all servers, those orderly that answer in time."""
        stopping = [one.actor.stop.remote() for one in self if one.is_started]
        if stopping:
            ray.wait(stopping, num_returns=len(stopping), timeout=timeout_s)
        self._servers.clear()
        actors.remove_all(self._fleet)

    def watch(self) -> None:
        """Have the probe check the servers that listen."""
        self._probe.watch({one.name: one.address for one in self if one.address is not None})

    def status_of(self, server: Server, spec: FleetSpec) -> ServerStatus:
        """Return the status of a server."""
        health = self._probe.health_of(server.name)
        return ServerStatus(
            server=server.name,
            state=server.phase,
            detail=_describe_state(server, spec),
            node=server.node,
            address=server.address,
            page=server.page,
            processors=server.processors,
            pid=None if server.report is None else server.report.pid,
            generation=server.generation,
            age_s=time.monotonic() - server.began_s,
            lanes=0 if health is None else health.lanes,
            lane_steps_per_s=0.0 if health is None else health.lane_steps_per_s,
            frames_per_s=0.0 if health is None else health.frames_per_s,
        )


def _describe_state(server: Server, spec: FleetSpec) -> str:
    if server.phase == "placing":
        return "waits for " + ", ".join(f"{count:g} {name}" for name, count in spec.resources.items())
    report = server.report
    if server.phase == "starting" and report is not None and report.compiled is not None:
        return f"compiling {report.compiled[0]} of {report.compiled[1]}"
    return ""


def _describe_end(report: ServerReport) -> str:
    code = report.exit_code
    if code is not None and code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}: {report.last_line}"
