"""Certificates of a fleet: an authority made for it, which signs one for each server and the address of its node."""

import datetime
import ipaddress
from dataclasses import dataclass, field

from worldloom.extras import explain_missing_extra

with explain_missing_extra("worldloom.fleet", "fleet"):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID_FOR = datetime.timedelta(days=3650)
_CLOCK_SKEW = datetime.timedelta(days=1)
"""Certificates are valid from so long ago, as clocks of nodes differ."""


@dataclass(frozen=True)
class Authority:
    """A certificate authority."""

    certificate_pem: str
    key_pem: str = field(repr=False)


@dataclass(frozen=True)
class ServerCertificate:
    """The certificate of one server."""

    certificate_pem: str
    key_pem: str = field(repr=False)


def make_authority() -> Authority:
    """Return a new certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "worldloom fleet")])
    certificate = (
        _begin(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(_certificate_pem(certificate), _key_pem(key))


def make_server_certificate(authority: Authority, ip: str) -> ServerCertificate:
    """Return a certificate for a server that listens on this address of a node."""
    issuer = x509.load_pem_x509_certificate(authority.certificate_pem.encode())
    issuer_key = serialization.load_pem_private_key(authority.key_pem.encode(), password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.IPAddress(ipaddress.ip_address(ip))]
    certificate = (
        _begin(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "worldloom server")]), issuer.subject, key)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )
    return ServerCertificate(_certificate_pem(certificate), _key_pem(key))


def _begin(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALID_FOR)
    )


def _certificate_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
