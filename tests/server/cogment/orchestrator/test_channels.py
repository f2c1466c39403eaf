"""Connections are shared by endpoint, and few are kept that nobody uses."""

import grpc
import pytest

from tests.support.trial_services import CallLog, FakeAgent, listening, run
from worldloom.protos.cogment.api.agent_pb2_grpc import AgentStub
from worldloom.protos.cogment.api.common_pb2 import VersionInfo, VersionRequest
from worldloom.server.cogment.orchestrator import remote_services as module
from worldloom.server.cogment.orchestrator.remote_services import Channels
from worldloom.server.config import Limits


def test_one_for_each_endpoint_however_many_use_it() -> None:
    async def scenario() -> None:
        channels = Channels(Limits())
        first = channels.acquire("grpc://127.0.0.1:9")
        assert channels.acquire("grpc://127.0.0.1:9") is first
        assert channels.acquire("grpc://127.0.0.1:10") is not first
        await channels.release("grpc://127.0.0.1:9")
        await channels.release("grpc://127.0.0.1:9")
        assert channels.acquire("grpc://127.0.0.1:9") is first
        await channels.close()

    run(scenario)


def test_those_that_are_not_used_for_longest_are_closed() -> None:
    async def scenario() -> None:
        channels = Channels(Limits())
        in_use = channels.acquire("grpc://127.0.0.1:1")
        ports = range(2, module._MAX_UNUSED_CHANNELS + 12)
        taken = {port: channels.acquire(f"grpc://127.0.0.1:{port}") for port in ports}
        for port in ports:
            await channels.release(f"grpc://127.0.0.1:{port}")
        assert len(channels._open) == 1 + module._MAX_UNUSED_CHANNELS
        assert channels.acquire("grpc://127.0.0.1:1") is in_use
        newest, oldest = max(ports), min(ports)
        assert channels.acquire(f"grpc://127.0.0.1:{newest}") is taken[newest]
        assert channels.acquire(f"grpc://127.0.0.1:{oldest}") is not taken[oldest]
        assert taken[oldest].get_state() is grpc.ChannelConnectivity.SHUTDOWN
        await channels.close()
        assert in_use.get_state() is grpc.ChannelConnectivity.SHUTDOWN

    run(scenario)


def test_what_is_no_endpoint_is_refused() -> None:
    async def scenario() -> None:
        channels = Channels(Limits())
        with pytest.raises(ValueError, match="expected grpc://HOST:PORT"):
            channels.acquire("human")
        assert not channels._open

    run(scenario)


@pytest.mark.parametrize(("most_bytes", "is_taken"), [(8 << 20, True), (5 << 20, False)])
def test_replies_may_be_as_large_as_the_limit_says(most_bytes: int, is_taken: bool) -> None:
    class Verbose(FakeAgent):
        async def Version(self, request: object, context: object) -> VersionInfo:  # noqa: N802
            return VersionInfo(versions=[VersionInfo.Version(name="x" * (6 << 20))])

    async def scenario() -> None:
        channels = Channels(Limits(max_reply_bytes=most_bytes))
        async with listening(Verbose("a", CallLog())) as (endpoint, _):
            call = AgentStub(channels.acquire(endpoint)).Version(VersionRequest(), timeout=10)
            assert await call.code() is (grpc.StatusCode.OK if is_taken else grpc.StatusCode.RESOURCE_EXHAUSTED)
            await channels.close()

    run(scenario)
