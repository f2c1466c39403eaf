"""Actors of trial parameters: ids go class by class, endpoints are keywords or addresses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.protos.cogment.api.common_pb2 import TrialParams
from worldloom.protos.errors import InvalidArgument
from worldloom.server.cogment.settings import parse_actors

CLASSES = ("seeker", "hider", "judge")
ENDPOINTS = st.sampled_from(["human", "grpc://agents:9000", "grpc://127.0.0.1:1", "grpc://[::1]:65535"])


def params_of(actors: list[tuple[str, str]], environment: str = "worldloom") -> TrialParams:
    params = TrialParams()
    params.environment.endpoint = environment
    for actor_class, endpoint in actors:
        params.actors.add(actor_class=actor_class, endpoint=endpoint)
    return params


@given(st.lists(st.tuples(st.sampled_from(CLASSES), ENDPOINTS), min_size=1, max_size=12))
def test_ids_go_by_class_and_then_by_place(given_actors: list[tuple[str, str]]) -> None:
    actors = parse_actors(params_of(given_actors), CLASSES)
    by_class = sorted(given_actors, key=lambda actor: CLASSES.index(actor[0]))  # a sort that keeps the order of equals
    assert [(actor.class_id, actor.endpoint) for actor in actors.all] == by_class
    assert [actor.id for actor in actors.all] == list(range(len(given_actors)))
    assert list(actors.counts) == [sum(name == one for one, _ in given_actors) for name in CLASSES]
    human_count = sum(endpoint == "human" for _, endpoint in given_actors)
    assert [actor.endpoint for actor in actors.humans] == ["human"] * human_count
    assert sorted([*actors.humans, *actors.agents], key=lambda actor: actor.id) == list(actors.all)


@given(st.text(max_size=30))
def test_endpoints_are_words_or_addresses(text: str) -> None:
    for params, word in ((params_of([("hider", text)]), "human"), (params_of([("hider", "human")], text), "worldloom")):
        if text == word:
            parse_actors(params, CLASSES)
        else:
            with pytest.raises(InvalidArgument, match=rf"endpoint is .*: expected {word} or grpc://HOST:PORT"):
                parse_actors(params, CLASSES)


def test_names_say_who_is_who() -> None:
    actors = parse_actors(params_of([("hider", "human"), ("seeker", "grpc://agents:9000")]), CLASSES)
    assert [str(actor) for actor in actors.all] == ["agent 0 (seeker)", "human 1 (hider)"]
    with pytest.raises(InvalidArgument, match="actor_id is 2: expected an actor of the trial, 0 to 1"):
        actors.find(2)
