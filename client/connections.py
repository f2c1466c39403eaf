"""Connections of clients: requests are sent as bytes, and their replies are received as bytes in the same order.

A connection leads to a server (`worldloom.client.grpc_connection`) or to an engine in this process (`LocalConnection`).
`open_connection` imports what the address needs: gRPC for a server; for `local`, `worldloom.server` and with it kernels
and renderer. This is the only place where the client package imports the server, which `make check` verifies.
"""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from worldloom.client.errors import LostConnection, ServerError
from worldloom.protos.addresses import Address, UnixAddress, parse_address
from worldloom.protos.errors import RequestError

if TYPE_CHECKING:
    from worldloom.server.transports.in_process import InProcess

LOCAL = "local"
"""The address of an engine in this process."""
AUTO = "auto"
"""The renderer unless one is given."""
MAX_REPLY_BYTES = 2**31 - 1
"""The largest reply that a client accepts, which is the largest that protobuf allows."""


class Connection(Protocol):
    """A stream of requests and replies."""

    @property
    def address(self) -> Address | str:
        """The address of the server, or LOCAL."""

    def send(self, request: bytes) -> None:
        """Send a request. `receive` returns its reply, after those to earlier requests."""

    def receive(self, timeout_s: float | None = None) -> bytes:
        """Return the next reply; LostConnection if there will be none. `timeout_s` replaces the connection's own."""

    def open_another(self) -> "Connection":
        """Open another stream to the same engine, for another agent."""

    def close(self) -> None:
        """Release everything. Closing twice does nothing."""


@dataclass(frozen=True)
class Credentials:
    """Credentials for a server: a token, and PEM files for TLS."""

    token: str | None = None
    tls_ca: str | os.PathLike[str] | None = None
    tls_cert: str | os.PathLike[str] | None = None
    tls_key: str | os.PathLike[str] | None = None


def open_connection(address: str, credentials: Credentials, renderer: str, timeout_s: float) -> Connection:
    """Open a connection to an address. `renderer` is for LOCAL, credentials and timeout are for servers."""
    if address == LOCAL:
        if credentials != Credentials():
            raise ValueError(f"a token or certificates for {LOCAL!r}: expected none, they are for servers")
        # Imported here: clients of servers need neither kernels nor a renderer.
        from worldloom.server.transports.in_process import InProcess

        return LocalConnection(InProcess(renderer))
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

    return GrpcConnection(parsed, credentials, timeout_s)


def is_on_this_machine(address: str) -> bool:
    """True if the server at an address surely runs on this machine."""
    parsed = parse_address(address)
    return isinstance(parsed, UnixAddress) or parsed.is_loopback


class LocalConnection:
    """A stream to an engine in this process. It works on the calling thread, while its client waits for a reply."""

    address = LOCAL

    def __init__(self, server: "InProcess") -> None:
        self._server = server
        self._stream = server.open_stream()

    def send(self, request: bytes) -> None:
        """Queue a request until a reply is received."""
        self._stream.requests.append(request)

    def receive(self, timeout_s: float | None = None) -> bytes:
        """Run the engine, and return the reply to the oldest request."""
        if self._server.is_closed:
            raise LostConnection("the engine in this process was closed, or interrupted in the middle of a step")
        try:
            return self._server.answer(self._stream)
        except RequestError as error:
            raise ServerError(error.code, str(error)) from error
        except BaseException:  # such as Ctrl-C: the engine may be in the middle of anything
            self._server.close()
            raise

    def open_another(self) -> "LocalConnection":
        """Open another stream to the same engine."""
        return LocalConnection(self._server)

    def close(self) -> None:
        """Close the stream, and with the last one the engine."""
        self._server.close_stream(self._stream)
