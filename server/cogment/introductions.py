"""Who the services of others are: each is asked for its versions the first time it is needed, for the log."""

import asyncio
from collections.abc import Iterable
from typing import Any

from worldloom.protos.cogment.api.agent_pb2_grpc import AgentStub
from worldloom.protos.cogment.api.common_pb2 import VersionInfo, VersionRequest
from worldloom.protos.cogment.api.environment_pb2_grpc import EnvironmentStub
from worldloom.protos.cogment.api.hooks_pb2_grpc import TrialHooksStub
from worldloom.server.cogment.channels import Channels, ask
from worldloom.server.errors import Refusal
from worldloom.server.logs import Log

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
        except Refusal as error:
            self._known.discard((kind, endpoint))
            log.debug("versions unknown", service=kind, endpoint=endpoint, reason=str(error))
        else:
            versions = ", ".join(f"{one.name} {one.version}" for one in info.versions)[:200]
            log.info("versions", service=kind, endpoint=endpoint, versions=versions)
        finally:
            await self._channels.give_back(endpoint)
