"""Listening on addresses. An address that is in use is an error of one line; a socket in use is never replaced."""

import contextlib
import errno
import os
import secrets
import socket
import stat
import urllib.parse
from pathlib import Path

import grpc

from worldloom.protos.addresses import Address, TcpAddress, UnixAddress, is_loopback
from worldloom.protos.local_frames import ABSTRACT, socket_name

_PROBE_TIMEOUT_S = 2.0
_BACKLOG = 128
_LOCAL_BACKLOG = 1024
"""Connections to the local socket that may wait while the engine is busy, such as those of many clients at once."""


class ListenError(OSError):
    """An address that cannot be listened on. The text says why."""


def check_free(address: Address, option: str = "--listen") -> None:
    """Raise ListenError, which names the option, if an address is in use or not available. Stale files are removed.

    gRPC itself silently replaces the socket file of a running server, and does not say why it cannot bind a port.
    """
    if isinstance(address, UnixAddress):
        _check_path(address)
    else:
        for family, number in _resolve(address):
            _check_port(address, family, number, option)


def listen(
    server: grpc.aio.Server,
    address: Address,
    credentials: grpc.ServerCredentials | None,
    at_the_end: contextlib.ExitStack,
) -> Address:
    """Add an address to a gRPC server, TCP with TLS if given; return it with its actual port."""
    check_free(address)
    if isinstance(address, UnixAddress):
        _add(server, address, f"unix:{urllib.parse.quote(os.fsencode(address.path))}", None)
        at_the_end.callback(_remove, address.path, _identity(address.path))
        return address
    port = address.port
    for _, number in _resolve(address):
        # Each numeric address separately: of a name with several, gRPC would accept any one.
        port = _add(server, address, str(TcpAddress(number, port)), credentials)
    return TcpAddress(address.host, port)


def listen_tcp(
    address: TcpAddress, at_the_end: contextlib.ExitStack, option: str = "--listen"
) -> tuple[list[socket.socket], TcpAddress]:
    """Listen on all numeric addresses of a host; return the sockets, and the address with its actual port."""
    check_free(address, option)
    listeners: list[socket.socket] = []
    port = address.port
    for family, number in _resolve(address):
        listener = at_the_end.enter_context(socket.socket(family))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            listener.bind((number, port))
            listener.listen(_BACKLOG)
        except OSError as error:
            raise ListenError(f"cannot listen on {address}: {error.strerror or error}") from None
        port = listener.getsockname()[1]
        listeners.append(listener)
    return listeners, TcpAddress(address.host, port)


def listen_locally(
    path: Path | None, is_for_others: bool, at_the_end: contextlib.ExitStack
) -> tuple[socket.socket, str]:
    """Listen on a local socket; return it and its address.

    Without a path it has a name that no other has, and no file: it is gone with the server, and containers with another
    network do not see it.
    """
    if path is None:
        address = f"{ABSTRACT}worldloom-{os.getpid()}-{secrets.token_hex(8)}"
    else:
        address = str(path)
        check_free(UnixAddress(path))
    listener = at_the_end.enter_context(socket.socket(socket.AF_UNIX))
    try:
        listener.bind(socket_name(address))
        if path is not None:
            at_the_end.callback(_remove, path, _identity(path))
            path.chmod(0o666 if is_for_others else 0o600)
        listener.listen(_LOCAL_BACKLOG)
    except OSError as error:
        raise ListenError(f"cannot listen on the local socket {address}: {error.strerror or error}") from None
    return listener, address


def _add(server: grpc.aio.Server, address: Address, target: str, credentials: grpc.ServerCredentials | None) -> int:
    try:
        port = server.add_secure_port(target, credentials) if credentials else server.add_insecure_port(target)
    except RuntimeError:  # gRPC gives no reason; all that can be foreseen was checked
        raise ListenError(
            f"cannot listen on {address}: gRPC rejects it; another program may just have taken it"
        ) from None
    assert isinstance(port, int)
    return port


def _resolve(address: TcpAddress) -> list[tuple[socket.AddressFamily, str]]:
    """Return the numeric addresses of a host, with their families."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ListenError(f"cannot listen on {address}: no address for host {address.host!r} ({error})") from None
    numbers: list[tuple[socket.AddressFamily, str]]
    numbers = list(dict.fromkeys((family, str(place[0])) for family, _, _, _, place in found))
    if address.host.lower() == "localhost":  # trusted to stay on this machine, so it must
        numbers = [(family, number) for family, number in numbers if is_loopback(number)]
        numbers = [one for one in numbers if _is_there(*one)] or [(socket.AF_INET, "127.0.0.1")]
    return numbers


def _is_there(family: socket.AddressFamily, number: str) -> bool:
    """Return whether this machine has the address: many resolve localhost to ::1 without having IPv6."""
    try:
        with socket.socket(family) as probe:
            probe.bind((number, 0))
    except OSError:
        return False
    return True


def _check_port(address: TcpAddress, family: socket.AddressFamily, number: str, option: str) -> None:
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC does: closed connections do not count
            probe.bind((number, address.port))
            probe.listen()
    except OSError as error:
        hint = {
            errno.EADDRINUSE: f"another server may be running there: stop it, or take another port with {option}; port "
            "0 picks a free one",
            errno.EACCES: "ports below 1024 are for the system; take a higher one",
            errno.EADDRNOTAVAIL: "this machine has no such address",
        }.get(error.errno or 0, "take another address")
        raise ListenError(f"cannot listen on {address}: {error.strerror or error}; {hint}") from None


def _check_path(address: UnixAddress) -> None:
    path = address.path
    if not path.parent.is_dir():
        raise ListenError(f"cannot listen on {address}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ListenError(f"cannot listen on {address}: no permission to make files in {path.parent}")
    if not os.path.lexists(path):
        return
    if not _is_socket(path):
        raise ListenError(f"cannot listen on {address}: the file there is no socket; remove it, or take another path")
    if not _remove_if_dead(path):
        raise ListenError(f"cannot listen on {address}: a server listens there; stop it, or take another path")


def _is_socket(path: Path) -> bool:
    return stat.S_ISSOCK(path.lstat().st_mode)


def _remove_if_dead(path: Path) -> bool:
    """Remove a socket file without a listener; return whether it is gone."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_PROBE_TIMEOUT_S)
            probe.connect(str(path))
    except FileNotFoundError:
        return True
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
        return True
    except OSError:
        return False  # its queue is full, or access is denied: it has a listener
    return False


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _remove(path: Path, identity: tuple[int, int] | None) -> None:
    """Remove the socket file of this server, unless it is gone or belongs to another by now."""
    if identity is not None and _identity(path) == identity:
        path.unlink(missing_ok=True)
