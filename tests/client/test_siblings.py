"""Several connections to one server or engine: worlds beside each other, and several agents in one world."""

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from google.rpc import code_pb2

from scripts.support.server_process import ServerProcess
from tests.support.shared_server import Served
from worldloom.client import LostConnection, ServerError, VectorEnv
from worldloom.client.connections import Credentials
from worldloom.client.vector_world import VectorWorld, create_vector_world

SIZE: dict[str, Any] = {"width": 10, "height": 8}
ACTIONS = [{"move": np.full((2, 2), 0.5), "turn": np.full(2, turn)} for turn in (0.25, -0.75)]


def create(address: str, sibling: VectorWorld | None = None, **settings: Any) -> VectorWorld:
    return create_vector_world(
        address,
        ["eye.rgb", "position"],
        world_settings={"family": "maze", "lanes": 2, "seed": 4, **settings},
        join_settings={**SIZE, "agent": 0},
        transport="auto",
        credentials=Credentials(),
        renderer="cpu" if address == "local" else "auto",
        timeout_s=60.0,
        sibling=sibling,
    )


@pytest.fixture(params=["local", "server"])
def address(request: pytest.FixtureRequest) -> str:
    return "local" if request.param == "local" else str(request.getfixturevalue("server").tcp)


def play(address: str) -> list[dict[str, np.ndarray]]:
    """Step two agents of a maze in lock-step; return what both saw."""
    seen = []
    with closing(create(address, agents=2)) as first:
        second = first.join_again(["eye.rgb", "position"], join_settings={**SIZE, "agent": 1})
        with closing(second):
            for world in (first, second):
                world.send_reset()
            seen += [world.receive() for world in (first, second)]
            for _ in range(5):
                for world, actions in zip((first, second), ACTIONS, strict=True):
                    world.send(actions)
                seen += [world.receive() for world in (second, first)]
    return seen


def test_agents_of_one_world(server: Served) -> None:
    locally, remotely = play("local"), play(server.tcp)
    for mine, theirs in zip(locally, remotely, strict=True):
        for name, array in mine.items():
            assert np.array_equal(array, theirs[name])
    assert not np.array_equal(locally[0]["position"], locally[1]["position"])


def test_an_agent_that_waits_for_another() -> None:
    with closing(create("local", agents=2)) as first:
        with closing(first.join_again(["position"], join_settings={**SIZE, "agent": 1})) as second:
            for world in (first, second):
                world.send_reset()
            first.receive()
            second.receive()
            first.send(ACTIONS[0])
            with pytest.raises(ServerError, match="no answer for agent 0: its world waits for the steps of all its 2"):
                first.receive()
            second.send(ACTIONS[1])
            assert first.receive()["position"].shape == second.receive()["position"].shape == (2, 2)
        # The one that joined leaves, and the world stays.
        first.send(ACTIONS[0])
        first.receive()
        third = first.join_again(["position"], join_settings={**SIZE, "agent": 1})
        with pytest.raises(ServerError) as caught:
            first.join_again(["position"], join_settings={**SIZE, "agent": 1})
        assert caught.value.code == code_pb2.FAILED_PRECONDITION
        third.close()
        third.close()


def test_worlds_of_siblings_are_on_one_engine(address: str) -> None:
    with closing(create(address)) as first:
        before = int(first.read_property("counters.worlds"))
        second = create(address, sibling=first)
        assert int(first.read_property("counters.worlds")) == before + 1
        for world in (first, second):
            world.send_reset()
        assert np.array_equal(second.receive()["eye.rgb"], first.receive()["eye.rgb"])
        second.close()
        assert int(first.read_property("counters.worlds")) == before
        first.send(ACTIONS[0])
        assert first.receive()["position"].shape == (2, 2)


def test_an_interrupted_engine_is_lost_to_all() -> None:
    with closing(create("local")) as first, closing(create("local", sibling=first)) as second:
        first.send_reset()
        second.send_reset()

        def interrupt() -> bool:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            first.connection.wait_until(interrupt)
        assert first.connection.has_reply
        assert second.connection.has_reply
        for world in (first, second):
            with pytest.raises(LostConnection, match="interrupted in the middle of a step"):
                world.receive()
        with pytest.raises(LostConnection):
            second.connection.open_sibling()


def test_waiting_for_a_reply_that_does_not_come(server: Served) -> None:
    with (
        closing(create(server.tcp, agents=2)) as first,
        closing(first.join_again(["position"], join_settings={**SIZE, "agent": 1})) as second,
    ):
        connection: Any = first.connection
        for world in (first, second):
            world.send_reset()
        connection.wait_until(lambda: connection.has_reply)
        first.receive()
        second.receive()
        first.send(ACTIONS[0])  # and the other agent does not step
        assert not connection.has_reply
        connection._timeout_s = 0.2  # it passes in any case: only now, since worlds are created slowly under load
        with pytest.raises(LostConnection, match=r"no answer from the server at .* within 0\.2 s \(timeout_s\)"):
            connection.wait_until(lambda: connection.has_reply)
        assert connection.has_reply  # an error
        with pytest.raises(LostConnection):
            first.receive()


@pytest.mark.parametrize("transport", ["grpc", "shm"])
def test_streams_survive_as_one_env(server: Served, transport: Any) -> None:
    """An env over several streams is closed, connected again and rendered as any other."""
    with VectorEnv(server.tcp, "catch", 5, streams=3, transport=transport, flat=True, seed=2, **SIZE) as env:
        frames, _ = env.reset()
        assert env.transport == transport
        assert env.render().shape == (16, 30, 3)
        assert np.array_equal(env.render()[:8, 10:20], frames[1])
        env.close()
        env.reconnect()
        assert np.array_equal(env.reset()[0], frames)


def test_lost_servers_are_noticed_by_all_streams() -> None:
    server = ServerProcess("--listen", "127.0.0.1:0")
    try:
        env = VectorEnv(server.address, "catch", 4, streams=2, flat=True)
        env.reset()
    finally:
        server.kill()
    with pytest.raises(LostConnection):
        env.step(np.ones(4, int))
    for call in (env.recv, env.reset):  # the other stream is still under way, and lost as well
        with pytest.raises(LostConnection):
            call()
    env.close()
