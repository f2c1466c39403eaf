"""A connection by the local socket: interrupts at every instruction, siblings, losses, and which transport is taken."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc

from scripts.support.server_process import ServerProcess, serving
from scripts.support.stream_client import StreamClient
from tests.support.echo_engine import LONG, echo
from tests.support.local_echo import local_echo, open_files
from tests.support.own_thread import in_own_thread
from tests.support.shared_server import Served
from worldloom import LostConnection, NoLocalSocket, ServerError, VectorEnv, make_dm_env
from worldloom.client import socket_connection
from worldloom.client.connecting import connect
from worldloom.client.connections import Credentials
from worldloom.client.socket_connection import SocketConnection
from worldloom.protos.addresses import UnixAddress
from worldloom.protos.local_frames import LocalAddress

CERTS = Path(__file__).parents[1] / "server" / "transports" / "certs"
ADDRESS = UnixAddress(Path("/run/test.sock"))
IDLE = {"paddle": np.zeros(2, np.int32)}


def open_local(local: LocalAddress, timeout_s: float = 10.0) -> SocketConnection:
    return SocketConnection(ADDRESS, local, None, timeout_s)


@contextmanager
def interrupted_at(count: int) -> Iterator[Callable[[], bool]]:
    """Raise KeyboardInterrupt before an instruction of the connection's code; yield whether it has been."""
    left = [count]

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != socket_connection.__file__:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: left[0] <= 0
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("requests", [(b"one",), (b"long one", b"two")], ids=["short", "long"])
@in_own_thread
def test_interrupts_at_every_instruction_lose_nothing(requests: tuple[bytes, ...]) -> None:
    """Requests that count as sent are answered, each once and in order; others can be sent again."""
    with local_echo() as (local, _):
        connection = open_local(local.address)
        count, is_over = 0, False
        while not is_over:
            count += 1 if len(requests) == 1 else 7
            before = connection.sent
            assert connection.taken == before
            numbered = [b"%s %d" % (request, count) for request in requests]
            with contextlib.suppress(KeyboardInterrupt), interrupted_at(count) as was_interrupted:
                for request in numbered:
                    connection.send(request)
                for request in numbered:
                    assert connection.receive() == echo(request)
                    connection.taken += 1
                    connection.release()
                assert not connection.has_reply
                is_over = not was_interrupted()
            for request in numbered[connection.taken - before : connection.sent - before]:
                assert connection.receive() == echo(request)
                connection.taken += 1
                connection.release()
        assert count > 200, "as many instructions were interrupted, or every seventh of them"
        connection.close()


def test_siblings_wait_for_one_another() -> None:
    with local_echo() as (local, engine):
        first = open_local(local.address)
        second = first.open_sibling()
        first.send(b"hold")
        second.send(b"x")
        assert not first.has_reply
        first.wait_until(lambda: second.has_reply)
        assert second.receive() == b"x"
        second.taken += 1
        engine.release()
        second.wait_until(lambda: first.has_reply)
        assert first.receive() == b"hold"
        for connection in (first, second):
            connection.close()


def test_silence_ends_a_connection() -> None:
    with local_echo() as (local, engine):
        for wait in (SocketConnection.receive, lambda one: one.wait_until(lambda: one.has_reply)):
            connection = open_local(local.address, timeout_s=0.05)
            connection.send(b"hold")
            with pytest.raises(
                LostConnection, match=re.escape("no answer from the server at unix:/run/test.sock within 0.05 s")
            ):
                wait(connection)
            with pytest.raises(LostConnection, match="no answer"):
                connection.send(b"x")
            assert connection.has_reply
        patient = open_local(local.address, timeout_s=600.0)
        patient.send(b"hold")
        with pytest.raises(LostConnection, match=re.escape("within 0.01 s")):
            patient.receive(0.01)
        engine.release()


def test_which_transport_is_taken(server: Served) -> None:
    for address in (server.tcp, server.unix, server.tcp.replace("127.0.0.1", "localhost")):
        for transport in ("auto", "socket"):
            with VectorEnv(address, "catch", 2, transport=transport) as env:
                assert (env.transport, env.has_shared_frames) == ("socket", True)
                assert f"transport={env.transport!r}" in repr(env)
        with VectorEnv(address, "catch", 2, transport="grpc") as env:
            assert env.transport == "grpc"
        with VectorEnv(address, "catch", 2, transport="shm") as env:
            assert env.transport == "shm"
    env = make_dm_env(server.tcp, "catch", transport="socket")
    assert env.reset().first()
    env.close()
    with pytest.raises(ValueError, match="transport is 'shm': expected one of auto, grpc, socket"):
        make_dm_env(server.tcp, "catch", transport="shm")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="transport is 'socket' for 'local': expected auto"):
        make_dm_env("local", "catch", transport="socket")


def test_no_descriptors_are_left(server: Served) -> None:
    def step() -> None:
        with VectorEnv(server.tcp, "catch", 2, streams=2) as env:
            env.reset()
            env.step(IDLE)

    step()
    before = open_files()
    for _ in range(5):
        step()
    assert open_files() <= before


def test_a_server_without_a_local_socket() -> None:
    with serving("--local-socket", "off") as process:
        with VectorEnv(process.address, "catch", 2) as env:
            assert env.transport == "shm"
        for make in (VectorEnv, lambda *given, **more: make_dm_env(*given[:2], **more)):
            with pytest.raises(NoLocalSocket, match="has no local socket: expected a worldloom server without"):
                make(process.address, "catch", 2, transport="socket")
        with StreamClient(process.address) as client:
            assert client.property("counters.streams") == 1


def test_a_socket_that_cannot_be_reached(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in another container: there is no such socket, or it is another's."""
    with VectorEnv(server.tcp, "catch", 2) as env:
        known: LocalAddress = env._streams.first_world.connection._local  # type: ignore[attr-defined]
    for wrong in (LocalAddress("abstract:elsewhere", known.key), LocalAddress(known.address, "another key")):
        monkeypatch.setattr("worldloom.client.connecting.LocalAddress", lambda *_, wrong=wrong: wrong)
        with VectorEnv(server.tcp, "catch", 2, seed=1) as env:
            assert env.transport == "shm"
            env.reset()
        with pytest.raises(NoLocalSocket, match="local socket"):
            VectorEnv(server.tcp, "catch", 2, transport="socket")


@pytest.mark.parametrize("pause_s", [0.2, 30.0])
def test_something_else_that_listens_there_is_given_up_in_time(
    pause_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says nothing, or a byte now and then."""
    monkeypatch.setattr("worldloom.client.socket_connection._HELLO_TIMEOUT_S", 0.5)
    path, has_ended = tmp_path / "other.sock", threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                while not has_ended.wait(pause_s):
                    connection.send(b"\0")

        dripping = threading.Thread(target=drip)
        dripping.start()
        began_s = time.monotonic()
        try:
            with pytest.raises(NoLocalSocket, match=r"cannot be opened \(no answer within 0\.5 s\)"):
                open_local(LocalAddress(str(path), "a key"))
        finally:
            has_ended.set()
            dripping.join()
        assert time.monotonic() - began_s < 10  # each byte alone comes in time; a machine may be busy


def test_a_server_that_may_be_elsewhere() -> None:
    with pytest.raises(NoLocalSocket, match="may be on another machine"):
        connect("192.0.2.1:9000", Credentials(), "auto", 1.0, "socket")


def test_token_certificates_and_path(tmp_path: Path) -> None:
    """The socket is no way around them: who does not get in by gRPC does not learn its key."""
    (tmp_path / "token").write_text("open-sesame")
    path = tmp_path / "local.sock"
    flags = {
        "--tls-cert": CERTS / "server.pem",
        "--tls-key": CERTS / "server-key.pem",
        "--tls-client-ca": CERTS / "ca.pem",
        "--token-file": tmp_path / "token",
        "--local-socket": path,
    }
    tls: Any = {"tls_ca": CERTS / "ca.pem", "tls_cert": CERTS / "client.pem", "tls_key": CERTS / "client-key.pem"}
    with serving(*(str(word) for pair in flags.items() for word in pair)) as process:
        with VectorEnv(process.address, "catch", 2, token="open-sesame", **tls) as env:
            assert env.transport == "socket"
            local = env._streams.first_world.connection._local  # type: ignore[attr-defined]
            assert local.address == str(path)
        for credentials in ({}, {"token": "open-sesame"}, tls, {**tls, "token": "open-barley"}):
            with pytest.raises((LostConnection, ServerError)):
                VectorEnv(process.address, "catch", 2, transport="socket", **credentials)
        with pytest.raises(NoLocalSocket, match="there is no token: expected a proof"):
            open_local(local)
        assert "process" in process.log.split("stream opened")[-1]
    assert not path.exists()


def test_a_killed_server_and_a_stopped_one() -> None:
    process = ServerProcess()
    try:
        env, slow = VectorEnv(process.address, "catch", 2), VectorEnv(process.address, "catch", 2, timeout_s=0.2)
        for each in (env, slow):
            assert each.transport == "socket"
            each.reset()
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)  # on a busy machine it may still answer
        env.send(IDLE)
        with pytest.raises(LostConnection, match=re.escape("within 0.2 s (timeout_s)")):
            slow.step(IDLE)
        slow.close()
    finally:
        process.kill()
    with pytest.raises(LostConnection, match=f"lost the server at {process.address}: .*; reconnect when it is back"):
        env.recv()
    with pytest.raises(LostConnection, match="lost the server"):
        env.step(IDLE)
    env.close()


def test_frames_by_descriptor_need_no_proc(server: Served) -> None:
    """A segment that replaces another, after joining again, comes with a descriptor of its own."""
    with VectorEnv(server.tcp, "catch", 2, seed=1) as env, VectorEnv(server.tcp, "catch", 2, seed=1) as other:
        world = env._streams.first_world
        paths = set()
        for _ in range(3):
            world._world.leave()
            world._join("socket")
            paths.add(str(world.read_property("shm.name")))
            file = world.connection.take_file()
            assert file is not None, "each time it is asked for"
            assert os.fstat(file).st_size == int(world.read_property("shm.size_bytes"))
            os.close(file)
            expected = other.reset(seed=1)[0]["eye.rgb"]
            assert np.array_equal(env.reset(seed=1)[0]["eye.rgb"], expected)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
def test_another_user(server: Served) -> None:
    """By default on gRPC with frames in replies; on the socket and with shared memory if the operator says so."""
    program = (
        "import os, sys, json; from worldloom import VectorEnv;"
        "VectorEnv(sys.argv[1], 'catch', 2, transport='shm').close();"  # all modules are loaded before it is another
        "os.setgid(65534); os.setuid(65534);"
        "env = VectorEnv(sys.argv[1], 'catch', 2, seed=1);"
        "print(json.dumps([env.transport, env.has_shared_frames, int(env.reset()[0]['eye.rgb'].sum())]))"
    )

    def step(address: str) -> list[object]:
        command = [sys.executable, "-c", program, address]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120, cwd="/")
        found: list[object] = json.loads(done.stdout)
        return found

    with serving("--local-socket-user", "65534") as process:
        *allowed, frames = step(process.address)
    assert allowed == ["socket", True]
    assert step(server.tcp) == ["grpc", False, frames]


def test_lengths_of_requests(server: Served) -> None:
    """The empty request and one above the limit are answered as over gRPC."""
    connections = [connect(server.tcp, Credentials(), "auto", 60.0, transport) for transport in ("socket", "grpc")]
    for request in (b"", bytes(5 << 20), b"\xff" * 100):
        replies = []
        for connection in connections:
            connection.send(request)
            replies.append(connection.receive())
            connection.taken += 1
            connection.release()
        assert replies[0] == replies[1]
        assert rpc.EnvironmentResponse.FromString(replies[0]).WhichOneof("payload") == "error"
    for connection in connections:
        connection.close()


def test_long_replies(server: Served) -> None:
    assert LONG > 64 << 10, "replies of the stand-in come in several pieces"
    with VectorEnv(server.tcp, "catch", 64, transport="grpc", seed=2, samples=4) as grpc_env:
        expected = grpc_env.reset()[0]["eye.rgb"]
    connection = connect(server.tcp, Credentials(), "auto", 60.0, "socket")
    connection.close()
    with VectorEnv(server.tcp, "catch", 64, transport="socket", seed=2, samples=4) as env:
        kept = [env.reset(seed=2)[0]["eye.rgb"] for _ in range(8)]
        assert env.unshared_steps > 0
        for frames in kept:
            assert np.array_equal(frames, expected)
