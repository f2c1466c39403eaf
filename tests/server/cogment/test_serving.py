"""`worldloom serve --cogment FILE`: the services are beside dm_env_rpc, and end with the server."""

import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from scripts.support.server_process import failed_start
from scripts.support.stream_client import StreamClient
from worldloom.protos.cogment.api import agent_pb2, orchestrator_pb2
from worldloom.protos.cogment.api.agent_pb2_grpc import AgentServicer, add_AgentServicer_to_server
from worldloom.protos.cogment.api.common_pb2 import VersionInfo, VersionRequest
from worldloom.protos.cogment.api.environment_pb2 import EnvStartRequest
from worldloom.protos.cogment.api.environment_pb2_grpc import EnvironmentStub
from worldloom.protos.cogment.api.orchestrator_pb2_grpc import TrialStub
from worldloom.server.cogment.services import SERVICES
from worldloom.server.launch import ServerProcess

TIMEOUT_S = 30.0
START = ("--renderer", "cpu", "--listen", "127.0.0.1:0")
FILE = """\
actor_classes: [{id: player}, {id: agent}]
trial_params:
  environment:
    config:
      world: {family: maze}
      actor_classes: {player: {observations: [reward]}, agent: {observations: [reward]}}
  actors:
    - {actor_class: player, endpoint: human}
    - {actor_class: player, endpoint: human}
"""


class Listener(AgentServicer):
    """An agent that notes when it is told the end, and takes its time to answer that."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.may_answer = threading.Event()

    def Start(self, request: agent_pb2.AgentStartRequest, context: Any) -> agent_pb2.AgentStartReply:  # noqa: N802
        return agent_pb2.AgentStartReply()

    def Decide(self, request: agent_pb2.AgentDecideRequest, context: Any) -> agent_pb2.AgentDecideReply:  # noqa: N802
        return agent_pb2.AgentDecideReply()

    def End(self, request: agent_pb2.AgentEndRequest, context: Any) -> agent_pb2.AgentEndReply:  # noqa: N802
        self.ended.set()
        self.may_answer.wait(TIMEOUT_S)
        return agent_pb2.AgentEndReply()

    def Version(self, request: VersionRequest, context: Any) -> VersionInfo:  # noqa: N802
        return VersionInfo()


@contextmanager
def listening() -> Iterator[tuple[Listener, str]]:
    server, listener = grpc.server(futures.ThreadPoolExecutor(4)), Listener()
    add_AgentServicer_to_server(listener, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield listener, f"  - {{actor_class: agent, endpoint: 'grpc://127.0.0.1:{port}'}}\n"
    finally:
        listener.may_answer.set()
        server.stop(grace=None).wait(TIMEOUT_S)


def test_all_services_are_on_one_port(tmp_path: Path) -> None:
    (tmp_path / "trial.yaml").write_text(FILE)
    with ServerProcess(*START, "--cogment", "trial.yaml", folder=tmp_path) as server:
        with grpc.insecure_channel(server.address) as channel:
            for stub in (TrialStub(channel), EnvironmentStub(channel)):
                versions = stub.Version(VersionRequest(), timeout=TIMEOUT_S, wait_for_ready=True).versions
                assert "worldloom" in {one.name for one in versions}
            health = health_pb2_grpc.HealthStub(channel)
            for service in (*SERVICES, "dm_env_rpc.v1.Environment"):
                answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
            ask = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
            (answer,) = ask(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=TIMEOUT_S)
            assert {"cogment.Trial", "cogment.Environment"} == set(SERVICES)
            assert set(SERVICES) <= {one.name for one in answer.list_services_response.service}
            question = reflection_pb2.ServerReflectionRequest(file_containing_symbol="cogment.Trial")
            (answer,) = ask(iter([question]), timeout=TIMEOUT_S)
            assert answer.WhichOneof("message_response") == "file_descriptor_response"
            started = EnvironmentStub(channel).Start(
                EnvStartRequest(trial_id="mine", actor_counts=[2, 0]), timeout=TIMEOUT_S
            )
            assert len(started.observation_set.actors_map) == 2  # the file's own world
            with StreamClient(server.address) as wire:
                wire.join(wire.create("catch"))
                assert wire.property("counters.worlds") == 2
                assert wire.property("counters.trials") == 1
        assert server.stop() == 0
        assert "Traceback" not in server.log


def test_a_server_that_stops_ends_its_trials(tmp_path: Path) -> None:
    with listening() as (agent, actor):
        agent.may_answer.set()
        (tmp_path / "trial.yaml").write_text(f"{FILE}{'  ' + actor}")
        with ServerProcess(*START, "--cogment", "trial.yaml", folder=tmp_path) as server:
            with grpc.insecure_channel(server.address) as channel:
                trials = TrialStub(channel)
                start = trials.Start(orchestrator_pb2.TrialStartRequest(), timeout=TIMEOUT_S, wait_for_ready=True)
                assert (start.actor_id, list(start.actor_counts)) == (0, [2, 1])
                action = orchestrator_pb2.TrialActionRequest(trial_id=start.trial_id, actor_id=start.actor_id)
                waiting = trials.Action.future(action, timeout=TIMEOUT_S)
                while True:  # until the first is there: then a second is one too many
                    with pytest.raises(grpc.RpcError) as caught:
                        trials.Action(action, timeout=0.5)
                    if caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION:
                        break
                server.process.terminate()
                with pytest.raises(grpc.RpcError, match="the server is shutting down") as caught:
                    waiting.result(TIMEOUT_S)
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert agent.ended.wait(TIMEOUT_S)
            assert server.wait() == 0
            assert "Traceback" not in server.log
            assert "ERROR" not in server.log


def test_a_second_signal_does_not_wait_for_agents(tmp_path: Path) -> None:
    """One that never answers End would else keep the server for as long as deadline_s says."""
    with listening() as (agent, actor):
        (tmp_path / "trial.yaml").write_text(f"{FILE}{'  ' + actor}deadline_s: 20\n")
        with ServerProcess(*START, "--cogment", "trial.yaml", folder=tmp_path) as server:
            with grpc.insecure_channel(server.address) as channel:
                TrialStub(channel).Start(orchestrator_pb2.TrialStartRequest(), timeout=TIMEOUT_S, wait_for_ready=True)
            server.process.terminate()
            assert agent.ended.wait(TIMEOUT_S)
            began_s = time.monotonic()
            server.process.terminate()
            assert server.wait() == 0
            assert time.monotonic() < began_s + 3.0  # less than it waits for agents
            assert "Traceback" not in server.log


def test_a_human_may_take_longer_than_an_idle_world(tmp_path: Path) -> None:
    """Its trial stays, while a world that nobody has joined goes."""
    (tmp_path / "trial.yaml").write_text(FILE.replace("  actors:", "  max_inactivity: 60\n  actors:"))
    with (
        ServerProcess(*START, "--cogment", "trial.yaml", "--idle-world-s", "0.6", folder=tmp_path) as server,
        grpc.insecure_channel(server.address) as channel,
        StreamClient(server.address) as wire,
    ):
        trials = TrialStub(channel)
        start = trials.Start(orchestrator_pb2.TrialStartRequest(), timeout=TIMEOUT_S, wait_for_ready=True)
        wire.create("catch")
        deadline_s = time.monotonic() + TIMEOUT_S
        while wire.property("counters.worlds") == 2:
            assert time.monotonic() < deadline_s
        trials.Join(orchestrator_pb2.TrialJoinRequest(trial_id=start.trial_id, actor_id=1), timeout=TIMEOUT_S)
        answers = [
            trials.Action.future(
                orchestrator_pb2.TrialActionRequest(trial_id=start.trial_id, actor_id=actor), timeout=TIMEOUT_S
            )
            for actor in (0, 1)
        ]
        assert [answer.result(TIMEOUT_S).observation.tick_id for answer in answers] == [1, 1]


def test_a_token_is_for_trials_too(tmp_path: Path) -> None:
    (tmp_path / "trial.yaml").write_text(FILE)
    (tmp_path / "token").write_text("open-sesame\n")
    words = ("--cogment", "trial.yaml", "--token-file", "token")
    with ServerProcess(*START, *words, folder=tmp_path) as server, grpc.insecure_channel(server.address) as channel:
        start = TrialStub(channel).Start
        with pytest.raises(grpc.RpcError, match="there is no token") as caught:
            start(orchestrator_pb2.TrialStartRequest(), timeout=TIMEOUT_S, wait_for_ready=True)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        token = [("authorization", "Bearer open-sesame")]
        assert start(orchestrator_pb2.TrialStartRequest(), metadata=token, timeout=TIMEOUT_S).trial_id


def test_without_a_file_there_are_no_trials() -> None:
    with ServerProcess(*START) as server, grpc.insecure_channel(server.address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            TrialStub(channel).Version(VersionRequest(), timeout=TIMEOUT_S, wait_for_ready=True)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_mistake_in_the_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "trial.yaml").write_text(FILE.replace("family: maze", "family: mase"))
    told = failed_start(*START, "--cogment", "trial.yaml", folder=tmp_path)
    assert told.startswith(
        "trial.yaml:5: unknown family 'mase' (did you mean 'maze'?): expected one of cartpole, catch"
    )
    assert failed_start(*START, "--cogment", "none.yaml", folder=tmp_path).startswith(
        "--cogment none.yaml cannot be read: No such file or directory"
    )


@pytest.mark.parametrize(
    ("method", "header"),
    [
        ("/cogment.Trial/GiveFeedback", b"\x0a\x03abc"),
        ("/cogment.Trial/SendMessage", b"\x0a\x03abc"),
        ("/cogment.Environment/OnMessage", b"\x0a\x03abc"),
        ("/cogment.Trial/ActionStream", b""),
    ],
)
def test_requests_of_a_million_fields_are_refused_before_they_are_parsed(
    tmp_path: Path, method: str, header: bytes
) -> None:
    file = tmp_path / "cogment.yaml"
    file.write_text(FILE)
    server = ServerProcess(*START, "--cogment", str(file))
    try:
        with grpc.insecure_channel(server.address) as channel:
            data = header + b"\x12\x00" * 2_000_000
            is_stream = method.endswith("Stream")
            call = channel.stream_stream(method) if is_stream else channel.unary_stream(method)
            replies = call(iter([data]) if is_stream else data, timeout=TIMEOUT_S)
            with pytest.raises(grpc.RpcError) as failed:
                next(replies)
            assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "more than 8192 fields" in failed.value.details()
            assert TrialStub(channel).Version(VersionRequest(), timeout=TIMEOUT_S).versions
    finally:
        assert server.stop() == 0
