"""Addresses of servers: `HOST:PORT` or `unix:PATH`, parsed and printed, and whether they stay on this machine."""

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

_EXPECTED = "expected HOST:PORT such as 127.0.0.1:9000 or [::1]:9000, or unix:PATH"
_EXPECTED_TO_LISTEN = _EXPECTED.replace(",", ", where port 0 picks a free one,")
_MAX_PATH_BYTES = 107
"""The longest path that the operating system takes as the address of a Unix socket."""


@dataclass(frozen=True)
class TcpAddress:
    """A host, as a name or an IP address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach it. Names other than localhost are not looked up: False for them."""
        return self.host.lower() == "localhost" or is_loopback(self.host)


@dataclass(frozen=True)
class UnixAddress:
    """A Unix socket. Its path is absolute, so that it is valid in any working directory."""

    path: Path

    def __str__(self) -> str:
        return f"unix:{self.path}"


Address: TypeAlias = TcpAddress | UnixAddress


def parse_address(text: str) -> Address:
    """Parse the address of a server to connect to; ValueError if it is none."""
    return _parse(text, _EXPECTED, 1)


def parse_listen_address(text: str) -> Address:
    """Parse an address to listen on, where port 0 stands for any free one; ValueError if it is none."""
    return _parse(text, _EXPECTED_TO_LISTEN, 0)


def _parse(text: str, expected: str, first_port: int) -> Address:
    if text.startswith("unix:"):
        return _parse_path(text)
    host, colon, port_text = text.rpartition(":")
    if not colon or not host:
        raise ValueError(f"{text!r} is not an address: {expected}")
    if host.startswith("[") or host.endswith("]") or ":" in host:
        inner = host[1:-1] if host.startswith("[") and host.endswith("]") else ""
        is_valid, host = _is_ipv6(inner), inner
    else:
        is_valid = host.isprintable() and not any(letter in host for letter in " /?#@%[]*")
    if not is_valid:
        raise ValueError(f"{text!r} has no valid host before its port: {expected}")
    if not (port_text.isascii() and port_text.isdigit() and int(port_text) <= 65535):
        raise ValueError(f"{text!r} has the port {port_text!r}: expected a number from {first_port} to 65535")
    if int(port_text) < first_port:
        raise ValueError(f"{text!r} has port 0: expected the port that the server printed when it started")
    return TcpAddress(host, int(port_text))


def is_loopback(ip_address: str) -> bool:
    """True for an IP address in 127.0.0.0/8, and for ::1."""
    try:
        return ipaddress.ip_address(ip_address).is_loopback
    except ValueError:
        return False


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _parse_path(text: str) -> UnixAddress:
    given = text.removeprefix("unix:")
    if given.startswith("///"):
        given = given[2:]  # unix:///run/worldloom.sock, which gRPC accepts too
    if not given or "\0" in given or given.endswith("/"):
        raise ValueError(f"{text!r} names no socket file: expected a path such as unix:/run/worldloom.sock")
    path = Path(given).absolute()
    size_bytes = len(os.fsencode(path))
    if size_bytes > _MAX_PATH_BYTES:
        raise ValueError(f"{text!r} has an absolute path of {size_bytes} bytes: expected at most {_MAX_PATH_BYTES}")
    return UnixAddress(path)
