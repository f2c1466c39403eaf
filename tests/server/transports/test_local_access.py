"""Access to a local socket: keys, tokens, users, and floods of connections that get no stream."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.support.local_echo import RawClient, ask, connect, local_echo, wait_until
from worldloom.client.errors import NoLocalSocket
from worldloom.protos.errors import PermissionDenied
from worldloom.protos.local_frames import LocalAddress, pack_frame
from worldloom.server.config import Limits
from worldloom.server.logs import Event
from worldloom.server.options import ConfigError
from worldloom.server.transports import local_peers
from worldloom.server.transports.listening import ListenError
from worldloom.server.transports.local_peers import AllowedUsers, Peer, RefusalLog

TOKEN = "s3cret-Token_of.tests"


def test_connections_that_say_nothing_make_room_for_others() -> None:
    with local_echo() as (local, _):
        silent = [RawClient(local.address, is_greeting=False) for _ in range(300)]
        connection = connect(local.address)
        assert ask(connection, b"x") == b"x"
        assert silent[0].is_closed()
        wait_until(lambda: len(local._greetings) <= 64)
        for client in silent:
            client.socket.close()
        connection.close()


def test_too_many_streams() -> None:
    with local_echo(Limits(max_streams=2)) as (local, engine):
        first, second = (connect(local.address) for _ in range(2))
        with pytest.raises(NoLocalSocket, match="2 streams are open: expected no more at a time"):
            connect(local.address)
        engine.wait_for(("", "rejected"))
        second.close()
        engine.wait_for(("s2", "close"))
        third = connect(local.address)
        for connection in (first, third):
            assert ask(connection, b"x") == b"x"
            connection.close()


def test_tokens() -> None:
    with local_echo(token=TOKEN) as (local, _):
        connection = connect(local.address, TOKEN)
        assert ask(connection, b"x") == b"x"
        connection.close()
        with pytest.raises(NoLocalSocket, match="there is no token: expected a proof, `token` in HELLO"):
            connect(local.address)
        with pytest.raises(NoLocalSocket, match="the token is not the right one: expected a proof"):
            connect(local.address, "another")


def test_a_socket_of_another_server(tmp_path: Path) -> None:
    """Such as one at the same path in another container: neither side takes the other for its own."""
    path = tmp_path / "socket"
    with local_echo(path=path) as (local, _):
        assert (path.stat().st_mode & 0o777) == 0o600
        with pytest.raises(NoLocalSocket, match="the key of another server"):
            connect(LocalAddress(str(path), "other key"))
        with pytest.raises(ListenError, match="a server listens there"), local_echo(path=path):
            pass
        with pytest.raises(NoLocalSocket, match="Connection refused"):
            connect(LocalAddress("abstract:nobody-is-here", "key"))
    assert not path.exists()
    with pytest.raises(NoLocalSocket, match=r"cannot be opened \(No such file"):
        connect(LocalAddress(str(path), local.address.key))
    with socket.socket(socket.AF_UNIX) as impostor:
        impostor.bind(str(path))
        impostor.listen()
        answer = pack_frame(2, b"anything")
        process = subprocess.Popen(
            [sys.executable, "-c", _IMPOSTOR, str(impostor.fileno()), answer.hex()], pass_fds=[impostor.fileno()]
        )
        with pytest.raises(NoLocalSocket, match=r"is not that of the server at unix:/run/test\.sock"):
            connect(LocalAddress(str(path), "key"))
        process.wait(60)


_IMPOSTOR = """
import socket, sys
connection, _ = socket.socket(fileno=int(sys.argv[1])).accept()
connection.recv(1000)
connection.sendall(bytes.fromhex(sys.argv[2]))
connection.recv(1000)
"""


def test_other_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server believes to be another user than the one who connects."""
    us = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: us + 1)
    with local_echo() as (local, engine):
        with pytest.raises(NoLocalSocket, match=f"user {us} on the local socket of user {us + 1}: expected the same"):
            connect(local.address)
        engine.wait_for(("", "rejected"))
    for users in ((str(us),), ("any",)):
        with local_echo(users=users) as (local, _):
            connection = connect(local.address)
            assert ask(connection, b"x") == b"x"
            connection.close()
    assert not AllowedUsers.parse([str(us + 1)]).has_others
    assert AllowedUsers.parse(["root", "7"]) == AllowedUsers(frozenset({0, 7}), is_any=False)
    with pytest.raises(ConfigError, match="--local-socket-user is 'no such user'"):
        AllowedUsers.parse(["no such user"])


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_flood_of_connections_costs_little(
    is_refused: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No file is read for any of them, and the log does not grow."""
    looked: list[int] = []

    def look(pid: int) -> tuple[str, str]:
        looked.append(pid)
        return "S", "1"

    monkeypatch.setattr(local_peers, "_read_process", look)
    us, now_s = os.geteuid(), 0.0
    with local_echo() as (local, engine):
        local._refusals = RefusalLog(lambda: now_s)
        monkeypatch.setattr(os, "geteuid", lambda: us + is_refused)
        for _ in range(500):
            RawClient(local.address, is_greeting=False).socket.close()
        if is_refused:
            wait_until(lambda: engine.events.count(("", "rejected")) == 500)
        assert not looked
        monkeypatch.setattr(os, "geteuid", lambda: us)
        connection = connect(local.address)
        assert ask(connection, b"x") == b"x"
        assert looked == [os.getpid()], "when it has greeted"
        assert len(_refusals_in(caplog)) == is_refused
        now_s = 1.0
        local.beat()
        wait_until(lambda: len(_refusals_in(caplog)) == 2 * is_refused)
        assert [line["others"] for line in _refusals_in(caplog)] == [0, 498][: 2 * is_refused]
        connection.close()


def test_few_connections_are_accepted_in_a_tick() -> None:
    with local_echo() as (local, engine):
        ticks: list[int] = []
        is_held, may_go = threading.Event(), threading.Event()

        def hold() -> None:
            is_held.set()
            may_go.wait(10)

        engine.post(hold)
        assert is_held.wait(10)
        clients = [RawClient(local.address, is_greeting=False) for _ in range(20)]

        def count() -> None:
            ticks.append(len(local._greetings))
            if ticks[-1] < len(clients):
                engine.post(count)

        engine.post(count)
        may_go.set()
        wait_until(lambda: bool(ticks) and ticks[-1] == len(clients))
        assert max(np.diff(ticks)) <= 2
        for client in clients:
            client.socket.close()


def _refusals_in(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    events = [record.msg for record in caplog.records if isinstance(record.msg, Event)]
    return [event.fields for event in events if event.name == "refused"]


def test_refusals_are_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 5.0
    refusals = RefusalLog(lambda: now_s)
    refusals.flush()
    for now_s in (5.0, 5.1, 5.9, 6.0, 6.5, 6.6, 9.0):
        refusals.add(Peer(1, 2), PermissionDenied(f"at {now_s}"))
    refusals.flush()
    seen = [(str(fields["reason"]), fields["others"]) for fields in _refusals_in(caplog)]
    assert seen == [("at 5.0", 0), ("at 6.0", 2), ("at 9.0", 2)]
    refusals.add(Peer(1, 2), PermissionDenied("the last"))
    refusals.flush()
    now_s = 10.0
    refusals.flush()
    refusals.flush()
    assert [str(fields["reason"]) for fields in _refusals_in(caplog)][3:] == ["the last"]
