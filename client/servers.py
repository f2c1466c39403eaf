"""The servers of an env that has several: which there are, whether they live, and how much each can take.

A thread sends each server a health check every 0.4 s, which the server's event loop answers whatever its engine is
doing. A server that answers none for three of these beats is lost: the thread aborts the connections to it, and whoever
waits for a reply of it gets LostConnection. So one that is killed, frozen or cut off is noticed within two seconds. A
beat counts only while this process runs: being stopped itself is not taken for the silence of others. Lost servers
are checked on, and may come back.
"""

import contextlib
import logging
import os
import select
import threading
import weakref
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol, runtime_checkable

from worldloom.client.connecting import connect, read_property
from worldloom.client.connections import Connection, Credentials
from worldloom.protos.addresses import Address, UnixAddress, parse_address
from worldloom.protos.wire import field_header

BEAT_S = 0.4
"""Time from one health check to the next."""
_MISSED_BEATS = 3
"""Beats without an answer after which a server is lost."""
_CHECK_TIMEOUT_S = 5 * BEAT_S
_LOOK_S = 0.8
"""Time between two looks into the directory."""
_FIRST_REPLY_S = 5.0
"""Time for the first reply of a server. They take milliseconds; this is for one that is very busy."""
_CHECK = "/grpc.health.v1.Health/Check"
_SERVICE = field_header(1, len(b"dm_env_rpc.v1.Environment")) + b"dm_env_rpc.v1.Environment"
"""A HealthCheckRequest for the service of dm_env_rpc."""
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""HealthCheckResponses."""
_PINGS = (
    # A connection whose other end is silent is given up and made anew; servers of worldloom allow a ping a second.
    ("grpc.keepalive_time_ms", 1000),
    ("grpc.keepalive_timeout_ms", 1000),
    ("grpc.http2.ping_timeout_ms", 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # By default gRPC waits up to two minutes before it tries to connect again.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_log = logging.getLogger("worldloom.client")


@runtime_checkable
class ServerDirectory(Protocol):
    """A list of servers that changes. Envs look into it about once a second, on a thread of their own.

    If it has a method `close`, that is called when the env is closed; `addresses` may be called again after it.
    """

    def addresses(self) -> Sequence[str]:
        """Return the addresses of the servers that there are now. If this raises, the last list stays."""


class FixedServers:
    """A list of servers that stays."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = tuple(addresses)

    def addresses(self) -> Sequence[str]:
        """Return the addresses."""
        return self._addresses


def parse_servers(given: Any) -> ServerDirectory:
    """Return the directory of an argument `address` that is not one address; ValueError if it is none."""
    if isinstance(given, ServerDirectory):
        return given
    if not isinstance(given, Sequence):
        raise TypeError(
            f"address is {given!r}: expected HOST:PORT or unix:PATH of a server, a list of them, or 'local'"
        )
    if not given:
        raise ValueError("address is an empty list: expected the addresses of some servers")
    for one in given:
        if not isinstance(one, str):
            raise TypeError(f"address has {one!r}: expected HOST:PORT or unix:PATH of a server")
        parse_address(one)
    twice = [one for one in given if list(given).count(one) > 1]
    if twice:
        raise ValueError(f"address has {twice[0]!r} twice: expected each server once")
    return FixedServers(given)


class State(Enum):
    """State of a server, as its health checks tell."""

    UP = "up"
    DRAINING = "draining"
    """It serves the streams that it has, and wants no more."""
    LOST = "lost"


class Capacity(NamedTuple):
    """The resources of a server, as its properties `capacity.*` tell."""

    processors: int
    rate: float
    """Lane steps in a second of work; 0 if none was measured."""
    free_lanes: int
    free_memory_bytes: int


class Server:
    """One server. Its state is written by the thread of the heartbeat, and by `mark_lost`."""

    def __init__(self, address: str, credentials: Credentials) -> None:
        self.address = address
        self.is_listed = True
        """The directory has it. From a server that is not listed any more, lanes are handed over to others."""
        self._health = State.LOST
        self.full_until_s = 0.0
        """Time of the monotonic clock until which no lanes are placed here, because it had no room for some."""
        self._credentials = credentials
        self._parsed: Address = parse_address(address)
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._missed = 0
        self._check: Any = None
        self._channel: Any = None

    @property
    def state(self) -> State:
        """Its state, as the last health check and the directory tell."""
        return State.DRAINING if self._health is State.UP and not self.is_listed else self._health

    def connect(self, timeout_s: float, transport: str, arrival: Any) -> Connection:
        """Open a connection, which ends when the server is lost."""
        first_s = min(timeout_s, _FIRST_REPLY_S)
        return connect(self.address, self._credentials, "auto", timeout_s, transport, first_s, arrival, self.adopt)

    def adopt(self, connection: Connection) -> None:
        """Have a connection to this server end when it is lost."""
        with self._lock:
            self._connections.add(connection)
            is_lost = self._health is State.LOST
        if is_lost:
            connection.abort(f"lost the server at {self.address}")

    def beat(self) -> None:
        """Look at the last health check, and send the next one. Called on the thread of the heartbeat."""
        if self._channel is None:
            self._open_channel()
        if self._check is None or self._check.done():
            answer = None if self._check is None else _answer_of(self._check)
            if answer is not None:
                self._missed = 0
                self._health = State.UP if answer == _SERVING else State.DRAINING
            elif self._check is not None:
                self._miss()
            self._check = self._method.future(_SERVICE, timeout=_CHECK_TIMEOUT_S)
        else:
            self._miss()

    def check(self, timeout_s: float) -> None:
        """Wait for an answer to a health check; the state tells what came of it."""
        if self._channel is None:
            self._open_channel()
        check = self._method.future(_SERVICE, timeout=timeout_s)
        with contextlib.suppress(Exception):
            check.result(timeout_s)
        answer = _answer_of(check) if check.done() else None
        if answer is not None:
            self._health = State.UP if answer == _SERVING else State.DRAINING

    def mark_lost(self, reason: str) -> None:
        """Take the server for lost until it answers a health check again, and abort the connections to it."""
        self._health = State.LOST
        with self._lock:
            connections = list(self._connections)
            self._connections.clear()
        for connection in connections:
            connection.abort(f"lost the server at {self.address}: {reason}")

    def close(self) -> None:
        """End the health checks."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _miss(self) -> None:
        self._missed += 1
        if self._missed >= _MISSED_BEATS and self.state is not State.LOST:
            self.mark_lost(f"no answer to health checks for {self._missed * BEAT_S:.1f} s")

    def _open_channel(self) -> None:
        from worldloom.client.grpc_connection import open_channel

        pings = _PINGS if not isinstance(self._parsed, UnixAddress) else _PINGS[-3:]
        self._channel = open_channel(self._parsed, self._credentials, pings)
        self._method = self._channel.unary_unary(_CHECK)


def _answer_of(check: Any) -> bytes | None:
    """Return the answer to a health check that is done; None if there was none."""
    try:
        answer = check.result(0)
    except Exception:  # the errors of gRPC, of which there are several kinds, and of a channel that was closed
        return None
    return answer if answer in (_SERVING, _NOT_SERVING) else None


class ServerWatch:
    """All servers of an env, and the thread that checks on them until `close`."""

    def __init__(self, directory: ServerDirectory, credentials: Credentials) -> None:
        self._directory = directory
        self._credentials = credentials
        self._servers: dict[str, Server] = {}
        self.stop = threading.Event()
        """Set when the threads are to end."""
        self.changed = threading.Event()
        """Set when the state of a server has changed, or one has come or gone."""
        self._look()
        if not self._servers:
            raise ValueError("the directory has no servers: expected the address of at least one")
        self._thread = _repeat(self, BEAT_S, ServerWatch.beat, "worldloom-heartbeat")

    @property
    def servers(self) -> list[Server]:
        """The servers that there are now, lost ones included."""
        return list(self._servers.values())

    def start(self, timeout_s: float) -> None:
        """Wait until each server has answered or not, and begin to check on them."""
        checks = [
            threading.Thread(target=server.check, args=(timeout_s,), daemon=True) for server in self._servers.values()
        ]
        for check in checks:
            check.start()
        for check in checks:
            check.join()
        self._thread.start()
        if not isinstance(self._directory, FixedServers):
            # On a thread of its own: a directory may take long to answer, and health checks must not wait for it.
            _repeat(self, _LOOK_S, ServerWatch._look, "worldloom-directory").start()

    def close(self) -> None:
        """End the thread and the checks."""
        self.stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(BEAT_S * 5)
        for server in self._servers.values():
            server.close()
        close = getattr(self._directory, "close", None)
        if close is not None:
            close()

    def beat(self) -> None:
        """Check on all servers."""
        for server in self.servers:
            before = server.state
            server.beat()
            if server.state is not before:
                _log.info("the server at %s is %s", server.address, server.state.value)
                self.changed.set()

    def _look(self) -> None:
        """Look which servers there are."""
        try:
            addresses = list(self._directory.addresses())
        except Exception as error:  # of whatever kind: the servers that are known are still there
            if not self._servers:
                raise
            _log.warning("the directory of servers cannot be read (%s): going on with those that are known", error)
            return
        known = dict(self._servers)
        kept = {one: known.pop(one) if one in known else Server(one, self._credentials) for one in addresses}
        # A server that is not listed any more stays until it is lost: lanes are handed over from it.
        kept |= {one: server for one, server in known.items() if server.state is not State.LOST}
        listed = {one: one in addresses for one in kept}
        if listed != {one: server.is_listed for one, server in self._servers.items()}:
            self.changed.set()
        for one, server in kept.items():
            server.is_listed = listed[one]
        for one in self._servers.keys() - kept.keys():
            self._servers[one].close()
        if not self.stop.is_set():
            self._servers = kept


def _repeat(watch: ServerWatch, every_s: float, work: Callable[[ServerWatch], None], name: str) -> threading.Thread:
    """Return a thread that does some work until the watch is closed or gone, which it does not keep alive."""
    reference, stop = weakref.ref(watch), watch.stop

    def run() -> None:
        while not stop.wait(every_s):
            alive = reference()
            if alive is None:
                return
            work(alive)
            del alive

    return threading.Thread(target=run, name=name, daemon=True)


def read_capacity(connection: Connection) -> Capacity:
    """Read the capacity of a server over a connection that waits for nothing else."""
    return Capacity(
        int(read_property(connection, "capacity.processors")),
        float(read_property(connection, "capacity.rate")),
        int(read_property(connection, "capacity.free_lanes")),
        int(read_property(connection, "capacity.free_memory_bytes")),
    )


class PolledEvent:
    """An event that can be waited for along with sockets."""

    def __init__(self) -> None:
        self._file = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._finalizer = weakref.finalize(self, os.close, self._file)

    def fileno(self) -> int:
        """Return the descriptor, which is readable while it is set."""
        return self._file

    def set(self) -> None:
        """Set it."""
        os.eventfd_write(self._file, 1)

    def clear(self) -> None:
        """Clear it."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._file)

    def wait(self, timeout: float | None = None, /) -> bool:
        """Wait until it is set; return False if that takes longer."""
        return self.wait_with((), timeout)

    def wait_with(self, files: Sequence[int], timeout: float | None) -> bool:
        """Wait until it is set or one of these descriptors is readable; return False if that takes longer."""
        poller = select.poll()
        for file in (self._file, *files):
            poller.register(file, select.POLLIN)
        return bool(poller.poll(None if timeout is None else max(0.0, timeout) * 1000))
