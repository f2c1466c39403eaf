"""Connecting to a server by the fastest transport that there is: its local socket, or else gRPC.

A server tells by its properties whether it has a local socket. So a client connects over gRPC first, and needs no more
than the address. Where the socket cannot be opened, the connection over gRPC stays: the server is behind a forwarded
port, in a container that shares no network with this one, or run by another user.
"""

from collections.abc import Callable, Sequence
from typing import Any

from worldloom.client.connections import (
    LOCAL,
    Arrival,
    Connection,
    Credentials,
    is_on_this_machine,
    open_connection,
)
from worldloom.client.errors import NoLocalSocket, ServerError
from worldloom.client.socket_connection import SocketConnection
from worldloom.client.world import UNKNOWN_PROPERTY_CODES, decode_property, encode_property_request
from worldloom.protos.local_frames import LocalAddress


def check_transport(address: str, transport: str, known: Sequence[str]) -> None:
    """Raise ValueError for a transport that does not exist, or one for an engine in this process."""
    if transport not in known:
        raise ValueError(f"transport is {transport!r}: expected one of {', '.join(known)}")
    if address == LOCAL and transport != "auto":
        raise ValueError(f"transport is {transport!r} for {LOCAL!r}: expected auto, which is no transport there")


def connect(
    address: str,
    credentials: Credentials,
    renderer: str,
    timeout_s: float,
    transport: str,
    first_timeout_s: float | None = None,
    arrival: Arrival | None = None,
    when_open: Callable[[Connection], None] = lambda connection: None,
) -> Connection:
    """Open a connection to an address by one of the transports `auto`, `socket` and `grpc`.

    Raises NoLocalSocket if `socket` was asked for and cannot be had. `first_timeout_s` is for the server's first reply;
    None is `timeout_s`. `arrival` is set when a reply has come over gRPC. `when_open` is called with each connection
    that is opened, before anything is asked of the server.
    """
    connection = open_connection(address, credentials, renderer, timeout_s, arrival)
    when_open(connection)
    if transport == "grpc" or (transport == "auto" and not _is_local_server(connection)):
        return connection
    try:
        socket = _open_socket(connection, credentials, timeout_s, first_timeout_s)
    except NoLocalSocket:
        if transport == "auto":
            return connection
        connection.close()
        raise
    except BaseException:
        connection.close()
        raise
    connection.close()
    when_open(socket)
    return socket


def _is_local_server(connection: Connection) -> bool:
    return not isinstance(connection.address, str) and is_on_this_machine(connection.address)


def _open_socket(
    connection: Connection, credentials: Credentials, timeout_s: float, first_timeout_s: float | None
) -> SocketConnection:
    address = connection.address
    if isinstance(address, str) or not is_on_this_machine(address):
        raise NoLocalSocket(
            f"the server at {address} may be on another machine: expected 127.0.0.1, [::1], localhost or unix:PATH for "
            "its local socket"
        )
    try:
        local = LocalAddress(
            str(read_property(connection, "server.local_socket", first_timeout_s)),
            str(read_property(connection, "server.local_socket_key")),
        )
    except ServerError as error:
        if error.code not in UNKNOWN_PROPERTY_CODES:
            raise
        raise NoLocalSocket(
            f"the server at {address} has no local socket: expected a worldloom server without --local-socket off"
        ) from error
    return SocketConnection(address, local, credentials.token, timeout_s)


def read_property(connection: Connection, key: str, timeout_s: float | None = None) -> Any:
    """Read a property of the server over a connection that waits for nothing else."""
    connection.send(encode_property_request(key))
    reply = connection.receive(timeout_s)
    connection.taken += 1
    connection.release()
    return decode_property(reply, key)
