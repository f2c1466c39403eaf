"""The Environment service over a real socket, asked with the generated stubs as an orchestrator asks it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import grpc
import numpy as np
import pytest
from google.protobuf.wrappers_pb2 import StringValue

from scripts.support.reference_world import ReferenceWorld
from tests.support.environment_server import TIMEOUT_S, EngineThread, EnvironmentServer, serving
from tests.support.trial_engine import Watcher, action, actor_class, config, same, starting, updating
from worldloom.protos.cogment.api import environment_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import Message, VersionRequest

IDLE = action()


@pytest.fixture(scope="module")
def running() -> Iterator[EngineThread]:
    made = EngineThread()
    yield made
    made.engine.stop()


def scenario(test: Callable[[EnvironmentServer], Awaitable[None]]) -> Callable[[EngineThread], None]:
    """A test that is a coroutine with a server; it leaves no trial behind."""

    def run(running: EngineThread) -> None:
        async def whole() -> None:
            async with serving(running) as served:
                await test(served)
                assert running.engine.counters.trials == 0
                assert not running.engine.directory.worlds
                assert not served.environment._advancing

        asyncio.run(asyncio.wait_for(whole(), 2 * TIMEOUT_S))

    run.__name__ = test.__name__
    return run


@asynccontextmanager
async def refused(status: grpc.StatusCode, *words: str) -> AsyncIterator[None]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        yield
    assert caught.value.code() is status, caught.value.details()
    for word in words:
        assert word in caught.value.details()


@scenario
async def test_start_gives_the_first_observation_set(served: EnvironmentServer) -> None:
    environment = config(actor_class("a", "map.rgb"), actor_class("b", "eye.rgb"), family="maze", seed=3)
    before_ns = time.time_ns()
    reply = await served.stub.Start(starting("t", [2, 1], environment))
    assert type(reply) is api.EnvStartReply
    seen = reply.observation_set
    assert seen.tick_id == 0
    assert before_ns <= seen.timestamp <= time.time_ns()
    assert list(seen.actors_map) == [0, 0, 1]
    assert [one.snapshot for one in seen.observations] == [True, True]
    direct = ReferenceWorld(served.engine.renderer, "maze", 3, agents=3)
    direct.step()
    first, second, third = Watcher().see(seen)
    same(first, {"map.rgb": direct.draw("map.rgb", 0)[0]})
    same(second, first)
    same(third, {"eye.rgb": direct.draw("eye.rgb", 2)[0]})
    await served.stub.End(api.EnvEndRequest(trial_id="t"))


@scenario
async def test_update_gives_observations_feedback_and_the_end(served: EnvironmentServer) -> None:
    environment = config(actor_class("p", "position", "reward", deltas=True), family="maze", seed=3, max_steps=3)
    direct = ReferenceWorld(served.engine.renderer, "maze", 3, agents=2, max_steps=3)
    direct.step()
    watcher = Watcher()
    watcher.see((await served.stub.Start(starting("t", [2], environment))).observation_set)
    rng = np.random.default_rng(0)
    for tick_id in (1, 2, 3):
        moves = rng.uniform(-1, 1, (2, 2)).astype(np.float32)
        direct.step(move=moves[None])
        request = updating("t", *(action(move=move) for move in moves), snapshot=tick_id == 2)
        reply = await served.stub.Update(request)
        assert type(reply) is api.EnvUpdateReply
        assert reply.observation_set.tick_id == tick_id
        assert {one.snapshot for one in reply.observation_set.observations} == {tick_id == 2}
        for actor, seen in enumerate(watcher.see(reply.observation_set)):
            same(seen, {name: np.asarray(direct.observe(name, actor)[0]) for name in ("position", "reward")})
        assert [(one.actor_id, one.tick_id, one.confidence) for one in reply.feedbacks] == [(0, -1, 0), (1, -1, 0)]
        assert [one.value for one in reply.feedbacks] == direct.pool.reward[direct.lanes[0]].tolist()
        assert reply.end_trial == (tick_id == 3)
        assert not reply.messages
    async with refused(grpc.StatusCode.FAILED_PRECONDITION, "'t' is over: its episode has ended"):
        await served.stub.Update(updating("t", IDLE, IDLE))
    await served.stub.End(api.EnvEndRequest(trial_id="t"))


@scenario
async def test_end_is_idempotent(served: EnvironmentServer) -> None:
    await served.stub.Start(starting("t"))
    for trial_id in ("t", "t", "never"):
        assert await served.stub.End(api.EnvEndRequest(trial_id=trial_id)) == api.EnvEndReply()


@scenario
async def test_messages_are_taken(served: EnvironmentServer) -> None:
    before = served.engine.counters.messages
    await served.stub.Start(starting("t"))
    message = Message(sender_id=0, receiver_id=-1)
    message.payload.Pack(StringValue(value="hello"))
    request = api.EnvOnMessageRequest(trial_id="t", actor_id=-1, messages=[message, message])
    assert await served.stub.OnMessage(request) == api.EnvOnMessageReply()
    assert served.engine.counters.messages == before + 2
    await served.stub.End(api.EnvEndRequest(trial_id="t"))


@scenario
async def test_version(served: EnvironmentServer) -> None:
    reply = await served.stub.Version(VersionRequest())
    told = {one.name: one.version for one in reply.versions}
    assert told["cogment-api"] == "0.3.0"
    assert told["grpc"] == grpc.__version__
    assert "worldloom" in told


@scenario
async def test_every_code(served: EnvironmentServer) -> None:
    stub = served.stub
    await stub.Start(starting("t"))
    async with refused(grpc.StatusCode.ALREADY_EXISTS, "'t' exists already"):
        await stub.Start(starting("t"))
    async with refused(grpc.StatusCode.NOT_FOUND, "no trial 'u'"):
        await stub.Update(updating("u", IDLE))
    async with refused(grpc.StatusCode.NOT_FOUND, "no trial 'u'"):
        await stub.OnMessage(api.EnvOnMessageRequest(trial_id="u"))
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "trial_id is empty"):
        await stub.Start(starting(""))
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "mase", "maze"):
        await stub.Start(starting("u", [1], config(actor_class("p"), family="mase")))
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "the action of actor 0"):
        await stub.Update(updating("t", b"\xff"))
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "2 actions: expected 1"):
        await stub.Update(updating("t", IDLE, IDLE))
    async with refused(grpc.StatusCode.INVALID_ARGUMENT, "actor_id is 1"):
        await stub.OnMessage(api.EnvOnMessageRequest(trial_id="t", actor_id=1))
    async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "--max-message-bytes", "100000"):
        await stub.Update(updating("t", b"x" * 100_000))
    assert (await stub.Update(updating("t", IDLE))).observation_set.tick_id == 1
    await stub.End(api.EnvEndRequest(trial_id="t"))


@scenario
async def test_texts_of_any_kind_arrive(served: EnvironmentServer) -> None:
    """A status travels as metadata, which is ASCII and must not be long."""
    names = ["\N{GRINNING FACE}" * 256, "\x00\r\n" * 80, "ü" * 256]
    for name in names:
        async with refused(grpc.StatusCode.NOT_FOUND, "there is no trial"):
            await served.stub.Update(updating(name, IDLE))


@scenario
async def test_requests_that_are_no_messages(served: EnvironmentServer) -> None:
    for method in ("Start", "Update", "End", "OnMessage"):
        call = served.channel.unary_unary(f"/cogment.Environment/{method}")
        async with refused(grpc.StatusCode.UNKNOWN, "DecodeError"):
            await call(b"\xff\xff", timeout=TIMEOUT_S)


@scenario
async def test_one_update_at_a_time(served: EnvironmentServer) -> None:
    await served.stub.Start(starting("t"))
    with served.running.held():
        first = served.stub.Update(updating("t", IDLE))
        await served.until(lambda: "t" in served.environment._advancing)
        async with refused(grpc.StatusCode.FAILED_PRECONDITION, "one call at a time"):
            await served.stub.Update(updating("t", IDLE))
        async with refused(grpc.StatusCode.ALREADY_EXISTS):
            await served.stub.Start(starting("t"))
    assert (await first).observation_set.tick_id == 1
    await served.stub.End(api.EnvEndRequest(trial_id="t"))


@scenario
async def test_a_cancelled_start_leaves_nothing(served: EnvironmentServer) -> None:
    with served.running.held():
        call = served.stub.Start(starting("t"))
        await served.until(lambda: "t" in served.environment._advancing)
        call.cancel()
        await served.until(lambda: served.environment.cancelled == ["start"])
    await served.until(lambda: not served.environment._advancing)
    await served.until(lambda: served.engine.counters.trials == 0)
    assert (await served.stub.Start(starting("t"))).observation_set.tick_id == 0
    await served.stub.End(api.EnvEndRequest(trial_id="t"))


@scenario
async def test_a_call_whose_deadline_passes_leaves_nothing_waiting(served: EnvironmentServer) -> None:
    await served.stub.Start(starting("t"))
    with served.running.held():
        async with refused(grpc.StatusCode.DEADLINE_EXCEEDED):
            await served.stub.Update(updating("t", IDLE), timeout=0.5)
        await served.until(lambda: served.environment.cancelled == ["update"])
    await served.until(lambda: not served.environment._advancing)
    assert (await served.stub.Update(updating("t", IDLE))).observation_set.tick_id == 2
    await served.stub.End(api.EnvEndRequest(trial_id="t"))


@scenario
async def test_a_hundred_trials_are_drawn_in_shared_batches(served: EnvironmentServer) -> None:
    environment = config(actor_class("p", "eye.rgb", width=32, height=32), family="maze", seed=1)
    names = [f"t{number}" for number in range(100)]
    await asyncio.gather(*(served.stub.Start(starting(name, [2], environment)) for name in names))
    counters = served.engine.counters
    ticks, steps, draws = counters.ticks, counters.steps, counters.draws
    with served.running.held():
        calls = [served.stub.Update(updating(name, IDLE, IDLE)) for name in names]
        await served.until(lambda: len(served.engine.inbox) == len(names))
    replies = await asyncio.gather(*calls)
    assert {len(reply.observation_set.observations) for reply in replies} == {2}
    assert (counters.ticks - ticks, counters.steps - steps, counters.draws - draws) == (1, 200, 1)
    steps, ticks = counters.steps, counters.ticks
    for _ in range(3):  # without being held: those who come while others are drawn are the next batch
        await asyncio.gather(*(served.stub.Update(updating(name, IDLE, IDLE)) for name in names))
    assert (counters.steps - steps) / (counters.ticks - ticks) > 2, "more than the two of one trial"
    await asyncio.gather(*(served.stub.End(api.EnvEndRequest(trial_id=name)) for name in names))
