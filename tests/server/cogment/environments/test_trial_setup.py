"""Configurations and actions, read from the bytes of our messages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.support.messages import packed
from tests.support.trial_engine import action, actor_class, config, starting
from worldloom.protos.cogment.api.common_pb2 import EnvironmentConfig
from worldloom.protos.cogment.api.environment_pb2 import EnvStartRequest
from worldloom.protos.errors import InvalidArgument
from worldloom.protos.worldloom import trials_pb2
from worldloom.server.cogment.environments.trial_setup import ActorClass, parse_start
from worldloom.server.cogment.environments.trial_world import InvalidAction, parse_actions, parse_content
from worldloom.server.dm_env_rpc.tensors import ActionReader
from worldloom.worlds.family import Spec

READERS = {
    spec.name: ActionReader(spec, None)
    for spec in (Spec("move", "float32", (2,), "", -1, 1), Spec("press", "int64", (), "", 0, 9))
}
TEXT = st.characters(codec="utf-8", exclude_characters="\0")  # with which NumPy, that packs it here, ends a text
PLAIN = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.booleans() | st.text(TEXT, max_size=20)


@given(
    st.dictionaries(st.text(max_size=10), PLAIN, max_size=4), st.dictionaries(st.text(max_size=10), PLAIN, max_size=4)
)
def test_settings_of_the_trial_win(common: dict[str, object], own: dict[str, object]) -> None:
    common.pop("lanes", None)
    own.pop("lanes", None)
    environment = trials_pb2.EnvironmentConfig(world_settings=packed(common), actor_classes=[{"id": "one"}])
    request = starting("t", [1], environment)
    request.trial_config.content = trials_pb2.TrialConfig(world_settings=packed(own)).SerializeToString()
    start = parse_start(request, None)
    assert start.trial_id == "t"
    assert start.world_settings == {**common, **own}


def test_classes_and_how_many_actors_each_has() -> None:
    environment = config(
        actor_class("a", "eye.rgb", "reward", width=32, samples=4),
        actor_class("b", deltas=True),
        family="maze",
    )
    start = parse_start(starting("t", [2, 0], environment), None)
    assert start.classes == (
        ActorClass("a", 2, {"width": 32, "samples": 4, "observations": ["eye.rgb", "reward"]}, False),
        ActorClass("b", 0, {"observations": []}, True),
    )
    assert start.actor_count == 2


@pytest.mark.parametrize(
    ("common", "own", "expected"),
    [
        ({}, {}, (1, 0)),
        ({"reward_confidence": 0.5, "zero_reward_confidence": 0.25}, {}, (0.5, 0.25)),
        ({"reward_confidence": 0.5, "zero_reward_confidence": 0.25}, {"zero_reward_confidence": 0}, (0.5, 0)),
        ({}, {"reward_confidence": 2}, (2, 0)),
    ],
)
def test_the_confidence_of_rewards(
    common: dict[str, float], own: dict[str, float], expected: tuple[float, float]
) -> None:
    environment = config(actor_class("a"), family="maze")
    environment.MergeFrom(trials_pb2.EnvironmentConfig(**common))  # type: ignore[arg-type]
    request = starting("t", [1], environment)
    request.trial_config.content = trials_pb2.TrialConfig(**own).SerializeToString()  # type: ignore[arg-type]
    assert parse_start(request, None).confidence == expected


@pytest.mark.parametrize("value", [-0.5, float("nan"), float("inf")])
def test_a_confidence_that_cannot_be(value: float) -> None:
    request = starting("t", [1], config(actor_class("a"), family="maze"))
    request.trial_config.content = trials_pb2.TrialConfig(zero_reward_confidence=value).SerializeToString()
    with pytest.raises(InvalidArgument, match=r"zero_reward_confidence is .*: expected a finite number, 0 or more"):
        parse_start(request, None)


def test_actors_in_an_order_of_their_own() -> None:
    environment = config(actor_class("a"), actor_class("b"), family="maze")
    assert [one.id for one in parse_start(starting("t", [2, 1], environment), None).actors] == ["a", "a", "b"]
    environment.actor_order.extend(["a", "b", "a"])
    assert [one.id for one in parse_start(starting("t", [2, 1], environment), None).actors] == ["a", "b", "a"]
    for counts in ([1, 2], [2, 2], [1, 1]):
        with pytest.raises(InvalidArgument, match="actor_order has 3 names: expected one for each actor, as"):
            parse_start(starting("t", counts, environment), None)


def test_defaults_are_for_starts_without_a_configuration() -> None:
    defaults, other = config(actor_class("d"), family="catch"), config(actor_class("o"), family="maze")
    assert parse_start(starting("t"), defaults).world_settings == {"family": "catch"}
    assert parse_start(starting("t", [1], other), defaults).world_settings == {"family": "maze"}
    empty = EnvStartRequest(trial_id="t", config=EnvironmentConfig(), actor_counts=[1])
    with pytest.raises(InvalidArgument, match="actor_counts has 1 numbers: expected 0"):
        parse_start(empty, defaults)


def test_actions_by_name() -> None:
    first, second = parse_actions(
        [action(move=np.array([0.5, -1], np.float32), press=np.int64(3)), b""], [READERS, READERS]
    )
    assert {name: value.tolist() for name, value in first.items()} == {"move": [[0.5, -1.0]], "press": [3]}
    assert second == {}


def test_a_wrong_action_says_whose_it_is() -> None:
    with pytest.raises(
        InvalidAction, match="the action of actor 2: action 'press' is 10: expected an integer from 0"
    ) as caught:
        parse_actions([b"", b"", action(press=np.int64(10))], [READERS] * 3)
    assert caught.value.actor_id == 2


@given(st.lists(st.binary(max_size=30), max_size=4))
def test_whatever_an_action_is_it_is_read_or_refused(contents: list[bytes]) -> None:
    refusal = None
    try:
        actions = parse_actions(contents, [READERS] * len(contents))
    except InvalidAction as caught:
        refusal = caught
    if refusal is None:
        assert len(actions) == len(contents)
        assert all(set(one) <= set(READERS) for one in actions)
    else:
        assert 0 <= refusal.actor_id < len(contents)
        assert len(str(refusal)) < 500


def test_what_cannot_be_read_is_not_quoted() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_content(trials_pb2.Action, b"\xff" * 100_000, "this")
    assert str(caught.value) == "this has 100000 bytes that cannot be parsed: expected a worldloom.trials.Action"


def test_names_that_go_on_and_on_are_quoted_in_short() -> None:
    with pytest.raises(InvalidAction) as caught:
        parse_actions([action(**{"x" * 10_000: 1.0})], [READERS])
    assert len(str(caught.value)) < 300
