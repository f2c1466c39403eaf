"""The naive server is honest: the reference clients work with it, and see what they see of ours, to the byte."""

import functools
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import connection as reference
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import error, tensor_utils
from dm_env_rpc.v1.dm_env_adaptor import DmEnvAdaptor, create_and_join_world
from google.rpc import code_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.support.server_process import serving
from worldloom.bench.load import naive_process
from worldloom.bench.naive_server import MOST_LANES, Session
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer

TIMEOUT_S = 30.0
SMALL = {"width": 20, "height": 16}
SHORT: dict[str, dict[str, Any]] = {
    "catch": {"rows": 6},
    "cartpole": {"rail": 2.0, "max_steps": 30},
    "maze": {"size": 5, "max_steps": 20},
}
"""Settings with which episodes end soon."""
every_family = pytest.mark.parametrize("family", SHORT)


@pytest.fixture(scope="module")
def addresses() -> Iterator[list[str]]:
    """Of the naive server and of ours."""
    with naive_process("cpu") as naive, serving() as ours:
        yield [naive.address, ours.address]


def play_both(addresses: list[str], family: str, steps: int, lanes: int | None = None) -> int:
    """Take the same steps on both servers, with everything asked for that there is; how many were an episode's last."""
    create = {"family": family, "seed": 11, **SHORT[family], **({} if lanes is None else {"lanes": lanes})}
    ended = 0
    with ExitStack() as ends:
        envs: list[DmEnvAdaptor] = []
        for address in addresses:
            connection = ends.enter_context(reference.create_secure_channel_and_connect(address, timeout=TIMEOUT_S))
            envs.append(create_and_join_world(connection, create, SMALL).env)
        naive, ours = envs
        assert naive.action_spec() == ours.action_spec()
        assert naive.observation_spec() == ours.observation_spec()
        rng = np.random.default_rng(0)
        for _ in range(steps):
            action = {
                name: np.asarray(rng.choice([spec.minimum, spec.maximum], spec.shape), spec.dtype)
                for name, spec in ours.action_spec().items()
            }
            here, there = naive.step(action), ours.step(action)
            assert here.step_type == there.step_type
            np.testing.assert_equal(here.reward, there.reward)
            np.testing.assert_equal(here.discount, there.discount)
            np.testing.assert_equal(here.observation, there.observation)
            ended += int(here.last())
        np.testing.assert_equal(naive.reset().observation, ours.reset().observation)
    return ended


@every_family
def test_episodes_are_those_of_our_server(addresses: list[str], family: str) -> None:
    assert play_both(addresses, family, steps=70) >= 2


@every_family
def test_vector_worlds_are_those_of_our_server(addresses: list[str], family: str) -> None:
    play_both(addresses, family, steps=25, lanes=3)


@pytest.mark.gl
def test_opengl_draws_the_same_alone_and_in_batches() -> None:
    with naive_process("gl") as naive, serving("--renderer", "gl") as ours:
        play_both([naive.address, ours.address], "maze", steps=5, lanes=2)


def test_refusals_are_the_clients_own(addresses: list[str]) -> None:
    with reference.create_secure_channel_and_connect(addresses[0], timeout=TIMEOUT_S) as connection:
        for settings_, words in (
            ({"family": "mazes"}, "did you mean 'maze'"),
            ({"family": "maze", "agents": 2}, "expected 1"),
            ({"family": "maze", "lanes": 0}, "'lanes' is 0: expected an integer from 1"),
        ):
            with pytest.raises(error.DmEnvRpcError) as refused:
                create_and_join_world(connection, settings_, {})
            assert refused.value.code == code_pb2.INVALID_ARGUMENT
            assert words in repr(refused.value)
        assert create_and_join_world(connection, {"family": "catch"}, SMALL).env.reset().first(), "the stream lives on"


def test_options_that_it_does_not_have() -> None:
    command = [sys.executable, "-m", "worldloom.bench.naive_server", "--renderer", "vulkan"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert "invalid choice: 'vulkan'" in result.stderr


def packed(values: dict[str, Any]) -> dict[str, rpc.Tensor]:
    return {name: tensor_utils.pack_tensor(value) for name, value in values.items()}


NUMBERS = st.one_of(st.integers(-3, 3), st.just(MOST_LANES + 1), st.floats(width=32), st.booleans(), st.just([1, 2]))
CREATE = st.fixed_dictionaries(
    {}, optional={"family": st.just("catch"), "seed": NUMBERS, "lanes": NUMBERS, "x": NUMBERS}
)
JOIN = st.fixed_dictionaries({}, optional={"width": NUMBERS, "height": NUMBERS, "samples": NUMBERS})
REQUESTS = st.one_of(
    CREATE.map(lambda given: rpc.EnvironmentRequest(create_world=rpc.CreateWorldRequest(settings=packed(given)))),
    st.just(rpc.EnvironmentRequest(create_world=rpc.CreateWorldRequest(settings=packed({"family": "catch"})))),
    JOIN.map(lambda given: rpc.EnvironmentRequest(join_world=rpc.JoinWorldRequest(settings=packed(given)))),
    st.tuples(st.lists(st.integers(0, 20), max_size=3), st.dictionaries(st.integers(0, 3), NUMBERS, max_size=2)).map(
        lambda given: rpc.EnvironmentRequest(
            step=rpc.StepRequest(
                requested_observations=given[0],
                actions={uid: tensor_utils.pack_tensor(value) for uid, value in given[1].items()},
            )
        )
    ),
    st.sampled_from(
        [
            rpc.EnvironmentRequest(reset=rpc.ResetRequest()),
            rpc.EnvironmentRequest(reset_world=rpc.ResetWorldRequest()),
            rpc.EnvironmentRequest(leave_world=rpc.LeaveWorldRequest()),
            rpc.EnvironmentRequest(destroy_world=rpc.DestroyWorldRequest()),
            rpc.EnvironmentRequest(),
        ]
    ),
)


@functools.cache
def assets() -> AssetLibrary:
    return AssetLibrary()


@functools.cache
def renderer() -> CPURenderer:
    return CPURenderer(threads=1)


@settings(max_examples=60)
@given(st.lists(REQUESTS, max_size=8))
def test_every_request_is_answered(requests: list[rpc.EnvironmentRequest]) -> None:
    session = Session(renderer(), assets(), threading.Lock())
    for request in requests:
        kind, answered = request.WhichOneof("payload"), session.answer(request).WhichOneof("payload")
        assert answered in ({"error"} if kind is None else {kind, "error"})
