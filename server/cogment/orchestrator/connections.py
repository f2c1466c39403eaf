"""Where other services of a trial are: `grpc://HOST:PORT`.

Connections to the services of others: one for each endpoint, however many trials use it.

Who the services of others are: each is asked for its versions the first time it is needed, for the log.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from worldloom.protos.addresses import TcpAddress, is_loopback, parse_address
from worldloom.protos.cogment.api.agent_pb2_grpc import AgentStub
from worldloom.protos.cogment.api.common_pb2 import VersionInfo, VersionRequest
from worldloom.protos.cogment.api.environment_pb2_grpc import EnvironmentStub
from worldloom.protos.cogment.api.hooks_pb2_grpc import TrialHooksStub
from worldloom.protos.errors import DeadlineExceeded, Internal, RequestError
from worldloom.server.cogment.status import refusal_of
from worldloom.server.config import Limits
from worldloom.server.logs import Log

SCHEME = "grpc://"
EXPECTED = "grpc://HOST:PORT"


def target_of(endpoint: str) -> str:
    """What a gRPC channel is opened to for an endpoint; one that stands for no address raises ValueError."""
    problem = ValueError(f"endpoint {endpoint[:100]!r}: expected {EXPECTED}")
    if not endpoint.startswith(SCHEME):
        raise problem
    try:
        address = parse_address(endpoint.removeprefix(SCHEME))
    except ValueError:
        raise problem from None
    if not isinstance(address, TcpAddress) or not address.port:
        raise problem
    return str(address)


_MOST_UNUSED = 64
"""Connections that are kept although nobody uses them. Hooks may name another endpoint for each trial."""
_RETRY_MS = (100, 1_000)
"""How soon a service that was away is tried again; gRPC's own patience of two minutes would outlast many trials."""

T = TypeVar("T")


@dataclass
class _Shared:
    channel: Any
    users: int = 0


class Channels:
    """The connections of a server. Whoever takes one gives it back."""

    def __init__(self, limits: Limits) -> None:
        self._options = [
            ("grpc.max_receive_message_length", limits.max_reply_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", _RETRY_MS[0]),
            ("grpc.min_reconnect_backoff_ms", _RETRY_MS[0]),
            ("grpc.max_reconnect_backoff_ms", _RETRY_MS[1]),
            ("grpc.use_local_subchannel_pool", 1),  # what others in this process do with that endpoint is theirs
        ]
        self._open: dict[str, _Shared] = {}
        """By endpoint; those given back last are last."""

    def take(self, endpoint: str) -> Any:
        """The channel to an endpoint; one that stands for no address raises ValueError."""
        shared = self._open.get(endpoint)
        if shared is None:
            shared = self._open[endpoint] = _Shared(self._connect(target_of(endpoint)))
        shared.users += 1
        return shared.channel

    async def give_back(self, endpoint: str) -> None:
        """One user less. The connection stays for the next, unless too many wait for one."""
        shared = self._open[endpoint]
        shared.users -= 1
        if not shared.users:
            self._open[endpoint] = self._open.pop(endpoint)
            unused = [name for name, one in self._open.items() if not one.users]
            for name in unused[:-_MOST_UNUSED]:
                await self._open.pop(name).channel.close()

    async def close(self) -> None:
        """Close them all."""
        while self._open:
            await self._open.popitem()[1].channel.close()

    def _connect(self, target: str) -> Any:
        host = target.rpartition(":")[0].strip("[]")
        direct = [("grpc.enable_http_proxy", 0)] if host == "localhost" or is_loopback(host) else []
        return grpc.aio.insecure_channel(target, options=[*self._options, *direct])


async def ask(call: Awaitable[T | None], who: str, deadline_s: float) -> T:
    """What a service answers; RequestError if it does not. `who` is the service and what it was asked."""
    try:
        reply = await call
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise DeadlineExceeded(f"{who} did not answer within {deadline_s:g} s (deadline_s)") from None
        raise refusal_of(error, who) from None
    if reply is None:  # gRPC's way to say that the bytes are no such message
        raise Internal(f"{who} answered with something else than the reply to that")
    return reply


log = Log("trials")

_MOST_KNOWN = 1024
_STUBS: dict[str, Any] = {"agent": AgentStub, "environment": EnvironmentStub, "hook": TrialHooksStub}


class Introductions:
    """Those who were asked. One that does not answer is asked again with the next trial; no trial waits for it."""

    def __init__(self, channels: Channels, deadline_s: float) -> None:
        self._channels = channels
        self._deadline_s = deadline_s
        self._known: set[tuple[str, str]] = set()

    async def meet(self, services: Iterable[tuple[str, str]]) -> None:
        """Ask those who are new; each is a kind of service and its endpoint."""
        new = {*services} - self._known
        if len(self._known) + len(new) > _MOST_KNOWN:
            self._known.clear()
        self._known |= new
        await asyncio.gather(*(self._ask(kind, endpoint) for kind, endpoint in new))

    async def _ask(self, kind: str, endpoint: str) -> None:
        stub = _STUBS[kind](self._channels.take(endpoint))
        try:
            call = stub.Version(VersionRequest(), timeout=self._deadline_s)
            info: VersionInfo = await ask(call, "Version", self._deadline_s)
        except RequestError as error:
            self._known.discard((kind, endpoint))
            log.debug("versions unknown", service=kind, endpoint=endpoint, reason=str(error))
        else:
            versions = ", ".join(f"{one.name} {one.version}" for one in info.versions)[:200]
            log.info("versions", service=kind, endpoint=endpoint, versions=versions)
        finally:
            await self._channels.give_back(endpoint)
