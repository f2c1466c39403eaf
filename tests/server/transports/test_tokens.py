"""A server with a token lets in who shows it, says what is missing to who does not, and never tells it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from hypothesis import given
from hypothesis import strategies as st

from worldloom.server.options import ConfigError
from worldloom.server.transports.security import TokenCheck, read_token

TOKEN = "s3cret-Token_of.tests"
TIMEOUT_S = 10.0


async def echo_all(_requests: object, context: Any) -> None:
    while (message := await context.read()) is not grpc.aio.EOF:
        await context.write(message)


def with_server(scenario: Callable[[grpc.aio.Channel], Awaitable[None]]) -> None:
    async def run() -> None:
        server = grpc.aio.server(interceptors=[TokenCheck(TOKEN)])
        methods = {"Process": grpc.stream_stream_rpc_method_handler(echo_all)}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Echo", methods)])
        health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await scenario(channel)
        await server.stop(None)

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))


async def ask(channel: grpc.aio.Channel, metadata: list[tuple[str, str]]) -> str:
    """What a client with that metadata is told; empty if it is let in."""
    call = channel.stream_stream("/test.Echo/Process")(metadata=metadata)
    try:
        await call.write(b"hello")
        assert await call.read() == b"hello"
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the call ended before the request was out
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
        return str(await call.details())
    call.cancel()
    return ""


@pytest.mark.parametrize("value", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER  {TOKEN}"])
def test_the_token_opens(value: str) -> None:
    async def scenario(channel: grpc.aio.Channel) -> None:
        assert await ask(channel, [("other", "x"), ("authorization", value)]) == ""

    with_server(scenario)


WRONG = [
    [],
    [("token", TOKEN)],
    [("authorization", TOKEN)],
    [("authorization", f"Basic {TOKEN}")],
    [("authorization", "Bearer")],
    [("authorization", "Bearer ")],
    [("authorization", f"Bearer {TOKEN[:-1]}")],
    [("authorization", f"Bearer {TOKEN}x")],
    [("authorization", f"Bearer {TOKEN.upper()}")],
    [("authorization", "Bearer wrong"), ("authorization", f"Bearer {TOKEN}")],
]


def test_anything_else_does_not(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(channel: grpc.aio.Channel) -> None:
        for metadata in WRONG:
            text = await ask(channel, metadata)
            assert "expected the metadata `authorization: Bearer TOKEN`" in text
            has_one = any(key == "authorization" for key, _ in metadata)
            assert text.startswith("the token is not the right one" if has_one else "there is no token")
            assert TOKEN.lower() not in text.lower()

    with caplog.at_level(logging.DEBUG):
        with_server(scenario)
    assert len([line for line in caplog.messages if line.startswith("refused peer=")]) == len(WRONG)
    assert TOKEN.lower() not in caplog.text.lower()


def test_health_is_for_everyone_and_nothing_else_is() -> None:
    async def scenario(channel: grpc.aio.Channel) -> None:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        for method in ("/test.Echo/Process", "/grpc.reflection.v1alpha.ServerReflection/X", "/no.Such/Method"):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(method)(b"")
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    with_server(scenario)


def test_reading_the_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"\n  {TOKEN}\n\n")
    assert read_token(path) == TOKEN
    assert read_token(None) is None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty: expected a token in it"),
        (b" \n\t", "is empty"),
        (b"two tokens", "expected one token of printable ASCII letters"),
        (b"two\ntokens", "expected one token of printable ASCII letters"),
        ("schlüssel".encode(), "expected one token of printable ASCII letters"),
        (b"\xff\xfe", "expected one token of printable ASCII letters"),
    ],
)
def test_bad_files(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_token(path)
    assert str(caught.value).startswith(f"--token-file {path}")
    assert problem in str(caught.value)
    assert "tokens" not in str(caught.value).replace(str(path), "")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        read_token(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_token(tmp_path)


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1), st.text(max_size=30))
def test_only_the_token_itself_opens(token: str, other: str) -> None:
    check = TokenCheck(token)
    assert check._has_valid_token((("authorization", f"Bearer {token}"),))
    assert check._has_valid_token((("authorization", f"Bearer {other}"),)) == (other.strip() == token)
