"""The way to a server and back: requests go as bytes, replies come as bytes, in the same order."""

import os
import queue
import threading
import urllib.parse
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc

from worldloom.client.errors import CannotConnect, ClientError, LostConnection, ServerError
from worldloom.protos.addresses import Address, TcpAddress, UnixAddress, parse_address
from worldloom.protos.errors import RequestError

LOCAL = "local"
MOST_REPLY_BYTES = 2**31 - 1
"""The largest reply that is taken, which is the largest that protobuf allows."""
_METHOD = "/dm_env_rpc.v1.Environment/Process"
_NOBODY_THERE = ("connection refused", "no such file")
_WRONG_SECURITY = ("ssl", "tls", "handshake", "certificate")


class Link(Protocol):
    """A stream to a server."""

    @property
    def address(self) -> Address | str:
        """Where the server is."""

    def send(self, request: bytes) -> None:
        """Send a request. Its reply comes with `receive`, after those of earlier ones."""

    def receive(self, timeout_s: float | None = None) -> bytes:
        """The next reply; LostConnection if there will be none. `timeout_s` in place of the link's own."""

    def close(self) -> None:
        """Give everything back. Closing twice does nothing."""


@dataclass(frozen=True)
class Access:
    """How to get in."""

    token: str | None = None
    tls_ca: str | os.PathLike[str] | None = None
    tls_cert: str | os.PathLike[str] | None = None
    tls_key: str | os.PathLike[str] | None = None


def open_link(address: str, access: Access, renderer: str, timeout_s: float) -> Link:
    """A link to that address."""
    if address == LOCAL:
        if access != Access():
            raise ValueError(f"a token or certificates for {LOCAL!r}: expected none, since nobody wants to see them")
        return LocalLink(renderer)
    try:
        place = parse_address(address)
    except ValueError as error:
        raise ValueError(f"{error}, or {LOCAL!r}") from None
    return GrpcLink(place, access, timeout_s)


def is_on_this_machine(address: str) -> bool:
    """Whether the server surely shares our memory."""
    place = parse_address(address)
    return isinstance(place, UnixAddress) or place.is_loopback


class LocalLink:
    """An engine in this process, which works while its client waits."""

    address = LOCAL

    def __init__(self, renderer: str) -> None:
        # Imported here: clients of servers elsewhere need neither kernels nor a renderer.
        from worldloom.server.transports.in_process import InProcess

        self._server: InProcess | None = InProcess(renderer)
        self._requests: deque[bytes] = deque()

    def send(self, request: bytes) -> None:
        """Keep the request until its reply is wanted."""
        self._requests.append(request)

    def receive(self, timeout_s: float | None = None) -> bytes:
        """Let the engine work on it."""
        if self._server is None:
            raise LostConnection("the engine in this process was closed, or interrupted in the middle of a step")
        try:
            return self._server.answer(self._requests.popleft())
        except RequestError as refusal:
            raise ServerError(refusal.code, str(refusal)) from refusal
        except BaseException:  # such as Ctrl-C: nobody knows how far it got
            self.close()
            raise

    def close(self) -> None:
        """Close the engine."""
        server, self._server = self._server, None
        if server is not None:
            server.close()


class GrpcLink:
    """A gRPC stream. A thread takes replies as they come, so they are here when they are wanted."""

    def __init__(self, address: Address, access: Access, timeout_s: float) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._is_secure = access.tls_ca is not None
        self._has_answered = False
        self._end: ClientError | None = None
        self._channel = _make_channel(address, access)
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[bytes | grpc.RpcError | None] = queue.SimpleQueue()
        # Without serialisers the bytes stay what they are.
        process = self._channel.stream_stream(_METHOD)
        metadata = None if access.token is None else (("authorization", f"Bearer {access.token}"),)
        self._call = process(iter(self._requests.get, None), metadata=metadata)
        threading.Thread(
            target=_take_replies, args=(self._call, self._replies), name="worldloom-client", daemon=True
        ).start()

    def send(self, request: bytes) -> None:
        """Send it in the background."""
        if self._end is not None:
            raise self._end
        self._requests.put(request)

    def receive(self, timeout_s: float | None = None) -> bytes:
        """Wait for the next reply."""
        if self._end is not None:
            raise self._end
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            reply = self._replies.get(timeout=limit_s)
        except queue.Empty:
            raise self._ended(
                LostConnection(f"no answer from the server at {self.address} within {limit_s:g} s (timeout_s)")
            ) from None
        if isinstance(reply, bytes):
            self._has_answered = True
            return reply
        raise self._ended(self._explain(reply)) from reply

    def close(self) -> None:
        """End the stream."""
        if self._end is None:
            self._ended(LostConnection(f"the connection to {self.address} was closed"))

    def _ended(self, reason: ClientError) -> ClientError:
        self._end = reason
        self._requests.put(None)
        self._call.cancel()
        self._channel.close()
        return reason

    def _explain(self, error: grpc.RpcError | None) -> ClientError:
        """What the end of the stream means for people."""
        if error is None:
            return LostConnection(f"the server at {self.address} ended the stream")
        code, details = error.code(), str(error.details())
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN):
            if self._has_answered:
                return LostConnection(f"lost the server at {self.address}: {details}; reconnect when it is back")
            return CannotConnect(self._why_not(details))
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return CannotConnect(
                f"the server at {self.address} does not speak dm_env_rpc ({details}): expected a `worldloom serve`"
            )
        hint = "; say token=TEXT" if code is grpc.StatusCode.UNAUTHENTICATED else ""
        return ServerError(code.value[0], f"the server at {self.address} says: {details}{hint}")

    def _why_not(self, details: str) -> str:
        words = details.lower()
        if any(word in words for word in _NOBODY_THERE):
            return f"no server at {self.address}: start one with `worldloom serve --listen {self.address}`"
        if self._is_secure and any(word in words for word in _WRONG_SECURITY):
            return (
                f"no TLS with the server at {self.address}: {details}; expected one started with --tls-cert, whose "
                "certificate is for that host and signed with tls_ca"
            )
        hint = "; if it was started with --tls-cert, say tls_ca=FILE"
        if self._is_secure:
            hint = "; if it was started with --tls-client-ca, say tls_cert=FILE and tls_key=FILE, signed with that"
        return f"cannot connect to {self.address}: {details}{hint}"


def _take_replies(call: Any, replies: "queue.SimpleQueue[bytes | grpc.RpcError | None]") -> None:
    try:
        while True:
            replies.put(next(call))
    except StopIteration:
        replies.put(None)
    except grpc.RpcError as error:
        replies.put(error)


def _make_channel(address: Address, access: Access) -> grpc.Channel:
    if isinstance(address, TcpAddress) and address.port == 0:
        raise ValueError(f"{str(address)!r} has port 0: expected the one that the server printed when it started")
    options = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        # A connection for each link, instead of one for all of this process to that address.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if isinstance(address, UnixAddress):
        target = f"unix:{urllib.parse.quote(os.fsencode(address.path))}"
    else:
        target = str(address)
        if address.is_loopback:
            options.append(("grpc.enable_http_proxy", 0))
    credentials = _credentials(address, access)
    if credentials is None:
        return grpc.insecure_channel(target, options=options)
    return grpc.secure_channel(target, credentials, options=options)


def _credentials(address: Address, access: Access) -> grpc.ChannelCredentials | None:
    given = [name for name in ("tls_ca", "tls_cert", "tls_key") if getattr(access, name) is not None]
    if not given:
        return None
    if isinstance(address, UnixAddress):
        raise ValueError(f"{given[0]} for {address}: expected none, since sockets of this machine go without TLS")
    if "tls_ca" not in given or len(given) == 2:
        raise ValueError(f"{' and '.join(given)} alone: expected tls_ca, or tls_ca with both tls_cert and tls_key")
    ca, cert, key = (_pem(name, getattr(access, name)) for name in ("tls_ca", "tls_cert", "tls_key"))
    return grpc.ssl_channel_credentials(ca, key, cert)


def _pem(name: str, path: str | os.PathLike[str] | None) -> bytes | None:
    if path is None:
        return None
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{name} {os.fspath(path)!r} cannot be read: {error.strerror or error}") from None
    if b"-----BEGIN " not in data:
        raise ValueError(f"{name} {os.fspath(path)!r} is not PEM: expected a file with a BEGIN line")
    return data
