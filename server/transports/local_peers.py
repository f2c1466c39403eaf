"""The processes at the other end of local sockets: who they are, whether they may connect, whether they are alive.

The system tells at once when a client closes its socket or ends. It does not when other processes have inherited the
socket, and a process that was stopped (SIGSTOP) still has it. So there is a heartbeat: every few seconds the state of
each process is read from /proc. It needs no message, so that a client that computes for an hour between two steps needs
no thread to answer, and it needs neither the engine nor the client.
"""

import enum
import os
import pwd
import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from worldloom.protos.errors import PermissionDenied, RequestError
from worldloom.server.logs import Log
from worldloom.server.options import ConfigError

log = Log("local-socket")

HEARTBEAT_S = 10.0
"""Time between two looks at each process."""
MAX_STOPPED_BEATS = 4
"""Looks in a row at which a process may be stopped, before its streams end: as long as gRPC waits for a ping."""
ANY_USER = "any"
_REFUSAL_LOG_S = 1.0
"""Least time between two log lines about refused connections."""
_NOT_THERE = (FileNotFoundError, ProcessLookupError)
"""Errors of reading from /proc about a process that has ended, or is not visible."""
_MAX_USER = 2**32 - 2
_CREDENTIALS = struct.Struct("iII")
"""Process, user and group of a peer. The process is 0 if it is not visible here, in another container."""


class PeerState(enum.Enum):
    """State of a process."""

    ALIVE = enum.auto()
    """Running, or not visible from here."""
    STOPPED = enum.auto()
    GONE = enum.auto()


@dataclass(frozen=True)
class Peer:
    """The process that opened a connection."""

    pid: int
    user: int
    started: str = ""
    """Time of its start in the system's ticks, which tells it from a later process of the same id; empty if unknown."""

    @classmethod
    def of(cls, connection: socket.socket) -> "Peer":
        """Return the peer of a Unix socket, without the time of its start: one call of the system, and no file."""
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, user, _ = _CREDENTIALS.unpack(data)
        return cls(pid, user)

    def with_start(self) -> "Peer":
        """Return the same peer with the time of its start, if that can be read."""
        try:
            return replace(self, started=_read_process(self.pid)[1])
        except OSError:
            return self

    def __str__(self) -> str:
        return f"process {self.pid} of user {self.user}"

    @property
    def state(self) -> PeerState:
        """State of the process now."""
        if not self.started:
            return PeerState.ALIVE
        try:
            return self._read_state()
        except OSError:  # such as too many open files, which says nothing of the process
            return PeerState.ALIVE

    def _read_state(self) -> PeerState:
        state, started = _read_process(self.pid)
        if started != self.started:
            return PeerState.GONE
        if state in "ZX":  # its main thread has ended, which others may have outlived
            states = {_read_process(f"{self.pid}/task/{thread}")[0] for thread in _threads_of(self.pid)} - {
                "",
                "Z",
                "X",
            }
            if not states:
                return PeerState.GONE
            state = "T" if states == {"T"} else "S"
        return PeerState.STOPPED if state == "T" else PeerState.ALIVE


def _threads_of(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except _NOT_THERE:
        return []


def _read_process(pid: int | str) -> tuple[str, str]:
    """Return the state, as one letter, and the start of a process or `PID/task/THREAD`; empty texts if it is not there.

    OSError if it cannot be read.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except _NOT_THERE:
        return "", ""
    fields = text.rpartition(")")[2].split()  # the name before it may contain anything
    return fields[0], fields[19]


@dataclass(frozen=True)
class AllowedUsers:
    """Users whose processes may connect: the server's own, and those that the operator has named."""

    named: frozenset[int]
    is_any: bool

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "AllowedUsers":
        """Return the users of --local-socket-user: names, numbers, or ANY_USER; ConfigError for unknown names."""
        words = list(texts)
        return cls(frozenset(_find_user(word) for word in words if word != ANY_USER), ANY_USER in words)

    @property
    def has_others(self) -> bool:
        """True if others than the server's own user may connect."""
        return self.is_any or bool(self.named - {os.geteuid()})

    def check(self, peer: Peer) -> None:
        """Raise PermissionDenied unless the peer may connect."""
        if not (self.is_any or peer.user == os.geteuid() or peer.user in self.named):
            raise PermissionDenied(
                f"user {peer.user} on the local socket of user {os.geteuid()}: expected the same user; start the "
                f"server with --local-socket-user {peer.user}, or connect over gRPC"
            )


class RefusalLog:
    """Log lines about refused connections: at most one a second, which tells how many more there were before it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_s = -float("inf")
        self._others = 0
        self._last: tuple[Peer, RequestError] | None = None
        """The last refusal that has no line."""

    def add(self, peer: Peer, reason: RequestError) -> None:
        """Log a refusal, or count it for the next line."""
        if self._clock() < self._next_s:
            self._others += 1
            self._last = (peer, reason)
        else:
            self._write(peer, reason)

    def flush(self) -> None:
        """Log the refusals that were only counted, if there are some and it is time."""
        if self._last is not None and self._clock() >= self._next_s:
            self._others -= 1  # the one that the line is about
            self._write(*self._last)

    def _write(self, peer: Peer, reason: RequestError) -> None:
        log.warning("refused", peer=peer, reason=reason, others=self._others)
        self._next_s = self._clock() + _REFUSAL_LOG_S
        self._others, self._last = 0, None


def _find_user(word: str) -> int:
    if word.isascii() and word.isdigit() and int(word) <= _MAX_USER:
        return int(word)
    try:
        return pwd.getpwnam(word).pw_uid
    except KeyError:
        raise ConfigError(
            f"--local-socket-user is {word!r}: expected the name or number of a user of this machine, or {ANY_USER}"
        ) from None
