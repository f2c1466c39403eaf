"""One world on a server, as its only client sees it: made, joined, left and destroyed through one link."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import message_utils

from worldloom.client.links import LOCAL, Link
from worldloom.client.properties import read_answer, write_question
from worldloom.client.requests import pack_settings
from worldloom.client.versions import check_version
from worldloom.client.wire import parse_reply

_FAREWELL_S = 2.0
"""How long the server has to answer when a world is given up; if it does not, it clears up by itself some day."""


def refuse_settings(settings: Mapping[str, Any] | None, arguments: Mapping[str, str]) -> None:
    """Refuse settings of a world that have an argument of their own, which these are."""
    for name in settings or {}:
        if name in arguments:
            raise ValueError(f"settings has {name!r}: expected the argument {arguments[name]} for that")


class World:
    """A world that lives for as long as this does. Closing it ends the link."""

    def __init__(self, link: Link, settings: Mapping[str, Any]) -> None:
        self.link = link
        self.name = ""
        self._waiting = 0
        """Replies that were not taken yet."""
        try:
            if link.address != LOCAL:
                check_version(self.read, link.address)
            self.name = self.send(rpc.CreateWorldRequest(settings=pack_settings(settings))).world_name
        except BaseException:
            self.close()
            raise

    def send(self, request: Any) -> Any:
        """Send a request of any kind and wait for its response; both are protobuf objects. As DmEnvAdaptor wants it."""
        self.forget_waiting()
        packed, kind = message_utils.pack_environment_request(request)
        self.post(packed.SerializeToString())
        return getattr(parse_reply(self.take(), kind), kind)

    def post(self, request: bytes) -> None:
        """Send a request whose reply is taken later."""
        self.link.send(request)
        self._waiting += 1

    def take(self) -> bytes:
        """The reply to the oldest request that waits for one."""
        reply = self.link.receive()
        self._waiting -= 1
        return reply

    def forget_waiting(self) -> None:
        """Take all replies that nobody took."""
        while self._waiting:
            self.take()

    def join(self, settings: Mapping[str, Any]) -> rpc.ActionObservationSpecs:
        """Join the world; what it offers comes back."""
        request = rpc.JoinWorldRequest(world_name=self.name, settings=pack_settings(settings))
        return self.send(request).specs

    def leave(self) -> None:
        """Leave it, to join in another way."""
        self.send(rpc.LeaveWorldRequest())

    def reset(self, seed: int | None) -> None:
        """Begin new episodes with the next step; with a seed, the world's first ones of that seed."""
        if seed is None:
            self.send(rpc.ResetRequest())
        else:
            self.send(rpc.ResetWorldRequest(world_name=self.name, settings=pack_settings({"seed": seed})))

    def read(self, key: str) -> Any:
        """A property of the server or of this world."""
        self.post(write_question(key))
        return read_answer(self.take(), key)

    def close(self) -> None:
        """Leave and destroy the world and end the link. Whatever goes wrong with that is nobody's concern any more."""
        with suppress(Exception):
            if self.name:
                name, self.name = self.name, ""
                for request in (
                    rpc.EnvironmentRequest(leave_world=rpc.LeaveWorldRequest()),
                    rpc.EnvironmentRequest(destroy_world=rpc.DestroyWorldRequest(world_name=name)),
                ):
                    self.post(request.SerializeToString())
                while self._waiting:
                    self.link.receive(_FAREWELL_S)
                    self._waiting -= 1
        with suppress(Exception):
            self.link.close()
