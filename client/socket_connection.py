"""A connection to a server on the same machine over its local socket (`worldloom.protos.local_frames`).

There is no thread: the caller itself writes to the socket and waits for the reply. An interrupt such as Ctrl-C may come
between any two instructions of Python, and nothing may be lost then, nor sent twice. So what the system reports of a
read or a write is stored by the same call of C that made it (`list.extend(map(...))`), and everything that changes
together is replaced by one assignment.
"""

import contextlib
import functools
import os
import select
import socket
import struct
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from google.rpc import code_pb2, status_pb2

from worldloom.client.errors import BadReply, ClientError, LostConnection, NoLocalSocket, ServerError
from worldloom.protos.addresses import Address
from worldloom.protos.local_frames import (
    END,
    HEADER,
    HELLO,
    MAX_HELLO_BYTES,
    MESSAGE,
    WELCOME,
    Hello,
    LocalAddress,
    pack_frame,
    socket_name,
)
from worldloom.protos.spinning import Spinner

_HELLO_TIMEOUT_S = 5.0
"""Time for the server to accept a connection. It takes less than a millisecond, unless the engine is busy."""
_READ_BYTES = 1 << 16
_LARGE_READ_BYTES = 1 << 20
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)
_DO_NOT_WAIT = int(socket.MSG_DONTWAIT)
"""Flags of reads and writes, as plain integers: operators of enums take microseconds."""
_FILES_BYTES = socket.CMSG_SPACE(struct.calcsize("i"))
"""Room for a descriptor that comes with a reply."""


class _Outgoing(NamedTuple):
    """A request, and the sizes of the parts of its frame that have been written."""

    number: int
    frame: bytes
    written: list[int]


class _Incoming(NamedTuple):
    """All that has come and was not released."""

    received: int
    """Number of replies so far."""
    replies: dict[int, bytes]
    """Replies by number."""
    pieces: list[tuple[bytes, list[tuple[int, int, bytes]], int, Any]]
    """Results of `recvmsg` that do not make a whole frame yet."""
    files: tuple[int, ...] = ()
    """Descriptors that came with replies."""
    end: ClientError | None = None
    """The reason why nothing more will come."""


class SocketConnection:
    """One stream over the local socket of a server."""

    transport = "socket"

    def __init__(
        self,
        address: Address,
        local: LocalAddress,
        token: str | None,
        timeout_s: float,
        siblings: "weakref.WeakSet[SocketConnection] | None" = None,
    ) -> None:
        """Connect to the server at `address` by its local socket; NoLocalSocket if that is not possible."""
        self._socket = socket.socket(socket.AF_UNIX)
        self.address = address
        self.taken = 0
        self._local = local
        self._token = token
        self._timeout_s = timeout_s
        self._read_timeout_s = 0.0
        self._spinner = Spinner()
        self._closed_by: ClientError | None = None
        """The reason why the connection has ended, raised by every later call."""
        self._abort_reason: str | None = None
        self._process = os.getpid()
        self._outgoing = deque([_Outgoing(0, b"", [])])
        """Requests that are not written, after the last one that is."""
        self._is_written = True
        """All of them are. False does not say that they are not."""
        self._incoming = _Incoming(0, {}, [])
        try:
            self._greet()
        except BaseException:
            self._socket.close()
            raise
        self._read_some = functools.partial(self._socket.recvmsg, _READ_BYTES, _FILES_BYTES)
        self._read_more = functools.partial(self._socket.recvmsg, _LARGE_READ_BYTES, _FILES_BYTES)
        self._siblings: weakref.WeakSet[SocketConnection] = weakref.WeakSet() if siblings is None else siblings
        self._siblings.add(self)

    @property
    def sent(self) -> int:
        """Requests that were sent, or will be before the next."""
        return self._outgoing[-1].number

    def send(self, request: bytes) -> None:
        """Write a request to the socket. While the server does not read, replies are."""
        if self._closed_by is not None:
            raise self._closed_by
        if os.getpid() != self._process:
            raise ClientError("the env belongs to another process, which was forked: expected a new env in this one")
        frame = HEADER.pack(len(request), MESSAGE) + request
        self._is_written = False
        self._outgoing.append(_Outgoing(self._outgoing[-1].number + 1, frame, []))
        self._write()

    def receive(self, timeout_s: float | None = None) -> bytes:
        """Wait for the next reply, and return it without taking it."""
        if self._closed_by is not None:
            raise self._closed_by
        if not self._is_written:
            self._write()
        reply = self._incoming.replies.get(self.taken)
        if reply is not None:
            return reply
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        self._set_read_timeout(limit_s)
        until_s = time.monotonic() + limit_s
        while True:
            if self._incoming.end is not None:
                raise self._end(self._incoming.end)
            try:
                self._spinner.wait(self._try_to_read, self._read)
            except BlockingIOError:
                raise self._end(self._silence(limit_s)) from None
            reply = self._incoming.replies.get(self.taken)
            if reply is not None:
                return reply
            if time.monotonic() > until_s:
                raise self._end(self._silence(limit_s))

    def release(self) -> None:
        """Release the last reply that was taken."""
        self._incoming.replies.pop(self.taken - 1, None)

    @property
    def has_reply(self) -> bool:
        """True if there is a reply, or there will be none. Reads what has come."""
        if self._closed_by is not None:
            return True
        self._write()
        while self.taken not in self._incoming.replies and self._incoming.end is None:
            try:
                self._read(_DO_NOT_WAIT)
            except BlockingIOError:
                return False
        return True

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true, which replies to this connection or a sibling may make true."""
        until_s = time.monotonic() + self._timeout_s
        while not condition():
            poller = select.poll()
            for sibling in list(self._siblings):
                if sibling.sent > sibling.taken and not sibling.has_reply:
                    poller.register(sibling._socket, select.POLLIN)
            if not poller.poll(max(0.0, until_s - time.monotonic()) * 1000):
                raise self._end(self._silence(self._timeout_s))

    def take_file(self) -> int | None:
        """Return the descriptor that came with the last reply that had one; the caller closes it."""
        incoming = self._incoming
        self._incoming = incoming._replace(files=incoming.files[:-1])
        return incoming.files[-1] if incoming.files else None

    def fileno(self) -> int:
        """Return the descriptor to poll for replies."""
        return self._socket.fileno()

    def open_sibling(self) -> "SocketConnection":
        """Open another connection to the same server."""
        return SocketConnection(self.address, self._local, self._token, self._timeout_s, self._siblings)

    def abort(self, reason: str) -> None:
        """Have the stream end, and whoever waits for a reply get LostConnection. Called on another thread."""
        self._abort_reason = reason
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the stream."""
        if self._closed_by is None:
            self._end(LostConnection(f"the connection to {self.address} was closed"))

    def __del__(self) -> None:
        """Close the socket in a forked process, where the stream goes on in the other one."""
        self._socket.close()

    def _greet(self) -> None:
        self._set_read_timeout(_HELLO_TIMEOUT_S)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(_HELLO_TIMEOUT_S))
        hello = Hello.make(self._local.key, self._token)
        try:
            self._socket.connect(socket_name(self._local.address))
            with contextlib.suppress(BrokenPipeError):  # closed already, after it was told why
                self._socket.sendall(pack_frame(HELLO, hello.pack()))
            until_s = time.monotonic() + _HELLO_TIMEOUT_S
            size_bytes, kind = HEADER.unpack(self._read_exactly(HEADER.size, until_s))
            content = self._read_exactly(min(size_bytes, MAX_HELLO_BYTES), until_s)
        except OSError as error:
            is_silent = isinstance(error, BlockingIOError)
            reason = f"no answer within {_HELLO_TIMEOUT_S:g} s" if is_silent else error.strerror or str(error)
            raise NoLocalSocket(
                f"the local socket of the server at {self.address}, {self._local.address}, cannot be opened "
                f"({reason}): expected the server on this machine, and not in another container"
            ) from error
        if kind == END:
            reason = _parse_status(content).message or "it was closed without a reason"
            raise NoLocalSocket(f"the local socket of the server at {self.address}: {reason}")
        if kind != WELCOME or not hello.is_welcomed(content, self._local.key):
            raise NoLocalSocket(f"the socket {self._local.address} is not that of the server at {self.address}")

    def _read_exactly(self, size_bytes: int, until_s: float) -> bytes:
        """Read so many bytes; BlockingIOError if they are not there in time."""
        data = b""
        while len(data) < size_bytes:
            if time.monotonic() > until_s:
                raise BlockingIOError
            piece = self._socket.recv(size_bytes - len(data))
            if not piece:
                raise ConnectionResetError("the server closed it")
            data += piece
        return data

    def _set_read_timeout(self, timeout_s: float) -> None:
        """Set the system's own timeout: with Python's, each read would ask the system twice."""
        if timeout_s != self._read_timeout_s:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(timeout_s))
            self._read_timeout_s = timeout_s

    def _write(self) -> None:
        """Write the requests that are left; those before the last are then forgotten."""
        outgoing = self._outgoing
        while True:
            _, frame, written = outgoing[0]
            done_bytes = sum(written)
            if done_bytes < len(frame):
                if self._incoming.end is not None:
                    return  # which `receive` raises, after the replies that came before
                self._write_some(frame[done_bytes:] if done_bytes else frame, written)
            elif len(outgoing) == 1:
                self._is_written = True
                return
            else:
                outgoing.popleft()

    def _write_some(self, data: bytes, written: list[int]) -> None:
        try:
            written.extend(map(self._socket.send, (data,), (_DO_NOT_WAIT,)))
        except BlockingIOError:
            # The server stops reading when too many replies wait: to wait for it alone might take for ever.
            poller = select.poll()
            poller.register(self._socket, select.POLLIN | select.POLLOUT)
            if not poller.poll(self._timeout_s * 1000):
                raise self._end(self._silence(self._timeout_s)) from None
            with contextlib.suppress(BlockingIOError):
                self._read(_DO_NOT_WAIT)
        except OSError:  # the server has closed it, and may have said why
            while self._incoming.end is None:
                try:
                    self._read(_DO_NOT_WAIT)
                except BlockingIOError:
                    self._incoming = self._incoming._replace(end=self._loss("it is closed"))

    def _try_to_read(self) -> bool:
        """Read once if something has come; return whether it has."""
        try:
            self._read(_DO_NOT_WAIT)
        except BlockingIOError:
            return False
        return True

    def _read(self, flags: int = 0) -> None:
        """Read once; BlockingIOError if nothing comes in time."""
        pieces = self._incoming.pieces
        if pieces:  # of a long reply, or of one that an interrupt came after
            before, self._incoming = self._incoming, self._sort(self._incoming)
            if self._incoming.received > before.received or self._incoming.end is not None:
                return
            pieces = self._incoming.pieces
        read = self._read_more if pieces else self._read_some
        try:
            pieces.extend(map(read, (flags | _CLOSE_ON_EXEC,)))
        except ConnectionError as error:
            self._incoming = self._incoming._replace(end=self._loss(error.strerror or str(error)))
        else:
            self._incoming = self._sort(self._incoming)

    def _sort(self, incoming: _Incoming) -> _Incoming:
        """Make replies of the pieces, as far as they go."""
        received, replies, pieces, files, end = incoming
        data = pieces[0][0]
        if len(pieces) > 1:
            held_bytes = sum(len(piece[0]) for piece in pieces)
            if len(data) >= HEADER.size and held_bytes < HEADER.size + HEADER.unpack_from(data)[0] and pieces[-1][0]:
                return incoming
            data = b"".join([piece[0] for piece in pieces])
        elif not pieces[0][1] and data[: HEADER.size] == HEADER.pack(max(0, len(data) - HEADER.size), MESSAGE):
            # One whole reply, which is how nearly all come.
            return _Incoming(received + 1, {**replies, received: data[HEADER.size :]}, [], files, end)
        files = (*files, *(file for piece in pieces for file in _files_of(piece[1])))
        new: dict[int, bytes] = {}
        start = 0
        while end is None and len(data) - start >= HEADER.size:
            size_bytes, kind = HEADER.unpack_from(data, start)
            content = data[start + HEADER.size : start + HEADER.size + size_bytes]
            if len(content) < size_bytes:
                break
            start += HEADER.size + size_bytes
            if kind == MESSAGE:
                new[received + len(new)] = content
            else:
                end = self._explain(kind, content)
        if end is None and not pieces[-1][0]:
            end = self._loss("it closed the connection")
        rest = data[start:]
        left: list[Any] = [(rest, [], 0, None)] if rest and end is None else []
        return _Incoming(received + len(new), replies | new, left, files, end)

    def _end(self, reason: ClientError) -> ClientError:
        self._closed_by = reason
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # forked processes may have it open, too
        self._socket.close()
        for file in self._incoming.files:
            os.close(file)
        self._incoming = self._incoming._replace(files=())
        return reason

    def _silence(self, limit_s: float) -> LostConnection:
        return LostConnection(f"no answer from the server at {self.address} within {limit_s:g} s (timeout_s)")

    def _loss(self, details: str) -> LostConnection:
        if self._abort_reason is not None:
            return LostConnection(self._abort_reason)
        return LostConnection(f"lost the server at {self.address}: {details}; reconnect when it is back")

    def _explain(self, kind: int, content: bytes) -> ClientError:
        """Return a ClientError for a frame that is not a reply."""
        if kind != END:
            return BadReply(f"a frame of kind {kind} from the server at {self.address}: expected replies")
        status = _parse_status(content)
        if status.code == code_pb2.UNAVAILABLE:
            return self._loss(status.message)
        return ServerError(status.code, f"error from the server at {self.address}: {status.message}")


def _timeval(timeout_s: float) -> bytes:
    """Return a timeout in the system's form: at least a microsecond, as 0 would be no limit."""
    return struct.pack("ll", *divmod(max(1, round(min(timeout_s, 1e9) * 1e6)), 1_000_000))


def _files_of(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    """Return the descriptors in ancillary data."""
    return [
        file
        for level, kind, data in ancillary
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        for (file,) in struct.iter_unpack("i", data[: len(data) - len(data) % 4])
    ]


def _parse_status(content: bytes) -> status_pb2.Status:
    try:
        return status_pb2.Status.FromString(content)
    except DecodeError:
        return status_pb2.Status(code=code_pb2.UNKNOWN, message="a reason that cannot be read")
