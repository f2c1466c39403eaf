"""Addresses are listened on as they are told, and taken from nobody."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from worldloom.protos.addresses import Address, TcpAddress, UnixAddress, parse_listen_address
from worldloom.server.config import Limits
from worldloom.server.transports.grpc_streams import channel_options
from worldloom.server.transports.listening import ListenError, check_free, listen, listen_tcp

TIMEOUT_S = 10.0


@contextlib.contextmanager
def taken(address: str) -> Iterator[int]:
    """Somebody else who listens."""
    is_path = address.startswith("unix:")
    with socket.socket(socket.AF_UNIX if is_path else socket.AF_INET) as other:
        other.bind(address.removeprefix("unix:") if is_path else (address, 0))
        other.listen(1)
        yield 0 if is_path else other.getsockname()[1]


def refusal(address: Address) -> str:
    with pytest.raises(ListenError) as caught:
        check_free(address)
    return str(caught.value)


async def reach(*texts: str) -> list[str]:
    """Listen on all of these and ask each whether it is there; what they are then called comes back."""
    server = grpc.aio.server(options=channel_options(Limits()))
    with contextlib.ExitStack() as at_the_end:
        found = [listen(server, parse_listen_address(text), None, at_the_end) for text in texts]
        await server.start()
        for address in found:
            async with grpc.aio.insecure_channel(str(address)) as channel:
                await asyncio.wait_for(channel.channel_ready(), TIMEOUT_S)
        await server.stop(None)
    return [str(address) for address in found]


def test_an_address_that_is_taken_names_the_option() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        address = TcpAddress("127.0.0.1", other.getsockname()[1])
        assert "take another port with --listen; port 0" in refusal(address)
        with contextlib.ExitStack() as at_the_end, pytest.raises(ListenError, match="another port with --web; port 0"):
            listen_tcp(address, at_the_end, "--web")


def test_port_0_picks_a_free_one() -> None:
    first, second, by_name = asyncio.run(reach("127.0.0.1:0", "127.0.0.1:0", "localhost:0"))
    assert first != second
    for address, host in ((first, "127.0.0.1"), (second, "127.0.0.1"), (by_name, "localhost")):
        assert address.startswith(f"{host}:")
        assert int(address.rpartition(":")[2]) > 0


@pytest.mark.parametrize("name", ["w.sock", "a b.sock", "100%.sock", "50%20.sock", "ö?#.sock"])
def test_a_socket_is_made_and_removed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        server = grpc.aio.server()
        with contextlib.ExitStack() as at_the_end:
            found = listen(server, parse_listen_address(f"unix:{name}"), None, at_the_end)
            assert str(found) == f"unix:{tmp_path / name}"
            await server.start()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(tmp_path / name))
            await server.stop(None)

    monkeypatch.chdir(tmp_path)
    asyncio.run(scenario())
    assert os.listdir(tmp_path) == []


def test_a_port_that_is_taken() -> None:
    with taken("127.0.0.1") as port:
        text = refusal(TcpAddress("127.0.0.1", port))
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in text
        assert "port 0 picks a free one" in text
        assert "Address already in use" in refusal(TcpAddress("localhost", port))
    check_free(TcpAddress("127.0.0.1", port))


def test_two_servers_never_share_a_port() -> None:
    async def scenario() -> None:
        first, second = (grpc.aio.server(options=channel_options(Limits())) for _ in range(2))
        with contextlib.ExitStack() as at_the_end:
            address = listen(first, parse_listen_address("127.0.0.1:0"), None, at_the_end)
            assert isinstance(address, TcpAddress)
            await first.start()
            with pytest.raises(ListenError, match="Address already in use"):
                listen(second, address, None, at_the_end)
            with pytest.raises(RuntimeError):  # nor if it is taken just after the check
                second.add_insecure_port(str(address))
            await first.stop(None)

    asyncio.run(scenario())


def test_addresses_that_are_not_here() -> None:
    assert "this machine has no such address" in refusal(TcpAddress("192.0.2.1", 0))  # for documentation, never in use
    assert "no address for host 'no-such-host.invalid'" in refusal(TcpAddress("no-such-host.invalid", 0))


def test_a_live_socket_is_not_stolen(tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    with taken(f"unix:{path}"):
        before = path.lstat()
        assert "a server listens there; stop it, or take another path" in refusal(UnixAddress(path))
        assert path.lstat() == before


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    with taken(f"unix:{path}"):
        pass
    assert path.is_socket()
    assert asyncio.run(reach(f"unix:{path}")) == [f"unix:{path}"]
    assert not path.exists()


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("dear diary")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("notes", "link"):
        assert "the file there is no socket" in refusal(UnixAddress(tmp_path / name))
    assert (tmp_path / "notes").read_text() == "dear diary"
    assert (tmp_path / "link").is_symlink()
    assert "there is no folder" in refusal(UnixAddress(tmp_path / "no" / "w.sock"))


def test_a_socket_that_is_someone_elses_by_now_stays(tmp_path: Path) -> None:
    path = tmp_path / "w.sock"

    async def scenario() -> None:
        server = grpc.aio.server()
        with contextlib.ExitStack() as at_the_end:
            listen(server, UnixAddress(path), None, at_the_end)
            await server.start()
            await server.stop(None)
            (tmp_path / "other").touch()  # so that the number of the removed file is not given out again
            path.write_text("mine now")

    asyncio.run(scenario())
    assert path.read_text() == "mine now"
