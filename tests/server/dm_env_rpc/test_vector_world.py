"""Vector worlds: many lanes in one message, each with its own episodes."""

import re
from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils

from scripts.support.engine_streams import FIRST, LAST, MID, RUNNING, EngineHarness, Stream, refused
from scripts.support.reference_world import ReferenceWorld
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds
from worldloom.worlds.registry import find_family

CASES: list[tuple[str, dict[str, Any]]] = [
    ("catch", {"rows": 4, "columns": 7}),
    ("cartpole", {"max_steps": 6}),
    ("maze", {"size": 5, "goals": 1, "max_steps": 7, "speed": 0.5}),
]
SIZE = {"width": 10, "height": 6}


def random_actions(direct: ReferenceWorld, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """[lanes, agents, *shape] in range, for each action."""
    made = {}
    for spec in direct.pool.family.actions:
        assert spec.minimum is not None
        assert spec.maximum is not None
        shape = (len(direct.lanes), direct.pool.family.agents, *spec.shape)
        whole = np.dtype(spec.dtype).kind == "i"
        values = (
            rng.integers(np.asarray(spec.minimum, int), np.asarray(spec.maximum, int) + 1, shape)
            if whole
            else rng.uniform(spec.minimum, spec.maximum, shape)
        )
        made[spec.name] = values.astype(spec.dtype)
    return made


@pytest.mark.parametrize("lanes", [None, 1, 5])
@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize(("family", "settings"), CASES)
def test_every_byte_is_what_pool_and_renderer_make(
    harness: EngineHarness, cpu: CPURenderer, family: str, settings: dict[str, Any], lanes: int | None, samples: int
) -> None:
    """Plain and vector worlds, with others stepping in the same ticks."""
    stream, other = harness.stream(), harness.stream()
    stream.join(
        stream.create(family, seed=3, **settings, **({} if lanes is None else {"lanes": lanes})),
        **SIZE,
        samples=samples,
    )
    other.join(other.create(family, seed=4, **settings), **SIZE, samples=samples)
    direct = ReferenceWorld(cpu, family, 3, lanes or 1, **settings)
    rng = np.random.default_rng(5)
    for _ in range(10):
        actions = random_actions(direct, rng)
        sent = {name: values[:, 0] if lanes else values[0, 0] for name, values in actions.items()}
        other.post_step(*other.names)
        stream.post_step(*stream.names, **sent)
        harness.settle()
        direct.step(**actions)
        told = stream.step_reply()
        other.step_reply()
        for name in stream.names:
            expected = direct.see(name, **(SIZE | {"samples": samples} if "." in name else {}))
            expected = expected if lanes else expected[0]
            assert told.observations[name].dtype == expected.dtype, name
            assert told.observations[name].shape == expected.shape, name
            assert told.observations[name].tobytes() == expected.tobytes(), name
        assert told.state == (RUNNING if lanes else direct.pool.status[direct.lanes[0]])


def test_every_tensor_has_the_lanes_in_front(harness: EngineHarness) -> None:
    plain, vector = harness.stream(), harness.stream()
    plain.join(plain.create("maze"), shm=False)
    vector.join(vector.create("maze", lanes=3), observations=[name for name in plain.names if "depth" not in name])
    shapes = {spec.name: list(spec.shape) for spec in plain.specs.observations.values()}
    for spec in vector.specs.observations.values():
        assert list(spec.shape) == [3, *shapes[spec.name]]
    for uid, spec in vector.specs.actions.items():
        assert list(spec.shape) == [3, *plain.specs.actions[uid].shape]


def test_each_lane_runs_its_own_episodes(harness: EngineHarness, cpu: CPURenderer) -> None:
    """Cartpoles fall at different times; the step after a lane's last begins its next episode, action or not."""
    stream = harness.stream()
    stream.join(stream.create("maze", size=5, goals=1, agents=1, lanes=6, speed=1.0, max_steps=30, seed=2))
    rng = np.random.default_rng(3)
    before = np.full(6, LAST)
    ends = np.zeros(6, int)
    for _ in range(80):
        told = stream.step(
            "step_type", "reward", "discount", move=rng.uniform(-1, 1, (6, 2)), turn=rng.uniform(-1, 1, 6)
        )
        kinds = told.observations["step_type"]
        assert told.state == RUNNING
        np.testing.assert_array_equal(kinds == FIRST, before == LAST)
        assert (told.observations["reward"][kinds == FIRST] == 0).all()
        assert (told.observations["discount"][kinds != LAST] == 1).all()
        ends += kinds == LAST
        before = kinds
    assert len(set(ends.tolist())) > 1, "lanes that end at different times"
    assert stream.read("world.episode").tolist() == (ends + (before != LAST) - 1).tolist()


def test_reset_begins_all_lanes_anew(harness: EngineHarness) -> None:
    stream = harness.stream()
    stream.join(stream.create("catch", rows=5, lanes=4))
    for _ in range(3):
        stream.step()
    stream.reset()
    told = stream.step("step_type", "ball")
    assert told.state == RUNNING
    assert told.observations["step_type"].tolist() == [FIRST] * 4
    assert told.observations["ball"][:, 0].tolist() == [0] * 4
    assert stream.step("step_type").observations["step_type"].tolist() == [MID] * 4


def test_actions_of_a_vector_world(harness: EngineHarness) -> None:
    stream = harness.stream()
    stream.join(stream.create("catch", lanes=3, columns=9))
    stream.step()
    assert stream.step("paddle", paddle=[-1, 0, 1]).observations["paddle"].tolist() == [3, 4, 5]
    assert stream.step("paddle").observations["paddle"].tolist() == [3, 4, 5]
    for tensor in (
        rpc.Tensor(int32s={"array": [1]}, shape=[3]),
        rpc.Tensor(int32s={"array": [1, 1, 1]}, shape=[-1]),
    ):
        assert act(stream, tensor) == RUNNING
    assert stream.step("paddle").observations["paddle"].tolist() == [5, 6, 7]
    for wrong in (
        tensor_utils.pack_tensor(np.zeros(4, np.int32)),
        tensor_utils.pack_tensor(np.array([0, 2, 0], np.int32)),
        tensor_utils.pack_tensor(np.zeros((3, 1), np.int32)),
    ):
        with refused("INVALID_ARGUMENT", "paddle"):
            act(stream, wrong)
    assert stream.step("paddle").observations["paddle"].tolist() == [5, 6, 7]


def act(stream: Stream, tensor: rpc.Tensor) -> int:
    stream.post(rpc.EnvironmentRequest(step=rpc.StepRequest(actions={1: tensor})))
    stream.harness.settle()
    return stream.step_reply().state


def test_a_join_is_refused_if_the_client_could_not_take_its_replies(harness: EngineHarness) -> None:
    """The text says the size, the limit and what to do; what it says to do works."""
    stream = harness.stream()
    world = stream.create("catch", lanes=400)
    with refused("RESOURCE_EXHAUSTED", "4194304 at most", "'observations'", "grpc.max_receive_message_length") as told:
        stream.join(world)
    size_bytes = int(re.findall(r"takes (\d+) bytes", told.text)[0])
    assert harness.engine.directory.worlds[world].agents == {}
    with refused("FAILED_PRECONDITION"):
        stream.step()

    with refused("RESOURCE_EXHAUSTED", f"takes {size_bytes} bytes", f"{size_bytes - 1} at most", "'max_reply_bytes'"):
        stream.join(world, max_reply_bytes=size_bytes - 1)
    stream.join(world, max_reply_bytes=size_bytes)
    assert stream.step(*stream.names).state == RUNNING
    with refused("RESOURCE_EXHAUSTED", "at most"):
        stream.reset(width=65)
    assert stream.step("eye.gray").observations["eye.gray"].shape == (400, 64, 64), "as it was"
    stream.leave()

    stream.join(world, observations=["eye.gray", "reward", "step_type"])
    assert stream.step("eye.gray", "reward", "step_type").state == RUNNING
    stream.leave()
    stream.join(world, width=32, height=32)
    assert stream.step(*stream.names).state == RUNNING


@pytest.mark.parametrize("seed", [0, 7, -3, 2**63, 2**64 - 1])
@pytest.mark.parametrize(("family", "settings"), CASES)
def test_each_lane_has_the_seed_that_its_place_in_the_world_says(
    harness: EngineHarness, cpu: CPURenderer, family: str, settings: dict[str, Any], seed: int
) -> None:
    """Whatever lanes of the pool the world got, and whoever else is there."""
    stream, other = harness.stream(), harness.stream()
    gone = [other.create(family, lanes=3, **settings) for _ in range(4)]
    other.destroy(gone[0])
    other.destroy(gone[2])
    given = np.uint64(seed) if seed > 2**63 - 1 else seed
    stream.join(stream.create(family, seed=given, lanes=5, **settings), **SIZE)
    direct = ReferenceWorld(cpu, family, seed, 5, **settings)
    assets = AssetLibrary()
    pool = Pool(find_family(family)(settings, assets), Scene(assets))
    alone = pool.add(lane_seeds(seed, 9)[4:5])  # the last lane, without the others
    see = [spec.name for spec in pool.family.observations]
    rng = np.random.default_rng(1)
    for _ in range(20):
        actions = random_actions(direct, rng)
        direct.step(**actions)
        pool.step(alone, {name: values[4:5] for name, values in actions.items()})
        seen = stream.step(*see, "step_type", **{name: values[:, 0] for name, values in actions.items()}).observations
        for name in see:
            assert seen[name].tobytes() == direct.observe(name).tobytes()
            assert seen[name][4:].tobytes() == pool.observe(alone, name, 0).tobytes()
        assert seen["step_type"][4] == pool.step_type[alone[0]]
