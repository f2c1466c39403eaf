"""Connections that fail or are lost: error messages, and reconnecting."""

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from scripts.support.server_process import ServerProcess, serving
from scripts.support.stream_client import free_port
from tests.support.shared_server import Served
from worldloom.client import (
    CannotConnect,
    ClientError,
    LostConnection,
    NoSharedMemory,
    ServerError,
    VectorEnv,
    make_dm_env,
)
from worldloom.client.shared_memory import SharedFrames
from worldloom.protos.errors import Unavailable
from worldloom.server.dm_env_rpc.session import error_reply

CERTS = Path(__file__).parents[1] / "server" / "transports" / "certs"
CA, CERT, KEY = CERTS / "ca.pem", CERTS / "client.pem", CERTS / "client-key.pem"
TOKEN = "open-sesame"
IDLE = {"paddle": np.zeros(2, np.int32)}
SOON_S = 1.0


def make(address: str, **given: Any) -> VectorEnv:
    return VectorEnv(address, "catch", 2, **given)


@contextmanager
def raises_soon(error: type[Exception], *words: str) -> Iterator[None]:
    """Expect an error within a second, with these words in its message."""
    since_s = time.monotonic()
    with pytest.raises(error) as caught:
        yield
    assert time.monotonic() - since_s < SOON_S
    for word in words:
        assert word in str(caught.value)


def test_no_server(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with raises_soon(CannotConnect, f"no server at {address}: start one with `worldloom serve --listen {address}`"):
        make(address)
    with raises_soon(LostConnection, f"no server at {address}"):
        make_dm_env(address, "catch")
    path = f"unix:{tmp_path}/none.sock"
    with raises_soon(CannotConnect, f"no server at {path}: start one with `worldloom serve --listen {path}`"):
        make(path)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nonsense", "is not an address: expected HOST:PORT such as 127.0.0.1:9000 or [::1]:9000, or unix:PATH"),
        ("nonsense", "unix:PATH, or 'local'"),
        ("here:http", "has the port 'http': expected a number from 1 to 65535"),
        ("127.0.0.1:0", "'127.0.0.1:0' has port 0: expected the port that the server printed"),
    ],
)
def test_invalid_addresses(address: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        make(address)


def test_a_renderer_for_a_server(server: Served) -> None:
    for construct in (make, lambda address, **given: make_dm_env(address, "catch", **given)):
        with raises_soon(ValueError, f"renderer is 'cpu' for the server at {server.tcp}", "worldloom serve --renderer"):
            construct(server.tcp, renderer="cpu")


def test_a_server_of_another_protocol() -> None:
    other = grpc.server(ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    try:
        with raises_soon(CannotConnect, f"the server at 127.0.0.1:{port} does not speak dm_env_rpc"):
            make(f"127.0.0.1:{port}")
    finally:
        other.stop(None).wait(10)


def test_a_server_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with raises_soon(LostConnection, f"no answer from the server at {address} within 0.2 s (timeout_s)"):
            make(address, timeout_s=0.2)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with TLS that requires client certificates and a token, and offers no shared memory."""
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text(TOKEN)
    files = {"--tls-cert": CERTS / "server.pem", "--tls-key": CERTS / "server-key.pem", "--tls-client-ca": CA}
    flags = [str(word) for pair in files.items() for word in pair]
    with serving(*flags, "--token-file", str(token), "--max-shared-bytes", "1000") as process:
        yield process.address


def test_with_certificates_and_token(guarded: str, server: Served) -> None:
    with (
        make(guarded, tls_ca=CA, tls_cert=str(CERT), tls_key=KEY, token=TOKEN, seed=1) as env,
        make(server.tcp, seed=1) as other,
    ):
        assert np.array_equal(env.reset()[0]["eye.rgb"], other.reset()[0]["eye.rgb"])
        assert np.array_equal(env.step(IDLE)[0]["eye.rgb"], other.step(IDLE)[0]["eye.rgb"])
    env = make_dm_env(guarded, "catch", tls_ca=CA, tls_cert=CERT, tls_key=KEY, token=TOKEN)
    assert env.reset().first()
    env.close()


def test_tokens(guarded: str) -> None:
    certificates: Any = {"tls_ca": CA, "tls_cert": CERT, "tls_key": KEY}
    with raises_soon(ServerError, "UNAUTHENTICATED", guarded, "there is no token", "give token=TEXT"):
        make(guarded, **certificates)
    with raises_soon(ServerError, "UNAUTHENTICATED", guarded, "the token is not the right one"):
        make(guarded, token="open-barley", **certificates)


def test_certificates(guarded: str, server: Served, tmp_path: Path) -> None:
    with raises_soon(CannotConnect, guarded, "give tls_ca=FILE"):
        make(guarded)
    with raises_soon(CannotConnect, guarded, "give tls_cert=FILE and tls_key=FILE"):
        make(guarded, tls_ca=CA)
    no_tls = f"no TLS with the server at {guarded}"
    with raises_soon(CannotConnect, no_tls, "CERTIFICATE_VERIFY_FAILED", "signed with tls_ca"):
        make(guarded, tls_ca=CERTS / "stranger.pem", tls_cert=CERT, tls_key=KEY)
    with raises_soon(CannotConnect, f"no TLS with the server at {server.tcp}", "started with --tls-cert"):
        make(server.tcp, tls_ca=CA)
    with raises_soon(ValueError, "tls_ca", "none.pem' cannot be read: No such file"):
        make(guarded, tls_ca=tmp_path / "none.pem")
    with raises_soon(ValueError, "tls_ca", "is not PEM"):
        make(guarded, tls_ca=__file__)
    with raises_soon(ValueError, "tls_cert alone: expected tls_ca"):
        make(guarded, tls_cert=CERT)
    with raises_soon(ValueError, "tls_ca for unix:", "without TLS"):
        make(server.unix, tls_ca=CA)


def test_errors_of_the_server(server: Served) -> None:
    watcher = make(server.tcp)
    before = int(watcher._streams.first_world.read_property("counters.worlds"))
    with raises_soon(ServerError, "INVALID_ARGUMENT", "did you mean 'maze'?"):
        VectorEnv(server.tcp, "mase", 2)
    with raises_soon(ServerError, "INVALID_ARGUMENT", "names 'eye.rgbd' (did you mean 'eye.rgb'?)"):
        make(server.tcp, observations=["eye.rgbd"])
    with raises_soon(ServerError, "INVALID_ARGUMENT", "names 'ball.rgb'"):  # also where shared memory was tried first
        make(server.tcp, observations=["ball.rgb"])
    with raises_soon(ServerError, "RESOURCE_EXHAUSTED", "--max-lanes"):
        VectorEnv(server.tcp, "catch", 10**6)
    with raises_soon(ServerError, "RESOURCE_EXHAUSTED", "--max-reply-bytes"):
        VectorEnv(server.tcp, "catch", 20_000, width=128, height=128)
    assert int(watcher._streams.first_world.read_property("counters.worlds")) == before  # nothing is left of those
    watcher.close()


def test_shared_memory_that_is_not_available(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with raises_soon(NoSharedMemory, "no frames among the observations: expected at least one, such as eye.rgb"):
        make(server.tcp, transport="shm", observations=["ball"])
    with make(server.tcp, observations=["ball"]) as env:
        assert (env.transport, env.has_shared_frames) == ("socket", False)

    def elsewhere(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "/proc/1/fd/5")

    monkeypatch.setattr(SharedFrames, "__init__", elsewhere)
    with raises_soon(NoSharedMemory, "'/proc/1/fd/5'", "expected a server on this machine, run by the same user"):
        make(server.tcp, transport="shm")
    with make(server.tcp, seed=1) as env:
        assert (env.transport, env.has_shared_frames) == ("socket", False)
        assert env.reset()[0]["eye.rgb"].any()


def test_a_server_without_shared_memory(guarded: str, server: Served) -> None:
    access: Any = {"tls_ca": CA, "tls_cert": CERT, "tls_key": KEY, "token": TOKEN}
    with raises_soon(NoSharedMemory, "RESOURCE_EXHAUSTED", "--max-shared-bytes"):
        make(guarded, transport="shm", **access)
    with make(guarded, seed=1, **access) as env, make(server.tcp, seed=1) as other:
        assert (env.transport, other.transport) == ("socket", "socket")
        assert (env.has_shared_frames, other.has_shared_frames) == (False, True)
        assert np.array_equal(env.reset()[0]["eye.rgb"], other.reset()[0]["eye.rgb"])


def test_reconnecting_after_the_server_was_killed() -> None:
    process = ServerProcess()
    try:
        address = process.address
        envs = [make(address, transport=transport, seed=5) for transport in ("grpc", "shm", "socket")]
        waiting = make(address)
        waiting.reset()
        first = [env.reset()[0]["eye.rgb"] for env in envs]
        copies = [frames.copy() for frames in first]
        os.kill(process.pid, signal.SIGSTOP)
        waiting.send(IDLE)
    finally:
        process.kill()
    with raises_soon(LostConnection, f"lost the server at {address}"):
        waiting.recv()
    waiting.close()
    for env, frames, copy in zip(envs, first, copies, strict=True):
        with raises_soon(LostConnection, f"lost the server at {address}", "reconnect when it is back"):
            env.step(IDLE)
        with raises_soon(LostConnection, f"lost the server at {address}"):
            env.reset()
        with raises_soon(CannotConnect, f"no server at {address}"):
            env.reconnect()
        assert np.array_equal(frames, copy)
    with ThreadPoolExecutor(3) as pool:
        returning = [pool.submit(env.reconnect, wait_s=60.0) for env in envs]
        with serving("--listen", address):
            for env, back, copy in zip(envs, returning, copies, strict=True):
                back.result(60)
                assert np.array_equal(env.reset()[0]["eye.rgb"], copy)
    for env in envs:  # it was stopped in good order
        with raises_soon(LostConnection, f"lost the server at {address}", "shutting down"):
            env.step(IDLE)
        env.close()


@pytest.mark.parametrize("transport", ["grpc", "shm", "socket"])
def test_an_interrupted_wait_can_be_continued(server: Served, transport: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with make(server.tcp, transport=transport, seed=1) as env, make(server.tcp, seed=1) as other:
        env.reset()
        other.reset()
        expected = [other.step(IDLE)[0]["eye.rgb"] for _ in range(2)]
        with monkeypatch.context() as patch:
            patch.setattr(type(env._streams.first_world.connection), "receive", interrupt)
            with pytest.raises(KeyboardInterrupt):
                env.step(IDLE)
        with pytest.raises(ClientError, match=re.escape("expected env.recv() first")):
            env.step(IDLE)
        assert np.array_equal(env.recv()[0]["eye.rgb"], expected[0])
        assert np.array_equal(env.step(IDLE)[0]["eye.rgb"], expected[1])
        with monkeypatch.context() as patch:
            patch.setattr(type(env._streams.first_world.connection), "receive", interrupt)
            for call in (lambda: env.step(IDLE), env.reset):
                with pytest.raises(KeyboardInterrupt):
                    call()
        env.reset(seed=1)
        assert np.array_equal(env.step(IDLE)[0]["eye.rgb"], expected[0])


def test_a_server_that_hangs(server: Served) -> None:
    env = make(server.tcp, timeout_s=0.3)
    env.reset()
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        with raises_soon(LostConnection, f"no answer from the server at {server.tcp} within 0.3 s"):
            env.step(IDLE)
        since_s = time.monotonic()
        env.close()
        assert time.monotonic() - since_s < SOON_S
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


def test_reconnecting_to_a_server_with_other_observations(server: Served) -> None:
    env = make(server.tcp)
    env._checked.world_arguments["join_settings"]["width"] = 32  # as if the server had changed
    with raises_soon(ClientError, f"the server at {server.tcp} now has observations", "make a new env"):
        env.reconnect()
    assert env.closed


class Relay:
    """A server that passes streams on to another, after some that it fails in the ways of `failures`."""

    def __init__(self, target: str, failures: list[str]) -> None:
        self.failures = failures
        self.cut = threading.Event()
        """Set to end the first stream."""
        self._streams = 0
        self._channel = grpc.insecure_channel(target)
        self._server = grpc.server(ThreadPoolExecutor(4))
        handler = grpc.stream_stream_rpc_method_handler(self._process)
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("dm_env_rpc.v1.Environment", {"Process": handler})]
        )
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self) -> None:
        self.cut.set()
        self._server.stop(None).wait(10)
        self._channel.close()

    def _process(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        self._streams += 1
        replies = self._channel.stream_stream("/dm_env_rpc.v1.Environment/Process")(requests)
        if self._streams == 1:
            for reply in replies:
                if self.cut.is_set():
                    context.abort(grpc.StatusCode.UNAVAILABLE, "the server is shutting down")
                yield reply
        failure = self.failures.pop(0) if self.failures else ""
        if failure == "silent":
            ended = threading.Event()
            context.add_callback(ended.set)
            ended.wait(60)
        elif failure == "lost":
            yield next(replies)
            context.abort(grpc.StatusCode.UNAVAILABLE, "the server is shutting down")
        elif failure == "refused":
            yield next(replies)
            next(replies)
            yield error_reply(Unavailable("the server is shutting down"))
        yield from replies


@pytest.mark.parametrize("failures", [["silent"], ["lost"], ["refused"], ["lost", "silent", "refused"]])
def test_reconnecting_tries_again_whatever_fails(
    server: Served, failures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is stopping may end a stream at any reply, or never answer."""
    monkeypatch.setattr("worldloom.client.connections._FIRST_REPLY_S", 0.5)
    relay = Relay(server.tcp, failures)
    try:
        env = make(relay.address, seed=5, transport="grpc")
        expected = env.reset()[0]["eye.rgb"]
        relay.cut.set()
        with pytest.raises(LostConnection):
            env.step(IDLE)
        since_s = time.monotonic()
        env.reconnect(wait_s=50.0)
        assert time.monotonic() - since_s < 45.0  # less than timeout_s, which a lost reply would take
        assert relay.failures == []
        assert np.array_equal(env.reset()[0]["eye.rgb"], expected)
        env.close()
    finally:
        relay.close()


def test_reconnecting_gives_up_in_time(server: Served) -> None:
    relay = Relay(server.tcp, ["refused"] * 3)
    try:
        env = make(relay.address, transport="grpc")
        relay.cut.set()
        with pytest.raises(LostConnection):
            env.reset()
        with pytest.raises(ServerError, match="UNAVAILABLE: the server is shutting down"):
            env.reconnect()
        assert len(relay.failures) == 2
    finally:
        relay.close()
