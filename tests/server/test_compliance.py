"""The reference package's compliance suite over a socket, for every family in the box and vector worlds of each."""

import inspect
import unittest
from collections.abc import Iterator
from typing import Any, ClassVar

import grpc
import pytest
from dm_env_rpc.v1 import compliance, message_utils
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1.connection import Connection

from scripts.support.engine_streams import refused
from scripts.support.messages import packed
from scripts.support.server_process import serving
from scripts.support.stream_client import StreamClient
from worldloom.client.connecting import connect
from worldloom.client.connections import Credentials
from worldloom.worlds.registry import find_family

KINDS: dict[str, dict[str, Any]] = {
    "Cartpole": {"family": "cartpole"},
    "CartpoleVector": {"family": "cartpole", "lanes": 3},
    "Catch": {"family": "catch"},
    "CatchVector": {"family": "catch", "lanes": 3},
    "Maze": {"family": "maze"},
    "MazeVector": {"family": "maze", "lanes": 3},
    "MazeOfTwo": {"family": "maze", "agents": 2},
}
BY_SOCKET = {"CatchBySocket": KINDS["Catch"], "MazeOfTwoBySocket": KINDS["MazeOfTwo"]}
"""Kinds that are tried over the local socket, too."""
_address = ""


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    global _address
    with serving() as made:
        _address = made.address
        yield


class SocketStream:
    """A connection by the local socket, in the form of the reference package's own."""

    def __init__(self, address: str) -> None:
        self._connection = connect(address, Credentials(), "auto", 60.0, "socket")

    def send(self, request: Any) -> Any:
        """Send a request and return its response, or raise its error."""
        packed_request, kind = message_utils.pack_environment_request(request)
        self._connection.send(packed_request.SerializeToString())
        response = rpc.EnvironmentResponse.FromString(self._connection.receive())
        self._connection.taken += 1
        self._connection.release()
        return message_utils.unpack_environment_response(response, kind)

    def close(self) -> None:
        """End the stream."""
        self._connection.close()


class Served:
    """What the suite wants to know of a server. Each class has a stream; each of its tests leaves it as it was."""

    kind: ClassVar[dict[str, Any]]
    is_by_socket: ClassVar[bool]
    _channel: ClassVar[grpc.Channel]
    _connection: ClassVar[Connection | SocketStream]
    _world: str | None = None

    required_join_settings: ClassVar[dict[str, rpc.Tensor]] = {}
    has_multiple_world_support = True
    invalid_join_settings: ClassVar = packed(
        {"width": 0, "height": 64.5, "samples": 2, "agent": 8, "observations": "x"}
    )

    @classmethod
    def setUpClass(cls) -> None:
        cls._channel = grpc.insecure_channel(_address)
        cls._connection = SocketStream(_address) if cls.is_by_socket else Connection(cls._channel)

    @classmethod
    def tearDownClass(cls) -> None:
        cls._connection.close()
        cls._channel.close()

    @property
    def connection(self) -> Connection | SocketStream:
        return self._connection

    @property
    def world_name(self) -> str:
        if self._world is None:
            self._world = self.create_world(packed({"family": self.kind["family"]}))
        return self._world

    def create_world(self, settings: dict[str, rpc.Tensor]) -> str:
        """Lanes and agents are not required: they are added to whatever the suite has in its hands."""
        also = packed({name: value for name, value in self.kind.items() if name != "family"})
        return str(self.connection.send(rpc.CreateWorldRequest(settings={**also, **settings})).world_name)

    def tearDown(self) -> None:
        super().tearDown()  # type: ignore[misc]
        self.connection.send(rpc.LeaveWorldRequest())
        if self._world is not None:
            self.connection.send(rpc.DestroyWorldRequest(world_name=self._world))
            self._world = None


class Creating(Served):
    @property
    def required_world_settings(self) -> dict[str, rpc.Tensor]:
        return packed({"family": self.kind["family"]})

    @property
    def invalid_world_settings(self) -> dict[str, rpc.Tensor]:
        family = find_family(self.kind["family"])
        wrong = {one.name: one.minimum - 1 for one in family.settings if one.minimum is not None}
        return packed({"seed": "seven", "lanes": 0, "no_such_setting": 1, "max_steps": [1, 2], **wrong})


class Joined(Served):
    specs = rpc.ActionObservationSpecs()

    def join_world(self) -> rpc.ActionObservationSpecs:
        return self.connection.send(rpc.JoinWorldRequest(world_name=self.world_name)).specs


class Stepping(Joined):
    def setUp(self) -> None:
        super().setUp()  # type: ignore[misc]
        self.specs = self.join_world()


_PARTS: dict[type[unittest.TestCase], type[Served]] = {
    compliance.CreateDestroyWorld: Creating,
    compliance.JoinLeaveWorld: Served,
    compliance.Reset: Joined,
    compliance.ResetWorld: Served,
    compliance.Step: Stepping,
}


def _make(part: type[unittest.TestCase], kind: str) -> None:
    name = f"{kind}{part.__name__}"
    body = {"kind": (KINDS | BY_SOCKET)[kind], "is_by_socket": kind in BY_SOCKET, "__module__": __name__}
    globals()[name] = type(name, (_PARTS[part], part), body)


for _part in _PARTS:
    for _kind in (*KINDS, *BY_SOCKET):
        _make(_part, _kind)
del _part, _kind


def test_the_whole_suite_is_here() -> None:
    names = unittest.TestLoader().getTestCaseNames
    assert sum(len(names(part)) for part in _PARTS) >= 40
    assert set(_PARTS) == {value for value in vars(compliance).values() if isinstance(value, type)}
    made = [value for value in globals().values() if isinstance(value, type) and issubclass(value, unittest.TestCase)]
    assert len(made) == len(_PARTS) * (len(KINDS) + len(BY_SOCKET))
    assert not any(map(inspect.isabstract, made)), "an abstract class is not run"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_wrong_is_named(kind: str) -> None:
    """The suite takes any error for the right one."""
    creating = globals()[f"{kind}CreateDestroyWorld"]()
    with StreamClient(_address) as wire:
        for name, tensor in creating.invalid_world_settings.items():
            with refused("INVALID_ARGUMENT", repr(name)):
                wire.ask(create_world=rpc.CreateWorldRequest(settings={**packed(KINDS[kind]), name: tensor}))
        world = wire.create(**KINDS[kind])
        for name, tensor in creating.invalid_join_settings.items():
            with refused("INVALID_ARGUMENT", repr(name)):
                wire.ask(join_world=rpc.JoinWorldRequest(world_name=world, settings={name: tensor}))
        wire.destroy(world)
