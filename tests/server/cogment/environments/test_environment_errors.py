"""Requests that cannot be: each is refused with its code, says why, and has changed nothing."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.support.messages import packed
from tests.support.trial_engine import EngineHarness, action, actor_class, config, starting
from worldloom.protos.cogment.api import environment_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import EnvironmentConfig, TrialConfig
from worldloom.protos.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from worldloom.protos.worldloom import trials_pb2
from worldloom.render.cpu import CPURenderer
from worldloom.server.cogment.environments.trial_world import InvalidAction

IDLE = action()
MAZE = config(actor_class("player", "goals_left"), family="maze", seed=1)


@pytest.fixture
def harness(cpu: CPURenderer) -> EngineHarness:
    return EngineHarness(cpu, MAZE)


def with_content(content: bytes, own: bytes = b"") -> api.EnvStartRequest:
    return api.EnvStartRequest(
        trial_id="t",
        config=EnvironmentConfig(content=content),
        trial_config=TrialConfig(content=own),
        actor_counts=[1],
    )


def of_class(**fields: Any) -> api.EnvStartRequest:
    """A start of a maze with one class of actors that is wrong."""
    return starting("t", [1], config(trials_pb2.ActorClass(id="odd", **fields), family="maze"))


MALFORMED = b"\x0a\xff"
WRONG_STARTS = {
    "content": (with_content(MALFORMED), "worldloom.trials.EnvironmentConfig"),
    "trial's content": (with_content(MAZE.SerializeToString(), MALFORMED), "worldloom.trials.TrialConfig"),
    "empty content": (with_content(b""), "actor_counts"),
    "no family": (starting("t", [1], config(actor_class())), "family"),
    "unknown family": (starting("t", [1], config(actor_class(), family="mase")), "maze"),
    "unknown setting": (starting("t", [1], None, sise=3), "size"),
    "setting out of range": (starting("t", [1], None, goals=0), "from 1 to 16"),
    "empty setting": (
        starting("t", [1], trials_pb2.EnvironmentConfig(world_settings={"seed": {}}, actor_classes=[{}])),
        "the environment's configuration: setting 'seed'",
    ),
    "lanes": (starting("t", [1], None, lanes=1), "lanes"),
    "lanes of the environment": (starting("t", [1], config(actor_class(), family="maze", lanes=2)), "lanes"),
    "no counts": (starting("t", []), "actor_counts has 0 numbers: expected 1"),
    "too many counts": (starting("t", [1, 1]), "actor_counts has 2 numbers: expected 1"),
    "negative count": (starting("t", [-1]), "actor_counts has -1"),
    "nobody": (starting("t", [0]), "actor_counts has no actors"),
    "more actors than the family takes": (starting("t", [9]), "9 actors: expected an integer from 1 to 8"),
    "very many actors": (starting("t", [2**31 - 1]), "from 1 to 8"),
    "other agents than actors": (starting("t", [2], None, agents=3), "2 actors: expected 3"),
    "several actors for one agent": (starting("t", [2], config(actor_class(), family="catch")), "2 actors: expected 1"),
    "unknown observation": (of_class(requested_observations=["eye.rgbb"]), "requested_observations names 'eye.rgbb'"),
    "shared observation": (of_class(requested_observations=["eye.rgb@shm"]), "eye.rgb"),
    "join setting": (of_class(join_settings=packed({"widht": 3})), "actor class 'odd': unknown setting 'widht'"),
    "join value": (of_class(join_settings=packed({"width": 0})), "actor class 'odd': setting 'width' is 0"),
    "agent": (of_class(join_settings=packed({"agent": 0})), "'agent'"),
    "shm": (of_class(join_settings=packed({"shm": True})), "'shm'"),
    "observations": (of_class(join_settings=packed({"observations": ["reward"]})), "requested_observations"),
    "no id": (starting(""), "trial_id is empty"),
    "long id": (starting("x" * 257), "257 characters: expected 256"),
}


@pytest.mark.parametrize("name", WRONG_STARTS)
def test_starts_that_cannot_be(harness: EngineHarness, name: str) -> None:
    request, words = WRONG_STARTS[name]
    with pytest.raises(InvalidArgument) as caught:
        harness.ask(harness.environment.start(request))
    assert words in str(caught.value)
    harness.check_empty()
    harness.start("t", [1])


def test_a_start_without_configuration_where_there_is_none(cpu: CPURenderer) -> None:
    harness = EngineHarness(cpu)
    with pytest.raises(InvalidArgument, match="the environment has no configuration"):
        harness.start("t")


@pytest.mark.parametrize(
    ("limits", "flag", "joining"),
    [
        ({"max_worlds": 1}, "--max-worlds", {}),
        ({"max_lanes": 1}, "--max-lanes", {}),
        ({"max_view_pixels": 63}, "--max-view-pixels", {}),
        ({"max_reply_bytes": 192 * 2 + 127}, "--max-reply-bytes", {}),
        ({"max_reply_bytes": 191}, "--max-reply-bytes", {}),
        ({}, "max_reply_bytes", {"max_reply_bytes": 191}),
    ],
)
def test_limits_are_named(cpu: CPURenderer, limits: dict[str, Any], flag: str, joining: dict[str, Any]) -> None:
    harness = EngineHarness(cpu, **limits)
    harness.start("small", [1], config(actor_class("p", "goals_left", width=4, height=4), family="maze"))
    pictures = config(actor_class("p", "eye.rgb", width=8, height=8, **joining), family="maze")
    with pytest.raises(ResourceExhausted, match=flag):
        harness.start("t", [3], pictures)
    harness.update("small", IDLE)
    harness.end("small")
    harness.check_empty()


def test_a_trial_that_is_in_tick_cannot_be_started(harness: EngineHarness) -> None:
    harness.start("t")
    with pytest.raises(AlreadyExists, match="'t' exists already"):
        harness.start("t")
    assert harness.update("t", IDLE).observation_set.tick_id == 1
    harness.end("t")
    assert harness.start("t").tick_id == 0


WRONG_ACTIONS = {
    "malformed": (MALFORMED, "worldloom.trials.Action"),
    "unknown name": (action(jump=np.float32(1)), "unknown action 'jump': expected some of move, turn"),
    "dtype": (action(turn=np.int32(1)), "expected floats"),
    "shape": (action(move=np.zeros(3, np.float32)), "expected shape [2]"),
    "value": (action(turn=np.float32(1.5)), "from -1 to 1"),
    "not a number": (action(turn=np.float32(np.nan)), "finite"),
    "no payload": (trials_pb2.Action(actions={"turn": {}}).SerializeToString(), "no payload"),
}


@pytest.mark.parametrize("name", WRONG_ACTIONS)
def test_actions_that_cannot_be(harness: EngineHarness, name: str) -> None:
    content, words = WRONG_ACTIONS[name]
    harness.start("t", [2])
    with pytest.raises(InvalidAction) as caught:
        harness.update("t", IDLE, content)
    assert caught.value.actor_id == 1
    assert str(caught.value).startswith("the action of actor 1: ")
    assert words in str(caught.value)
    assert harness.update("t", IDLE, IDLE).observation_set.tick_id == 1


def test_a_refused_update_leaves_the_world_as_it_was(harness: EngineHarness) -> None:
    """The first actor's action was right, and is not taken either."""
    for name in ("wrong", "right"):
        harness.start(name, [2], config(actor_class("p", "map.rgb"), family="maze", seed=3))
    turn = action(turn=np.float32(1.0))
    with pytest.raises(InvalidAction):
        harness.update("wrong", turn, MALFORMED)
    replies = [harness.update(name, turn, IDLE) for name in ("wrong", "right")]
    sets = [reply.observation_set for reply in replies]
    assert [one.content for one in sets[0].observations] == [one.content for one in sets[1].observations]
    assert [one.tick_id for one in sets] == [1, 1]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_as_many_actions_as_actors(harness: EngineHarness, count: int) -> None:
    harness.start("t", [2])
    with pytest.raises(InvalidArgument, match=f"{count} actions: expected 2"):
        harness.update("t", *[IDLE] * count)
    assert harness.update("t", IDLE, IDLE).observation_set.tick_id == 1


def test_an_update_without_actions_at_all(harness: EngineHarness) -> None:
    harness.start("t")
    with pytest.raises(InvalidArgument, match="0 actions"):
        harness.ask(harness.environment.update(api.EnvUpdateRequest(trial_id="t")))


def test_trials_that_are_not_there(harness: EngineHarness) -> None:
    with pytest.raises(NotFound, match="no trial 'nobody'"):
        harness.update("nobody", IDLE)
    with pytest.raises(NotFound, match="no trial 'nobody'"):
        harness.on_message("nobody")
    harness.end("nobody")
    harness.end("nobody")


def test_an_id_is_needed_for_everything(harness: EngineHarness) -> None:
    for call in (lambda: harness.update("", IDLE), lambda: harness.on_message(""), lambda: harness.end("")):
        with pytest.raises(InvalidArgument, match="trial_id is empty"):
            call()


def test_after_the_end(harness: EngineHarness) -> None:
    harness.start("t", [1], config(actor_class("p", "reward"), family="maze", max_steps=1))
    assert harness.update("t", IDLE).end_trial
    harness.check_empty()
    for _ in range(2):
        with pytest.raises(FailedPrecondition, match="'t' is over: its episode has ended"):
            harness.update("t", IDLE)
        with pytest.raises(FailedPrecondition, match="'t' is over"):
            harness.on_message("t")
        harness.end("t")


def test_after_end(harness: EngineHarness) -> None:
    harness.start("t")
    harness.end("t")
    harness.check_empty()
    harness.end("t")
    with pytest.raises(FailedPrecondition, match="'t' is over: it was ended"):
        harness.update("t", IDLE)


def test_no_more_than_some_are_remembered(harness: EngineHarness) -> None:
    def start_and_end() -> None:
        for number in range(1026):
            harness.environment._worlds.start(starting(f"t{number}"), lambda reply: None, lambda trial: None)
            harness.environment._worlds.end(f"t{number}", lambda reply: None)

    harness.engine.post(start_and_end)
    harness.tick()
    for name, refusal in (
        ("t0", NotFound),
        ("t1", NotFound),
        ("t2", FailedPrecondition),
        ("t1025", FailedPrecondition),
    ):
        with pytest.raises(refusal):
            harness.update(name, IDLE)
    harness.check_empty()


def test_messages_for_actors_that_are_not_there(harness: EngineHarness) -> None:
    harness.start("t", [2])
    for actor_id in (-1, 0, 1):
        harness.on_message("t", actor_id, [{"sender_id": 1, "receiver_id": -1}, {}])
    assert harness.engine.counters.messages == 6
    for actor_id in (-2, 2):
        with pytest.raises(InvalidArgument, match=f"actor_id is {actor_id}"):
            harness.on_message("t", actor_id, [{}])
    assert harness.engine.counters.messages == 6


def test_whatever_comes_is_answered_and_leaves_nothing(harness: EngineHarness) -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.binary(max_size=40), st.binary(max_size=40), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4))
    def check(content: bytes, own: bytes, counts: list[int]) -> None:
        request = with_content(content, own)
        request.actor_counts[:] = counts
        with pytest.raises(InvalidArgument):
            harness.ask(harness.environment.start(request))
        harness.check_empty()
        harness.start("t")
        for sent in (content, own):
            try:
                reply = harness.update("t", sent)
            except InvalidArgument:
                continue
            assert not trials_pb2.Action.FromString(sent).actions
            assert reply.observation_set.actors_map == [0]
        harness.end("t")

    check()
