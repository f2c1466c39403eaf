"""A connection to a server over gRPC, and error messages for connections that fail.

A thread of the connection receives replies as they arrive and queues them, so a reply may be complete before the client
asks for it. The thread ends with the stream.
"""

import itertools
import os
import queue
import threading
import time
import urllib.parse
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from worldloom.client.connections import Arrival, Credentials
from worldloom.client.errors import CannotConnect, ClientError, LostConnection, ServerError
from worldloom.protos.addresses import Address, UnixAddress

_METHOD = "/dm_env_rpc.v1.Environment/Process"
_NO_SERVER = ("connection refused", "no such file")
_TLS_FAILED = ("ssl", "tls", "handshake", "certificate")
"""Words in gRPC's error details that tell the causes of UNAVAILABLE apart."""
_END_TIMEOUT_S = 2.0
"""Time for a thread to end with its stream. They take milliseconds."""


class GrpcConnection:
    """One gRPC stream, on a connection of its own."""

    transport = "grpc"

    def __init__(
        self,
        address: Address,
        credentials: Credentials,
        timeout_s: float,
        arrival: Arrival | None = None,
    ) -> None:
        """Open a connection. `arrival` is set when a reply has come, for all siblings."""
        self.address = address
        self._credentials = credentials
        self._arrival: Arrival = threading.Event() if arrival is None else arrival
        self._timeout_s = timeout_s
        self._is_secure = credentials.tls_ca is not None
        self._has_replied = False
        self._closed_by: ClientError | None = None
        """The reason why the stream has ended, raised by every later call."""
        self._abort_reason: str | None = None
        self._channel = open_channel(address, credentials)
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._replies: dict[int, bytes | grpc.RpcError | None] = {}
        """Replies by number that have come and not been taken; at the end of the stream its error, or None."""
        self.taken = 0
        self._last_sent: deque[tuple[None, int]] = deque([(None, 0)], maxlen=1)
        """The number of requests that were sent, with the result of `put`."""
        self._arrivals: queue.SimpleQueue[None] = queue.SimpleQueue()
        """An element for each reply that has come."""
        # Without serialisers gRPC passes the bytes on as they are.
        process = self._channel.stream_stream(_METHOD)
        token = credentials.token
        metadata = None if token is None else (("authorization", f"Bearer {token}"),)
        self._threads: list[threading.Thread] = []
        """The thread below, and those of gRPC that work for this stream."""
        self._has_ended = threading.Event()
        self._call = process(self._read_requests(), metadata=metadata)
        if not self._call.add_callback(self._note_end):
            self._has_ended.set()
        reader = threading.Thread(
            target=_read_replies,
            args=(self._call, self._replies, self._arrivals, self._arrival),
            name="worldloom-client",
            daemon=True,
        )
        self._threads.append(reader)
        reader.start()

    @property
    def sent(self) -> int:
        """Requests that were handed to gRPC's thread."""
        return self._last_sent[0][1]

    def send(self, request: bytes) -> None:
        """Hand a request to gRPC's thread, which sends it.

        The call of C that hands it over counts it, too: an interrupt comes before both or after both.
        """
        if self._closed_by is not None:
            raise self._closed_by
        self._last_sent.extend(zip(map(self._requests.put, (request,)), (self.sent + 1,), strict=False))

    def receive(self, timeout_s: float | None = None) -> bytes:
        """Wait for the next reply, and return it without taking it.

        An interrupt while waiting is raised as soon as there is a reply, in the middle of the call that waits. Had the
        call taken the reply, it would be lost.
        """
        if self._closed_by is not None:
            raise self._closed_by
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        until_s = time.monotonic() + limit_s
        while self.taken not in self._replies:
            try:
                self._arrivals.get(timeout=max(0.0, until_s - time.monotonic()))
            except queue.Empty:
                raise self._end(LostConnection(self._describe_silence(limit_s))) from None
        reply = self._replies[self.taken]
        if isinstance(reply, bytes):
            self._has_replied = True
            return reply
        raise self._end(self._explain(reply)) from reply

    def release(self) -> None:
        """Release the last reply that was taken."""
        self._replies.pop(self.taken - 1, None)

    @property
    def has_reply(self) -> bool:
        """True if there is a reply, or there will be none."""
        return self._closed_by is not None or self.taken in self._replies

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true, which replies to this connection or a sibling may make true."""
        while True:
            self._arrival.clear()  # before the condition is checked: it may become true in between
            if condition():
                return
            if not self._arrival.wait(self._timeout_s):
                raise self._end(LostConnection(self._describe_silence(self._timeout_s)))

    def take_file(self) -> None:
        """Return None: no descriptors come this way."""

    def open_sibling(self) -> "GrpcConnection":
        """Open another connection to the same server."""
        return GrpcConnection(self.address, self._credentials, self._timeout_s, self._arrival)

    def close(self) -> None:
        """End the stream and its connection."""
        if self._closed_by is None:
            self._end(LostConnection(f"the connection to {self.address} was closed"))

    def abort(self, reason: str) -> None:
        """Have the stream end, and whoever waits for a reply get LostConnection. Called on another thread."""
        self._abort_reason = reason
        self._call.cancel()

    def _end(self, reason: ClientError) -> ClientError:
        self._closed_by = reason
        self._requests.put(None)
        self._call.cancel()
        self._channel.close()
        self._join_threads()
        return reason

    def _read_requests(self) -> Iterator[bytes]:
        """Yield the requests to send. Runs on a thread of gRPC."""
        self._threads.append(threading.current_thread())
        yield from iter(self._requests.get, None)

    def _note_end(self) -> None:
        """Note that the call has ended. Runs on the thread of gRPC that serves the channel, and ends with it."""
        self._threads.append(threading.current_thread())
        self._has_ended.set()

    def _join_threads(self) -> None:
        """Wait until the threads have ended.

        They take locks of the call. If the process ended while one of them holds such a lock, that thread would stop
        where it is, and the process would wait for the lock when it frees the call.
        """
        self._has_ended.wait(_END_TIMEOUT_S)
        for thread in self._threads:
            if thread is not threading.current_thread():  # which may be one of them, in a garbage collection
                thread.join(_END_TIMEOUT_S)

    def _describe_silence(self, limit_s: float) -> str:
        return f"no answer from the server at {self.address} within {limit_s:g} s (timeout_s)"

    def _explain(self, error: grpc.RpcError | None) -> ClientError:
        """Return a ClientError for the end of the stream; None is an end without an error."""
        if self._abort_reason is not None:
            return LostConnection(self._abort_reason)
        if error is None:
            return LostConnection(f"the server at {self.address} ended the stream")
        code, details = error.code(), str(error.details())
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN):
            if self._has_replied:
                return LostConnection(f"lost the server at {self.address}: {details}; reconnect when it is back")
            return CannotConnect(self._explain_no_connection(details))
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return CannotConnect(
                f"the server at {self.address} does not speak dm_env_rpc ({details}): expected a `worldloom serve`"
            )
        hint = "; give token=TEXT" if code is grpc.StatusCode.UNAUTHENTICATED else ""
        return ServerError(code.value[0], f"error from the server at {self.address}: {details}{hint}")

    def _explain_no_connection(self, details: str) -> str:
        words = details.lower()
        if any(word in words for word in _NO_SERVER):
            return f"no server at {self.address}: start one with `worldloom serve --listen {self.address}`"
        if self._is_secure and any(word in words for word in _TLS_FAILED):
            return (
                f"no TLS with the server at {self.address}: {details}; expected a server started with --tls-cert, with "
                "a certificate for that host that is signed with tls_ca"
            )
        hint = "; if it was started with --tls-cert, give tls_ca=FILE"
        if self._is_secure:
            hint = "; if it was started with --tls-client-ca, give tls_cert=FILE and tls_key=FILE, signed with that"
        return f"cannot connect to {self.address}: {details}{hint}"


def _read_replies(
    call: Any,
    replies: dict[int, bytes | grpc.RpcError | None],
    arrivals: "queue.SimpleQueue[None]",
    arrival: Arrival,
) -> None:
    """Add replies until the stream ends; last its error, or None. Runs on the connection's thread."""
    for number in itertools.count():
        reply: bytes | grpc.RpcError | None
        try:
            reply = next(call)
        except StopIteration:
            reply = None
        except grpc.RpcError as error:
            reply = error
        replies[number] = reply
        arrivals.put(None)
        arrival.set()
        if not isinstance(reply, bytes):
            return


def open_channel(
    address: Address, credentials: Credentials, more_options: Sequence[tuple[str, int]] = ()
) -> grpc.Channel:
    """Open a channel to a server."""
    options = [
        *more_options,
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        # A TCP connection for each channel, instead of one for all channels of this process to the same address.
        ("grpc.use_local_subchannel_pool", 1),
        # By default gRPC repeats a call by itself that a stopping server did not accept, and some of these calls never
        # end: 11 of 200 processes waited for their first reply until the timeout. Without, they fail at once.
        ("grpc.enable_retries", 0),
    ]
    if isinstance(address, UnixAddress):
        target = f"unix:{urllib.parse.quote(os.fsencode(address.path))}"
    else:
        target = str(address)
        if address.is_loopback:
            options.append(("grpc.enable_http_proxy", 0))
    tls = _read_tls_files(address, credentials)
    if tls is None:
        return grpc.insecure_channel(target, options=options)
    return grpc.secure_channel(target, tls, options=options)


def _read_tls_files(address: Address, credentials: Credentials) -> grpc.ChannelCredentials | None:
    given = [name for name in ("tls_ca", "tls_cert", "tls_key") if getattr(credentials, name) is not None]
    if not given:
        return None
    if isinstance(address, UnixAddress):
        raise ValueError(f"{given[0]} for {address}: expected none, Unix sockets are used without TLS")
    if "tls_ca" not in given or len(given) == 2:
        raise ValueError(f"{' and '.join(given)} alone: expected tls_ca, or tls_ca with both tls_cert and tls_key")
    ca, cert, key = (_read_pem(name, getattr(credentials, name)) for name in ("tls_ca", "tls_cert", "tls_key"))
    return grpc.ssl_channel_credentials(ca, key, cert)


def _read_pem(name: str, path: str | os.PathLike[str] | None) -> bytes | None:
    if path is None:
        return None
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{name} {os.fspath(path)!r} cannot be read: {error.strerror or error}") from None
    if b"-----BEGIN " not in data:
        raise ValueError(f"{name} {os.fspath(path)!r} is not PEM: expected a file with a BEGIN line")
    return data
