"""The reconciler: the Ray actor that keeps a fleet as it is wanted.

One thread compares what there is with the wanted state twice a second and changes what differs; the actor's methods
read what that thread has found, or change the wanted state. It asks the server actors itself and has a process that
checks the servers over the network: Ray notices a lost node only after 15 to 65 seconds.

When it is killed, Ray starts it again. It then takes the wanted state from the server actors, of which each keeps a
copy, and goes on with the servers that there are.
"""

import math
import signal
import threading
import time
import traceback
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from worldloom.fleet import actors
from worldloom.fleet.errors import FleetError, explain_missing
from worldloom.fleet.health import HealthProbe
from worldloom.fleet.leases import Lease, Leases
from worldloom.fleet.plan import Phase, ServerView, choose_processors, nodes_to_avoid, plan_servers
from worldloom.fleet.ray_session import ray
from worldloom.fleet.server_actor import ServerReport
from worldloom.fleet.spec import FleetSpec
from worldloom.fleet.status import FleetStatus, LearnerStatus, Loss, ServerStatus

with explain_missing():
    from ray.exceptions import ActorDiedError, RayError

_TICK_S = 0.5
_ANSWER_S = 0.25
"""Time that a tick waits for answers; those that come later count in the next."""
ACTOR_SILENT_S = 5.0
"""Time without an answer after which an actor is given up."""
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
_MAX_RETRY_S = 30.0
_RECOVER_S = 5.0
_STOP_S = 12.0
_KEEP_S = 2.0


@dataclass
class _Server:
    """A server as the reconciler knows it."""

    number: int
    generation: int
    began_s: float
    """Time at which it was placed, or asked for."""
    group: Any = None
    node_id: str | None = None
    attempt: int = 0
    attempt_s: float = 0.0
    actor: Any = None
    question: Any = None
    """Reference to the report that the actor was asked for."""
    answered_s: float = 0.0
    report: ServerReport | None = None
    is_started: bool = False
    is_draining: bool = False
    was_ready: bool = False
    stopped_since_s: float | None = None
    problem: str | None = None
    """Reason why it is lost."""

    @property
    def name(self) -> str:
        return f"server-{self.number}"

    @property
    def phase(self) -> Phase:
        if self.is_draining:
            return "draining"
        if self.actor is None:
            return "placing"
        return "ready" if self.report is not None and self.report.state == "listening" else "starting"

    @property
    def node(self) -> str:
        ip = "" if self.report is None else self.report.node_ip
        return f"{ip} {(self.node_id or '')[:6]}".strip()


@dataclass
class _Losses:
    count: int = 0
    last: Loss | None = None
    waiting: list[float] = field(default_factory=list)
    """Times of losses that are not replaced yet."""


class Reconciler:
    """Keeps a fleet as it is wanted. Methods run concurrently with the thread that does it."""

    def __init__(self, initial: FleetSpec) -> None:
        self._spec = initial
        self._lock = threading.Lock()
        """Held while the wanted state is changed."""
        is_restarted: bool = ray.get_runtime_context().was_current_actor_reconstructed
        self._leases = Leases(is_restarted)
        self._probe = HealthProbe(initial.secrets.token, initial.secrets.authority.certificate_pem)
        self._servers: dict[int, _Server] = {}
        self._next_number = 1
        self._drains: deque[int] = deque()
        """Servers to drain, as users have asked."""
        self._suspects: dict[str, float] = {}
        """Nodes on which an actor was lost, each with the time until which it is avoided."""
        self._losses = _Losses()
        self._failed_starts = 0
        self._problem: str | None = None
        self._create_from_s = 0.0
        self._requested_version = 0
        self._status = FleetStatus(initial.name, initial.servers, initial.generation, False, None, 0, None, (), ())
        self._addresses: tuple[list[str], list[str]] = [], []
        """Addresses of servers that are ready, and of those that drain."""
        self._wake = threading.Event()
        self._is_ending = False
        self._is_recovered = threading.Event()
        self._thread = threading.Thread(target=self._reconcile, args=(is_restarted,), name="reconcile", daemon=True)
        self._thread.start()

    # Methods for users

    def status(self) -> FleetStatus:
        """Return the status of the fleet."""
        self._is_recovered.wait(_RECOVER_S)
        return self._status

    def describe(self) -> FleetSpec:
        """Return the wanted state, with the secrets that clients need."""
        self._is_recovered.wait(_RECOVER_S)
        return self._spec

    def addresses(self) -> list[str]:
        """Return the addresses of the servers that are ready."""
        return self._addresses[0]

    def acquire(self, lease: Lease) -> None:
        """Take lanes for a learner; QuotaExceeded if its quota has not so many left."""
        self._leases.acquire(lease, self._spec.quota_of(lease.learner))

    def renew(self, lease: Lease) -> list[str]:
        """Renew a lease, and return the addresses of all servers, those that drain included."""
        self._leases.renew(lease)
        self._is_recovered.wait(_RECOVER_S)
        return [*self._addresses[0], *self._addresses[1]]

    def release(self, lease_id: str) -> None:
        """End a lease."""
        self._leases.release(lease_id)

    def change(self, **changes: Any) -> FleetSpec:
        """Change fields of the wanted state for which servers need not be replaced, and return it."""
        return self._change(False, changes)

    def upgrade(self, **changes: Any) -> FleetSpec:
        """Change fields of the wanted state, have all servers replaced one after another, and return it."""
        return self._change(True, changes)

    def drain(self, server: str) -> None:
        """Have a server hand its lanes over and end; another takes its place."""
        names = {one.server: one.state for one in self._status.servers}
        if server not in names:
            raise ValueError(f"server is {server!r}: expected one of {', '.join(names) or 'none: there are no servers'}")
        self._drains.append(int(server.removeprefix("server-")))
        self._wake.set()

    def wanted_bundles(self) -> list[dict[str, float]]:
        """Return the resources that the fleet wants, for each server."""
        return [] if self._is_ending else [self._spec.resources] * self._spec.servers

    def end(self) -> None:
        """End all servers and give back everything that the fleet has, but this actor."""
        self._is_ending = True
        self._wake.set()
        self._thread.join()

    def _change(self, is_upgrade: bool, changes: dict[str, Any]) -> FleetSpec:
        self._is_recovered.wait(_RECOVER_S)
        with self._lock:
            if self._is_ending:
                raise FleetError(f"the fleet {self._spec.name!r} is going down: nothing can be changed")
            spec = self._spec.upgrade(**changes) if is_upgrade else self._spec.change(**changes)
            self._spec = spec
        keeping = [one.actor.keep.remote(spec) for one in list(self._servers.values()) if one.actor is not None]
        if keeping:  # so that the change outlives this process
            ray.wait(keeping, num_returns=len(keeping), timeout=_KEEP_S)
        self._wake.set()
        return spec

    # The thread that reconciles

    def _reconcile(self, is_restarted: bool) -> None:
        if is_restarted:
            self._try(self._recover)
        while not self._is_ending:
            self._try(self._tick)
            self._is_recovered.set()
            self._wake.wait(_TICK_S)
            self._wake.clear()
        self._try(self._end_all)

    def _try(self, work: Any) -> None:
        """Do some work. Errors of Ray, such as a head node that is restarting, are logged, and the next tick goes on."""
        try:
            work()
        except Exception:
            traceback.print_exc()

    def _recover(self) -> None:
        """Take over the servers that there are, and the newest copy of the wanted state."""
        handles = actors.find_server_actors(self._spec.name)
        questions = {handle.kept.remote(): number for number, handle in handles.items()}
        done, _ = ray.wait(list(questions), num_returns=len(questions), timeout=_RECOVER_S) if questions else ([], [])
        for question in done:
            try:
                spec = ray.get(question)
            except RayError:
                continue
            if spec is not None and spec.version > self._spec.version:
                self._spec = spec
        now_s = time.monotonic()
        placements = actors.list_placements(self._spec.name)
        for number, handle in handles.items():
            placement = placements.pop(number, None)
            server = _Server(number, self._spec.generation, now_s, actor=handle, answered_s=now_s)
            if placement is not None:
                server.group, server.node_id = placement.group, placement.node_id
            self._servers[number] = server
        for placement in placements.values():  # reserved, but the actor was not created any more
            actors.release(placement.group)
        self._next_number = max(handles, default=0) + 1
        self._ask(_RECOVER_S)

    def _tick(self) -> None:
        self._place()
        self._ask(_ANSWER_S)
        self._start_idle()
        self._judge()
        listening = {
            one.name: one.report.address
            for one in self._servers.values()
            if one.report is not None and one.report.state == "listening" and one.report.address is not None
        }
        self._probe.watch(listening)
        self._plan()
        self._publish()
        if self._requested_version != self._spec.version:
            self._requested_version = self._spec.version
            actors.request_from_autoscaler(self._spec.name, self.wanted_bundles())

    def _place(self) -> None:
        """Find nodes for servers that have none, one after another, so that they spread."""
        waiting = [one for one in self._servers.values() if one.actor is None]
        if not waiting:
            return
        placements = actors.list_placements(self._spec.name)
        alive = [one["NodeID"] for one in ray.nodes() if one["Alive"]]
        can_wait = True
        for server in waiting:
            found = placements.get(server.number)
            server.node_id = None if found is None else found.node_id
            if server.node_id is None and self._should_reserve(server):
                self._reserve(server, alive)
                if can_wait := can_wait and actors.wait_for_reservation(server.group, _RESERVE_S):
                    server.node_id = actors.list_placements(self._spec.name)[server.number].node_id
            if server.node_id is not None:
                server.actor = actors.create_server_actor(
                    self._spec.name, server.number, server.generation, self._spec.resources, server.group
                )
                server.began_s = server.answered_s = time.monotonic()

    def _should_reserve(self, server: _Server) -> bool:
        if server.group is None:
            return True
        return server.attempt <= len(self._servers) + 1 and time.monotonic() - server.attempt_s > _ATTEMPT_S

    def _reserve(self, server: _Server, alive: list[str]) -> None:
        """Ask for the resources of a server, at each attempt on more nodes than before."""
        now_s = time.monotonic()
        suspects = [node for node, until_s in self._suspects.items() if until_s > now_s]
        counts = Counter(one.node_id for one in self._servers.values() if one.node_id is not None)
        if server.group is not None:
            actors.release(server.group)
            server.attempt += 1
        avoid = nodes_to_avoid(alive, counts, suspects, server.attempt)
        server.group = actors.reserve(self._spec.name, server.number, self._spec.resources, avoid)
        server.attempt_s = now_s

    def _ask(self, timeout_s: float) -> None:
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
                self._take_report(server)

    def _take_report(self, server: _Server) -> None:
        question, server.question = server.question, None
        try:
            report: ServerReport = ray.get(question)
        except ActorDiedError:
            server.problem = "its actor or its node has ended"
            return
        except RayError:  # it cannot be reached now: its silence decides
            return
        server.report, server.answered_s = report, time.monotonic()
        server.generation, server.node_id = report.generation, report.node_id
        server.is_draining |= report.is_draining
        server.is_started |= report.state != "idle"
        if report.state == "listening" and not server.was_ready:
            server.was_ready = True
            self._failed_starts, self._problem = 0, None
        if report.spec_version < self._spec.version and server.is_started:
            server.actor.keep.remote(self._spec)

    def _start_idle(self) -> None:
        """Start servers whose actors are there, on the processors of the machine that the fewest are bound to."""
        for server in self._servers.values():
            report = server.report
            if report is None or server.is_started:
                continue
            taken = Counter(
                processor
                for other in self._servers.values()
                if other.report is not None and other.report.host == report.host
                for processor in other.report.processors
            )
            count = math.ceil(self._spec.cpus_per_server)
            processors = choose_processors(report.usable_processors, taken, count)
            ray.get(server.actor.start.remote(self._spec, processors), timeout=ACTOR_SILENT_S)
            server.report = ray.get(server.actor.report.remote(), timeout=ACTOR_SILENT_S)
            server.is_started = True

    def _judge(self) -> None:
        """Drop servers that have ended, and those that have to be given up."""
        now_s = time.monotonic()
        for server in list(self._servers.values()):
            if server.actor is None:
                continue
            reason = server.problem or self._find_problem(server, now_s)
            report = server.report
            if reason is not None and server.is_draining:
                self._drop(server)
            elif reason is not None:
                self._lose(server, reason)
            elif report is not None and report.state == "listening" and not server.is_draining:
                health = self._probe.health_of(server.name)
                # Somebody else has told it to end.
                server.is_draining = health is not None and health.answered_s is not None and not health.is_serving

    def _find_problem(self, server: _Server, now_s: float) -> str | None:
        report = server.report
        if report is None:
            return None if now_s - server.answered_s < _FIRST_ANSWER_S else "its actor did not start"
        if report.state == "ended":
            return _describe_end(report)
        if now_s - server.answered_s > ACTOR_SILENT_S:
            return f"its actor did not answer for {ACTOR_SILENT_S:g} s"
        if not report.is_stopped:
            server.stopped_since_s = None
        elif server.stopped_since_s is None:
            server.stopped_since_s = now_s
        elif now_s - server.stopped_since_s > FROZEN_S:
            return f"it was stopped by a signal for {FROZEN_S:g} s"
        health = self._probe.health_of(server.name)
        if report.state == "listening" and health is not None and health.silent_s(now_s) > HEALTH_SILENT_S:
            return f"it did not answer health checks for {HEALTH_SILENT_S:g} s"
        return None

    def _lose(self, server: _Server, reason: str) -> None:
        now_s = time.monotonic()
        if server.node_id is not None and (server.report is None or server.report.state != "ended"):
            self._suspects[server.node_id] = now_s + _SUSPECT_S
        if server.was_ready:
            self._losses.count += 1
            self._losses.last = Loss(server.name, server.node, reason, time.time(), None)
            self._losses.waiting.append(now_s)
        else:
            self._failed_starts += 1
            self._problem = f"{server.name} on {server.node} did not start: {reason}"
            self._create_from_s = now_s + min(_MAX_RETRY_S, 2.0 ** (self._failed_starts - 1))
        self._drop(server)

    def _drop(self, server: _Server) -> None:
        """End a server's actor, with which its server ends, and give back its resources."""
        del self._servers[server.number]
        if server.actor is not None:
            ray.kill(server.actor, no_restart=True)
        if server.group is not None:
            actors.release(server.group)

    def _plan(self) -> None:
        now_s = time.monotonic()
        for server in self._servers.values():  # as users have asked
            if server.number in self._drains:
                self._drain(server)
        self._drains.clear()
        views = [
            ServerView(one.number, one.generation, one.phase, now_s - one.began_s) for one in self._servers.values()
        ]
        plan = plan_servers(self._spec.servers, self._spec.generation, views)
        for number in plan.stop:
            self._drop(self._servers[number])
        for number in plan.drain:
            self._drain(self._servers[number])
        if now_s >= self._create_from_s:
            for _ in range(plan.create):
                self._servers[self._next_number] = _Server(self._next_number, self._spec.generation, now_s)
                self._next_number += 1

    def _drain(self, server: _Server) -> None:
        if server.phase != "ready":
            self._drop(server)
        else:
            server.is_draining = True
            server.actor.drain.remote()

    def _publish(self) -> None:
        """Make what methods read."""
        now_s = time.monotonic()
        servers = sorted(self._servers.values(), key=lambda one: one.number)
        by_state: dict[bool, list[str]] = {False: [], True: []}
        for server in servers:
            report = server.report
            if report is not None and report.state == "listening" and report.address is not None:
                by_state[server.is_draining].append(report.address)
        self._addresses = by_state[False], by_state[True]
        ready = len(by_state[False])
        if ready >= self._spec.servers and self._losses.waiting and self._losses.last is not None:
            after_s = now_s - self._losses.waiting[-1]
            self._losses.last = Loss(**{**vars(self._losses.last), "replaced_after_s": after_s})
            self._losses.waiting.clear()
        self._status = FleetStatus(
            name=self._spec.name,
            wanted=self._spec.servers,
            generation=self._spec.generation,
            is_upgrading=any(one.generation != self._spec.generation for one in servers),
            problem=self._problem,
            losses=self._losses.count,
            last_loss=self._losses.last,
            servers=tuple(self._server_status(one, now_s) for one in servers),
            learners=self._learner_statuses(),
        )

    def _server_status(self, server: _Server, now_s: float) -> ServerStatus:
        report, health = server.report, self._probe.health_of(server.name)
        return ServerStatus(
            server=server.name,
            state=server.phase,
            detail=_describe_state(server, self._spec),
            node=server.node,
            address=None if report is None else report.address,
            processors=() if report is None else report.processors,
            pid=None if report is None else report.pid,
            generation=server.generation,
            age_s=now_s - server.began_s,
            lanes=0 if health is None else health.lanes,
            lane_steps_per_s=0.0 if health is None else health.lane_steps_per_s,
            frames_per_s=0.0 if health is None else health.frames_per_s,
        )

    def _learner_statuses(self) -> tuple[LearnerStatus, ...]:
        lanes: Counter[str] = Counter()
        for lease in self._leases.list_held():
            lanes[lease.learner] += lease.lanes
        names = sorted({*lanes, *self._spec.quotas})
        return tuple(LearnerStatus(name, lanes[name], self._spec.quota_of(name)) for name in names)

    def _end_all(self) -> None:
        """End all servers, orderly if they answer, and give everything back."""
        stopping = [one.actor.stop.remote() for one in self._servers.values() if one.is_started]
        if stopping:
            ray.wait(stopping, num_returns=len(stopping), timeout=_STOP_S)
        self._servers.clear()
        actors.remove_all(self._spec.name)
        self._probe.close()
        self._try(lambda: actors.request_from_autoscaler(self._spec.name, []))


def _describe_state(server: _Server, spec: FleetSpec) -> str:
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
