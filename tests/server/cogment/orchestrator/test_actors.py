"""Who takes part: actors are counted class by class."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.protos.cogment.api.common_pb2 import TrialParams
from worldloom.protos.errors import InvalidArgument
from worldloom.server.cogment.orchestrator.actors import cast_of

CLASSES = ("seeker", "hider", "judge")
ENDPOINTS = st.sampled_from(["human", "grpc://agents:9000", "grpc://127.0.0.1:1", "grpc://[::1]:65535"])


def params_of(actors: list[tuple[str, str]], environment: str = "worldloom") -> TrialParams:
    params = TrialParams()
    params.environment.endpoint = environment
    for actor_class, endpoint in actors:
        params.actors.add(actor_class=actor_class, endpoint=endpoint)
    return params


@given(st.lists(st.tuples(st.sampled_from(CLASSES), ENDPOINTS), min_size=1, max_size=12))
def test_ids_go_by_class_and_then_by_place(actors: list[tuple[str, str]]) -> None:
    cast = cast_of(params_of(actors), CLASSES)
    by_class = sorted(actors, key=lambda actor: CLASSES.index(actor[0]))  # a sort that keeps the order of equals
    assert [(actor.class_id, actor.endpoint) for actor in cast.actors] == by_class
    assert [actor.id for actor in cast.actors] == list(range(len(actors)))
    assert list(cast.counts) == [sum(name == one for one, _ in actors) for name in CLASSES]
    assert [actor.endpoint for actor in cast.humans] == ["human"] * sum(endpoint == "human" for _, endpoint in actors)
    assert sorted([*cast.humans, *cast.agents], key=lambda actor: actor.id) == list(cast.actors)


@given(st.text(max_size=30))
def test_endpoints_are_words_or_addresses(text: str) -> None:
    for params, word in ((params_of([("hider", text)]), "human"), (params_of([("hider", "human")], text), "worldloom")):
        if text == word:
            cast_of(params, CLASSES)
        else:
            with pytest.raises(InvalidArgument, match=rf"endpoint is .*: expected {word} or grpc://HOST:PORT"):
                cast_of(params, CLASSES)


def test_names_say_who_is_who() -> None:
    cast = cast_of(params_of([("hider", "human"), ("seeker", "grpc://agents:9000")]), CLASSES)
    assert [str(actor) for actor in cast.actors] == ["agent 0 (seeker)", "human 1 (hider)"]
    with pytest.raises(InvalidArgument, match="actor_id is 2: expected one of the trial's, 0 to 1"):
        cast.find(2)
