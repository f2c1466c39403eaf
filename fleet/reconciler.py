"""The reconciler: the Ray actor that keeps a fleet as it is wanted.

One thread compares what there is with the wanted state twice a second and changes what differs; the actor's methods
read what that thread has found, or change the wanted state. It asks the server actors itself and has a process that
checks the servers over the network: Ray notices a lost node only after 15 to 65 seconds.

When it is killed, Ray starts it again. It then takes the wanted state from the server actors, of which each keeps a
copy, and goes on with the servers that there are.
"""

import threading
import time
import traceback
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from worldloom.extras import explain_missing_extra
from worldloom.fleet import actors
from worldloom.fleet.errors import FleetError
from worldloom.fleet.health import HealthProbe
from worldloom.fleet.leases import Lease, Leases
from worldloom.fleet.plan import ServerView, plan_servers
from worldloom.fleet.ray_session import ray
from worldloom.fleet.servers import Server, Servers
from worldloom.fleet.spec import FleetSpec
from worldloom.fleet.status import FleetStatus, LearnerStatus, Loss

with explain_missing_extra("worldloom.fleet", "fleet"):
    from ray.exceptions import RayError

_TICK_S = 0.5
_ANSWER_S = 0.25
"""Time that a tick waits for answers; those that come later count in the next."""
_MAX_RETRY_S = 30.0
_RECOVER_S = 5.0
_STOP_S = 12.0
_KEEP_S = 2.0


@dataclass
class _Losses:
    count: int = 0
    last: Loss | None = None
    since_s: float | None = None
    """Time of the last loss, until it is replaced."""


class Reconciler:
    """Keeps a fleet as it is wanted. Methods run concurrently with the thread that does it."""

    def __init__(self, initial: FleetSpec) -> None:
        self._spec = initial
        self._lock = threading.Lock()
        """Held while the wanted state is changed."""
        is_restarted: bool = ray.get_runtime_context().was_current_actor_reconstructed
        self._leases = Leases(is_restarted)
        self._probe = HealthProbe(initial.secrets.token, initial.secrets.authority.certificate_pem)
        self._servers = Servers(initial.name, self._probe)
        self._drains: deque[int] = deque()
        """Servers to drain, as users have asked."""
        self._losses = _Losses()
        self._failed_starts = 0
        self._problem: str | None = None
        self._create_from_s = 0.0
        self._requested_version = 0
        self._status = FleetStatus(initial.name, initial.servers, initial.generation, False, None, 0, 0, None, (), ())
        self._addresses: tuple[list[str], list[str]] = [], []
        """Addresses of servers that are ready, and of those that drain."""
        self._wake = threading.Event()
        self._ticked = threading.Condition()
        self._ticks = 0
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
        time.sleep(self._leases.opens_in_s)
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
            raise ValueError(
                f"server is {server!r}: expected one of {', '.join(names) or 'none: there are no servers'}"
            )
        self._drains.append(int(server.removeprefix("server-")))
        self._wait_for_tick()

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
        keeping = [one.actor.keep.remote(spec) for one in self._servers if one.actor is not None]
        if keeping:  # so that the change outlives this process
            ray.wait(keeping, num_returns=len(keeping), timeout=_KEEP_S)
        self._wait_for_tick()
        return spec

    def _wait_for_tick(self) -> None:
        """Wait until the thread has seen what was changed before this call, so that the status tells of it."""
        with self._ticked:
            target = self._ticks + 2  # one may be under way
            self._wake.set()
            while self._ticks < target and self._ticked.wait(_RECOVER_S):
                self._wake.set()

    # The thread that reconciles

    def _reconcile(self, is_restarted: bool) -> None:
        if is_restarted:
            self._try(self._recover)
        while not self._is_ending:
            self._try(self._tick)
            self._is_recovered.set()
            with self._ticked:
                self._ticks += 1
                self._ticked.notify_all()
            self._wake.wait(_TICK_S)
            self._wake.clear()
        self._try(self._end_all)

    def _try(self, work: Any) -> None:
        """Do some work. Errors, as of a head node that is restarting, are logged, and the next tick goes on."""
        try:
            work()
        except Exception:
            traceback.print_exc()

    def _recover(self) -> None:
        """Take over the servers that there are, and the newest copy of the wanted state."""
        handles = actors.find_server_actors(self._spec.name)
        questions = [handle.kept.remote() for handle in handles.values()]
        done = ray.wait(questions, num_returns=len(questions), timeout=_RECOVER_S)[0] if questions else []
        for question in done:
            with suppress(RayError):
                spec: FleetSpec | None = ray.get(question)
                if spec is not None and spec.version > self._spec.version:
                    self._spec = spec
        self._servers.take_over(self._spec, _RECOVER_S)

    def _tick(self) -> None:
        self._servers.place(self._spec)
        self._servers.ask(self._spec, _ANSWER_S)
        self._servers.start_idle(self._spec)
        for server, reason in self._servers.find_lost():
            if not server.is_draining:
                self._note_loss(server, reason)
            self._servers.drop(server)
        self._servers.watch()
        self._plan()
        self._publish()
        if self._requested_version != self._spec.version:
            self._requested_version = self._spec.version
            actors.request_from_autoscaler(self._spec.name, self.wanted_bundles())

    def _note_loss(self, server: Server, reason: str) -> None:
        now_s = time.monotonic()
        if server.was_ready:
            self._losses.count += 1
            self._losses.last = Loss(server.name, server.node, reason, time.time(), None)
            self._losses.since_s = now_s
        else:
            self._failed_starts += 1
            self._problem = f"{server.name} on {server.node} did not start: {reason}"
            self._create_from_s = now_s + min(_MAX_RETRY_S, 2.0 ** (self._failed_starts - 1))

    def _plan(self) -> None:
        now_s = time.monotonic()
        while self._drains:  # as users have asked
            number = self._drains.popleft()
            for server in self._servers:
                if server.number == number:
                    self._servers.drain(server)
        views = [ServerView(one.number, one.generation, one.phase, now_s - one.began_s) for one in self._servers]
        plan = plan_servers(self._spec.servers, self._spec.generation, views)
        for number in plan.stop:
            self._servers.drop(self._servers[number])
        for number in plan.drain:
            self._servers.drain(self._servers[number])
        if now_s >= self._create_from_s:
            for _ in range(plan.create):
                self._servers.add(self._spec.generation)

    def _publish(self) -> None:
        """Make what methods read."""
        servers = sorted(self._servers, key=lambda one: one.number)
        ready = [one.address for one in servers if one.phase == "ready" and one.address is not None]
        draining = [one.address for one in servers if one.phase == "draining" and one.address is not None]
        self._addresses = ready, draining
        if len(ready) >= self._spec.servers:
            self._failed_starts, self._problem = 0, None
            if self._losses.last is not None and self._losses.since_s is not None:
                after_s = time.monotonic() - self._losses.since_s
                self._losses.last = replace(self._losses.last, replaced_after_s=after_s)
                self._losses.since_s = None
        self._status = FleetStatus(
            name=self._spec.name,
            wanted=self._spec.servers,
            generation=self._spec.generation,
            is_upgrading=any(one.generation != self._spec.generation for one in servers),
            problem=self._problem,
            failed_starts=self._failed_starts,
            losses=self._losses.count,
            last_loss=self._losses.last,
            servers=tuple(self._servers.status_of(one, self._spec) for one in servers),
            learners=self._learner_statuses(),
        )

    def _learner_statuses(self) -> tuple[LearnerStatus, ...]:
        lanes: Counter[str] = Counter()
        for lease in self._leases.list_held():
            lanes[lease.learner] += lease.lanes
        names = sorted({*lanes, *self._spec.quotas})
        return tuple(LearnerStatus(name, lanes[name], self._spec.quota_of(name)) for name in names)

    def _end_all(self) -> None:
        """End all servers and give everything back."""
        self._servers.stop_all(_STOP_S)
        self._probe.close()
        self._try(lambda: actors.request_from_autoscaler(self._spec.name, []))
