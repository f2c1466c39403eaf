"""TLS: clients that trust the server get in, mutual TLS asks for theirs, and files that cannot be used are named."""

import asyncio
import ssl
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.server.options import ConfigError
from worldloom.server.transports.security import _read_dates, read_credentials

CERTS = Path(__file__).parent / "certs"
TIMEOUT_S = 10.0


def cert(name: str) -> Path:
    return CERTS / f"{name}.pem"


def can_connect(client_ca: str | None, trusted: str | None, identity: str | None) -> bool:
    """Whether a client gets in that trusts and shows these; with nothing to trust it speaks no TLS."""
    credentials = read_credentials(cert("server"), cert("server-key"), None if client_ca is None else cert(client_ca))
    assert credentials is not None

    async def scenario() -> bool:
        server = grpc.aio.server()
        port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        address = f"127.0.0.1:{port}"
        if trusted is None:
            channel = grpc.aio.insecure_channel(address)
        else:
            own = [None, None] if identity is None else [cert(f"{identity}-key"), cert(identity)]
            key, shown = (None if path is None else path.read_bytes() for path in own)
            channel = grpc.aio.secure_channel(
                address, grpc.ssl_channel_credentials(cert(trusted).read_bytes(), key, shown)
            )
        async with channel:
            call = channel.unary_unary("/no.Such/Method")(b"", timeout=TIMEOUT_S)
            code = await call.code()
        await server.stop(None)
        assert code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAVAILABLE)
        return code is grpc.StatusCode.UNIMPLEMENTED

    return asyncio.run(asyncio.wait_for(scenario(), 2 * TIMEOUT_S))


@pytest.mark.parametrize(
    ("client_ca", "trusted", "identity", "gets_in"),
    [
        (None, "ca", None, True),
        (None, "stranger", None, False),
        (None, None, None, False),
        ("ca", "ca", "client", True),
        ("ca", "ca", None, False),
        ("ca", "ca", "stranger", False),
        ("ca", "stranger", "client", False),
        ("ca", None, None, False),
    ],
)
def test_who_gets_in(client_ca: str | None, trusted: str | None, identity: str | None, gets_in: bool) -> None:
    assert can_connect(client_ca, trusted, identity) == gets_in


def test_without_files_there_is_no_tls() -> None:
    assert read_credentials(None, None, None) is None


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (("nowhere", "server-key", None), "--tls-cert PATH/nowhere.pem cannot be read: No such file or directory"),
        (("server", "nowhere", None), "--tls-key PATH/nowhere.pem cannot be read: No such file or directory"),
        (("server", "server-key", "nowhere"), "--tls-client-ca PATH/nowhere.pem cannot be read"),
        (
            ("server-key", "server-key", None),
            "--tls-cert PATH/server-key.pem holds no CERTIFICATE block: expected a cer",
        ),
        (
            ("server", "server", None),
            "--tls-key PATH/server.pem holds no PRIVATE KEY block: expected a private key in PEM",
        ),
        (("server", "server-key", "server-key"), "--tls-client-ca PATH/server-key.pem holds no CERTIFICATE block"),
        (
            ("server", "client-key", None),
            "--tls-key PATH/client-key.pem cannot be used (KEY_VALUES_MISMATCH): expected",
        ),
        (
            ("server", "locked-key", None),
            "--tls-key PATH/locked-key.pem cannot be used (it has a password): expected the",
        ),
    ],
)
def test_files_that_cannot_be_used(files: tuple[str, str, str | None], problem: str) -> None:
    server, key, client_ca = files
    with pytest.raises(ConfigError) as caught:
        read_credentials(cert(server), cert(key), None if client_ca is None else cert(client_ca))
    assert str(caught.value).replace(str(CERTS), "PATH").startswith(problem)


@pytest.mark.parametrize("flag", ["--tls-cert", "--tls-key", "--tls-client-ca"])
def test_damaged_files(flag: str, tmp_path: Path) -> None:
    files = {"--tls-cert": cert("server"), "--tls-key": cert("server-key"), "--tls-client-ca": cert("ca")}
    lines = files[flag].read_text().splitlines()
    files[flag] = tmp_path / "damaged.pem"
    files[flag].write_text("\n".join([lines[0], *lines[2:]]))
    with pytest.raises(ConfigError, match=f"{flag} .*damaged.pem cannot be used") as caught:
        read_credentials(files["--tls-cert"], files["--tls-key"], files["--tls-client-ca"])
    assert "in PEM" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("server", None),
        ("expired", "certificate has EXPIRED: clients will refuse it"),
        ("future", "certificate is NOT VALID YET: clients will refuse it"),
    ],
)
def test_certificates_outside_of_their_time(
    name: str, words: str | None, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    assert read_credentials(cert(name), cert("server-key"), None) is not None
    told = "\n".join(record.getMessage() for record in caplog.records)
    caplog.clear()
    chain = tmp_path / "chain.pem"
    chain.write_bytes(cert("ca").read_bytes() + cert(name).read_bytes())
    read_credentials(cert("server"), cert("server-key"), chain)
    told_of_chain = "\n".join(record.getMessage() for record in caplog.records)
    if words is None:
        assert told == told_of_chain == ""
    else:
        date = {"expired": "until=2002-01-01T00:00:00Z", "future": "since=2120-01-01T00:00:00Z"}[name]
        assert all(part in told for part in (words, date, "option=--tls-cert", f"file={cert(name)}", "number=1"))
        assert all(part in told_of_chain for part in (words, date, "option=--tls-client-ca", "number=2"))


def test_dates_are_those_that_openssl_reads() -> None:
    for path in sorted(CERTS.glob("*.pem")):
        if path.stem.endswith("-key"):
            continue
        pem = path.read_text()
        dates = _read_dates(ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN") :]))
        decoded = ssl._ssl._test_decode_cert(str(path))  # type: ignore[attr-defined]  # Python's own decoder
        expected = [ssl.cert_time_to_seconds(decoded[name]) for name in ("notBefore", "notAfter")]
        assert dates is not None
        assert [date.timestamp() for date in dates] == expected


@given(st.binary(max_size=60))
def test_other_bytes_have_no_dates(data: bytes) -> None:
    assert _read_dates(data) is None
