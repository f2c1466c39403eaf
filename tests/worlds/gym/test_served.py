"""Environments over sockets: the reference client, every transport, several worlds at once, hostile settings."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import connection as reference
from dm_env_rpc.v1 import error
from dm_env_rpc.v1.dm_env_adaptor import create_and_join_world
from google.rpc import code_pb2

from scripts.support.server_process import ServerProcess, serving
from tests.support.gym_lanes import GymLanes
from worldloom.client import VectorEnv

SEED, LANES = 3, 2
ALLOWED = ("--gym-id", "CartPole-v1", "--gym-id", "PointMaze*", "--gym-import", "gymnasium_robotics")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving(*ALLOWED) as made:
        yield made


def test_the_reference_client_plays_episodes(server: ServerProcess) -> None:
    theirs = GymLanes("CartPole-v1", SEED, 1, "rgb_array")
    rng = np.random.default_rng(0)
    with reference.create_secure_channel_and_connect(server.address, timeout=30) as connection:
        create = {"family": "gym", "id": "CartPole-v1", "seed": SEED}
        env = create_and_join_world(connection, create, {"width": 600, "height": 400}).env
        assert env.reward_spec().dtype == np.float64
        steps = [env.reset()]
        for _ in range(60):
            observation: Any = steps[-1].observation
            assert np.array_equal(observation["observation"], theirs.observed[0])
            assert np.array_equal(observation["eye"]["rgb"], theirs.pictures()[0])
            action = rng.integers(0, 2)
            steps.append(env.step({"action": action}))
            theirs.step([action])
            assert steps[-1].last() == bool(theirs.terminated[0] or theirs.truncated[0])
            assert (steps[-1].reward or 0.0) == theirs.reward[0]
        assert any(step.last() for step in steps)
        env.close()
    theirs.close()


@pytest.mark.parametrize("transport", ["shm", "grpc"])
def test_numbers_and_pictures_are_the_same_over_every_transport(transport: Any, server: ServerProcess) -> None:
    theirs = GymLanes("CartPole-v1", SEED, LANES, "rgb_array")
    given: dict[str, Any] = {"width": 600, "height": 400, "observations": ["observation", "eye.rgb", "eye.gray"]}
    with VectorEnv(server.address, "gym", LANES, settings={"id": "CartPole-v1"}, transport=transport, **given) as env:
        seen: Any = env.reset(seed=SEED)[0]
        rng = np.random.default_rng(0)
        for _ in range(40):
            theirs.check(seen)
            rgb = theirs.pictures()
            assert np.array_equal(seen["eye.rgb"], rgb)
            red, green, blue = np.moveaxis(rgb.astype(int), -1, 0)
            assert np.array_equal(seen["eye.gray"], (77 * red + 150 * green + 29 * blue + 128) >> 8)
            actions = rng.integers(0, 2, LANES)
            seen, *_ = env.step({"action": actions})
            theirs.step(list(actions))
    theirs.close()


def test_worlds_of_several_clients_and_families_are_served_together(server: ServerProcess) -> None:
    """Steps of one tick: pictures of some worlds, frames that are drawn of others."""

    def run(number: int) -> str:
        family, settings = [
            ("gym", {"id": "CartPole-v1"}),
            ("gym", {"id": "PointMaze_UMaze-v3"}),
            ("catch", {}),
        ][number % 3]
        with VectorEnv(server.address, family, LANES, settings=settings, width=24, height=16) as env:
            env.action_space.seed(number)
            seen: Any = env.reset(seed=number)[0]
            frames = []
            for _ in range(50):
                frames.append(seen["eye.rgb"].copy())
                seen, *_ = env.step(env.action_space.sample())
            return bytes(np.stack(frames).tobytes()).hex()[:2000] + str(np.stack(frames).sum())

    alone = [run(number) for number in range(6)]
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(run, range(6))) == alone


@pytest.mark.parametrize(
    "settings",
    [
        {"id": "FrozenLake-v1"},
        {"id": "os:path"},
        {"id": "x" * 1_000_000},
        {"id": "../../etc/passwd"},
        {"id": "CartPole-v1", "kwargs": '{"render_mode": "human"}'},
        {"id": "CartPole-v1", "kwargs": "[" * 100_000},
        {"id": 3},
    ],
    ids=lambda settings: str(settings)[:40],
)
def test_hostile_settings_are_refused(settings: dict[str, Any], server: ServerProcess) -> None:
    with (
        reference.create_secure_channel_and_connect(server.address, timeout=30) as connection,
        pytest.raises(error.DmEnvRpcError) as caught,
    ):
        create_and_join_world(connection, {"family": "gym", **settings}, {})
    assert caught.value.code == code_pb2.INVALID_ARGUMENT
    assert len(caught.value.message) < 1000
