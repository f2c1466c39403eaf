"""The pages of other servers: their URLs, which servers tell by the property `server.page`, and who may open them."""

import asyncio
import os
import ssl
import urllib.parse
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import grpc
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from dm_env_rpc.v1.extensions import properties_pb2
from google.rpc import code_pb2

from worldloom.protos.addresses import Address, UnixAddress
from worldloom.server.options import ConfigError
from worldloom.server.web.page_url import PageError, reachable_url

_METHOD = "/dm_env_rpc.v1.Environment/Process"
_KEY = "server.page"
_TIMEOUT_S = 3.0
_UNKNOWN = (code_pb2.NOT_FOUND, code_pb2.UNIMPLEMENTED, code_pb2.INVALID_ARGUMENT)
"""Codes with which a server answers a request for a property that it does not have."""


@dataclass(frozen=True)
class ServerAccess:
    """Credentials that servers ask for: a token and certificates."""

    token: str | None = field(default=None, repr=False)
    tls_ca: Path | None = None
    """Certificates that those of the servers are signed with; None connects without TLS."""
    tls_cert: Path | None = None
    """Certificate to show to servers that require one."""
    tls_key: Path | None = None

    def check(self) -> None:
        """Raise ConfigError for files that cannot be used."""
        if (self.tls_cert is None) != (self.tls_key is None) or (self.tls_cert and not self.tls_ca):
            raise ConfigError("--client-cert, --client-key: expected both of them, and --tls-ca")
        for option, path in (
            ("--tls-ca", self.tls_ca),
            ("--client-cert", self.tls_cert),
            ("--client-key", self.tls_key),
        ):
            try:
                if path is not None and b"-----BEGIN " not in path.read_bytes():
                    raise ConfigError(f"{option} {path} is not PEM: expected a file with a BEGIN line")
            except OSError as error:
                raise ConfigError(f"{option} {path} cannot be read: {error.strerror or error}") from None
        try:
            _ = self.ssl_context
        except ssl.SSLError as error:
            names = [str(path) for path in (self.tls_ca, self.tls_cert, self.tls_key) if path is not None]
            raise ConfigError(f"{', '.join(names)} cannot be used: {error.reason or error}") from None

    @cached_property
    def ssl_context(self) -> ssl.SSLContext | None:
        """Context of connections to pages; None without TLS."""
        if self.tls_ca is None:
            return None
        context = ssl.create_default_context(cafile=self.tls_ca)
        if self.tls_cert is not None:
            context.load_cert_chain(self.tls_cert, self.tls_key)
        return context

    @property
    def authorization(self) -> dict[str, str]:
        """Header that carries the token."""
        return {} if self.token is None else {"authorization": f"Bearer {self.token}"}

    def open_channel(self, address: Address) -> grpc.Channel:
        """Open a channel to a server."""
        target = str(address)
        # A connection of its own for each channel: those that are shared wait ever longer for a server that is gone.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        if isinstance(address, UnixAddress):
            target = f"unix:{urllib.parse.quote(os.fsencode(address.path))}"
        elif address.is_loopback:
            options.append(("grpc.enable_http_proxy", 0))
        if self.tls_ca is None or isinstance(address, UnixAddress):
            return grpc.insecure_channel(target, options=options)
        ca, key, cert = (
            None if path is None else path.read_bytes() for path in (self.tls_ca, self.tls_key, self.tls_cert)
        )
        return grpc.secure_channel(target, grpc.ssl_channel_credentials(ca, key, cert), options=options)


async def find_page(address: Address, access: ServerAccess) -> str:
    """Ask a server for the URL of its page; PageError if there is no server, or none that tells it."""
    # On a thread: calls of grpc.aio that a server ends at once, as for a wrong token, sometimes end with another error.
    return await asyncio.to_thread(_find_page, address, access)


def _find_page(address: Address, access: ServerAccess) -> str:
    metadata = tuple(access.authorization.items()) or None
    try:
        with access.open_channel(address) as channel:
            call = channel.stream_stream(_METHOD)(iter([_request()]), metadata=metadata, timeout=_TIMEOUT_S)
            replies = [rpc.EnvironmentResponse.FromString(reply) for reply in call]
    except grpc.RpcError as error:
        raise PageError(_explain(error.code(), str(error.details()), address, access)) from None
    response = properties_pb2.PropertyResponse()
    if not replies or (replies[0].WhichOneof("payload") == "error" and replies[0].error.code not in _UNKNOWN):
        reason = replies[0].error.message if replies else "no reply"
        raise PageError(f"the server at {address} does not tell its page: {reason}")
    if not replies[0].extension.Unpack(response):
        raise PageError(f"the server at {address} has no page: start it with --web HOST:PORT")
    return reachable_url(str(tensor_utils.unpack_tensor(response.read_property.value)), address)


def _request() -> bytes:
    request = rpc.EnvironmentRequest()
    read = properties_pb2.ReadPropertyRequest(key=_KEY)
    request.extension.Pack(properties_pb2.PropertyRequest(read_property=read))
    encoded: bytes = request.SerializeToString()
    return encoded


def _explain(code: grpc.StatusCode, details: str, address: Address, access: ServerAccess) -> str:
    """Return why a server gives no answer, in one line."""
    details = " ".join(details.split())
    words = details.lower()
    if code is grpc.StatusCode.UNAUTHENTICATED:
        given = "give --token-file" if access.token is None else "--token-file is not the one"
        return f"the server at {address} refuses the token: {given} that it was started with"
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return f"the server at {address} does not speak dm_env_rpc: expected a `worldloom serve`"
    if "connection refused" in words or "no such file" in words:
        return f"no server at {address}"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer from the server at {address} within {_TIMEOUT_S:g} s"
    hint = "if it was started with --tls-cert, give --tls-ca FILE"
    if access.tls_ca is not None:
        hint = "expected a certificate for that host, signed with one of --tls-ca"
    return f"cannot connect to the server at {address}: {details}; {hint}"
