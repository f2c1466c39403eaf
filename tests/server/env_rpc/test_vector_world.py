"""Vector worlds: many lanes in one message, each with its own episodes."""

from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils

from tests.server.desk import FIRST, LAST, MID, RUNNING, Desk, Stream, refused
from tests.server.direct import Direct
from worldloom.render.cpu import CPURenderer

CASES: list[tuple[str, dict[str, Any]]] = [
    ("catch", {"rows": 4, "columns": 7}),
    ("cartpole", {"max_steps": 6}),
    ("maze", {"size": 5, "goals": 1, "max_steps": 7, "speed": 0.5}),
]
SIZE = {"width": 10, "height": 6}


def random_actions(direct: Direct, chance: np.random.Generator) -> dict[str, np.ndarray]:
    """[lanes, agents, *shape] in range, for each action."""
    made = {}
    for spec in direct.pool.family.actions:
        assert spec.minimum is not None
        assert spec.maximum is not None
        shape = (len(direct.lanes), direct.pool.family.agents, *spec.shape)
        whole = np.dtype(spec.dtype).kind == "i"
        values = (
            chance.integers(int(spec.minimum), int(spec.maximum) + 1, shape)
            if whole
            else chance.uniform(spec.minimum, spec.maximum, shape)
        )
        made[spec.name] = values.astype(spec.dtype)
    return made


@pytest.mark.parametrize("lanes", [None, 1, 5])
@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize(("family", "settings"), CASES)
def test_every_byte_is_what_pool_and_renderer_make(
    desk: Desk, cpu: CPURenderer, family: str, settings: dict[str, Any], lanes: int | None, samples: int
) -> None:
    """Plain and vector worlds, with others stepping in the same ticks."""
    stream, other = desk.stream(), desk.stream()
    stream.join(
        stream.create(family, seed=3, **settings, **({} if lanes is None else {"lanes": lanes})),
        **SIZE,
        samples=samples,
    )
    other.join(other.create(family, seed=4, **settings), **SIZE, samples=samples)
    direct = Direct(cpu, family, 3, lanes or 1, **settings)
    chance = np.random.default_rng(5)
    for _ in range(10):
        actions = random_actions(direct, chance)
        sent = {name: values[:, 0] if lanes else values[0, 0] for name, values in actions.items()}
        other.post_step(*other.names)
        stream.post_step(*stream.names, **sent)
        desk.settle()
        direct.step(**actions)
        told = stream.told()
        other.told()
        for name in stream.names:
            expected = direct.see(name, **(SIZE | {"samples": samples} if "." in name else {}))
            expected = expected if lanes else expected[0]
            assert told.seen[name].dtype == expected.dtype, name
            assert told.seen[name].shape == expected.shape, name
            assert told.seen[name].tobytes() == expected.tobytes(), name
        assert told.state == (RUNNING if lanes else direct.pool.status[direct.lanes[0]])


def test_every_tensor_has_the_lanes_in_front(desk: Desk) -> None:
    plain, vector = desk.stream(), desk.stream()
    plain.join(plain.create("maze"), shm=False)
    vector.join(vector.create("maze", lanes=3), observations=[name for name in plain.names if "depth" not in name])
    shapes = {spec.name: list(spec.shape) for spec in plain.specs.observations.values()}
    for spec in vector.specs.observations.values():
        assert list(spec.shape) == [3, *shapes[spec.name]]
    for uid, spec in vector.specs.actions.items():
        assert list(spec.shape) == [3, *plain.specs.actions[uid].shape]


def test_each_lane_runs_its_own_episodes(desk: Desk, cpu: CPURenderer) -> None:
    """Cartpoles fall at different times; the step after a lane's last begins its next episode, action or not."""
    stream = desk.stream()
    stream.join(stream.create("maze", size=5, goals=1, agents=1, lanes=6, speed=1.0, max_steps=30, seed=2))
    chance = np.random.default_rng(3)
    before = np.full(6, LAST)
    ends = np.zeros(6, int)
    for _ in range(80):
        told = stream.step(
            "step_type", "reward", "discount", move=chance.uniform(-1, 1, (6, 2)), turn=chance.uniform(-1, 1, 6)
        )
        kinds = told.seen["step_type"]
        assert told.state == RUNNING
        np.testing.assert_array_equal(kinds == FIRST, before == LAST)
        assert (told.seen["reward"][kinds == FIRST] == 0).all()
        assert (told.seen["discount"][kinds != LAST] == 1).all()
        ends += kinds == LAST
        before = kinds
    assert len(set(ends.tolist())) > 1, "lanes that end at different times"
    assert stream.read("world.episode").tolist() == (ends + (before != LAST) - 1).tolist()


def test_reset_begins_all_lanes_anew(desk: Desk) -> None:
    stream = desk.stream()
    stream.join(stream.create("catch", rows=5, lanes=4))
    for _ in range(3):
        stream.step()
    stream.reset()
    told = stream.step("step_type", "ball")
    assert told.state == RUNNING
    assert told.seen["step_type"].tolist() == [FIRST] * 4
    assert told.seen["ball"][:, 0].tolist() == [0] * 4
    assert stream.step("step_type").seen["step_type"].tolist() == [MID] * 4


def test_actions_of_a_vector_world(desk: Desk) -> None:
    stream = desk.stream()
    stream.join(stream.create("catch", lanes=3, columns=9))
    stream.step()
    assert stream.step("paddle", paddle=[-1, 0, 1]).seen["paddle"].tolist() == [3, 4, 5]
    assert stream.step("paddle").seen["paddle"].tolist() == [3, 4, 5]
    for tensor in (
        rpc.Tensor(int32s={"array": [1]}, shape=[3]),
        rpc.Tensor(int32s={"array": [1, 1, 1]}, shape=[-1]),
    ):
        assert act(stream, tensor) == RUNNING
    assert stream.step("paddle").seen["paddle"].tolist() == [5, 6, 7]
    for wrong in (
        tensor_utils.pack_tensor(np.zeros(4, np.int32)),
        tensor_utils.pack_tensor(np.array([0, 2, 0], np.int32)),
        tensor_utils.pack_tensor(np.zeros((3, 1), np.int32)),
    ):
        with refused("INVALID_ARGUMENT", "paddle"):
            act(stream, wrong)
    assert stream.step("paddle").seen["paddle"].tolist() == [5, 6, 7]


def act(stream: Stream, tensor: rpc.Tensor) -> int:
    stream.post(rpc.EnvironmentRequest(step=rpc.StepRequest(actions={1: tensor})))
    stream.desk.settle()
    return stream.told().state
