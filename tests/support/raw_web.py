"""A client of the page that writes its bytes itself: also what no browser would send and no library would show."""

import base64
import contextlib
import hashlib
import json
import os
import socket
import ssl
import struct
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypeAlias

TIMEOUT_S = 20.0
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
Headers: TypeAlias = Mapping[str, str | None]
NO_HEADERS: Headers = MappingProxyType({})
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Response(NamedTuple):
    """What a server answered."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        """The only header of this name."""
        found = [value for one, value in self.headers if one == name.lower()]
        assert len(found) <= 1, found
        return found[0] if found else None

    @property
    def text(self) -> str:
        return self.body.decode()


class RawConnection:
    """A TCP connection to a page, with TLS if the URL says so."""

    def __init__(self, page: str, context: ssl.SSLContext | None = None, receive_buffer: int | None = None) -> None:
        parts = urllib.parse.urlsplit(page)
        assert parts.hostname is not None
        self.host = parts.netloc
        self.socket = socket.socket(socket.AF_INET6 if ":" in parts.hostname else socket.AF_INET)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT_S)
        self._data = b""
        try:
            self.socket.connect((parts.hostname, parts.port))
            if context is not None:
                self.socket = context.wrap_socket(self.socket, server_hostname=parts.hostname)
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(self, target: str, headers: Headers = NO_HEADERS, method: str = "GET", body: bytes = b"") -> Response:
        """Ask, and read the answer. The host is the page's own unless given; None omits a header."""
        self.send(request_bytes(self.host, target, headers, method, body))
        return self.read_response(method)

    def read_response(self, method: str = "GET") -> Response:
        """Read an answer, its body by Content-Length."""
        head, _, self._data = self._read_until(b"\r\n\r\n").partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        version, status, *_ = first.split(" ")
        assert version in ("HTTP/1.1", "HTTP/1.0"), first
        headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        size = int(dict(headers).get("content-length", "0"))
        body = self.read(size) if method != "HEAD" and int(status) not in (101, 204, 304) else b""
        return Response(int(status), headers, body)

    def read(self, size: int) -> bytes:
        """Read so many bytes; ConnectionError at an earlier end."""
        while len(self._data) < size:
            self._receive()
        data, self._data = self._data[:size], self._data[size:]
        return data

    def wait_closed(self, timeout_s: float = TIMEOUT_S) -> float:
        """Read until the server has ended the connection; return how long that took."""
        began_s = time.monotonic()
        self.socket.settimeout(timeout_s)
        with contextlib.suppress(ConnectionError):
            while self.socket.recv(1 << 16):
                assert time.monotonic() - began_s < timeout_s
        return time.monotonic() - began_s

    def _read_until(self, end: bytes) -> bytes:
        while end not in self._data:
            self._receive()
        return self._data

    def _receive(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the server has ended the connection")
        self._data += data


def request_bytes(
    host: str, target: str, headers: Headers = NO_HEADERS, method: str = "GET", body: bytes = b""
) -> bytes:
    """A request of HTTP/1.1."""
    given: dict[str, str | None] = {"Host": host}
    if body:
        given["Content-Length"] = str(len(body))
    given |= headers
    lines = [f"{name}: {value}" for name, value in given.items() if value is not None]
    return "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode("latin-1") + body


def ask(page: str, target: str, headers: Headers = NO_HEADERS, method: str = "GET", body: bytes = b"") -> Response:
    """Ask over a connection of its own."""
    with RawConnection(page) as connection:
        return connection.request(target, headers, method, body)


class RawSocket(RawConnection):
    """A WebSocket of the live view."""

    def upgrade(self, headers: Headers = NO_HEADERS, target: str = "/live") -> Response:
        """Ask for the upgrade; return the answer, 101 if it was granted."""
        key = base64.b64encode(os.urandom(16)).decode()
        given = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", **headers}
        response = self.request(target, {"Sec-WebSocket-Key": key, **given})
        if response.status == 101:
            expected = base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()
            assert response.header("sec-websocket-accept") == expected
        return response

    def send_json(self, message: object) -> None:
        self.send_text(json.dumps(message))

    def send_text(self, text: str) -> None:
        self.send(frame(TEXT, text.encode()))

    def receive(self) -> tuple[int, bytes]:
        """The next frame of the server's, which neither fragments nor masks: its opcode and payload."""
        first, second = self.read(2)
        assert first & 0x70 == 0
        assert first & 0x80
        assert not second & 0x80
        size = second
        if second == 126:
            (size,) = struct.unpack(">H", self.read(2))
        elif second == 127:
            (size,) = struct.unpack(">Q", self.read(8))
        return first & 0xF, self.read(size)

    def messages(self) -> Iterator[dict[str, Any] | bytes]:
        """Texts as what they stand for, and pictures; pings are answered."""
        while True:
            opcode, payload = self.receive()
            if opcode == PING:
                self.send(frame(PONG, payload))
            elif opcode == TEXT:
                yield json.loads(payload)
            elif opcode == BINARY:
                yield payload
            elif opcode == CLOSE:
                raise ClosedError(struct.unpack(">H", payload[:2])[0])

    def next(self, kind: str) -> dict[str, Any]:
        """The next text of this type; others before it are dropped."""
        return next(one for one in self.messages() if isinstance(one, dict) and one["type"] == kind)

    def next_picture(self) -> tuple[dict[str, Any], bytes]:
        """The next picture, its header and payload. It is told as shown."""
        data = next(one for one in self.messages() if isinstance(one, bytes))
        (size,) = struct.unpack("<I", data[:4])
        header = json.loads(data[4 : 4 + size])
        self.send_json({"type": "shown", "picture": header["picture"]})
        return header, data[4 + size :]

    def refused(self, message: object) -> tuple[str, str]:
        """Send a message, a text as it is; return what the error that answers it is about, and its text."""
        if isinstance(message, str):
            self.send_text(message)
        else:
            self.send_json(message)
        error = self.next("error")
        return error["about"], error["text"]

    def close_code(self) -> int:
        """Read up to the end, and return its code."""
        try:
            for _ in self.messages():
                pass
        except ClosedError as closed:
            return closed.code
        raise AssertionError("not reached: messages end with an exception")


class ClosedError(ConnectionError):
    """The server has sent a close frame."""

    def __init__(self, code: int) -> None:
        super().__init__(f"closed with {code}")
        self.code = code


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    reserved: int = 0,
    masked: bool = True,
    size: int | None = None,
) -> bytes:
    """A frame as clients send it. `size`: what it says of its size, if that is not the truth."""
    size = len(payload) if size is None else size
    head = bytes([fin << 7 | reserved << 4 | opcode])
    bit = 0x80 if masked else 0
    if size < 126:
        head += bytes([bit | size])
    elif size < 1 << 16:
        head += bytes([bit | 126]) + struct.pack(">H", size)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", size)
    if not masked:
        return head + payload
    mask = os.urandom(4)
    return head + mask + (b"" if not payload else _masked(payload, mask))


def _masked(payload: bytes, mask: bytes) -> bytes:
    repeated = (mask * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload) ^ int.from_bytes(repeated)).to_bytes(len(payload))


@contextlib.contextmanager
def viewing(page: str, headers: Headers = NO_HEADERS) -> Iterator[RawSocket]:
    """A viewer that was let in, after hello."""
    with RawSocket(page) as viewer:
        assert viewer.upgrade(headers).status == 101
        assert viewer.next("hello")["version"]
        yield viewer
