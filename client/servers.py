"""The servers of an env that has several: which there are, whether they live, and how much each can take.

A thread sends each server a health check every 0.4 s, which its event loop answers whatever its engine is doing; the
answer tells whether it drains. Beside that, gRPC pings the server, which threads of gRPC there answer even while Python
code holds the interpreter's lock. A server that leaves pings unanswered is silent: gRPC ends the check, and if another
one fails, too, the server is lost. The connections to it are aborted, and whoever waits for a reply of it gets
LostConnection. So one that is killed, frozen or cut off is noticed within two seconds, and one that is busy is not
taken for lost. The second check is for a client that was stopped itself. Lost servers are checked on, and may come
back.
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
from worldloom.protos.addresses import Address, parse_address
from worldloom.protos.wire import field_header

BEAT_S = 0.4
"""Time from one health check to the next."""
_HUNG_S = 10.0
"""Time for an answer of a server that answers pings."""
_AGAIN_S = 0.3
"""Time for an answer to the second check, after one that failed."""
_LOST_CHECK_S = 1.0
"""Time for an answer of a server that is lost."""
_LOOK_S = 0.8
"""Time between two looks into the directory."""
_FIRST_REPLY_S = 5.0
"""Time for the first reply of a server. They take milliseconds; this is for one that is very busy."""
_CHECK = "/grpc.health.v1.Health/Check"
_SERVICE = field_header(1, len(b"dm_env_rpc.v1.Environment")) + b"dm_env_rpc.v1.Environment"
"""A HealthCheckRequest for the service of dm_env_rpc."""
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""HealthCheckResponses."""
_OPTIONS = (
    # A server that answers no ping for 0.7 s is silent. Servers of worldloom allow any number of pings.
    ("grpc.keepalive_time_ms", 300),
    ("grpc.keepalive_timeout_ms", 700),
    ("grpc.http2.ping_timeout_ms", 700),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # By default gRPC waits up to two minutes before it tries to connect again.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
"""Options of the channels of health checks."""
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
    """One server. Threads of gRPC write its state."""

    def __init__(self, address: str, credentials: Credentials, changed: threading.Event) -> None:
        """Begin with a server that is lost; `changed` is set whenever its state changes."""
        self.address = address
        self.is_listed = True
        """The directory has it. From a server that is not listed any more, lanes are handed over to others."""
        self.lost_worlds: list[str] = []
        """Names of worlds that were left there when it was lost: to be destroyed, if it is back."""
        self.full_until_s = 0.0
        """Time of the monotonic clock until which no lanes are placed here, because it had no room for some."""
        self._changed = changed
        self._health = State.LOST
        self._credentials = credentials
        self._parsed: Address = parse_address(address)
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._channel: Any = None
        self._is_checking = False
        """A health check is under way."""

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
        """Send a health check, unless one is under way."""
        if not self._is_checking:
            self._is_checking = True
            self._send_check(_LOST_CHECK_S if self._health is State.LOST else _HUNG_S, self._note_first)

    def check(self, timeout_s: float) -> None:
        """Wait for an answer to a health check; the state tells what came of it."""
        done = threading.Event()

        def note(check: Any) -> None:
            self._note_answer(_answer_of(check))
            done.set()

        self._send_check(timeout_s, note)
        done.wait(timeout_s + 1.0)

    def mark_lost(self, reason: str) -> None:
        """Take the server for lost until it answers a health check again, and abort the connections to it."""
        with self._lock:
            connections = list(self._connections)
            self._connections.clear()
            self._set_health(State.LOST)
        for connection in connections:
            connection.abort(f"lost the server at {self.address}: {reason}")

    def close(self) -> None:
        """End the health checks."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _send_check(self, timeout_s: float, note: Callable[[Any], None]) -> None:
        if self._channel is None:
            from worldloom.client.grpc_connection import open_channel

            self._channel = open_channel(self._parsed, self._credentials, _OPTIONS)
            self._method = self._channel.unary_unary(_CHECK)
        self._method.future(_SERVICE, timeout=timeout_s).add_done_callback(note)

    def _note_first(self, check: Any) -> None:
        """Note the answer to a check; if there is none, send another at once. Runs on a thread of gRPC."""
        answer = _answer_of(check)
        if answer is not None or self._health is State.LOST or self._channel is None:
            self._note_answer(answer)
            return
        try:
            self._send_check(_AGAIN_S, lambda again: self._note_answer(_answer_of(again)))
        except ValueError:  # the channel was closed meanwhile
            self._is_checking = False

    def _note_answer(self, answer: bytes | None) -> None:
        self._is_checking = False
        if answer is not None:
            self._set_health(State.UP if answer == _SERVING else State.DRAINING)
        elif self._health is not State.LOST and self._channel is not None:
            self.mark_lost("no answer to health checks")

    def _set_health(self, health: State) -> None:
        if health is not self._health:
            self._health = health
            _log.info("the server at %s is %s", self.address, health.value)
            self._changed.set()


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
        self._warned = ""
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
            with contextlib.suppress(ValueError):  # its channel was closed meanwhile
                server.beat()

    def _warn(self, text: str) -> None:
        """Log a warning, unless it is the last one again."""
        if text != self._warned:
            self._warned = text
            _log.warning("%s", text)

    def _make_server(self, address: str) -> Server:
        return Server(address, self._credentials, self.changed)

    def _look(self) -> None:
        """Look which servers there are."""
        known = dict(self._servers)
        try:
            addresses = self._directory.addresses()
            if isinstance(addresses, str) or not all(isinstance(one, str) for one in addresses):
                raise TypeError(f"its addresses are {addresses!r}: expected a list of HOST:PORT or unix:PATH")
            kept = {one: known.pop(one) if one in known else self._make_server(one) for one in addresses}
        except (Exception, SystemExit) as error:  # of whatever kind: the servers that are known are still there
            if not self._servers:
                raise
            self._warn(f"the directory of servers cannot be read ({error}): going on with those that are known")
            return
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
