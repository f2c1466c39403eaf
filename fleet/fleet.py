"""A fleet of servers, from Python."""

import atexit
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from worldloom.client import VectorEnv
from worldloom.fleet import actors
from worldloom.fleet.directory import CertificateFile, FleetDirectory, ask
from worldloom.fleet.errors import FleetError, NoSuchFleet
from worldloom.fleet.ray_session import (
    connect_to_ray,
    find_reconciler,
    list_fleets,
    list_free_cpus,
    ray,
    uninterrupted,
)
from worldloom.fleet.reconciler import Reconciler
from worldloom.fleet.spec import (
    DEFAULT_LEARNER,
    MAX_SERVERS,
    FleetSpec,
    check_count,
    check_learner,
    check_name,
    fit_cpus_per_server,
    make_secrets,
)
from worldloom.fleet.status import FleetStatus, summarise

_ASK_S = 10.0
"""Time for an answer of the reconciler."""
_RESTART_S = 30.0
"""Time in which a reconciler that was killed answers again."""
_END_S = 60.0
_POLL_S = 0.2


class Fleet:
    """Servers on the nodes of a Ray cluster, kept at a wanted number. Ends with its `with` block.

    It uses the Ray that the program has initialised. If there is none, it connects to the one that runs on this machine
    or that RAY_ADDRESS names, and else starts one, which ends with the fleet.
    """

    def __init__(
        self,
        servers: int = 1,
        cpus_per_server: float | None = None,
        *,
        name: str = "default",
        gpus_per_server: float | None = None,
        serve_arguments: Sequence[str] = (),
        quotas: Mapping[str, int] | None = None,
        drain_s: float = 600.0,
        cache_dir: str | os.PathLike[str] | None = None,
        python: str | None = None,
        detached: bool = False,
        wait_s: float | None = 300.0,
    ) -> None:
        """Start a fleet, and wait until all its servers are ready.

        Args:
            servers: The number of servers.
            cpus_per_server: Processors of each server, which it is bound to. The default is as many as are free on
                the nodes; a fraction shares processors.
            name: The name of the fleet on the Ray cluster.
            gpus_per_server: Graphics cards of each server; one by default where a node has some, else none.
            serve_arguments: Further arguments of `worldloom serve`, such as `("--max-lanes", "4096")`.
            quotas: The most lanes of each learner by name; `"*"` is for each learner that has none. No limits unless
                given.
            drain_s: Seconds that a server which is drained has to hand its lanes over.
            cache_dir: Directory of compiled kernels, the same path on every node. On a file system that nodes of one
                kind share they are compiled once. The default is that of each node's user.
            python: Path on every node of the Python that runs `worldloom serve`; by default the one of Ray.
            detached: Keep the fleet when this program ends; `Fleet.connect` and `worldloom fleet` find it.
            wait_s: Seconds to wait until all servers are ready, before the fleet is ended with a FleetError; None
                waits for ever, 0 not at all.
        """
        self._close_ray = False
        check_name(name)
        check_count("servers", servers, 1, MAX_SERVERS)
        serve_arguments = tuple(serve_arguments) if not isinstance(serve_arguments, str) else serve_arguments
        given: dict[str, Any] = {
            "name": name,
            "servers": servers,
            "serve_arguments": serve_arguments,
            "quotas": {} if quotas is None else quotas,
            "drain_s": drain_s,
            "cache_dir": None if cache_dir is None else os.fspath(cache_dir),
            "python": python,
            "is_detached": detached,
            "secrets": make_secrets(),
        }
        # Checked before there is a Ray, which takes seconds to start.
        FleetSpec(
            **given,
            cpus_per_server=1.0 if cpus_per_server is None else cpus_per_server,
            gpus_per_server=0.0 if gpus_per_server is None else gpus_per_server,
        )
        self._close_ray = connect_to_ray(None, may_start=True)
        nodes = [one["Resources"] for one in ray.nodes() if one["Alive"]]
        if cpus_per_server is None:
            # Where nothing is free, the fleet waits for servers or programs to end, or for the cluster to grow.
            free = [one for one in list_free_cpus() if one > 0]
            cpus_per_server = fit_cpus_per_server(servers, free or [one.get("CPU", 0.0) for one in nodes])
        if gpus_per_server is None:
            gpus_per_server = 1.0 if any(one.get("GPU", 0.0) >= 1 for one in nodes) else 0.0
        spec = FleetSpec(**given, cpus_per_server=cpus_per_server, gpus_per_server=gpus_per_server)
        if name in list_fleets():
            raise FleetError(f"there is a fleet called {name!r}: expected another name, or Fleet.connect({name!r})")
        try:
            handle = actors.create_reconciler(Reconciler, name, spec, detached)
            self._set_up(name, handle, spec, is_owner=not detached)
        except ValueError as error:
            raise FleetError(f"there is a fleet called {name!r}: expected another name") from error
        except BaseException:
            with uninterrupted():
                _end_unfinished(spec)
            raise
        try:
            if wait_s is None or wait_s > 0:
                self.wait_until_ready(wait_s)
        except BaseException:
            self.down()
            raise

    @classmethod
    def connect(cls, name: str = "default", address: str | None = None) -> Self:
        """Join a fleet that there is; it stays when this program ends.

        Args:
            name: The name of the fleet. NoSuchFleet lists those that there are.
            address: Address of the Ray cluster, if the program is not connected to one.
        """
        check_name(name)
        connect_to_ray(address, may_start=False)
        handle = find_reconciler(name)
        fleet = cls.__new__(cls)
        fleet._close_ray = False
        fleet._set_up(name, handle, ask(handle, "describe", timeout_s=_RESTART_S), is_owner=False)
        return fleet

    @property
    def token(self) -> str:
        """The token that clients of the servers send."""
        return self._token

    @property
    def tls_ca(self) -> str:
        """Path of a PEM file with the certificate that those of the servers are signed with."""
        return os.fspath(self._certificate)

    def vector_env(self, family: str, num_envs: int, *, learner: str = DEFAULT_LEARNER, **arguments: Any) -> VectorEnv:
        """Return a VectorEnv with lanes on the servers of this fleet.

        Args:
            family: The kind of world.
            num_envs: The number of lanes.
            learner: Whose quota the lanes count against; QuotaExceeded if there is not enough left.
            arguments: Further arguments of VectorEnv.
        """
        self._check_open()
        check_count("num_envs", num_envs, 1, 2**31)
        check_learner(learner)
        for name in ("address", "token", "tls_ca"):
            if name in arguments:
                raise ValueError(f"{name} is given: expected none, the fleet has its own")
        directory = FleetDirectory(self.name, self._ray_address, learner, num_envs)
        directory.acquire()
        try:
            return VectorEnv(directory, family, num_envs, token=self._token, tls_ca=self._certificate, **arguments)
        except BaseException:
            directory.close()
            raise

    def addresses(self) -> list[str]:
        """Return the addresses of the servers that are ready, for any dm_env_rpc client with `token` and `tls_ca`."""
        found: list[str] = self._ask("addresses")
        return found

    def status(self) -> FleetStatus:
        """Return the servers, learners and losses of the fleet."""
        found: FleetStatus = self._ask("status")
        return found

    def scale(self, servers: int, wait_s: float | None = 0.0) -> None:
        """Change the number of servers. Those that are too many are drained; wait up to `wait_s` until all is done."""
        check_count("servers", servers, 1, MAX_SERVERS)
        self._ask("change", servers=servers)
        self._wait_if(wait_s)

    def set_quotas(self, quotas: Mapping[str, int]) -> None:
        """Replace the quotas. Lanes that are in use stay, also beyond a smaller quota."""
        self._ask("change", quotas=dict(quotas))

    def drain(self, server: str, wait_s: float | None = 0.0) -> None:
        """Have a server, such as `server-3`, hand its lanes over and end; another takes its place."""
        self._ask("drain", server)

        def is_gone() -> bool:
            status = self.status()
            return status.is_settled and all(one.server != server for one in status.servers)

        if wait_s is None or wait_s > 0:
            self._wait(is_gone, wait_s, f"{server} was not replaced")

    def upgrade(self, wait_s: float | None = 0.0, **changes: Any) -> None:
        """Replace all servers, one after another, each drained when its successor is ready.

        Args:
            wait_s: Seconds to wait until all servers are replaced.
            changes: New values of `serve_arguments`, `python`, `cache_dir`, `drain_s`, `cpus_per_server` and
                `gpus_per_server`. Without any, servers start with the version that is installed on their node now.
        """
        known = ("serve_arguments", "python", "cache_dir", "drain_s", "cpus_per_server", "gpus_per_server")
        for name in changes:
            if name not in known:
                raise ValueError(f"upgrade has {name!r}: expected some of {', '.join(known)}")
        if "serve_arguments" in changes and not isinstance(changes["serve_arguments"], str):
            changes["serve_arguments"] = tuple(changes["serve_arguments"])
        self._ask("upgrade", **changes)
        self._wait_if(wait_s)

    def wait_until_ready(
        self, timeout_s: float | None = 300.0, watch: Callable[[FleetStatus], None] | None = None
    ) -> None:
        """Wait until all servers are ready, and of the last upgrade; FleetError if they are not in time, or fail.

        Args:
            timeout_s: Seconds to wait; None waits for ever.
            watch: Called with each status meanwhile, several times a second.
        """

        def is_ready() -> bool:
            status = self.status()
            if watch is not None:
                watch(status)
            if status.is_failing:
                raise FleetError(status.problem or summarise(status))
            return status.is_settled

        self._wait(is_ready, timeout_s, "the fleet was not ready")

    def down(self) -> None:
        """End all servers and remove the fleet from the Ray cluster. Does nothing if it is gone."""
        if self._is_down:
            return
        self._is_down = True
        atexit.unregister(self.down)
        try:
            if ray.is_initialized():
                self._end()
        finally:
            self._certificate.close()
            if self._close_ray:
                ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_owner:
            self.down()
        else:
            self._certificate.close()

    def __repr__(self) -> str:
        return f"Fleet({self.name!r})"

    _is_down = True
    """False from when there is a fleet until `down`."""

    def _set_up(self, name: str, handle: Any, spec: FleetSpec, is_owner: bool) -> None:
        self.name = name
        self._handle = handle
        self._token = spec.secrets.token
        self._certificate = CertificateFile(spec.secrets.authority.certificate_pem)
        self._ray_address: str = ray.get_runtime_context().gcs_address
        self._is_owner = is_owner
        self._is_down = False
        if is_owner:
            atexit.register(self.down)

    def _check_open(self) -> None:
        if self._is_down:
            raise FleetError(f"the fleet {self.name!r} is down: expected a new one")

    def _ask(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call the reconciler; while it is being restarted, try again."""
        self._check_open()
        deadline_s = time.monotonic() + _RESTART_S
        while True:
            try:
                return ask(self._handle, method, *arguments, timeout_s=_ASK_S, **named)
            except FleetError as error:
                if not _is_unreachable(error) or time.monotonic() > deadline_s:
                    raise
                find_reconciler(self.name)  # NoSuchFleet if it was ended by somebody else
                time.sleep(_POLL_S)

    def _wait_if(self, wait_s: float | None) -> None:
        if wait_s is None or wait_s > 0:
            self.wait_until_ready(wait_s)

    def _wait(self, is_done: Callable[[], bool], timeout_s: float | None, problem: str) -> None:
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not is_done():
            if deadline_s is not None and time.monotonic() > deadline_s:
                raise FleetError(f"{problem} within {timeout_s:g} s: {summarise(self.status())}")
            time.sleep(_POLL_S)

    def _end(self) -> None:
        try:
            find_reconciler(self.name)
            ask(self._handle, "end", timeout_s=_END_S)
        except NoSuchFleet:
            return
        except FleetError:  # it does not answer: do it from here
            ray.kill(self._handle, no_restart=True)
            actors.remove_all(self.name)
        ray.kill(self._handle, no_restart=True)
        _wait_until_gone(self.name)


def _is_unreachable(error: FleetError) -> bool:
    return type(error) is FleetError and error.__cause__ is not None


def _end_unfinished(spec: FleetSpec) -> None:
    """End a fleet whose making was interrupted, if there is one; its token tells it from another of that name."""
    with suppress(FleetError):
        handle = find_reconciler(spec.name)
        if ask(handle, "describe", timeout_s=_RESTART_S).secrets.token == spec.secrets.token:
            ask(handle, "end", timeout_s=_END_S)
            ray.kill(handle, no_restart=True)
            _wait_until_gone(spec.name)


def _wait_until_gone(name: str) -> None:
    deadline_s = time.monotonic() + _END_S
    while name in list_fleets() and time.monotonic() < deadline_s:
        time.sleep(_POLL_S / 4)
