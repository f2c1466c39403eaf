"""Addresses are parsed, printed and checked."""

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.protos.addresses import TcpAddress, UnixAddress, parse_address, parse_listen_address

ports = st.integers(0, 65535)


@given(st.ip_addresses(), ports)
def test_numbers(number: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
    text = f"{number}:{port}" if number.version == 4 else f"[{number}]:{port}"
    address = parse_listen_address(text)
    assert address == TcpAddress(str(number), port)
    assert str(address) == text
    networks = [ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1")]
    assert address.is_loopback == any(number in network for network in networks)


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("localhost", True),
        ("LOCALHOST", True),
        ("127.255.0.1", True),
        ("128.0.0.1", False),
        ("0.0.0.0", False),
        ("localhost.example.org", False),
        ("127.0.0.1.example.org", False),
        ("my-host", False),
        ("127.1", False),
    ],
)
def test_loopback(host: str, is_loopback: bool) -> None:
    address = parse_listen_address(f"{host}:9000")
    assert isinstance(address, TcpAddress)
    assert address.is_loopback == is_loopback


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_listen_address("unix:/run/w.sock") == UnixAddress(Path("/run/w.sock"))
    assert parse_listen_address("unix:///run/w.sock") == UnixAddress(Path("/run/w.sock"))
    assert parse_listen_address("unix:w.sock") == UnixAddress(tmp_path / "w.sock")
    assert str(parse_listen_address("unix:w.sock")) == f"unix:{tmp_path}/w.sock"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected HOST:PORT"),
        ("9000", "expected HOST:PORT"),
        (":9000", "expected HOST:PORT"),
        ("localhost", "expected HOST:PORT"),
        ("::1:9000", "expected HOST:PORT"),
        ("[::1]", "expected HOST:PORT"),
        ("[::g]:9000", "expected HOST:PORT"),
        ("[127.0.0.1]:9000", "expected HOST:PORT"),
        ("*:9000", "expected HOST:PORT"),
        ("http://here:9000", "expected HOST:PORT"),
        ("here:", "has the port ''"),
        ("here:http", "has the port 'http'"),
        ("here:-1", "has the port '-1'"),
        ("here:65536", "has the port '65536'"),
        ("here:٣", "has the port"),
        ("unix:", "names no socket file"),
        ("unix:/run/", "names no socket file"),
        ("unix:/run/a\0b", "names no socket file"),
        ("unix:/" + "x" * 120, "has an absolute path of 121 bytes: expected at most 107"),
    ],
)
def test_invalid_addresses(text: str, problem: str) -> None:
    for parse in (parse_listen_address, parse_address):
        with pytest.raises(ValueError, match=r".") as caught:
            parse(text)
        assert problem in str(caught.value)
        assert repr(text) in str(caught.value)
        assert ("picks a free one" in str(caught.value)) == ("HOST" in problem and parse is parse_listen_address)


@given(st.text() | st.from_regex(r"\[?[0-9a-f:.]*\]?:[0-9]*", fullmatch=True))
def test_any_text_is_an_address_or_raises(text: str) -> None:
    try:
        address = parse_listen_address(text)
    except ValueError:
        return
    assert parse_listen_address(str(address)) == address


def test_port_0_is_for_servers() -> None:
    assert parse_listen_address("[::1]:0") == TcpAddress("::1", 0)
    with pytest.raises(ValueError, match=r"'\[::1\]:0' has port 0: expected the port that the server printed"):
        parse_address("[::1]:0")
    assert parse_address("[::1]:1") == parse_listen_address("[::1]:1")
