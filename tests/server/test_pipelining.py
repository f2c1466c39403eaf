"""Requests without waiting for answers: each is answered once, in order, however many are under way."""

import random
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from dm_env_rpc.v1.extensions import properties_pb2

from scripts.support.catch_model import CatchModel
from scripts.support.messages import packed
from scripts.support.server_process import ServerProcess, serving
from scripts.support.stream_client import StreamClient, packed_any
from worldloom.worlds.random import lane_seeds

SEED = 5
LIMIT = 640


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving("--max-waiting-requests", str(LIMIT)) as made:
        yield made


def list_request(key: str = "") -> Any:
    listing = properties_pb2.ListPropertyRequest(key=key)
    return packed_any(properties_pb2.PropertyRequest(list_property=listing))


def read_request(key: str) -> Any:
    reading = properties_pb2.ReadPropertyRequest(key=key)
    return packed_any(properties_pb2.PropertyRequest(read_property=reading))


def value_read(response: rpc.EnvironmentResponse) -> Any:
    unpacked = properties_pb2.PropertyResponse()
    assert response.extension.Unpack(unpacked)
    return tensor_utils.unpack_tensor(unpacked.read_property.value)


def test_three_hundred_steps_are_those_of_a_plain_model(server: ServerProcess) -> None:
    """What is asked for differs from step to step, so that no answer passes for another."""
    rng = random.Random(0)
    model = CatchModel(int(lane_seeds(SEED, 1)[0]), rows=10, columns=5, max_steps=1000)
    with StreamClient(server.address) as wire:
        wire.join(wire.create("catch", seed=SEED), width=8, height=8)
        choices = ["ball", "paddle", "reward", "discount", "step_type", "eye.gray"]
        asked = []
        for _ in range(300):
            see, move = rng.sample(choices, rng.randrange(len(choices) + 1)), rng.randrange(-1, 2)
            asked.append((see, move))
            wire.send_step(*see, paddle=move)
        wire.half_close()
        answers = wire.read_rest()
        assert len(answers) == 300
        for (see, move), answer in zip(asked, answers, strict=True):
            told, expected = wire.unpack(answer), model.step(move)
            assert set(told.observations) == set(see)
            assert (told.state == rpc.RUNNING) == (expected["step_type"] != "LAST")
            for name in {"ball", "paddle", "reward", "discount"} & set(see):
                np.testing.assert_array_equal(told.observations[name], np.asarray(expected[name]))
    assert wire.call.code() is grpc.StatusCode.OK


def test_all_kinds_of_requests(server: ServerProcess) -> None:
    """Good and bad ones, 600 deep. The answers say which request they belong to."""
    rng = random.Random(1)
    with StreamClient(server.address) as wire:
        world = wire.create("catch")
        requests: list[tuple[str, dict[str, Any]]] = []
        joined = False
        for number in range(600):
            # An unknown world's name comes back in the error, so it tells requests apart.
            unknown = f"no-such-{number}"
            kinds: list[tuple[str, dict[str, Any]]] = [
                ("create_world", {"create_world": rpc.CreateWorldRequest(settings=packed({"family": "cartpole"}))}),
                ("reset_world", {"reset_world": rpc.ResetWorldRequest(world_name=world)}),
                ("extension", {"extension": read_request("limits.max_worlds")}),
                ("extension", {"extension": list_request("counters")}),
                ("error:is not known", {"extension": packed_any(rpc.StepRequest())}),
                (f"error:{unknown}", {"destroy_world": rpc.DestroyWorldRequest(world_name=unknown)}),
                (f"error:{unknown}", {"reset_world": rpc.ResetWorldRequest(world_name=unknown)}),
                ("error:payload", {}),
                ("leave_world", {"leave_world": rpc.LeaveWorldRequest()}),
            ]
            if joined:
                kinds += [
                    ("step", {"step": rpc.StepRequest(requested_observations=[number % 5 + 1])}),
                    (f"error:{number + 100}", {"step": rpc.StepRequest(requested_observations=[number + 100])}),
                    ("reset", {"reset": rpc.ResetRequest()}),
                    ("error:already", {"join_world": rpc.JoinWorldRequest(world_name=world)}),
                    ("error:joined", {"destroy_world": rpc.DestroyWorldRequest(world_name=world)}),
                ]
            else:
                kinds += [
                    ("join_world", {"join_world": rpc.JoinWorldRequest(world_name=world)}),
                    (f"error:{unknown}", {"join_world": rpc.JoinWorldRequest(world_name=unknown)}),
                    ("error:joined no world", {"step": rpc.StepRequest()}),
                    ("error:joined no world", {"reset": rpc.ResetRequest()}),
                ]
            expected, payload = rng.choice(kinds)
            joined = expected == "join_world" or (joined and expected != "leave_world")
            requests.append((expected, payload))
            wire.send(**payload)
        wire.half_close()
        answers = wire.read_rest()
    assert len(answers) == len(requests)
    for (expected, payload), answer in zip(requests, answers, strict=True):
        kind, _, text = expected.partition(":")
        assert answer.WhichOneof("payload") == kind, (payload, answer)
        assert text in answer.error.message
        if kind == "step":
            assert list(answer.step.observations) == list(payload["step"].requested_observations)
    assert {expected.partition(":")[0] for expected, _ in requests} >= {"step", "error", "join_world", "reset_world"}


def test_what_waits_for_others_holds_back_what_comes_after(server: ServerProcess) -> None:
    with StreamClient(server.address) as one, StreamClient(server.address) as other:
        world = one.create("maze", agents=2)
        one.join(world, observations=["position"])
        other.join(world, observations=["position"])
        for _ in range(100):
            one.send_step("position", turn=1.0)
            one.send(extension=read_request("world.steps"))
        one.half_close()
        for number in range(100):
            other.step("position")
            assert one.take("step").step.state == rpc.RUNNING
            assert value_read(one.take("extension")) == number, "read between this step and the next"
        assert one.read_rest() == []


@pytest.mark.parametrize("beyond", [1, 500])
def test_requests_above_the_limit_wait_in_their_place(server: ServerProcess, beyond: int) -> None:
    """A step that waits for another agent, and more behind it than the server reads: all are answered in the end."""
    with StreamClient(server.address) as one, StreamClient(server.address) as other:
        world = one.create("maze", agents=2)
        one.join(world)
        other.join(world)
        one.send_step()
        for _ in range(LIMIT - 1):
            one.send(extension=read_request("world.agents_joined"))
        for _ in range(beyond):
            one.send(leave_world=rpc.LeaveWorldRequest())
        one.half_close()
        server.wait_until_idle()
        other.step()
        answers = one.read_rest()
        assert [answer.WhichOneof("payload") for answer in answers] == [
            *("step", *["extension"] * (LIMIT - 1)),
            *["leave_world"] * beyond,
        ]
        assert {value_read(answer) for answer in answers[1:LIMIT]} == {2}


def test_no_action_of_a_client_far_ahead_is_lost(server: ServerProcess) -> None:
    """6,000 steps sent without waiting, while the answers are read: each is executed, in order."""
    count = 6000
    model = CatchModel(int(lane_seeds(SEED, 1)[0]), rows=10, columns=5, max_steps=1000)
    rng = random.Random(2)
    moves = [rng.randrange(-1, 2) for _ in range(count)]
    with StreamClient(server.address) as wire:
        wire.join(wire.create("catch", seed=SEED), width=8, height=8)
        for move in moves:
            wire.send_step("paddle", "reward", paddle=move)
        wire.half_close()
        answers = wire.read_rest()
    assert len(answers) == count
    for move, answer in zip(moves, answers, strict=True):
        told, expected = wire.unpack(answer), model.step(move)
        for name in ("paddle", "reward"):
            np.testing.assert_array_equal(told.observations[name], np.asarray(expected[name]))
