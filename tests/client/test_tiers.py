"""All transports give the same bytes for the same seed and actions: those of pool and renderer alone."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from scripts.support.reference_world import ReferenceWorld
from tests.support.shared_server import Served
from worldloom.client import VectorEnv
from worldloom.render.cpu import CPURenderer
from worldloom.worlds.lanes import INTERRUPTED, TERMINATED

LANES, STEPS, SEED = 5, 24, 12
TRANSPORTS = {
    "local": ("local", "auto", "local"),
    "socket": ("tcp", "auto", "socket"),
    "socket by name": ("unix", "socket", "socket"),
    "shm": ("tcp", "shm", "shm"),
    "unix": ("unix", "grpc", "grpc"),
    "tcp": ("tcp", "grpc", "grpc"),
}
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "catch": ({"rows": 4}, ["eye.rgb", "eye.segmentation", "ball", "paddle", "discount"]),
    "cartpole": ({"max_steps": 9}, ["eye.rgb", "eye.depth", "eye.gray", "pose"]),
    "maze": ({"max_steps": 7, "size": 7}, ["eye.rgb", "map.rgb", "eye.normals", "position", "goals_left", "step_type"]),
}


@pytest.fixture(scope="module")
def cpu() -> Iterator[CPURenderer]:
    with CPURenderer(threads=1) as made:
        yield made


def open_all(server: Served, family: str, **given: Any) -> tuple[ExitStack, dict[str, VectorEnv]]:
    addresses = {"local": "local", "tcp": server.tcp, "unix": server.unix}
    stack = ExitStack()
    envs = {}
    for case, (address, transport, expected) in TRANSPORTS.items():
        made: Any = VectorEnv
        renderer = "cpu" if address == "local" else "auto"
        env = made(addresses[address], family, LANES, transport=transport, renderer=renderer, **given)
        envs[case] = stack.enter_context(env)
        assert env.transport == expected
    return stack, envs


@pytest.mark.parametrize("family", CASES)
def test_all_transports_give_the_same_bytes(server: Served, cpu: CPURenderer, family: str) -> None:
    settings, names = CASES[family]
    direct = ReferenceWorld(cpu, family, SEED, LANES, **settings)
    stack, envs = open_all(
        server, family, width=24, height=16, samples=4, observations=names, settings=settings, seed=SEED
    )
    with stack:
        spaces = next(iter(envs.values())).action_space
        spaces.seed(3)
        for env in envs.values():
            env.reset()
        direct.step()
        for _ in range(STEPS):
            actions = spaces.sample()
            direct.step(**{name: action[:, None] for name, action in actions.items()})
            expected = {
                name: direct.draw(name, width=24, height=16, samples=4) if "." in name else direct.observe(name)
                for name in names
            }
            status = direct.pool.status[direct.lanes]
            for case, env in envs.items():
                obs, reward, terminated, truncated, _ = env.step(actions)
                for name in names:
                    assert obs[name].dtype == expected[name].dtype, (case, name)
                    assert obs[name].tobytes() == expected[name].tobytes(), (case, name)
                assert np.array_equal(reward, direct.observe("reward")), case
                assert np.array_equal(terminated, status == TERMINATED), case
                assert np.array_equal(truncated, status == INTERRUPTED), case


def test_large_frames_are_where_they_were_drawn(server: Served) -> None:
    with (
        VectorEnv("local", "catch", 300, renderer="cpu", observations=["eye.rgb", "eye.depth"]) as local,
        VectorEnv(server.tcp, "catch", 300, transport="grpc", observations=["eye.rgb", "eye.depth"]) as grpc,
        VectorEnv(server.tcp, "catch", 300, transport="shm", observations=["eye.rgb", "eye.depth"]) as shm,
    ):
        for env in (local, grpc, shm):
            env.reset(seed=4)
        for _ in range(3):
            actions = local.action_space.sample()
            one, other, third = (env.step(actions)[0] for env in (local, grpc, shm))
            for name in one:
                assert not other[name].flags.owndata
                assert not third[name].flags.owndata
                assert np.array_equal(one[name], other[name])
                assert np.array_equal(one[name], third[name])
                assert other[name].flags.writeable
                assert other[name].flags.aligned


def test_close_destroys_the_world(server: Served) -> None:
    env = VectorEnv(server.tcp, "catch", 4)
    world = env._streams.first_world._world
    before = int(world.read_property("counters.worlds"))
    assert str(world.read_property("world.name")) == world.name
    with VectorEnv(server.tcp, "catch", 4) as watcher:
        assert int(watcher._streams.first_world.read_property("counters.worlds")) == before + 1
        env.close()
        assert int(watcher._streams.first_world.read_property("counters.worlds")) == before
