"""One world on a server: created, joined, stepped, left and destroyed through one connection.

A client creates the world for itself, so `World.close` destroys it. Where the world has several agents, the others join
it through `World.open_again`.

Versions: a client checks the server's version when it connects. Settings and observations of a worldloom server may
change from one minor version to the next, so both sides have to be of the same one: 0.3.1 and 0.3.7 go together, 0.3.1
and 0.4.0 do not. Other dm_env_rpc clients do not check.
"""

import copy
import functools
import importlib.metadata
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import message_utils, tensor_utils
from dm_env_rpc.v1.extensions import properties_pb2
from google.rpc import code_pb2

from worldloom.client.connections import LOCAL, Connection
from worldloom.client.errors import BadReply, ClientError, ServerError, VersionMismatch
from worldloom.client.replies import parse_reply
from worldloom.client.requests import pack_settings

_CLOSE_TIMEOUT_S = 2.0
"""Time for each reply while a world is closed. Without one the server cleans up when it notices the lost connection."""
UNKNOWN_PROPERTY_CODES = (
    code_pb2.NOT_FOUND,
    code_pb2.UNIMPLEMENTED,
    code_pb2.INVALID_ARGUMENT,
    code_pb2.UNKNOWN,
    code_pb2.INTERNAL,
)
"""Codes with which dm_env_rpc servers answer a request for a property that they do not have."""


def frame_settings(width: int, height: int, samples: int, shadows: bool) -> dict[str, int | bool]:
    """Return the settings of JoinWorld that frames depend on; without shadows, those that all servers know."""
    if not isinstance(shadows, bool | np.bool_):
        raise TypeError(f"shadows is {shadows!r}: expected True or False")
    return {"width": width, "height": height, "samples": samples, **({"shadows": True} if shadows else {})}


class World:
    """A world, for as long as this object is open. It owns the connection, and destroys the world that it created."""

    def __init__(
        self, connection: Connection, settings: Mapping[str, Any], first_timeout_s: float | None = None
    ) -> None:
        """Create a world with these settings. Closes the connection if that fails.

        `first_timeout_s` is for the first reply, which a server gives at once; None is the connection's own timeout.
        """
        self.connection = connection
        self.name = ""
        self._is_creator = True
        self._process = os.getpid()
        try:
            if connection.address != LOCAL:
                check_version(partial(self.read_property, timeout_s=first_timeout_s), connection.address)
            self.name = self.send(rpc.CreateWorldRequest(settings=pack_settings(settings))).world_name
        except BaseException:
            self.close()
            raise

    def open_again(self) -> "World":
        """Return the same world through another connection to its server, for another of its agents.

        Each agent joins through a connection of its own. Closing the result leaves the world, and destroys nothing.
        """
        again = copy.copy(self)
        again.connection = self.connection.open_sibling()
        again._is_creator = False
        return again

    def send(self, request: Any) -> Any:
        """Send a request and wait for its response, both protobuf objects. DmEnvAdaptor calls this, too."""
        self.discard_replies()
        packed, kind = message_utils.pack_environment_request(request)
        self.send_request(packed.SerializeToString())
        return getattr(parse_reply(self.receive_reply(), kind), kind)

    def send_request(self, request: Any) -> None:
        """Send an encoded request, or an array step to an engine in this process, without waiting for its reply."""
        self.connection.send(request)

    def receive_reply(self, timeout_s: float | None = None) -> Any:
        """Return the reply to the oldest pending request: bytes, or a dict of arrays as `Connection.receive` says.

        `timeout_s` replaces the connection's own.
        """
        if not self._pending:
            raise ClientError("no reply is pending: expected a request first")
        reply = self.connection.receive(timeout_s)
        self.connection.taken += 1
        self.connection.release()
        return reply

    @property
    def _pending(self) -> int:
        """The number of requests whose replies have not been received."""
        return self.connection.sent - self.connection.taken

    def discard_replies(self) -> None:
        """Receive and drop the replies to all pending requests."""
        self.connection.release()  # an interrupt may have come between the count and this
        while self._pending:
            self.receive_reply()

    def join(self, settings: Mapping[str, Any]) -> rpc.ActionObservationSpecs:
        """Join the world, and return its specs."""
        request = rpc.JoinWorldRequest(world_name=self.name, settings=pack_settings(settings))
        return self.send(request).specs

    def leave(self) -> None:
        """Leave the world, so that it can be joined with other settings."""
        self.send(rpc.LeaveWorldRequest())

    def reset(self, settings: Mapping[str, Any]) -> None:
        """Start new episodes with the next step, with settings of ResetWorld such as `seed`, or none."""
        if settings:
            self.send(rpc.ResetWorldRequest(world_name=self.name, settings=pack_settings(settings)))
        else:
            self.send(rpc.ResetRequest())

    def read_property(self, key: str, timeout_s: float | None = None) -> Any:
        """Read a property of the server or of this world."""
        self.discard_replies()
        self.send_request(encode_property_request(key))
        return decode_property(self.receive_reply(timeout_s), key)

    def write_property(self, key: str, value: Any) -> None:
        """Write a property of this world or of its connection."""
        write = properties_pb2.WritePropertyRequest(key=key, value=tensor_utils.pack_tensor(value))
        request = rpc.EnvironmentRequest()
        request.extension.Pack(properties_pb2.PropertyRequest(write_property=write))
        self.discard_replies()
        self.send_request(request.SerializeToString())
        parse_reply(self.receive_reply(), "extension")

    def close(self) -> None:
        """Leave and destroy the world, and close the connection. Ignores errors: the server may be gone.

        A forked process has a copy of this object, but not the threads of the connection: there, nothing happens.
        """
        if os.getpid() != self._process:
            return
        with suppress(Exception):
            if self.name:
                name, self.name = self.name, ""
                requests = [rpc.EnvironmentRequest(leave_world=rpc.LeaveWorldRequest())]
                if self._is_creator:
                    requests.append(rpc.EnvironmentRequest(destroy_world=rpc.DestroyWorldRequest(world_name=name)))
                for request in requests:
                    self.send_request(request.SerializeToString())
                while self._pending:
                    self.receive_reply(_CLOSE_TIMEOUT_S)
        with suppress(Exception):
            self.connection.close()


def check_settings(settings: Mapping[str, Any] | None, arguments: Mapping[str, str]) -> None:
    """Raise ValueError for settings that are given by arguments: setting -> argument."""
    for name in settings or {}:
        if name in arguments:
            raise ValueError(f"settings has {name!r}: expected the argument {arguments[name]} for that")


def destroy_world(connection: Connection, name: str) -> None:
    """Destroy a world, if it exists, over a connection that waits for nothing else."""
    request = rpc.EnvironmentRequest(destroy_world=rpc.DestroyWorldRequest(world_name=name))
    connection.send(request.SerializeToString())
    connection.receive()  # or an error: it is gone already
    connection.taken += 1
    connection.release()


def encode_property_request(key: str) -> bytes:
    """Encode a request to read a property."""
    read = properties_pb2.PropertyRequest(read_property=properties_pb2.ReadPropertyRequest(key=key))
    request = rpc.EnvironmentRequest()
    request.extension.Pack(read)
    encoded: bytes = request.SerializeToString()
    return encoded


def decode_property(reply: bytes, key: str) -> Any:
    """Decode the reply to a request to read a property."""
    response = properties_pb2.PropertyResponse()
    if not parse_reply(reply, "extension").extension.Unpack(response):
        raise BadReply(f"a reply without the property {key!r}: expected a PropertyResponse")
    return tensor_utils.unpack_tensor(response.read_property.value)


def check_version(read_property: Callable[[str], object], address: object) -> None:
    """Raise VersionMismatch unless the server is worldloom of this client's minor version."""
    ours = own_version()
    try:
        theirs = str(read_property("server.version"))
    except ServerError as error:
        if error.code not in UNKNOWN_PROPERTY_CODES:
            raise
        raise VersionMismatch(
            f"the server at {address} speaks dm_env_rpc but is not worldloom ({error.text}): expected worldloom "
            f"{_minor_version(ours)}; for other servers use another client, such as the dm_env_rpc package's own"
        ) from error
    if _minor_version(theirs) != _minor_version(ours):
        raise VersionMismatch(
            f"the server at {address} is worldloom {theirs} and this client {ours}: expected {_minor_version(ours)} on "
            "both sides; install the server's version here, or start the server with this one"
        )


@functools.cache
def own_version() -> str:
    """Return the version of the installed worldloom."""
    return importlib.metadata.version("worldloom")


def _minor_version(version: str) -> str:
    return ".".join(version.split(".")[:2])
