"""Messages wait for their receivers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.trial_services import message
from worldloom.protos.cogment.api.common_pb2 import Message
from worldloom.protos.errors import InvalidArgument, ResourceExhausted
from worldloom.server.cogment.orchestrator.trial_state import MessageQueue

ACTORS = 3
RECEIVERS = st.integers(-1, ACTORS - 1)
EVENTS = st.one_of(
    st.tuples(st.just("post"), st.lists(st.builds(message, RECEIVERS, st.text(max_size=3), RECEIVERS), max_size=3)),
    st.tuples(st.just("collect"), RECEIVERS),
    st.tuples(st.just("copies"), st.none()),
)


@given(st.lists(EVENTS, max_size=30), st.booleans())
def test_everyone_gets_all_of_theirs_once_and_in_order(events: list[tuple[str, object]], keeps_copies: bool) -> None:
    queue = MessageQueue(ACTORS, keeps_copies)
    waiting: list[Message] = []
    copies: list[Message] = []
    for what, given_ in events:
        if what == "post":
            assert isinstance(given_, list)
            queue.check(given_)
            queue.add(given_)
            waiting += given_
            copies += given_
        elif what == "collect":
            assert queue.pop(given_) == [one for one in waiting if one.receiver_id == given_]  # type: ignore[arg-type]
            waiting = [one for one in waiting if one.receiver_id != given_]
        else:
            found = [list(one.messages) for one in queue.pop_copies()]
            receivers = (0, 1, 2, -1) if keeps_copies else ()
            assert found == [[one for one in copies if one.receiver_id == place] for place in receivers]
            copies = []
    assert queue._size_bytes == sum(len(one.payload.value) + 64 for one in waiting)


@given(st.integers(-(2**31), 2**31 - 1))
def test_receivers_are_actors_or_the_environment(receiver: int) -> None:
    queue = MessageQueue(ACTORS, keeps_copies=False)
    if -1 <= receiver < ACTORS:
        queue.check([message(receiver, "hello")])
    else:
        with pytest.raises(
            InvalidArgument, match=f"receiver_id {receiver}: expected an actor of the trial, 0 to 2, or"
        ):
            queue.check([message(0, "good"), message(receiver, "bad")])


def test_a_known_sender_is_written_in() -> None:
    queue = MessageQueue(ACTORS, keeps_copies=False)
    mine = message(0, "trust me", sender=2)
    queue.add([mine], sender_id=1)
    assert mine.sender_id == 2  # it belongs to the caller
    assert queue.pop(0) == [message(0, "trust me", sender=1)]


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worldloom.server.cogment.orchestrator.trial_state._MAX_BYTES", 1000)
    queue = MessageQueue(ACTORS, keeps_copies=True)
    queue.add([message(0, "x" * 900)])
    with pytest.raises(ResourceExhausted, match="more than 1000 bytes of messages would wait"):
        queue.check([message(1, "y" * 100)])
    with pytest.raises(ResourceExhausted):
        MessageQueue(ACTORS, keeps_copies=False).check([message(1, "")] * 16)  # even those without content take room
    queue.pop(0)
    queue.check([message(1, "y" * 900)])
