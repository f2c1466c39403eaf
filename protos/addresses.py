"""Where a server can be reached: `HOST:PORT` or `unix:PATH`, and which of these stay on this machine."""

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

_EXPECTED = "expected HOST:PORT such as 127.0.0.1:9000 or [::1]:9000, where port 0 picks a free one, or unix:PATH"
_LONGEST_PATH_BYTES = 107
"""What the kernel has room for in the address of a Unix socket."""


@dataclass(frozen=True)
class TcpAddress:
    """A host, by name or number, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine gets there. Names other than localhost may mean anything."""
        return self.host.lower() == "localhost" or is_loopback(self.host)


@dataclass(frozen=True)
class UnixAddress:
    """A socket in the file system. Its path is absolute, so that it holds wherever it is told."""

    path: Path

    def __str__(self) -> str:
        return f"unix:{self.path}"


Address: TypeAlias = TcpAddress | UnixAddress


def parse_address(text: str) -> Address:
    """The address that a text stands for; a text that stands for none raises ValueError."""
    if text.startswith("unix:"):
        return _parse_path(text)
    host, colon, port_text = text.rpartition(":")
    if not colon or not host:
        raise ValueError(f"{text!r} is no address: {_EXPECTED}")
    if host.startswith("[") or host.endswith("]") or ":" in host:
        host = _parse_ipv6(text, host)
    elif not host.isprintable() or any(letter in host for letter in " /?#@%[]*"):
        raise ValueError(f"{text!r} has no host in front of its port: {_EXPECTED}")
    if not (port_text.isascii() and port_text.isdigit() and int(port_text) <= 65535):
        raise ValueError(f"{text!r} has the port {port_text!r}: expected a number from 0 to 65535")
    return TcpAddress(host, int(port_text))


def is_loopback(number: str) -> bool:
    """Whether an address in numbers is in 127.0.0.0/8, or ::1."""
    try:
        return ipaddress.ip_address(number).is_loopback
    except ValueError:
        return False


def _parse_ipv6(text: str, host: str) -> str:
    number = host[1:-1] if host.startswith("[") and host.endswith("]") else None
    try:
        if number is None:
            raise ValueError
        ipaddress.IPv6Address(number)
    except ValueError:
        raise ValueError(f"{text!r} has no host in front of its port: {_EXPECTED}") from None
    return number


def _parse_path(text: str) -> UnixAddress:
    given = text.removeprefix("unix:")
    if given.startswith("///"):
        given = given[2:]  # as in unix:///run/worldloom.sock, which gRPC takes too
    if not given or "\0" in given or given.endswith("/"):
        raise ValueError(f"{text!r} names no file for the socket: expected such as unix:/run/worldloom.sock")
    path = Path(given).absolute()
    size_bytes = len(os.fsencode(path))
    if size_bytes > _LONGEST_PATH_BYTES:
        raise ValueError(f"{text!r} is {size_bytes} bytes long in full: expected at most {_LONGEST_PATH_BYTES}")
    return UnixAddress(path)
