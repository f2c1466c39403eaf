"""Vector worlds over a real stream: thousands of lanes in one message, and channels that take no more than they say."""

import re
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from dm_env_rpc.v1 import connection, dm_env_adaptor
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1.error import DmEnvRpcError

from scripts.support.catch_model import CatchModel
from scripts.support.engine_streams import FIRST, LAST, MID, refused
from scripts.support.reference_world import ReferenceWorld
from scripts.support.server_process import ServerProcess, serving
from scripts.support.stream_client import StreamClient
from worldloom.render.cpu import CPURenderer
from worldloom.worlds.random import lane_seeds

LANES, SEED = 4096, 99
SIZE: dict[str, Any] = {"width": 8, "height": 6}
CASES: dict[str, tuple[dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "catch": ({"rows": 4}, {"paddle": ()}),
    "cartpole": ({"max_steps": 5}, {"force": ()}),
    "maze": ({"size": 5, "max_steps": 4}, {"move": (2,), "turn": ()}),
}
TYPES = ("FIRST", "MID", "LAST")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving() as made:
        yield made


@pytest.mark.parametrize("family", CASES)
def test_thousands_of_lanes_are_those_of_a_pool(server: ServerProcess, cpu: CPURenderer, family: str) -> None:
    """Over several episodes of each lane; in catch, some lanes are judged by the plain model too."""
    settings, shapes = CASES[family]
    direct = ReferenceWorld(cpu, family, SEED, LANES, **settings)
    models = {lane: CatchModel(int(seed), 4, 5, 1000) for lane, seed in enumerate(lane_seeds(SEED, LANES))}
    rng = np.random.default_rng(2)
    before = np.full(LANES, LAST)
    episodes = np.zeros(LANES, int)
    with StreamClient(server.address) as wire:
        world = wire.create(family, seed=SEED, lanes=LANES, **settings)
        wire.join(world, **SIZE, max_reply_bytes=1 << 30)
        names = sorted(spec.name for spec in wire.specs.observations.values())
        plain = [name for name in names if "." not in name]
        for step in range(14):
            actions = {name: rng.integers(-1, 2, (LANES, *shape)) for name, shape in shapes.items()}
            see = names if step in (0, 13) else plain
            seen = wire.step(*see, **actions).observations
            direct.step(**{name: values[:, None] for name, values in actions.items()})
            for name in see:
                expected = direct.see(name, **(SIZE if "." in name else {}))
                assert seen[name].dtype == expected.dtype, name
                assert seen[name].shape == expected.shape, name
                assert seen[name].tobytes() == expected.tobytes(), (step, name)
            kinds = seen["step_type"]
            assert np.array_equal(kinds == FIRST, before == LAST)
            assert not seen["reward"][kinds == FIRST].any()
            assert (seen["discount"][kinds != LAST] == 1).all()
            episodes += kinds == FIRST
            before = kinds
            if family == "catch":
                for lane in range(0, LANES, 61):
                    told = models[lane].step(int(actions["paddle"][lane]))
                    assert TYPES[kinds[lane]] == told["step_type"], lane
                    assert seen["reward"][lane] == told["reward"], lane
                    assert seen["ball"][lane].tolist() == told["ball"], lane
        assert episodes.min() >= 3
        assert np.array_equal(wire.property("world.episode"), episodes - 1)
        assert {FIRST, MID, LAST} >= set(before.tolist())
        wire.leave()
        wire.destroy(world)


def test_what_a_join_says_of_the_size_is_so(server: ServerProcess) -> None:
    with StreamClient(server.address) as wire:
        world = wire.create("maze", lanes=50)
        with refused("RESOURCE_EXHAUSTED", "1000 at most") as told:
            wire.join(world, max_reply_bytes=1000)
        size_bytes = int(re.findall(r"takes (\d+) bytes", told.text)[0])
        wire.join(world, max_reply_bytes=size_bytes)
        names = [spec.name for spec in wire.specs.observations.values()]
        wire.send_step(*names)
        came_bytes = len(next(wire.call))
        assert size_bytes - 64 * len(names) < came_bytes <= size_bytes
        wire.leave()
        wire.destroy(world)


def test_a_channel_takes_whatever_a_join_has_let_in(server: ServerProcess) -> None:
    """With gRPC's own limit, and the most lanes that the server lets in for it; with a larger one, more."""
    how = {"observations": ["eye.rgb", "reward", "step_type"]}
    with grpc.insecure_channel(server.address) as channel, connection.Connection(channel) as stream:
        with pytest.raises(DmEnvRpcError, match="takes 4204398 bytes: expected 4194304 at most"):
            dm_env_adaptor.create_and_join_world(stream, {"family": "catch", "lanes": 342}, how)
        look(stream, 341, how | {"observations": ["eye.rgb"]})
    options = [("grpc.max_receive_message_length", 8 << 20)]
    with grpc.insecure_channel(server.address, options) as channel, connection.Connection(channel) as stream:
        look(stream, 600, how | {"max_reply_bytes": 8 << 20})


def look(stream: connection.Connection, lanes: int, how: dict[str, Any]) -> None:
    env, world = dm_env_adaptor.create_and_join_world(stream, {"family": "catch", "lanes": lanes}, how)
    assert env.reset().observation["eye"]["rgb"].shape == (lanes, 64, 64, 3)
    for _ in range(3):
        assert env.step({"paddle": np.ones(lanes, np.int32)}).observation["eye"]["rgb"].any()
    env.close()
    stream.send(rpc.DestroyWorldRequest(world_name=world))
