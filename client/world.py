"""A server's properties, read one at a time: what is asked, and what the answer says.

Whether a server is one that this client understands.

The protocol stands still, but what a worldloom server takes and offers beyond it may change from one minor version to
the next. So both sides have to be of the same one: 0.3.1 and 0.3.7 go together, 0.3.1 and 0.4.0 do not. Other
dm_env_rpc clients are not asked for a version; whatever of a server they use is theirs to know.

One world on a server, as its only client sees it: made, joined, left and destroyed through one link.
"""

import functools
import importlib.metadata
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import message_utils, tensor_utils
from dm_env_rpc.v1.extensions import properties_pb2
from google.rpc import code_pb2

from worldloom.client.errors import BadReply, ServerError, VersionMismatch
from worldloom.client.links import LOCAL, Link
from worldloom.client.replies import parse_reply
from worldloom.client.requests import pack_settings


def write_question(key: str) -> bytes:
    """The request for a property."""
    asked = properties_pb2.PropertyRequest(read_property=properties_pb2.ReadPropertyRequest(key=key))
    request = rpc.EnvironmentRequest()
    request.extension.Pack(asked)
    written: bytes = request.SerializeToString()
    return written


def read_answer(reply: bytes, key: str) -> Any:
    """The value in the reply to that request."""
    response = properties_pb2.PropertyResponse()
    if not parse_reply(reply, "extension").extension.Unpack(response):
        raise BadReply(f"no property in the answer to a question for {key!r}: expected a PropertyResponse")
    return tensor_utils.unpack_tensor(response.read_property.value)


_NO_SUCH_THING = (
    code_pb2.NOT_FOUND,
    code_pb2.UNIMPLEMENTED,
    code_pb2.INVALID_ARGUMENT,
    code_pb2.UNKNOWN,
    code_pb2.INTERNAL,
)
"""What servers answer to a question that they do not know."""


def check_version(read: Callable[[str], object], address: object) -> None:
    """VersionMismatch unless a server's properties say that it is of our own version. `read` reads one."""
    ours = own_version()
    try:
        theirs = str(read("server.version"))
    except ServerError as error:
        if error.code not in _NO_SUCH_THING:
            raise
        raise VersionMismatch(
            f"the server at {address} speaks dm_env_rpc but is no worldloom ({error.text}): expected worldloom "
            f"{_minor(ours)}; other servers are for other clients, such as the dm_env_rpc package's own"
        ) from error
    if _minor(theirs) != _minor(ours):
        raise VersionMismatch(
            f"the server at {address} is worldloom {theirs} and this client {ours}: expected {_minor(ours)} on both "
            "sides; install the server's version here, or start the server with this one"
        )


@functools.cache
def own_version() -> str:
    """Of the worldloom that is installed here."""
    return importlib.metadata.version("worldloom")


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


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
