"""Connections of clients: requests are sent as bytes, and their replies are received as bytes in the same order.

A connection leads to a server (`worldloom.client.grpc_connection`) or to an engine in this process (`LocalConnection`).
`open_connection` imports what the address needs: gRPC for a server; for `local`, `worldloom.server` and with it kernels
and renderer. This is the only place where the client package imports the server, which `make check` verifies.
"""

import copy
import ipaddress
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
from google.rpc import code_pb2

from worldloom.client.errors import LostConnection, ServerError
from worldloom.protos.addresses import Address, UnixAddress, parse_address
from worldloom.protos.errors import RequestError

LOCAL = "local"
"""The address of an engine in this process."""
AUTO = "auto"
"""The renderer unless one is given."""
MAX_REPLY_BYTES = 2**31 - 1
"""The largest reply that a client accepts, which is the largest that protobuf allows."""
_RETRY_INTERVAL_S = 0.1
_FIRST_REPLY_S = 5.0
"""Time for the first reply of a server in `connect_again`, before it tries again. Servers give it in milliseconds; this
is for one that is so busy with many clients that it takes seconds."""

_Result = TypeVar("_Result")


class Arrival(Protocol):
    """An event that is set when a reply has come: a threading.Event, or one that can be polled."""

    def set(self) -> None:
        """Set it."""

    def clear(self) -> None:
        """Clear it."""

    def wait(self, timeout: float | None = None, /) -> bool:
        """Wait until it is set; return False if that takes longer."""


class Connection(Protocol):
    """A stream of requests and replies."""

    transport: str
    """`local`, `socket` or `grpc`."""
    taken: int
    """Replies that were taken. The caller counts it up, so that an interrupt comes before or after, and loses none."""

    @property
    def sent(self) -> int:
        """The number of requests that were sent."""

    @property
    def address(self) -> Address | str:
        """The address of the server, or LOCAL."""

    def send(self, request: bytes) -> None:
        """Send a request. `receive` returns its reply, after those to earlier requests."""

    def receive(self, timeout_s: float | None = None) -> bytes:
        """Wait for the next reply, and return it; LostConnection if there will be none.

        The same reply is returned until the caller counts `taken` up. `timeout_s` replaces the connection's own.
        """

    def release(self) -> None:
        """Release the last reply that was taken."""

    @property
    def has_reply(self) -> bool:
        """True if `receive` would return or raise at once."""

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition about this connection and its siblings is true; it may change with their replies."""

    def take_file(self) -> int | None:
        """Return the descriptor that came with the last reply that had one; the caller closes it."""

    def open_sibling(self) -> "Connection":
        """Open another connection to the same server or engine."""

    def abort(self, reason: str) -> None:
        """End the connection from another thread: whoever waits for a reply gets LostConnection with this text."""

    def close(self) -> None:
        """Release everything. Closing twice does nothing."""


@dataclass(frozen=True)
class Credentials:
    """Credentials for a server: a token, and PEM files for TLS."""

    token: str | None = None
    tls_ca: str | os.PathLike[str] | None = None
    tls_cert: str | os.PathLike[str] | None = None
    tls_key: str | os.PathLike[str] | None = None


def open_connection(
    address: str, credentials: Credentials, renderer: str, timeout_s: float, arrival: Arrival | None = None
) -> Connection:
    """Open a connection to an address. `renderer` is for LOCAL, credentials and timeout are for servers.

    `arrival` is set when a reply has come over gRPC.
    """
    if address == LOCAL:
        if credentials != Credentials():
            raise ValueError(f"a token or certificates for {LOCAL!r}: expected none, they are for servers")
        return LocalConnection(renderer)
    if not isinstance(address, str):
        raise TypeError(f"address is {address!r}: expected HOST:PORT or unix:PATH of a server, or {LOCAL!r}")
    try:
        parsed = parse_address(address)
    except ValueError as error:
        raise ValueError(f"{error}, or {LOCAL!r}") from None
    if renderer != AUTO:
        raise ValueError(
            f"renderer is {renderer!r} for the server at {address}: expected none, the server has its own "
            "(worldloom serve --renderer)"
        )
    # Imported here: an engine in this process needs no gRPC, which takes a fifth of the time to import VectorEnv.
    from worldloom.client.grpc_connection import GrpcConnection

    return GrpcConnection(parsed, credentials, timeout_s, arrival)


def connect_again(connect: Callable[[float], None], wait_s: float, timeout_s: float) -> None:
    """Call a function that connects, for up to `wait_s` seconds while there is no server or one that is stopping.

    Its argument is the time for the server's first reply: `timeout_s` in the last try.
    """
    until_s = time.monotonic() + wait_s
    while True:
        is_last_try = time.monotonic() + _RETRY_INTERVAL_S > until_s
        try:
            connect(timeout_s if is_last_try else min(timeout_s, _FIRST_REPLY_S))
        except (LostConnection, ServerError) as error:
            if is_last_try or (isinstance(error, ServerError) and error.code != code_pb2.UNAVAILABLE):
                raise
            time.sleep(_RETRY_INTERVAL_S)
        else:
            return


def is_on_this_machine(address: Address) -> bool:
    """True if the server at an address surely runs on this machine. Names are not looked up: False for them."""
    if isinstance(address, UnixAddress) or address.is_loopback:
        return True
    try:
        version = ipaddress.ip_address(address.host).version
        with socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address.host, 0))  # only addresses of this machine can be bound
    except (ValueError, OSError):
        return False
    return True


class LocalConnection:
    """An engine in this process. It works on the calling thread, while its client waits for a reply.

    All siblings have the same engine, which works on the requests of all of them. The last to close closes it.
    """

    address = transport = LOCAL

    def __init__(self, renderer: str) -> None:
        self._engine = _LocalEngine(renderer)
        self._stream = self._engine.open_stream()
        self.taken = self.sent = 0

    def send(self, request: Any) -> None:
        """Queue a request, which is bytes or what `array_step` returns, until a reply is waited for."""
        self._stream.send(request)
        self.sent += 1

    def array_step(self, uids: tuple[int, ...], actions: Mapping[str, np.ndarray], out: Any = None) -> Any:
        """Return a request for a step with arrays, which are not copied. Actions are by name, and valid.

        Its reply is a dict of arrays by name, or bytes if it is an error.
        """
        return self._engine.array_step(uids, actions, out)

    def array_buffer(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """Return the `out` of array steps that are written into these arrays, by name, in the order of their UIDs."""
        return self._engine.array_buffer(dict(arrays))

    def offer_model(self, model: Any) -> str:
        """Have the engine know an MjModel, and return its name for the setting `model` of the family `mujoco`."""
        return self._engine.offer_model(model)

    def receive(self, timeout_s: float | None = None) -> Any:
        """Run the engine until the oldest request has been answered, and return its reply."""
        return self._engine.run(partial(self._stream.receive, self.taken))

    def release(self) -> None:
        """Release the last reply that was taken, so that its memory is used again."""
        self._stream.release(self.taken - 1)

    @property
    def has_reply(self) -> bool:
        """True if there is a reply, or there will be none."""
        return self._stream.has_reply(self.taken) or self._engine.is_closed

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Run the engine until a condition is true."""
        self._engine.run(partial(self._stream.run_until, condition))

    def take_file(self) -> None:
        """Return None: no descriptors come this way."""

    def open_sibling(self) -> "LocalConnection":
        """Open another connection to the same engine."""
        sibling = copy.copy(self)
        sibling._stream = self._engine.open_stream()
        sibling.taken = sibling.sent = 0
        return sibling

    def abort(self, reason: str) -> None:
        """Do nothing: an engine in this process works only while its client waits."""

    def close(self) -> None:
        """Leave the world, and close the engine if this was its last connection."""
        self._engine.close_stream(self._stream)


class _LocalEngine:
    """An engine, until its last stream is closed or it is interrupted."""

    def __init__(self, renderer: str) -> None:
        # Imported here: clients of servers need neither kernels nor a renderer.
        from worldloom.server.transports.in_process import InProcess

        self.array_step, self.array_buffer = InProcess.array_step, InProcess.array_buffer
        self._server: InProcess | None = InProcess(renderer)
        self._streams: list[Any] = []

    @property
    def is_closed(self) -> bool:
        return self._server is None

    def open_stream(self) -> Any:
        stream = self.run(lambda: self._server.open_stream())  # type: ignore[union-attr]  # run has checked it
        self._streams.append(stream)
        return stream

    def offer_model(self, model: Any) -> str:
        return self.run(lambda: self._server.offer_model(model))  # type: ignore[union-attr]  # run has checked it

    def run(self, work: Callable[[], _Result]) -> _Result:
        """Do some work of the engine, with errors as those of a server."""
        if self._server is None:
            raise LostConnection("the engine in this process was closed, or interrupted in the middle of a step")
        try:
            return work()
        except RequestError as error:
            raise ServerError(error.code, str(error)) from error
        except BaseException:  # such as Ctrl-C: the engine may be in the middle of anything
            self._close()
            raise

    def close_stream(self, stream: Any) -> None:
        if stream in self._streams:
            self._streams.remove(stream)
            if self._streams:
                self.run(stream.close)
            else:
                self._close()

    def _close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
