"""TLS from PEM files. What gRPC would only stumble over at each handshake is refused when the server starts."""

import ssl
from collections.abc import Callable
from pathlib import Path

import grpc

from worldloom.server.serving.options import ConfigError


def read_credentials(cert: Path | None, key: Path | None, client_ca: Path | None) -> grpc.ServerCredentials | None:
    """What gRPC needs to speak TLS; with a client CA, only to clients that show a certificate signed with it."""
    if cert is None or key is None:
        return None
    cert_pem = _read("--tls-cert", cert, "a certificate", "CERTIFICATE")
    key_pem = _read("--tls-key", key, "a private key", "PRIVATE KEY")
    client_ca_pem = None if client_ca is None else _read("--tls-client-ca", client_ca, "a certificate", "CERTIFICATE")
    _try_out("--tls-cert", cert, "certificates in PEM", lambda tls: tls.load_verify_locations(cert))
    pair = f"the key of the first certificate in {cert}, in PEM and without a password"
    _try_out("--tls-key", key, pair, lambda tls: tls.load_cert_chain(cert, key, password=_no_password))
    if client_ca is not None:
        _try_out("--tls-client-ca", client_ca, "certificates in PEM", lambda tls: tls.load_verify_locations(client_ca))
    return grpc.ssl_server_credentials([(key_pem, cert_pem)], client_ca_pem, require_client_auth=client_ca is not None)


def _read(flag: str, path: Path, what: str, label: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{flag} {path} cannot be read: {error.strerror or error}") from None
    if f"{label}-----".encode() not in data:
        raise ConfigError(f"{flag} {path} holds no {label} block: expected {what} in PEM")
    return data


def _try_out(flag: str, path: Path, expected: str, load: Callable[[ssl.SSLContext], None]) -> None:
    try:
        load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(f"{flag} {path} cannot be used ({reason}): expected {expected}") from None


def _no_password() -> str:
    raise ValueError("it has a password")  # else OpenSSL would ask for it on the terminal
