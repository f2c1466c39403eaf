"""What is kept of trials: in a file, and at an exporter."""

import asyncio
import errno
import io
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import proto
from hypothesis import given
from hypothesis import strategies as st

from tests.support.trial_services import (
    CallLog,
    Code,
    FakeExporter,
    hang,
    listening,
    message,
    run,
    status_of,
    trial_host,
)
from worldloom.protos.cogment.api import data_pb2
from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import Feedback, TrialParams
from worldloom.server.cogment.orchestrator import datalog as sinks
from worldloom.server.cogment.settings import HUMAN


def samples_in(path: Path) -> list[data_pb2.DatalogSample]:
    """Read with protobuf's own reader of length-delimited messages."""
    stream, found = io.BytesIO(path.read_bytes()), []
    while (sample := proto.parse_length_prefixed(data_pb2.DatalogSample, stream)) is not None:
        found.append(sample)
    return found


async def say_things(host: Any, began_ns: int) -> str:
    """A trial of two ticks in which there is something to keep."""
    host.environment.ends_at = 2
    host.environment.feedbacks[1] = [Feedback(actor_id=1, tick_id=-1, value=2, confidence=1)]
    host.environment.messages[2] = [message(0, "over", sender=-1)]
    host.agents["a"].messages[0] = [message(-1, "to env", sender=1)]
    trial_id: str = (await host.start("someone", b"config")).trial_id
    await host.act(trial_id, 0, b"h0")
    late = Feedback(actor_id=0, tick_id=0, value=9, confidence=1)
    await host.call_log.until("a", "Decide", 2)
    letter = api.TrialMessageRequest(trial_id=trial_id, messages=[message(1, "to a")])
    await host.stub.SendMessage(letter)
    await host.stub.GiveFeedback(api.TrialFeedbackRequest(trial_id=trial_id, feedbacks=[late]))
    await host.act(trial_id, 0, b"h1")
    await host.all_gone()
    assert began_ns < time.time_ns()
    return trial_id


def check_things(samples: list[data_pb2.DatalogSample], trial_id: str, began_ns: int) -> None:
    assert [sample.observations.tick_id for sample in samples] == [0, 1, 2]
    for sample in samples:
        assert (sample.trial_id, sample.user_id) == (trial_id, "someone")
        assert began_ns < sample.timestamp < time.time_ns()
        assert [one.content for one in sample.observations.observations] == [
            b"seen %d@%d" % (actor, sample.observations.tick_id) for actor in range(2)
        ]
        assert list(sample.observations.actors_map) == [0, 1]
    actions = [[action.content for action in sample.actions] for sample in samples]
    assert actions == [[b"h0", b"a.1@0"], [b"h1", b"a.1@1"], []]
    values = [[(one.value, one.confidence) for one in sample.rewards] for sample in samples]
    assert values == [[(0, 0), (2, 1)], [(0, 0), (0, 0)], [(0, 0), (0, 0)]]
    assert [one.value for one in samples[0].rewards[0].feedbacks] == [9]  # the human had its reward of tick 0 already
    texts = [[[one.payload.value for one in box.messages] for box in sample.messages] for sample in samples]
    assert texts == [  # for each actor, then for the environment
        [[], [], [b"to env"]],
        [[b"over"], [b"to a"], []],
        [[], [], []],
    ]


def test_a_file_gets_a_sample_for_each_tick(tmp_path: Path) -> None:
    async def scenario() -> None:
        began_ns = time.time_ns()
        async with trial_host((HUMAN, "a"), datalog_file=tmp_path / "log") as host:
            trial_id = await say_things(host, began_ns)
        check_things(samples_in(tmp_path / "log"), trial_id, began_ns)

    run(scenario)


def test_an_exporter_gets_the_parameters_and_then_the_samples() -> None:
    async def scenario() -> None:
        exporter = FakeExporter("exporter", CallLog())
        began_ns = time.time_ns()
        params = TrialParams(max_steps=7)
        async with listening(exporter) as (endpoint, _):
            async with trial_host((HUMAN, "a"), params=params, datalog_endpoint=endpoint) as host:
                trial_id = await say_things(host, began_ns)
            (log,) = exporter.logs
            assert log[0].trial_params.max_steps == 7
            assert log[0].trial_params.trial_config.content == b"config"
            assert len(log[0].trial_params.actors) == 2
            check_things([one.sample for one in log[1:]], trial_id, began_ns)

    run(scenario)


def test_feedback_for_older_ticks_is_kept_and_changes_no_reward(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with trial_host(datalog_file=tmp_path / "log") as host:
            trial_id = (await host.start()).trial_id
            for _ in range(3):
                reply = await host.act(trial_id)
                assert reply.reward.confidence == 0
            old = Feedback(actor_id=0, tick_id=0, value=5, confidence=1, content=b"now I see")
            await host.stub.GiveFeedback(api.TrialFeedbackRequest(trial_id=trial_id, feedbacks=[old]))
            reply = await host.act(trial_id)
            assert len(reply.reward.feedbacks) == 0
            await host.end(trial_id)
        rewards = [sample.rewards[0] for sample in samples_in(tmp_path / "log")]
        kept = [(tick, reward) for tick, reward in enumerate(rewards) if reward.feedbacks]
        assert [(tick, reward.value, list(reward.feedbacks)) for tick, reward in kept] == [(2, 0, [old])]

    run(scenario)


@pytest.mark.parametrize("ends_itself", [True, False])
def test_feedback_and_messages_after_the_end_are_kept(ends_itself: bool, tmp_path: Path) -> None:
    async def scenario() -> None:
        exporter = FakeExporter("exporter", CallLog())
        params = TrialParams(max_steps=2 if ends_itself else 0)
        async with listening(exporter) as (endpoint, _):
            settings: dict[str, Any] = {"datalog_file": tmp_path / "log", "datalog_endpoint": endpoint}
            async with trial_host((HUMAN, "a"), params=params, **settings) as host:
                trial_id = (await host.start("someone")).trial_id
                for _ in range(2):
                    await host.act(trial_id)
                if not ends_itself:
                    await host.end(trial_id)
                about = [
                    Feedback(actor_id=1, tick_id=-1, value=5, confidence=1, content=b"now I see"),
                    Feedback(actor_id=0, tick_id=1, value=-1, confidence=0.5),
                ]
                for _ in range(2):  # while agents and environment are ended, and afterwards
                    await host.stub.GiveFeedback(api.TrialFeedbackRequest(trial_id=trial_id, feedbacks=about))
                    letters = [message(-1, "to env"), message(1, "to a")]
                    await host.stub.SendMessage(api.TrialMessageRequest(trial_id=trial_id, messages=letters))
                    await host.all_gone()
                wrong = {
                    "actor 2": Feedback(actor_id=2, tick_id=-1),
                    "tick 3": Feedback(actor_id=0, tick_id=3),
                    "finite": Feedback(actor_id=0, tick_id=-1, value=float("nan")),
                }
                for words, one in wrong.items():
                    request = api.TrialFeedbackRequest(trial_id=trial_id, feedbacks=[one])
                    code, text = await status_of(host.stub.GiveFeedback(request))
                    assert code is Code.INVALID_ARGUMENT
                    assert words in text
                foreign = api.TrialMessageRequest(trial_id=trial_id, messages=[message(0, "", sender=1)])
                assert (await status_of(host.stub.SendMessage(foreign)))[0] is Code.INVALID_ARGUMENT
                assert len(host.call_log.of("a", "OnMessage")) == 0
            samples = samples_in(tmp_path / "log")
            late = [sample for sample in samples if not sample.HasField("observations")]
            assert len(samples) == 3 + len(late) == 3 + 4
            assert {(one.trial_id, one.user_id) for one in late} == {(trial_id, "someone")}
            for sample in (late[0], late[2]):
                assert [list(one.feedbacks) for one in sample.rewards] == [
                    [Feedback(actor_id=0, tick_id=1, value=-1, confidence=0.5)],
                    [Feedback(actor_id=1, tick_id=2, value=5, confidence=1, content=b"now I see")],
                ]
                assert len(sample.messages) == 0
            for sample in (late[1], late[3]):
                texts = [[one.payload.value for one in box.messages] for box in sample.messages]
                assert texts == [[], [b"to a"], [b"to env"]]
                assert len(sample.rewards) == 0
            by_stream = [[one.sample for one in log[1:]] for log in exporter.logs]
            assert sorted(map(len, by_stream)) == [1, 1, 1, 1, 3]
            assert all(log[0].trial_params.max_steps == params.max_steps for log in exporter.logs)
            assert all(log[0].HasField("trial_params") for log in exporter.logs)
            assert [one for log in by_stream for one in log if len(log) == 1] == late

    run(scenario)


@pytest.mark.parametrize("how", ["end", "agent", "environment", "drain"])
def test_the_log_is_complete_however_a_trial_ends(how: str, tmp_path: Path) -> None:
    async def fail(_request: Any, context: Any) -> None:
        raise RuntimeError

    async def scenario() -> None:
        exporter = FakeExporter("exporter", CallLog())
        async with listening(exporter) as (endpoint, _):
            async with trial_host((HUMAN, "a"), datalog_file=tmp_path / "log", datalog_endpoint=endpoint) as host:
                trial_id = (await host.start()).trial_id
                for tick in range(3):
                    await host.act(trial_id, 0, b"h%d" % tick)
                if how == "end":
                    await host.end(trial_id)
                elif how == "agent":
                    await host.servers["a"].stop(None)
                    await status_of(host.act(trial_id))
                elif how == "environment":
                    host.environment.overrides["Update"] = fail
                    await status_of(host.act(trial_id))
            samples = samples_in(tmp_path / "log")
            # With an agent that died a fourth tick may have been played, its decision was there already.
            assert [sample.observations.tick_id for sample in samples][:4] == [0, 1, 2, 3]
            assert [sample.actions[0].content for sample in samples[:3]] == [b"h0", b"h1", b"h2"]
            assert len(samples[-1].actions) == 0
            assert [one.sample for one in exporter.logs[0][1:]] == samples

    run(scenario)


def test_trials_share_a_file_that_is_added_to(tmp_path: Path) -> None:
    async def scenario() -> None:
        for _ in range(2):
            async with trial_host(datalog_file=tmp_path / "log") as host:
                ids = [(await host.start()).trial_id for _ in range(5)]
                for _ in range(4):
                    await asyncio.gather(*(host.act(trial_id) for trial_id in ids))

    run(scenario)
    samples = samples_in(tmp_path / "log")
    by_trial: dict[str, list[int]] = {}
    for sample in samples:
        by_trial.setdefault(sample.trial_id, []).append(sample.observations.tick_id)
    assert list(by_trial.values()) == [[0, 1, 2, 3, 4]] * 10


def test_samples_are_in_the_file_while_the_trial_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with trial_host(datalog_file=tmp_path / "log") as host:
            trial_id = (await host.start()).trial_id
            for _ in range(3):
                await host.act(trial_id)
            while not (samples := samples_in(tmp_path / "log")) or samples[-1].observations.tick_id < 1:
                await asyncio.sleep(0)

    run(scenario)


def test_a_disk_that_is_full_stops_no_trial(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with trial_host(datalog_file=Path("/dev/full")) as host:
            host.environment.ends_at = 20
            trial_id = (await host.start()).trial_id
            for _ in range(20):
                await host.act(trial_id)

    run(scenario)
    told = [record.getMessage() for record in caplog.records if "samples are lost" in record.getMessage()]
    assert told == ['samples are lost file=/dev/full reason="No space left on device"']


def test_a_file_that_cannot_be_opened_is_told_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(FileNotFoundError):
            async with trial_host(datalog_file=tmp_path / "no" / "such" / "folder"):
                pass

    run(scenario)


@given(st.lists(st.tuples(st.binary(max_size=300), st.booleans()), max_size=12), st.integers(0, 50))
def test_half_a_sample_is_taken_back(items: list[tuple[bytes, bool]], before_full: int) -> None:
    def write(file: int, data: memoryview) -> int:
        """A few bytes at a time, as a slow disk may; one that is full takes some before it says so."""
        room_bytes = before_full - (size_bytes - len(data)) if fails else 7
        if room_bytes <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return usual(file, data[: min(7, room_bytes)])

    usual, kept = os.write, b""
    with tempfile.NamedTemporaryFile() as named, pytest.MonkeyPatch.context() as patch:
        file = os.open(named.name, os.O_RDWR | os.O_APPEND)
        patch.setattr("worldloom.server.cogment.orchestrator.datalog.os.write", write)
        for item, fails in items:
            size_bytes = len(item)
            is_lost = fails and size_bytes > before_full
            problem = sinks.append(file, item)
            assert (problem is not None) == is_lost
            kept += b"" if is_lost else item
            assert os.pread(file, 10_000, 0) == kept
        os.close(file)


async def end_early(_requests: Any, _context: Any) -> data_pb2.LogReply:
    return data_pb2.LogReply()


async def refuse(_requests: Any, context: Any) -> None:
    await context.abort(Code.PERMISSION_DENIED, "not yours")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (hang, "deadline_s"),
        (end_early, "reason="),  # gRPC does not always know that this was it
        (refuse, "PERMISSION_DENIED: not yours|Internal error from Core"),  # the latter if a write fails just before
        (None, "UNAVAILABLE"),
    ],
)
def test_an_exporter_that_fails_stops_no_trial(
    how: Callable[..., Any] | None, words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("worldloom.server.cogment.orchestrator.datalog._MAX_QUEUED_BYTES", 1000)

    async def scenario() -> None:
        exporter = FakeExporter("exporter", CallLog())
        async with listening(exporter) as (endpoint, server):
            if how is None:
                await server.stop(None)
            else:
                exporter.overrides["Log"] = how
            async with trial_host((HUMAN,), datalog_endpoint=endpoint, deadline_s=0.3) as host:
                host.environment.ends_at = 30
                trial_id = (await host.start()).trial_id
                for _ in range(30):
                    await host.act(trial_id, 0, b"x" * 100_000)

    with caplog.at_level(logging.INFO, "worldloom"):
        run(scenario)
    told = [record.getMessage() for record in caplog.records if "exporter failed" in record.getMessage()]
    assert len(told) == 1
    assert re.search(words, told[0])
    assert "endpoint=grpc://127.0.0.1" in told[0]
