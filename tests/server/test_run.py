"""The life of `worldloom serve` as a process: what it announces, whom it serves, how it ends, what it leaves behind."""

import asyncio
import concurrent.futures
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from scripts.support.messages import RequestFailed
from scripts.support.server_process import failed_start
from scripts.support.stream_client import METHOD, StreamClient
from tests.support.raw_web import viewing
from worldloom.server.launch import ServerProcess
from worldloom.server.run import _all_ended, _loop_factory

CERTS = Path(__file__).parent / "transports" / "certs"
CPU = ("--renderer", "cpu")
ANY_PORT = ("--listen", "127.0.0.1:0")
INVALID_ARGUMENT = 3
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
TIMEOUT_S = 20.0


@contextlib.contextmanager
def channel_to(address: str) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(TIMEOUT_S)
        yield channel


def health_of(channel: grpc.Channel, service: str = "") -> int:
    request = health_pb2.HealthCheckRequest(service=service)
    return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=TIMEOUT_S).status)


def test_it_serves_on_every_address_and_ends_well(tmp_path: Path) -> None:
    words = [*CPU, *ANY_PORT, "--listen", "unix:w.sock", "--listen", "localhost:0"]
    with ServerProcess(*words, folder=tmp_path) as server:
        first, second, third = server.addresses
        assert first.startswith("127.0.0.1:")
        assert second == f"unix:{tmp_path}/w.sock"
        assert third.startswith("localhost:")
        for address in server.addresses:
            with StreamClient(address) as wire:
                wire.join(wire.create("catch"))
                assert wire.step("reward").state == rpc.EnvironmentStateType.RUNNING
                wire.half_close()
                assert wire.read_rest() == []
        server.process.send_signal(signal.SIGINT)
        assert server.wait() == 0
        assert os.listdir(tmp_path) == []
        log = server.log
    for event in (
        "drawing renderer=cpu",
        f"listening address={first}",
        "stream opened stream=s1 peer=",
        "joined stream=s1",
    ):
        assert event in log
    for event in ("stream closed stream=s3", "stopping signal=SIGINT", "stopped"):
        assert event in log
    assert "Traceback" not in log
    assert "ERROR" not in log


def test_health_reflection_limits_and_json() -> None:
    words = [*CPU, *ANY_PORT, "--log-format", "json", "--max-streams", "1"]
    with ServerProcess(*words) as server, channel_to(server.address) as channel:
        assert health_of(channel) == SERVING
        assert health_of(channel, "dm_env_rpc.v1.Environment") == SERVING
        ask = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        question = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = ask(iter([question]), timeout=TIMEOUT_S)
        names = {service.name for service in answer.list_services_response.service}
        assert {"dm_env_rpc.v1.Environment", "grpc.health.v1.Health"} <= names
        question = reflection_pb2.ServerReflectionRequest(file_containing_symbol="dm_env_rpc.v1.Environment")
        (answer,) = ask(iter([question]), timeout=TIMEOUT_S)
        assert answer.WhichOneof("message_response") == "file_descriptor_response"
        with StreamClient(server.address) as first:
            first.create("catch")
            with StreamClient(server.address) as second, pytest.raises(grpc.RpcError, match="--max-streams") as caught:
                second.create("catch")
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        events = [json.loads(line)["event"] for line in server.log.splitlines()]
        assert "listening" in events


def test_a_signal_ends_streams_with_a_reason() -> None:
    with (
        ServerProcess(*CPU, *ANY_PORT) as server,
        channel_to(server.address) as channel,
        StreamClient(server.address) as idle,
        StreamClient(server.address) as waiting,
        StreamClient(server.address) as other,
    ):
        watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        assert next(watching).status == SERVING
        world = waiting.create("maze", agents=2)
        waiting.join(world)
        other.join(world)
        before = idle.property("counters.requests")
        waiting.send_step()  # it waits for the other agent, which does nothing
        while idle.property("counters.requests") == before + 1:
            before += 1
        server.process.terminate()
        try:
            waiting.step_reply()  # if the other agent was the first to go
        except RequestFailed as refused:
            assert str(refused).startswith("UNAVAILABLE: the server is shutting down")  # noqa: PT017  # either is fine
        assert next(watching).status == NOT_SERVING
        for wire in (idle, waiting, other):
            with pytest.raises(grpc.RpcError, match="the server is shutting down") as caught:
                wire.read()
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert server.wait() == 0
        assert "Traceback" not in server.log
        assert "ERROR" not in server.log


def test_a_draining_server_serves_the_streams_that_it_has() -> None:
    with (
        ServerProcess(*CPU, *ANY_PORT, "--drain-s", "100") as server,
        channel_to(server.address) as channel,
        StreamClient(server.address) as stream,
    ):
        stream.join(stream.create("catch"))
        stream.step()
        server.process.terminate()
        while health_of(channel, "dm_env_rpc.v1.Environment") == SERVING:
            pass
        with StreamClient(server.address) as late, pytest.raises(grpc.RpcError, match="shutting down") as caught:
            late.create("catch")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        for _ in range(50):
            assert stream.step("eye.rgb").observations["eye.rgb"].any()
        assert server.process.poll() is None
        stream.close()
        assert server.wait() == 0
        assert "draining signal=SIGTERM drain_s=100" in server.log


def test_a_draining_server_does_not_wait_for_people_who_play() -> None:
    page_flags = ("--web", "127.0.0.1:0", "--web-control")
    with ServerProcess(*CPU, *ANY_PORT, *page_flags, "--drain-s", "100") as server, viewing(server.page) as player:
        player.send_json({"type": "play", "family": "catch"})
        player.next("playing")
        server.process.terminate()
        assert player.next("play_ended")["reason"] == "the server is shutting down"
        assert server.wait() == 0


@pytest.mark.parametrize("how", ["time", "signal"])
def test_draining_ends_after_its_time_or_with_a_second_signal(how: str) -> None:
    drain_s = "0.5" if how == "time" else "100"
    with ServerProcess(*CPU, *ANY_PORT, "--drain-s", drain_s) as server, StreamClient(server.address) as stream:
        stream.join(stream.create("catch"))
        server.process.terminate()
        if how == "signal":
            while "draining" not in server.log:
                stream.step()
            server.process.terminate()
        with pytest.raises(grpc.RpcError, match="the server is shutting down"):
            _step_for_ever(stream)
        assert server.wait() == 0


def _step_for_ever(stream: StreamClient) -> None:
    while True:
        stream.step()


STUCK = """
import sys, grpc
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
def requests():
    while True:
        yield b""
with grpc.insecure_channel(sys.argv[1]) as channel:
    replies = channel.stream_stream("/dm_env_rpc.v1.Environment/Process")(requests())
    print(len(next(replies)), flush=True)
    sys.stdin.read()
"""


def test_a_second_signal_ends_it_at_once() -> None:
    with ServerProcess(*CPU, *ANY_PORT) as server:
        # A client that sends without end and reads nothing.
        command = [sys.executable, "-c", STUCK, server.address]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as client:
            try:
                assert client.stdout is not None
                assert int(client.stdout.readline()) > 0
                server.process.terminate()
                server.process.terminate()
                assert server.wait() == 0
            finally:
                client.kill()


def test_tls_and_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("open-sesame\n")
    (tmp_path / "config.toml").write_text(
        f"tls-cert = '{CERTS}/server.pem'\ntls-key = '{CERTS}/server-key.pem'\ntls-client-ca = '{CERTS}/ca.pem'\n"
        "token-file = 'token'\nlisten = ['0.0.0.0:0']\nrenderer = 'cpu'\n"
    )
    with ServerProcess("--config", "config.toml", folder=tmp_path) as server:
        port = server.address.rpartition(":")[2]
        ca, key, cert = ((CERTS / name).read_bytes() for name in ("ca.pem", "client-key.pem", "client.pem"))
        credentials = grpc.ssl_channel_credentials(ca, key, cert)
        with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
            process = channel.stream_stream(METHOD)
            (answer,) = process(iter([b""]), metadata=[("authorization", "Bearer open-sesame")], timeout=TIMEOUT_S)
            assert rpc.EnvironmentResponse.FromString(answer).error.code == INVALID_ARGUMENT
            with pytest.raises(grpc.RpcError, match="there is no token") as caught:
                next(process(iter([b""]), timeout=TIMEOUT_S))
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert health_of(channel) == SERVING
        assert server.stop() == 0
        assert "sesame" not in server.log


def test_what_keeps_it_from_starting_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        words = ["--listen", f"unix:{tmp_path}/w.sock", "--listen", f"127.0.0.1:{port}"]
        assert failed_start(*CPU, *words).startswith(f"cannot listen on 127.0.0.1:{port}: Address already in use")
    tls = ["--tls-cert", f"{CERTS}/server.pem", "--tls-key", f"{CERTS}/client-key.pem"]
    assert failed_start(*CPU, *tls).startswith(f"--tls-key {CERTS}/client-key.pem cannot be used (KEY_VALUES_MISMATCH)")
    assert failed_start("--renderer", "gl", "--device", "999", *ANY_PORT).startswith("there is no graphics device 999")
    assert failed_start("--family", "nowhere:Kite").startswith("cannot import 'nowhere'")
    assert os.listdir(tmp_path) == []


def test_a_running_server_keeps_its_socket(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/w.sock"
    with ServerProcess(*CPU, "--listen", address) as server:
        assert "a server listens there" in failed_start(*CPU, "--listen", address)
        with channel_to(address) as channel:
            assert health_of(channel) == SERVING
        server.process.kill()
        server.process.wait(TIMEOUT_S)
    assert os.listdir(tmp_path) == ["w.sock"]
    with ServerProcess(*CPU, "--listen", address) as server, channel_to(address) as channel:
        assert health_of(channel) == SERVING
        assert server.stop() == 0
    assert os.listdir(tmp_path) == []


WITHOUT_UVLOOP = (
    sys.executable,
    "-c",
    "import sys; sys.modules['uvloop'] = None; from worldloom.server.cli import main; sys.exit(main())",
    "serve",
)
"""Command of `worldloom serve` where the extra `fast` is not installed."""


@pytest.mark.parametrize("is_there", [True, False])
def test_the_event_loop_is_that_of_the_extra_if_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    if not is_there:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        loop = runner.get_loop()
    assert isinstance(loop, uvloop.Loop if is_there else asyncio.SelectorEventLoop)


def test_it_serves_without_the_extra_as_well() -> None:
    with ServerProcess(*CPU, *ANY_PORT, program=WITHOUT_UVLOOP) as server:
        with StreamClient(server.address) as wire:
            wire.join(wire.create("catch"))
            assert wire.step("reward").state == rpc.EnvironmentStateType.RUNNING
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0


def test_trials_are_closed_while_streams_have_not_ended() -> None:
    """Else a second signal, which cancels the waiting, could come before, and their agents would be waited for."""

    class Ending:
        """Streams, a local socket and trials in one, none of which ends by itself."""

        def __init__(self) -> None:
            self.has_ended: concurrent.futures.Future[None] = concurrent.futures.Future()
            self.closing = ""

        async def have_ended(self) -> None:
            await asyncio.Event().wait()

        async def close(self) -> None:
            self.closing = "begun"
            try:
                await asyncio.Event().wait()
            finally:
                self.closing = "cancelled"

    async def wait_and_cancel(ending: Any) -> None:
        task = asyncio.ensure_future(_all_ended(ending, ending, ending))
        for _ in range(3):
            await asyncio.sleep(0)
        assert ending.closing == "begun"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    ending = Ending()
    asyncio.run(wait_and_cancel(ending))
    assert ending.closing == "cancelled"
    ending.has_ended.set_result(None)  # as the engine's thread does; InvalidStateError if it had been cancelled too
