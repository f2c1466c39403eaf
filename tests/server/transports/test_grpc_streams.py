"""Streams over real sockets, with a stand-in for the engine that tells what reached it."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2

from tests.support.echo_engine import LONG, METHOD, TIMEOUT_S, EchoEngine, echo, serving
from worldloom.server.config import Limits

EOF = grpc.aio.EOF
BUFFERED = 100
"""MiB that the buffers of one connection surely cannot hold. Linux lets a receive buffer grow to 32 MiB and a send
buffer to 4; gRPC lets a stream send up to 16 MiB ahead, and both ends hold a message or two more."""


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 2 * TIMEOUT_S))


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Callable[[], Any]]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        yield channel.stream_stream(METHOD)


async def opened(open_stream: Callable[[], Any]) -> Any:
    """A stream that the server knows: the first is called s1 there, the next s2."""
    call = open_stream()
    await call.write(b"hello")
    assert await call.read() == b"hello"
    return call


async def until(engine: EchoEngine, *events: tuple[str, object]) -> None:
    await asyncio.to_thread(engine.wait_for, *events)


def error_of(reply: bytes) -> tuple[int, str]:
    error = dm_env_rpc_pb2.EnvironmentResponse.FromString(reply).error
    return error.code, error.message


def test_lock_step_and_empty_messages() -> None:
    async def scenario() -> None:
        async with serving() as (address, engine, _), connected(address) as open_stream:
            call = open_stream()
            for request in (b"", b"a", b"\0" * 1000, b"long", b"b"):
                await call.write(request)
                assert await call.read() == echo(request)
            await call.done_writing()
            assert await call.read() is EOF
            assert await call.code() is grpc.StatusCode.OK
            await until(engine, ("s1", "close"))
            assert engine.events[0] == ("s1", "open")
            assert engine.events.count(("s1", "close")) == 1

    run(scenario)


def test_pipelined_requests_are_answered_in_order() -> None:
    async def scenario() -> None:
        async with serving() as (address, _, _), connected(address) as open_stream:
            call = open_stream()
            requests = [b"%d" % index for index in range(300)]
            for request in requests:
                await call.write(request)
            await call.done_writing()
            assert [await call.read() for _ in requests] == requests
            assert await call.read() is EOF
            assert await call.code() is grpc.StatusCode.OK

    run(scenario)


def test_a_stream_that_ended_gets_its_answers_still() -> None:
    async def scenario() -> None:
        async with serving() as (address, engine, _), connected(address) as open_stream:
            call = open_stream()
            for request in (b"hold 1", b"2", b"hold 3"):
                await call.write(request)
            await call.done_writing()
            await until(engine, ("s1", b"hold 1"))
            engine.release()
            await until(engine, ("s1", b"hold 3"))
            assert ("s1", "close") not in engine.events
            engine.release()
            assert [await call.read() for _ in range(4)] == [b"hold 1", b"2", b"hold 3", EOF]
            await until(engine, ("s1", "close"))

    run(scenario)


def test_reading_stops_while_too_many_requests_wait() -> None:
    async def scenario() -> None:
        limits = Limits(max_waiting_requests=3)
        async with serving(limits) as (address, engine, streams), connected(address) as open_stream:
            call = open_stream()
            requests = [b"hold", *(b"%d" % index for index in range(1, 50))]
            for request in requests:
                await call.write(request)
            await until(engine, ("s1", b"hold"))
            (stream,) = streams._open
            while len(stream._queue) < 2:
                await asyncio.sleep(0)  # the rest is still being read
            await asyncio.sleep(0.1)
            assert len(stream._queue) == 2
            engine.release()
            assert [await call.read() for _ in requests] == requests
            await call.write(b"again")
            assert await call.read() == b"again"
            assert "rejected" not in {event for _, event in engine.events}

    run(scenario)


@pytest.mark.parametrize("ends", ["cancel", "drain"])
def test_a_stream_that_is_not_read_can_end(ends: str) -> None:
    async def scenario() -> None:
        limits = Limits(max_waiting_requests=2)
        async with serving(limits) as (address, engine, streams), connected(address) as open_stream:
            call = open_stream()
            for request in (b"hold", b"1", b"2", b"3"):
                await call.write(request)
            await until(engine, ("s1", b"hold"))
            (stream,) = streams._open
            while not stream._queue:
                await asyncio.sleep(0)  # the second is still being read
            if ends == "cancel":
                call.cancel()
            else:
                streams.drain()
                engine.release()
                assert [await call.read(), await call.read()] == [b"hold", b"1"]
                with pytest.raises(grpc.aio.AioRpcError, match="the server is shutting down"):
                    await call.read()
            await until(engine, ("s1", "close"))

    run(scenario)


def test_a_large_request_is_refused_and_the_stream_lives_on() -> None:
    async def scenario() -> None:
        async with serving(Limits(max_message_bytes=1000)) as (address, engine, _), connected(address) as open_stream:
            call = open_stream()
            for request in (b"a" * 1000, b"b" * 1001, b"c" * (5 << 20), b"d"):
                await call.write(request)
            assert await call.read() == b"a" * 1000
            for size_bytes in (1001, 5 << 20):
                code, text = error_of(await call.read())
                assert code == 8
                assert f"a request of {size_bytes} bytes: expected at most 1000;" in text
                assert "--max-message-bytes" in text
            assert await call.read() == b"d"
            assert engine.events.count(("s1", "rejected")) == 2

    run(scenario)


def test_more_streams_than_allowed_are_refused() -> None:
    async def scenario() -> None:
        async with serving(Limits(max_streams=2)) as (address, engine, _), connected(address) as open_stream:
            first, second = await opened(open_stream), await opened(open_stream)
            third = open_stream()
            assert await third.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "--max-streams" in await third.details()
            assert "2 streams" in await third.details()
            await until(engine, ("", "rejected"))
            first.cancel()
            await until(engine, ("s1", "close"))
            await opened(open_stream)
            await second.write(b"still here")
            assert await second.read() == b"still here"

    run(scenario)


@pytest.mark.parametrize("request_under_way", [b"a", b"hold", b"long"])
def test_a_cancelled_stream_is_closed_once(request_under_way: bytes) -> None:
    async def scenario() -> None:
        async with serving() as (address, engine, _), connected(address) as open_stream:
            call = open_stream()
            for _ in range(5):
                await call.write(request_under_way)
            await until(engine, ("s1", request_under_way))
            call.cancel()
            await until(engine, ("s1", "close"))
            engine.release()  # what comes late does no harm
            await opened(open_stream)
            assert engine.events.count(("s1", "close")) == 1

    run(scenario)


CLIENT = """
import sys, grpc
options = [("grpc.keepalive_time_ms", 200), ("grpc.http2.max_pings_without_data", 0)]
with grpc.insecure_channel(sys.argv[1], options=options) as channel:
    replies = channel.stream_stream(sys.argv[2])(iter([b"b", b"hold"]))
    print(next(replies).decode(), flush=True)
    print(next(replies).decode(), flush=True)
    sys.stdin.read()
"""


@contextmanager
def client_process(address: str) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-c", CLIENT, address, METHOD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        try:
            yield client
        finally:
            client.kill()


def test_a_killed_client_is_closed_at_once() -> None:
    async def scenario() -> None:
        async with serving() as (address, engine, _):
            with client_process(address) as client:
                await until(engine, ("s1", b"hold"))
                client.kill()
                await until(engine, ("s1", "close"))
                assert engine.events.count(("s1", "close")) == 1

    run(scenario)


QUICK_KEEPALIVE = {
    "grpc.keepalive_time_ms": 500,
    "grpc.keepalive_timeout_ms": 1000,
    "grpc.http2.ping_timeout_ms": 1000,
}


def test_a_client_that_froze_is_noticed() -> None:
    async def scenario() -> None:
        async with serving(changes=QUICK_KEEPALIVE) as (address, engine, _):
            with client_process(address) as client:
                await until(engine, ("s1", b"hold"))
                client.send_signal(signal.SIGSTOP)  # its machine still takes what we send; nobody answers
                await until(engine, ("s1", "close"))

    run(scenario)


def test_a_quiet_client_that_asks_often_whether_we_are_there_is_welcome() -> None:
    async def scenario() -> None:
        async with serving(changes=QUICK_KEEPALIVE) as (address, engine, _):
            with client_process(address) as client:
                await until(engine, ("s1", b"hold"))
                await asyncio.sleep(3)  # some pings each way
                engine.release()
                assert client.stdout is not None
                lines = [await asyncio.to_thread(client.stdout.readline) for _ in range(2)]
                assert lines == [b"b\n", b"hold\n"]

    run(scenario)


def test_a_client_that_stops_reading_holds_up_nobody_else() -> None:
    async def scenario() -> None:
        async with serving() as (address, engine, _), connected(address) as lazy, connected(address) as busy:
            stuck = await opened(lazy)
            requests = [b"long %d" % index for index in range(2 * BUFFERED)]
            writing = asyncio.create_task(write_all(stuck, requests))
            await until(engine, ("s1", b"long 0"))
            call = busy()
            for index in range(500):
                await call.write(b"%d" % index)
                assert await call.read() == b"%d" % index
            answered = sum(name == "s1" and isinstance(event, bytes) for name, event in engine.events)
            assert answered < BUFFERED, f"{answered} replies of 1 MiB were made for a client that reads none"
            assert [await stuck.read() for _ in requests] == [echo(request) for request in requests]
            await writing

    run(scenario)


def test_a_client_that_sends_much_and_reads_nothing_is_held_back() -> None:
    async def scenario() -> None:
        limits = Limits(max_message_bytes=LONG)
        async with serving(limits) as (address, _, _), connected(address) as open_stream:
            call = open_stream()
            written = 0
            requests = [b"hold" + bytes(LONG - 4)] * (2 * BUFFERED)
            try:
                async with asyncio.timeout(3):
                    for request in requests:
                        await call.write(request)
                        written += 1
            except TimeoutError:
                pass
            assert written < BUFFERED, f"{written} MiB were taken while the first request was not answered"

    run(scenario)


async def write_all(call: Any, requests: list[bytes]) -> None:
    for request in requests:
        await call.write(request)


def test_draining_answers_what_came_and_says_why_it_ends() -> None:
    async def scenario() -> None:
        async with serving() as (address, engine, streams), connected(address) as open_stream:
            idle, waiting, ended = [await opened(open_stream) for _ in range(3)]
            await waiting.write(b"hold")
            await ended.write(b"hold")
            await ended.done_writing()
            await until(engine, ("s2", b"hold"), ("s3", b"hold"))
            streams.drain()
            late = open_stream()
            for call in (idle, late):
                with pytest.raises(grpc.aio.AioRpcError, match="the server is shutting down") as caught:
                    await call.read()
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert not waiting.done()
            engine.release()
            assert await waiting.read() == b"hold"
            with pytest.raises(grpc.aio.AioRpcError, match="the server is shutting down"):
                await waiting.read()
            assert [await ended.read(), await ended.read()] == [b"hold", EOF]
            assert await ended.code() is grpc.StatusCode.OK
            await streams.have_ended()
            await until(engine, ("s1", "close"), ("s2", "close"), ("s3", "close"))

    run(scenario)
