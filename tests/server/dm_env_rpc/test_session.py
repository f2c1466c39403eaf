"""One stream alone in its worlds: every message, in every state, right and wrong."""

from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from dm_env_rpc.v1.extensions import properties_pb2
from google.protobuf import struct_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.support.engine_streams import (
    FIRST,
    INTERRUPTED,
    LAST,
    MID,
    RUNNING,
    TERMINATED,
    EngineHarness,
    Stream,
    refused,
)
from scripts.support.reference_world import ReferenceWorld
from worldloom.render.cpu import CPURenderer
from worldloom.server.dm_env_rpc import session

COUNTS = ("world.episode", "world.steps")


@pytest.fixture
def stream(harness: EngineHarness) -> Stream:
    """A stream in a world of catch whose ball lands after three steps."""
    made = harness.stream()
    made.join(made.create("catch", rows=4, seed=7), width=8, height=8)
    return made


def counts(stream: Stream) -> list[Any]:
    return [stream.read(key) for key in COUNTS]


def post_actions(stream: Stream, actions: dict[int, rpc.Tensor]) -> None:
    stream.post(rpc.EnvironmentRequest(step=rpc.StepRequest(actions=actions)))
    stream.harness.settle()


def test_an_episode_runs_until_its_end_and_the_next_step_begins_another(stream: Stream) -> None:
    for episode in range(3):
        told = [stream.step("reward", "discount", "step_type") for _ in range(4)]
        assert [one.state for one in told] == [RUNNING, RUNNING, RUNNING, TERMINATED]
        assert [int(one.observations["step_type"]) for one in told] == [FIRST, MID, MID, LAST]
        assert [float(one.observations["discount"]) for one in told] == [1, 1, 1, 0]
        assert [float(one.observations["reward"]) for one in told[:-1]] == [0, 0, 0]
        assert abs(float(told[-1].observations["reward"])) == 1
        assert counts(stream) == [episode, 3]


def test_an_episode_that_takes_too_long_is_interrupted(harness: EngineHarness) -> None:
    stream = harness.stream()
    stream.join(stream.create("catch", rows=9, max_steps=2))
    for _ in range(3):
        told = [stream.step("discount", "step_type") for _ in range(3)]
        assert [one.state for one in told] == [RUNNING, RUNNING, INTERRUPTED]
        assert float(told[-1].observations["discount"]) == 1
        assert int(told[-1].observations["step_type"]) == LAST


@pytest.mark.parametrize("ended", ["joined", "reset", "terminated", "reset world"])
def test_actions_are_ignored_unread_unless_a_sequence_is_running(stream: Stream, ended: str) -> None:
    if ended != "joined":
        for _ in range(4 if ended == "terminated" else 2):
            stream.step()
    if ended == "reset":
        stream.reset()
    if ended == "reset world":
        stream.reset_world(stream.world)
    nonsense = {99: rpc.Tensor(), 1: tensor_utils.pack_tensor(["left"]), 0: tensor_utils.pack_tensor(5.0)}
    post_actions(stream, nonsense)
    assert stream.step_reply().state == RUNNING
    assert counts(stream)[1] == 0
    post_actions(stream, nonsense)
    with refused("INVALID_ARGUMENT"):
        stream.step_reply()


def test_a_refused_step_changes_nothing(stream: Stream) -> None:
    stream.step()
    stream.step()
    before = counts(stream)
    for value in (np.int32(2), np.int32(-2), np.float32(0), np.zeros(2, np.int32), np.int64(0)):
        post_actions(stream, {1: tensor_utils.pack_tensor(value)})
        with refused("INVALID_ARGUMENT", "paddle"):
            stream.step_reply()
    post_actions(stream, {1: tensor_utils.pack_tensor(np.int32(0)), 77: tensor_utils.pack_tensor(np.int32(0))})
    with refused("INVALID_ARGUMENT", "77"):
        stream.step_reply()
    assert counts(stream) == before
    assert stream.step().state == RUNNING
    assert counts(stream) == [before[0], before[1] + 1]


@pytest.mark.parametrize("steps", range(5))
def test_an_observation_that_is_not_offered_is_refused_in_any_state(stream: Stream, steps: int) -> None:
    for _ in range(steps):
        stream.step()
    before, draws = counts(stream), stream.harness.engine.counters.draws
    for uid in (0, 4711, 2**64 - 1):
        request = rpc.StepRequest(requested_observations=[stream.uid("eye.rgb"), uid])
        stream.post(rpc.EnvironmentRequest(step=request))
        stream.harness.settle()
        with refused("INVALID_ARGUMENT", str(uid)):
            stream.step_reply()
    assert counts(stream) == before
    assert stream.harness.engine.counters.draws == draws
    assert stream.step().state == (TERMINATED if steps == 3 else RUNNING)


def test_what_is_asked_for_comes_once_and_nothing_else(stream: Stream) -> None:
    assert stream.step().observations == {}
    assert set(stream.step("reward", "eye.rgb", "reward", "eye.rgb").observations) == {"reward", "eye.rgb"}
    told = stream.step(*stream.names)
    assert set(told.observations) == set(stream.names)
    for spec in stream.specs.observations.values():
        value = told.observations[spec.name]
        assert list(value.shape) == list(spec.shape)
        assert value.dtype == tensor_utils.data_type_to_np_type(spec.dtype)


def test_a_subset_of_observations_is_offered_alone_and_in_its_own_numbers(stream: Stream) -> None:
    numbers = {spec.name: uid for uid, spec in stream.specs.observations.items()}
    stream.leave()
    stream.join(stream.world, observations=["paddle", "eye.gray", "paddle"])
    assert set(stream.names) == {"paddle", "eye.gray"}
    assert set(stream.step("eye.gray", "paddle").observations) == {"paddle", "eye.gray"}
    hidden = next(uid for name, uid in numbers.items() if uid not in stream.specs.observations)
    stream.post(rpc.EnvironmentRequest(step=rpc.StepRequest(requested_observations=[hidden])))
    stream.harness.settle()
    with refused("INVALID_ARGUMENT", str(hidden)):
        stream.step_reply()


def test_an_action_that_is_left_out_is_zero(harness: EngineHarness, cpu: CPURenderer) -> None:
    stream = harness.stream()
    stream.join(stream.create("maze", size=5, seed=3))
    alone = ReferenceWorld(cpu, "maze", 3, size=5)
    stream.step()
    alone.step()
    for actions in ({"turn": 0.5}, {}, {"move": [1.0, 0.25]}, {"turn": -1.0, "move": [0.5, 0.5]}):
        told = stream.step("position", "heading", **actions)
        alone.step(**actions)
        for name in ("position", "heading"):
            assert told.observations[name].tobytes() == alone.observe(name).tobytes()


def test_reset_interrupts_a_sequence_and_changes_nothing_otherwise(stream: Stream) -> None:
    specs = stream.specs
    stream.step()
    stream.step()
    episode = stream.read("world.episode")
    assert stream.reset() == specs
    assert stream.reset() == specs
    told = stream.step("step_type", "reward")
    assert told.state == RUNNING
    assert int(told.observations["step_type"]) == FIRST
    assert stream.read("world.episode") == episode + 1


@pytest.mark.parametrize("steps", [0, 4])
def test_reset_without_settings_is_nothing_unless_a_sequence_is_running(stream: Stream, steps: int) -> None:
    for _ in range(steps):
        stream.step()
    before = counts(stream)
    assert stream.reset() == stream.specs
    assert counts(stream) == before
    assert stream.step().state == RUNNING
    assert counts(stream) == [before[0] + 1, 0]


def test_settings_of_reset_are_those_of_join_and_the_others_stay(stream: Stream) -> None:
    shape = {spec.name: list(spec.shape) for spec in stream.reset(width=5).observations.values()}
    assert shape["eye.rgb"] == [8, 5, 3]
    stream.step()
    stream.reset(height=3, samples=4)
    assert stream.step("eye.depth").observations["eye.depth"].shape == (3, 5)
    stream.reset(observations=["eye.rgb"])
    assert stream.names == ["eye.rgb"]
    assert stream.step("eye.rgb").observations["eye.rgb"].shape == (3, 5, 3)
    stream.reset(agent=0)


def test_shadows_are_a_choice_of_each_stream_and_of_each_join(harness: EngineHarness, cpu: CPURenderer) -> None:
    """Views with and without them are drawn in one tick, in worlds of one pool."""
    plain, shadowed = harness.stream(), harness.stream()
    for one, shadows in ((plain, False), (shadowed, True)):
        one.join(one.create("cartpole", seed=5), width=40, height=32, shadows=shadows)
    direct = ReferenceWorld(cpu, "cartpole", 5)
    frames = {}
    for _ in range(2):
        direct.step()
        replies = harness.step_all(plain, shadowed, see=["eye.rgb"])
        for reply, shadows in zip(replies, (False, True), strict=True):
            frames[shadows] = direct.draw("eye.rgb", width=40, height=32, shadows=shadows)[0]
            assert (reply.observations["eye.rgb"] == frames[shadows]).all()
    assert (frames[True] != frames[False]).any()
    shadowed.reset(shadows=False)
    plain.reset(shadows=True)
    replies = harness.step_all(plain, shadowed, see=["eye.rgb"])
    assert (replies[0].observations["eye.rgb"] != replies[1].observations["eye.rgb"]).any()


@pytest.mark.parametrize(
    "wrong",
    [{"width": 0}, {"agent": 1}, {"samples": 2}, {"color": "red"}, {"observations": ["eye.rbg"]}, {"height": "high"}],
)
def test_wrong_settings_of_reset_change_nothing(stream: Stream, wrong: dict[str, Any]) -> None:
    stream.step()
    stream.step()
    before, specs = counts(stream), stream.specs
    with refused("INVALID_ARGUMENT", next(iter(wrong))):
        stream.reset(**({"width": 6, "height": 6} | wrong))
    assert counts(stream) == before
    assert stream.step("eye.rgb").observations["eye.rgb"].shape == (8, 8, 3)
    assert counts(stream) == [before[0], before[1] + 1]
    assert stream.reset() == specs


def test_a_stream_that_has_not_joined_cannot_step_or_reset(harness: EngineHarness) -> None:
    stream = harness.stream()
    for _ in range(2):
        with refused("FAILED_PRECONDITION", "JoinWorld"):
            stream.step()
        with refused("FAILED_PRECONDITION", "JoinWorld"):
            stream.reset()
        with refused("FAILED_PRECONDITION"):
            stream.reset(width=3)
        stream.leave()


def test_a_stream_joins_one_world_at_a_time(stream: Stream) -> None:
    other = stream.create("cartpole")
    for world in (other, stream.world, "nowhere"):
        request = rpc.JoinWorldRequest(world_name=world)
        with refused("FAILED_PRECONDITION", stream.world):
            stream.ask(join_world=request)
    assert stream.step().state == RUNNING
    stream.leave()
    stream.leave()
    stream.join(other)
    assert "eye.rgb" in stream.names
    assert stream.step().state == RUNNING


def test_a_join_whose_specs_cannot_be_told_changes_nothing(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = harness.stream()
    world = stream.create("catch")

    def fail(_: object) -> None:
        raise ValueError("no specs")

    with monkeypatch.context() as patched:
        patched.setattr(session, "agent_specs_message", fail)
        with refused("INTERNAL", "no specs"):
            stream.join(world)
    with refused("FAILED_PRECONDITION", "JoinWorld"):
        stream.step()
    assert harness.engine.directory.find(world).agents == {}
    stream.join(world)
    assert stream.step().state == RUNNING


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"width": 0}, "width"),
        ({"width": 2.5}, "width"),
        ({"widht": 3}, "width"),
        ({"samples": 3}, "samples"),
        ({"agent": 1}, "agent"),
        ({"agent": -1}, "agent"),
        ({"observations": ["sound"]}, "sound"),
        ({"observations": 3}, "observations"),
    ],
)
def test_wrong_settings_of_join_leave_the_stream_outside(
    harness: EngineHarness, wrong: dict[str, Any], word: str
) -> None:
    stream = harness.stream()
    world = stream.create("catch")
    with refused("INVALID_ARGUMENT", word):
        stream.join(world, **wrong)
    with refused("FAILED_PRECONDITION"):
        stream.step()
    stream.join(world)
    assert stream.step().state == RUNNING


def test_a_world_that_is_not_there(harness: EngineHarness) -> None:
    stream = harness.stream()
    for name in ("", "catch", "x" * 10_000):
        with refused("NOT_FOUND"):
            stream.join(name)
        with refused("NOT_FOUND"):
            stream.destroy(name)
        with refused("NOT_FOUND"):
            stream.reset_world(name)


@pytest.mark.parametrize(
    "wrong",
    [
        {"family": "mase"},
        {"family": 3},
        {"rows": 2},
        {"rows": 4.5},
        {"seed": "one"},
        {"lanes": 0},
        {"lanes": -1},
        {"roads": 4},
        {"width": 64},
    ],
)
def test_wrong_settings_of_create_make_no_world(harness: EngineHarness, wrong: dict[str, Any]) -> None:
    stream = harness.stream()
    with refused("INVALID_ARGUMENT", next(iter(wrong))):
        stream.create(**({"family": "catch"} | wrong))
    harness.check_empty()


def test_a_world_needs_a_family(harness: EngineHarness) -> None:
    with refused("INVALID_ARGUMENT", "family", "catch", "maze"):
        harness.stream().ask(create_world=rpc.CreateWorldRequest())


def test_names_of_worlds_are_unique_and_cannot_be_guessed(harness: EngineHarness) -> None:
    stream = harness.stream()
    names = {stream.create("catch", seed=1) for _ in range(50)}
    assert len(names) == 50
    assert all(len(name.removeprefix("catch-")) == 32 for name in names)


def test_a_seed_says_what_happens_and_lots_are_drawn_without_one(harness: EngineHarness) -> None:
    def course(**given: Any) -> bytes:
        stream = harness.stream()
        stream.join(stream.create("catch", columns=64, rows=3, **given))
        return b"".join(stream.step("ball").observations["ball"].tobytes() for _ in range(12))

    assert course(seed=5) == course(seed=5)
    assert course(seed=5) != course(seed=6)
    assert course() != course()
    assert course(seed=-1) == course(seed=2**64 - 1)


def test_requests_that_are_none_get_an_error_each_and_the_stream_goes_on(stream: Stream) -> None:
    stream.step()
    for data in (b"", b"\xff", b"\x1a\x7f", b"hello"):
        stream.post_bytes(data)
        stream.harness.settle()
        with refused("INVALID_ARGUMENT"):
            stream.step_reply()
    foreign = rpc.EnvironmentRequest()
    foreign.extension.Pack(struct_pb2.Struct())
    unreadable = rpc.EnvironmentRequest()
    unreadable.extension.Pack(properties_pb2.PropertyRequest())
    empty = rpc.EnvironmentRequest(extension=unreadable.extension)
    unreadable.extension.value = b"\xff"
    for request, code in (
        (foreign, "UNIMPLEMENTED"),
        (unreadable, "INVALID_ARGUMENT"),
        (empty, "INVALID_ARGUMENT"),
        (rpc.EnvironmentRequest(extension={}), "UNIMPLEMENTED"),
    ):
        stream.post(request)
        stream.harness.settle()
        with refused(code):
            stream.take("extension")
    assert stream.step().state == RUNNING


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=80))
def test_any_bytes_get_one_answer(data: bytes, stream: Stream) -> None:
    stream.post_bytes(data)
    stream.harness.settle()
    assert len(stream.replies) == 1
    stream.replies.clear()


def test_what_came_before_a_server_drains_is_answered_as_ever(stream: Stream) -> None:
    stream.step()
    stream.harness.engine.drain()
    (call,) = stream.harness.engine.inbox.take(timeout_s=0.0)  # as the engine's thread does
    assert call is not None
    stream.harness.post(call)
    stream.harness.tick()
    assert stream.step().state == RUNNING
    assert stream.read("server.version")
    stream.leave()


def test_whoever_waits_when_the_server_drains_is_told(harness: EngineHarness) -> None:
    one, two, caller = harness.stream(), harness.stream(), harness.stream()
    world = one.create("maze", size=5, agents=2)
    for stream in (one, two):
        stream.join(world)
    harness.step_all(one, two)
    one.post_step()
    assert one.waits
    harness.engine.is_draining = True
    harness.settle()
    with refused("UNAVAILABLE", "shutting down"):
        one.step_reply()
    caller.post_reset_world(world)
    harness.settle()
    with refused("UNAVAILABLE"):
        caller.take("reset_world")


def test_a_stream_that_is_gone_is_sent_nothing(harness: EngineHarness) -> None:
    stream, peer = harness.stream(), harness.stream()
    world = stream.create("maze", size=5, agents=2)
    stream.join(world)
    peer.join(world)
    stream.post_step()
    assert stream.waits
    stream.close()
    assert peer.step().state == RUNNING
    stream.post_step()
    assert stream.waits
    assert harness.engine.counters.streams == 1


@pytest.mark.parametrize(
    "name", ["width", "height", "samples", "shadows", "max_reply_bytes", "shm", "agent", "observations"]
)
def test_settings_of_join_world_are_refused_by_create_world(harness: EngineHarness, name: str) -> None:
    stream = harness.stream()
    with refused(
        "INVALID_ARGUMENT", f"setting {name!r} is one of JoinWorld, to be given there: expected some of family"
    ):
        stream.create("catch", **{name: 1})
    world = stream.create("catch")
    with refused("INVALID_ARGUMENT", f"setting {name!r} is one of JoinWorld"):
        stream.reset_world(world, **{name: 1})


@pytest.mark.parametrize("name", ["family", "seed", "lanes", "rows", "max_steps"])
def test_settings_of_create_world_are_refused_by_join_world(harness: EngineHarness, name: str) -> None:
    stream = harness.stream()
    world = stream.create("catch")
    with refused(
        "INVALID_ARGUMENT", f"setting {name!r} is one of CreateWorld, to be given there", "observations, width"
    ):
        stream.join(world, **{name: 3})
    stream.join(world)
    with refused("INVALID_ARGUMENT", f"setting {name!r} is one of CreateWorld"):
        stream.reset(**{name: 3})
