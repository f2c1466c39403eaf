"""TLS from PEM files, and the token that clients must send as the metadata `authorization: Bearer TOKEN`.

Errors in the files, which gRPC would only meet at each handshake, are raised when the server starts. Health checks need
no token.
"""

import hmac
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

from worldloom.server.logs import Log
from worldloom.server.options import ConfigError


def read_credentials(cert: Path | None, key: Path | None, client_ca: Path | None) -> grpc.ServerCredentials | None:
    """Return gRPC credentials for TLS; with a client CA, only clients with a certificate signed by it are accepted."""
    if cert is None or key is None:
        return None
    cert_pem = _read("--tls-cert", cert, "a certificate", "CERTIFICATE")
    key_pem = _read("--tls-key", key, "a private key", "PRIVATE KEY")
    client_ca_pem = None if client_ca is None else _read("--tls-client-ca", client_ca, "a certificate", "CERTIFICATE")
    _check_loads("--tls-cert", cert, "certificates in PEM", lambda tls: tls.load_verify_locations(cert))
    pair = f"the key of the first certificate in {cert}, in PEM and without a password"
    _check_loads("--tls-key", key, pair, lambda tls: tls.load_cert_chain(cert, key, password=_no_password))
    if client_ca is not None:
        _check_loads(
            "--tls-client-ca", client_ca, "certificates in PEM", lambda tls: tls.load_verify_locations(client_ca)
        )
    return grpc.ssl_server_credentials([(key_pem, cert_pem)], client_ca_pem, require_client_auth=client_ca is not None)


def _read(flag: str, path: Path, what: str, label: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{flag} {path} cannot be read: {error.strerror or error}") from None
    if f"{label}-----".encode() not in data:
        raise ConfigError(f"{flag} {path} holds no {label} block: expected {what} in PEM")
    return data


def _check_loads(flag: str, path: Path, expected: str, load: Callable[[ssl.SSLContext], None]) -> None:
    try:
        load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(f"{flag} {path} cannot be used ({reason}): expected {expected}") from None


def _no_password() -> str:
    raise ValueError("it has a password")  # otherwise OpenSSL would ask for it on the terminal


log = Log("tokens")

_OPEN_TO_ALL = "/grpc.health.v1.Health/"
"""Health checks seldom have the token, and learn nothing else."""
_EXPECTED = "expected the metadata `authorization: Bearer TOKEN` with the token that the server was started with"


def read_token(path: Path | None) -> str | None:
    """Return the token in a file, without surrounding whitespace; None without a file."""
    if path is None:
        return None
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"--token-file {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        token = "\0"
    # Errors must not contain the token: they end up in logs.
    if not token:
        raise ConfigError(f"--token-file {path} is empty: expected a token in it")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(f"--token-file {path}: expected one token of printable ASCII letters without space in it")
    return token


class TokenCheck(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc.aio has no types
    """An interceptor that accepts only calls with the token; `when_rejected` is called for each other one."""

    def __init__(self, token: str, when_rejected: Callable[[], None] = lambda: None) -> None:
        self._token = token.encode()
        self._when_rejected = when_rejected
        self._reject = grpc.stream_stream_rpc_method_handler(_reject)  # answers calls of every kind

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], call: Any) -> Any:
        """Return the handler of a call, or one that rejects it."""
        if call.method.startswith(_OPEN_TO_ALL) or self._has_valid_token(call.invocation_metadata):
            return await continuation(call)
        self._when_rejected()
        return self._reject

    def _has_valid_token(self, metadata: Any) -> bool:
        shown = [value for key, value in metadata if key == "authorization"]
        if len(shown) != 1:
            return False
        scheme, _, token = shown[0].partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._token)


async def _reject(_requests: object, context: Any) -> None:
    has_one = any(key == "authorization" for key, _ in context.invocation_metadata())
    problem = "the token is not the right one" if has_one else "there is no token"
    log.warning("refused", peer=context.peer(), reason=problem)
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, f"{problem}: {_EXPECTED}")
