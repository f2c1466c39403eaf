"""Streams over a local socket: order, frames in pieces, limits, descriptors, and the end of a server."""

import array
import contextlib
import itertools
import os
import socket
import threading

import pytest
from google.rpc import code_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.echo_engine import LONG, echo
from tests.support.local_echo import RawClient, ask, connect, local_echo, open_files, wait_until
from worldloom.client.errors import LostConnection, NoLocalSocket, ServerError
from worldloom.protos.local_frames import HEADER, HELLO, MESSAGE, Hello, pack_frame
from worldloom.server.config import Limits


def test_requests_are_answered_in_order() -> None:
    with local_echo() as (local, engine):
        connection = connect(local.address)
        for number in range(200):
            connection.send(b"%d" % number)
        assert connection.sent == 200
        for number in range(200):
            assert connection.receive() == connection.receive() == b"%d" % number, "until it is taken"
            connection.taken += 1
            connection.release()
        assert ask(connection, b"") == b""
        assert len(ask(connection, b"long")) == LONG
        connection.close()
        engine.wait_for(("s1", "open"), ("s1", b"199"), ("s1", "close"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    requests=st.lists(st.binary(max_size=300) | st.integers(0, 5000).map(lambda n: bytes(n)), max_size=12),
    sizes=st.lists(st.integers(1, 700), min_size=1, max_size=5),
    is_half_closed=st.booleans(),
)
def test_bytes_cut_anywhere(requests: list[bytes], sizes: list[int], is_half_closed: bool) -> None:
    """One reply to each request; after the client has ended its half, too."""
    with local_echo(Limits(max_message_bytes=4000)) as (local, _), RawClient(local.address) as client:
        data = b"".join(pack_frame(MESSAGE, request) for request in requests)
        while data:
            client.socket.sendall(data[: sizes[0]])
            data, sizes = data[sizes[0] :], [*sizes[1:], sizes[0]]
        if is_half_closed:
            client.socket.shutdown(socket.SHUT_WR)
        for request in requests:
            kind, reply = client.read()
            assert kind == MESSAGE
            if len(request) > 4000:
                assert b"expected at most 4000" in reply
            else:
                assert reply == echo(request)
        if is_half_closed:
            assert client.is_closed()


def test_pipelining_without_reading_does_not_block_for_ever() -> None:
    """The server stops reading this client, whose connection then reads replies while it writes."""
    with local_echo() as (local, _):
        connection = connect(local.address)
        for number in range(40):
            connection.send(b"long %d" % number)
            connection.send(bytes(LONG))
        for number in range(40):
            for expected in (b"long %d" % number, bytes(LONG)):
                assert connection.receive() == echo(expected)
                connection.taken += 1
                connection.release()
        connection.close()


def test_a_client_that_does_not_read_keeps_nobody_waiting() -> None:
    with local_echo() as (local, engine), RawClient(local.address) as stalled:
        stalled.socket.setblocking(False)
        frame, sent = pack_frame(MESSAGE, b"long"), 0
        with contextlib.suppress(BlockingIOError):
            while True:
                sent += stalled.socket.send(frame)
        assert sent > 100 * len(frame), "it has filled the buffers of the system"
        other = connect(local.address)
        for number in range(50):
            assert ask(other, b"%d" % number) == b"%d" % number
        other.close()
        served = sum(event == b"long" for _, event in engine.events)
        assert served < 5, "one reply waits, and what follows it is not read"
        stalled.socket.settimeout(10)
        for _ in range(sent // len(frame)):
            assert stalled.read() == (MESSAGE, echo(b"long"))


def test_requests_that_are_held_and_a_stream_that_ends_meanwhile() -> None:
    with local_echo() as (local, engine):
        waiting, leaving = connect(local.address), connect(local.address)
        for connection in (waiting, leaving):
            connection.send(b"hold")
        engine.wait_for(("s1", b"hold"), ("s2", b"hold"))
        leaving.close()
        engine.wait_for(("s2", "close"))
        engine.release()
        assert waiting.receive() == b"hold"
        waiting.close()


@pytest.mark.parametrize("size_bytes", [2**32 - 1, 2**31, (16 << 20) + 1])
def test_absurd_lengths_end_the_stream(size_bytes: int) -> None:
    with local_echo(Limits(max_message_bytes=1000)) as (local, engine), RawClient(local.address) as client:
        client.socket.sendall(HEADER.pack(size_bytes, MESSAGE))
        status = client.read_end()
        assert status.code == code_pb2.RESOURCE_EXHAUSTED
        assert status.message.startswith(f"a request of {size_bytes} bytes: expected at most 1000")
        engine.wait_for(("s1", "close"))


@pytest.mark.parametrize("cut", [1, 7, 8, 30])
def test_half_a_message_and_the_end(cut: int) -> None:
    with local_echo() as (local, engine):
        with RawClient(local.address) as client:
            client.socket.sendall(pack_frame(MESSAGE, bytes(100))[:cut])
        with RawClient(local.address) as half_closed:
            half_closed.socket.sendall(pack_frame(MESSAGE, bytes(100))[:cut])
            half_closed.socket.shutdown(socket.SHUT_WR)
            assert half_closed.is_closed()
        engine.wait_for(("s1", "close"), ("s2", "close"))


def test_other_kinds_of_frames() -> None:
    with local_echo() as (local, _), RawClient(local.address) as client:
        client.send(HELLO, Hello.make(local.address.key, None).pack())
        status = client.read_end()
        assert status.code == code_pb2.INVALID_ARGUMENT
        assert "a frame of kind 1: expected requests" in status.message


@pytest.mark.parametrize(
    "data",
    [
        pack_frame(MESSAGE, b""),
        pack_frame(HELLO, b"{}"),
        pack_frame(HELLO, bytes(1024)),
        HEADER.pack(1025, HELLO),
        HEADER.pack(2**32 - 1, 2**32 - 1),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_connections_that_begin_with_something_else(data: bytes) -> None:
    with local_echo() as (local, engine), RawClient(local.address, is_greeting=False) as client:
        client.socket.sendall(data)
        assert client.read_end().code == code_pb2.INVALID_ARGUMENT
        engine.wait_for(("", "rejected"))
        connection = connect(local.address)
        assert ask(connection, b"x") == b"x"
        connection.close()


def test_descriptors_that_a_client_sends_are_closed() -> None:
    with local_echo() as (local, _), RawClient(local.address) as client:
        before = open_files()
        with open("/dev/null") as file:
            for number in range(20):
                files = array.array("i", [file.fileno()] * 50)
                frame = pack_frame(MESSAGE, b"%d" % number)
                client.socket.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
                assert client.read() == (MESSAGE, b"%d" % number)
        assert open_files() == before


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    requests=st.lists(st.binary(max_size=40), min_size=1, max_size=6),
    writes=st.lists(st.tuples(st.integers(4, 60), st.integers(0, 2)), min_size=1, max_size=6),
    is_at_once=st.booleans(),
)
def test_descriptors_with_bytes_cut_anywhere(
    requests: list[bytes], writes: list[tuple[int, int]], is_at_once: bool
) -> None:
    """The system ends a read at each of them, though there is more."""
    with local_echo() as (local, engine), RawClient(local.address) as client, open("/dev/null") as file:
        may_go = threading.Event()

        def hold() -> None:
            may_go.wait(10)

        if is_at_once:  # all is there before the server reads: few enough writes for the buffers of the system
            engine.post(hold)
        data = b"".join(pack_frame(MESSAGE, request) for request in requests)
        for size_bytes, count in itertools.cycle(writes):
            files = array.array("i", [file.fileno()] * count)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)] if count else []
            assert client.socket.sendmsg([data[:size_bytes]], rights) == len(data[:size_bytes])
            data = data[size_bytes:]
            if not data:
                break
        may_go.set()
        for request in requests:
            assert client.read() == (MESSAGE, echo(request))


def test_bytes_out_of_band_end_the_stream() -> None:
    with local_echo() as (local, engine), RawClient(local.address) as client:
        client.socket.send(b"x", socket.MSG_OOB)
        status = client.read_end()
        assert (status.code, status.message) == (
            code_pb2.INVALID_ARGUMENT,
            "a byte out of band (MSG_OOB): expected frames alone",
        )
        engine.wait_for(("s1", "close"))


def test_descriptors_that_come_with_replies() -> None:
    with local_echo() as (local, engine):
        connection = connect(local.address)
        before = open_files()
        reader, writer = os.pipe()
        assert connection.take_file() is None
        engine.files += [reader]
        for request in (b"x", b"long"):
            assert ask(connection, request) == echo(request)
        os.close(reader)
        received = connection.take_file()
        assert received is not None
        assert not os.get_inheritable(received)
        os.write(writer, b"through")
        assert os.read(received, 100) == b"through"
        os.close(received)
        os.close(writer)
        assert connection.take_file() is None
        wait_until(lambda: open_files() == before)
        engine.files += [0]  # never taken
        ask(connection, b"x")
        connection.close()


def test_draining() -> None:
    with local_echo() as (local, engine):
        waiting, idle = connect(local.address), connect(local.address)
        greeting = RawClient(local.address, is_greeting=False)
        wait_until(lambda: bool(local._greetings))
        waiting.send(b"hold")
        engine.wait_for(("s1", b"hold"))
        local.drain()
        with pytest.raises(LostConnection, match="the server is shutting down"):
            ask(idle, b"x")
        assert not local.has_ended.done()
        engine.release()
        assert waiting.receive() == b"hold"
        waiting.taken += 1
        with pytest.raises(LostConnection, match=r"shutting down.*; reconnect when it is back"):
            waiting.receive()
        assert greeting.read_end().code == code_pb2.UNAVAILABLE
        greeting.socket.close()
        local.has_ended.result(10)
        with pytest.raises(NoLocalSocket, match="cannot be opened"):
            connect(local.address)


def test_errors_that_end_a_stream_reach_the_client() -> None:
    with local_echo(Limits(max_message_bytes=10)) as (local, _):
        connection = connect(local.address)
        connection.send(b"x")
        connection.send(bytes(17 << 20))
        assert connection.receive() == b"x"
        connection.taken += 1
        with pytest.raises(ServerError, match="RESOURCE_EXHAUSTED: error from the server at unix:"):
            connection.receive()
        with pytest.raises(ServerError, match="RESOURCE_EXHAUSTED"):
            connection.send(b"x")
