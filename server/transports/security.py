"""TLS from PEM files, and the token that clients must send as the metadata `authorization: Bearer TOKEN`.

Errors in the files, which gRPC would only meet at each handshake, are raised when the server starts. Certificates whose
time is over or has not begun are logged then: clients refuse them, but the files are in order, and clocks may be wrong.
Health checks need no token.
"""

import binascii
import hmac
import re
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc

from worldloom.server.logs import Log
from worldloom.server.options import ConfigError

log = Log("security")

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x17, 0x18
"""Tags of DER elements."""
_DATE_FORMATS = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}


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
    _warn_of_dates("--tls-cert", cert, cert_pem)
    if client_ca is not None and client_ca_pem is not None:
        _warn_of_dates("--tls-client-ca", client_ca, client_ca_pem)
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


def _warn_of_dates(flag: str, path: Path, pem: bytes) -> None:
    """Log a warning for each certificate of a file that has expired or is not valid yet."""
    now = datetime.now(UTC)
    for number, block in enumerate(_CERTIFICATE.findall(pem), start=1):
        dates = _read_dates(binascii.a2b_base64(block))
        if dates is None:
            continue
        begin, end = dates
        where: dict[str, object] = {"option": flag, "file": str(path), "number": number}
        if end < now:
            log.warning("certificate has EXPIRED: clients will refuse it", **where, until=_format_date(end))
        elif begin > now:
            log.warning("certificate is NOT VALID YET: clients will refuse it", **where, since=_format_date(begin))


def _read_dates(der: bytes) -> tuple[datetime, datetime] | None:
    """Return the dates between which a certificate is valid; None if it is not in the form that RFC 5280 prescribes.

    Certificate { TBSCertificate { [0] version, serial number, algorithm, issuer, Validity { date, date }, ... } }
    """
    try:
        _, contents, _ = _read_element(der)
        _, contents, _ = _read_element(contents)
        tag, _, rest = _read_element(contents)
        if tag == _VERSION:
            _, _, rest = _read_element(rest)
        for _ in range(2):
            _, _, rest = _read_element(rest)
        _, validity, _ = _read_element(rest)
        begin_tag, begin, rest = _read_element(validity)
        end_tag, end, _ = _read_element(rest)
        return _parse_date(begin_tag, begin), _parse_date(end_tag, end)
    except (IndexError, ValueError, KeyError):
        return None


def _read_element(der: bytes) -> tuple[int, bytes, bytes]:
    """Return tag and contents of the first element in these bytes, and what follows it."""
    tag, length, start = der[0], der[1], 2
    if length > 127:  # the number of bytes that hold the length
        start += length & 127
        length = int.from_bytes(der[2:start])
    return tag, der[start : start + length], der[start + length :]


def _parse_date(tag: int, text: bytes) -> datetime:
    parsed = datetime.strptime(text.decode("ascii"), _DATE_FORMATS[tag]).replace(tzinfo=UTC)
    # Two digits stand for 1950 to 2049, for Python 1969 to 2068.
    return parsed.replace(year=parsed.year - 100) if tag == _UTC_TIME and parsed.year >= 2050 else parsed


def _format_date(date: datetime) -> str:
    return f"{date:%Y-%m-%dT%H:%M:%SZ}"


def _no_password() -> str:
    raise ValueError("it has a password")  # otherwise OpenSSL would ask for it on the terminal


_OPEN_TO_ALL = "/grpc.health.v1.Health/"
"""Health checks seldom have the token, and learn nothing else."""
_METADATA = "the metadata `authorization: Bearer TOKEN` with the token"


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
    text = token_problem(has_one)
    log.warning("refused", peer=context.peer(), reason=text.partition(":")[0])
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, text)


def token_problem(has_one: bool, expected: str = _METADATA) -> str:
    """Return the error for a client with a wrong token, or without one; `expected`: the form in which it is sent."""
    problem = "the token is not the right one" if has_one else "there is no token"
    return f"{problem}: expected {expected} that the server was started with"
