"""Messages wait for their receivers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.trial_services import message
from worldloom.protos.cogment.api.common_pb2 import Message
from worldloom.protos.errors import InvalidArgument, ResourceExhausted
from worldloom.server.cogment.orchestrator.messages import Mail

ACTORS = 3
RECEIVERS = st.integers(-1, ACTORS - 1)
EVENTS = st.one_of(
    st.tuples(st.just("post"), st.lists(st.builds(message, RECEIVERS, st.text(max_size=3), RECEIVERS), max_size=3)),
    st.tuples(st.just("collect"), RECEIVERS),
    st.tuples(st.just("copies"), st.none()),
)


@given(st.lists(EVENTS, max_size=30), st.booleans())
def test_everyone_gets_all_of_theirs_once_and_in_order(events: list[tuple[str, object]], keeps_copies: bool) -> None:
    mail = Mail(ACTORS, keeps_copies)
    waiting: list[Message] = []
    copies: list[Message] = []
    for what, given_ in events:
        if what == "post":
            assert isinstance(given_, list)
            mail.check(given_)
            mail.post(given_)
            waiting += given_
            copies += given_
        elif what == "collect":
            assert mail.collect(given_) == [one for one in waiting if one.receiver_id == given_]  # type: ignore[arg-type]
            waiting = [one for one in waiting if one.receiver_id != given_]
        else:
            found = [list(one.messages) for one in mail.take_copies()]
            receivers = (0, 1, 2, -1) if keeps_copies else ()
            assert found == [[one for one in copies if one.receiver_id == place] for place in receivers]
            copies = []
    assert mail._message_bytes == sum(len(one.payload.value) + 64 for one in waiting)


@given(st.integers(-(2**31), 2**31 - 1))
def test_receivers_are_actors_or_the_environment(receiver: int) -> None:
    mail = Mail(ACTORS, keeps_copies=False)
    if -1 <= receiver < ACTORS:
        mail.check([message(receiver, "hello")])
    else:
        with pytest.raises(
            InvalidArgument, match=f"receiver_id {receiver}: expected an actor of the trial, 0 to 2, or"
        ):
            mail.check([message(0, "good"), message(receiver, "bad")])


def test_a_known_sender_is_written_in() -> None:
    mail = Mail(ACTORS, keeps_copies=False)
    mine = message(0, "trust me", sender=2)
    mail.post([mine], sender_id=1)
    assert mine.sender_id == 2  # it belongs to the caller
    assert mail.collect(0) == [message(0, "trust me", sender=1)]


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worldloom.server.cogment.orchestrator.messages._MOST_BYTES", 1000)
    mail = Mail(ACTORS, keeps_copies=True)
    mail.post([message(0, "x" * 900)])
    with pytest.raises(ResourceExhausted, match="messages of more than 1000 bytes would wait"):
        mail.check([message(1, "y" * 100)])
    with pytest.raises(ResourceExhausted):
        Mail(ACTORS, keeps_copies=False).check([message(1, "")] * 16)  # even those without content take room
    mail.collect(0)
    mail.check([message(1, "y" * 900)])
