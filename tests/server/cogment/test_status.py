"""Refusals as statuses and back, and what a server says of its versions."""

import asyncio
from importlib import metadata

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.protos import errors
from worldloom.protos.errors import Internal, RequestError, Unavailable
from worldloom.server.cogment.services import respond, version_info
from worldloom.server.cogment.status import abort, error_from_status, shorten

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RequestError)]
KINDS.remove(RequestError)


class Aborted(Exception):  # noqa: N818  # as the protocol says it
    """What ends a call."""


class Context:
    """Of a call."""

    async def abort(self, status: grpc.StatusCode, text: str) -> None:
        raise Aborted(status, text)


def status_of(refusal: RequestError) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(Aborted) as caught:
        asyncio.run(abort(Context(), refusal))
    status, text = caught.value.args
    return status, text


def rpc_error(status: grpc.StatusCode, text: str | None) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(), details=text)


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(kind: type[RequestError]) -> None:
    status, text = status_of(kind("so it is"))
    assert status.value[0] == kind.code
    assert text == "so it is"
    back = error_from_status(rpc_error(status, text), "agent 3 at grpc://host:1")
    assert type(back) is kind
    assert str(back) == f"agent 3 at grpc://host:1 answered {status.name}: so it is"


@pytest.mark.parametrize("status", list(grpc.StatusCode))
def test_every_status_becomes_a_refusal(status: grpc.StatusCode) -> None:
    refusal = error_from_status(rpc_error(status, None), "it")
    known = {kind.code: kind for kind in KINDS}
    known[grpc.StatusCode.CANCELLED.value[0]] = Unavailable  # by a service that stops
    assert type(refusal) is known.get(status.value[0], Internal)
    assert status.name in str(refusal)


@given(st.text(st.characters(), max_size=3000))
def test_texts_fit_into_a_status(text: str) -> None:
    short = shorten(text)
    assert len(short.encode()) <= 2003
    if len(text.encode(errors="replace")) <= 2000:
        assert short == text.encode(errors="replace").decode()
    else:
        assert short.endswith("…")


def test_what_a_call_gives_or_why_it_does_not() -> None:
    async def give(what: object) -> object:
        if isinstance(what, Exception):
            raise what
        return what

    assert asyncio.run(respond(Context(), give(3))) == 3
    for problem, status, words in (
        (errors.NotFound("not there"), grpc.StatusCode.NOT_FOUND, "not there"),
        (KeyError("x"), grpc.StatusCode.INTERNAL, "the server failed: KeyError: 'x'"),
    ):
        with pytest.raises(Aborted) as caught:
            asyncio.run(respond(Context(), give(problem)))
        assert caught.value.args == (status, words)


def test_versions() -> None:
    told = {one.name: one.version for one in version_info().versions}
    assert told == {"worldloom": metadata.version("worldloom"), "cogment-api": "0.3.0", "grpc": grpc.__version__}
