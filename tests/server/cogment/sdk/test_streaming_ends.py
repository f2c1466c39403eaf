"""The SDK's streaming client is told of every abnormal end of a trial: it knows no other way to stop waiting.

Each end is tried with a client that acts without a pause, and with one that thinks while the trial ends.
"""

import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from scripts.support.server_process import ServerProcess, serving
from scripts.support.stream_client import free_port
from tests.server.cogment.sdk.programs import Program, program
from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.orchestrator_pb2_grpc import TrialStub

TIMEOUT_S = 60.0
LIMIT_S = 20.0
"""Most that an end may take to reach a client. It takes some milliseconds; this one is for loaded machines."""
FILE = """\
actor_classes:
  - {{id: player}}
  - id: agent
    observation: {{space: worldloom.trials.Observation, delta: worldloom.trials.ObservationDelta}}
trial_params:
  max_inactivity: {max_inactivity}
  environment: {environment}
  actors:
    - {{actor_class: player, endpoint: human}}
    - {{actor_class: agent, endpoint: "grpc://127.0.0.1:{port}"}}
"""
MAZE = """
    config:
      world: {family: maze, size: 31, goals: 8, max_steps: 1000000}
      actor_classes:
        player: {observations: [reward]}
        agent: {observations: [eye.segmentation], join: {width: 4, height: 1}}"""


class Stage(NamedTuple):
    server: ServerProcess
    agent_port: int


@contextmanager
def running_service(kind: str, port: int) -> Iterator[Program]:
    """A service of the SDK at a port."""
    with program("services.py", kind, str(port)) as started:
        started.wait_for(f"listening on port {port}")
        yield started


@contextmanager
def stage(folder: Path, environment: str, max_inactivity: int) -> Iterator[Stage]:
    port = free_port()
    text = FILE.format(environment=environment, max_inactivity=max_inactivity, port=port)
    (folder / "trial.yaml").write_text(text)
    with serving("--cogment", str(folder / "trial.yaml")) as server:
        yield Stage(server, port)


@pytest.fixture(scope="module")
def maze(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A server with trials in a maze."""
    with stage(tmp_path_factory.mktemp("maze"), MAZE, 1000) as made:
        yield made


@contextmanager
def clients(address: str) -> Iterator[list[Program]]:
    """A client that acts and one that thinks, in trials of their own."""
    with ExitStack() as at_the_end:
        started = [
            at_the_end.enter_context(program("streaming_client.py", address, way)) for way in ("acting", "thinking")
        ]
        yield started


def check_end(
    ending: Program, since_s: float, server: ServerProcess, reason: str, ends: Collection[str], trial: str
) -> dict[str, Any]:
    """Check that a client was told in time, and that its trial ended for this reason."""
    told = ending.next_fact()
    assert 0 <= told["over_at_s"] - since_s < LIMIT_S
    assert told["sees"]
    assert ending.next_fact()["end"] in ends
    ending.finish()
    (line,) = [one for one in server.log.splitlines() if "trial ended" in one and trial in one]
    assert reason in line
    return told


def check_ends(
    started: list[Program], stage: Stage, cause: Any, reason: str, ends: Collection[str] = ("OK",)
) -> list[float]:
    """Let a cause end the trials of both clients; return after how many seconds each was told."""
    acting, thinking = started
    trials = [one.next_fact()["trial"] for one in started]
    for one in started:
        one.facts_until(plays=True)
    since_s = time.time()
    cause(trials)
    told = check_end(acting, since_s, stage.server, reason, ends, trials[0])
    waits_s = [told["over_at_s"] - since_s]
    thinking.say("")
    since_s = thinking.next_fact()["acts_at_s"]
    told = check_end(thinking, since_s, stage.server, reason, ends, trials[1])
    return [*waits_s, told["over_at_s"] - since_s]


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_an_agent_is_gone(maze: Stage, how: str) -> None:
    with running_service("agent", maze.agent_port) as agent, clients(maze.server.address) as started:
        cause = agent.close if how == "killed" else agent.terminate
        waits_s = check_ends(started, maze, lambda _: cause(), f"agent 1 (agent) at grpc://127.0.0.1:{maze.agent_port}")
        print(waits_s)


def test_someone_else_ends_the_trial(maze: Stage) -> None:
    def end(trials: list[str]) -> None:
        with grpc.insecure_channel(maze.server.address) as channel:
            for trial in trials:
                TrialStub(channel).End(api.TrialEndRequest(trial_id=trial), timeout=TIMEOUT_S)

    with running_service("agent", maze.agent_port), clients(maze.server.address) as started:
        print(check_ends(started, maze, end, "a client ended it"))


def test_the_environment_is_gone_or_the_human_silent(tmp_path: Path) -> None:
    port = free_port()
    environment = f"{{endpoint: 'grpc://127.0.0.1:{port}'}}"
    with ExitStack() as at_the_end:
        gone = at_the_end.enter_context(running_service("endless", port))
        made = at_the_end.enter_context(stage(tmp_path, environment, 4))
        at_the_end.enter_context(running_service("agent", made.agent_port))
        acting, thinking = at_the_end.enter_context(clients(made.server.address))
        trials = [one.next_fact()["trial"] for one in (acting, thinking)]
        thinking.facts_until(plays=True)
        deadline_s = time.monotonic() + TIMEOUT_S
        while "inactive for 4 s" not in made.server.log:
            assert time.monotonic() < deadline_s, made.server.log
            time.sleep(0.05)
        thinking.say("")
        silent_since_s = thinking.next_fact()["acts_at_s"]
        silent = check_end(
            thinking, silent_since_s, made.server, "inactive for 4 s (max_inactivity)", ("OK",), trials[1]
        )
        acting.facts_until(plays=True)
        since_s = time.time()
        gone.close()
        told = check_end(
            acting, since_s, made.server, f"the environment at grpc://127.0.0.1:{port}", ("OK",), trials[0]
        )
        waits_s = [told["over_at_s"] - since_s, silent["over_at_s"] - silent_since_s]
        print(waits_s)


def test_the_server_stops(tmp_path: Path) -> None:
    with ExitStack() as at_the_end:
        made = at_the_end.enter_context(stage(tmp_path, MAZE, 1000))
        at_the_end.enter_context(running_service("agent", made.agent_port))
        started = at_the_end.enter_context(clients(made.server.address))
        ends = ("OK", "UNAVAILABLE", "CANCELLED")  # whether a client's last call still reaches the server is a race
        print(check_ends(started, made, lambda _: made.server.stop_cleanly(), "the server is shutting down", ends))
