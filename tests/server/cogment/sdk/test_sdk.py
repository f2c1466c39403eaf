"""The real SDK, cogment 0.3.0a8: its client, its agents, its environment and its hooks take part in our trials."""

import base64
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf.internal.decoder import _DecodeVarint32

from scripts.support.server_process import ServerProcess, serving
from tests.server.cogment.sdk.programs import Program, program, service, services
from worldloom.protos.cogment.api import agent_pb2 as agent_api
from worldloom.protos.cogment.api import environment_pb2 as env_api
from worldloom.protos.cogment.api.agent_pb2_grpc import AgentStub
from worldloom.protos.cogment.api.common_pb2 import Observation, VersionRequest
from worldloom.protos.cogment.api.data_pb2 import DatalogSample
from worldloom.protos.cogment.api.environment_pb2_grpc import EnvironmentStub
from worldloom.protos.cogment.api.hooks_pb2_grpc import TrialHooksStub
from worldloom.protos.cogment.api.orchestrator_pb2_grpc import TrialStub
from worldloom.protos.worldloom import trials_pb2

TIMEOUT_S = 60.0
SIDE = 32
GOAL = 3
"""Among the labels of a maze."""
STEPS = 25
"""Of trials that the hook has changed."""
SEED = 5
"""Of mazes in which the seekers see goals, and get to one."""
ACTORS = """\
  actors:
    - {{actor_class: player, endpoint: human}}
    - {{actor_class: agent, endpoint: "{first}"}}
    - {{actor_class: agent, endpoint: "{second}"}}
"""
CLASSES = """\
actor_classes:
  - id: player
  - id: agent
    observation: {space: worldloom.trials.Observation, delta: worldloom.trials.ObservationDelta}
"""
MAZE = """\
trial_params:
  environment:
    config:
      world: {family: maze, size: 5, goals: 16, max_steps: 30}
      actor_classes:
        player: {observations: [eye.rgb, reward], join: {width: 32, height: 32}}
        agent: {observations: [eye.segmentation, discount], join: {width: 32, height: 32}}
"""


class Stage(NamedTuple):
    server: ServerProcess
    seekers: list[Program]
    datalog: Path


@contextmanager
def stage(folder: Path, params: str, more: str = "") -> Iterator[Stage]:
    """A server whose trials have a human and two agents of the SDK."""
    with ExitStack() as at_the_end:
        seekers, endpoints = at_the_end.enter_context(services("agent", "agent"))
        datalog = folder / "datalog"
        text = CLASSES + params + ACTORS.format(first=endpoints[0], second=endpoints[1]) + more
        (folder / "trial.yaml").write_text(f"{text}datalog: {{type: file, path: {datalog}}}\n")
        server = at_the_end.enter_context(serving("--cogment", str(folder / "trial.yaml")))
        yield Stage(server, seekers, datalog)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The stage of most tests."""
    with stage(tmp_path_factory.mktemp("stage"), MAZE) as made:
        yield made


class Hooked(NamedTuple):
    start: dict[str, Any]
    ticks: list[dict[str, Any]]
    fact: dict[str, Any]
    versions: dict[str, str]
    samples: list[DatalogSample]


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory) -> Hooked:
    """A trial that a hook made STEPS long, and all that was kept of it when its server had ended."""
    with service("hooks") as (hooks, endpoint):
        with stage(tmp_path_factory.mktemp("hooked"), MAZE, f"trial: {{pre_hooks: ['{endpoint}']}}\n") as there:
            start, *ticks = play(there.server.address, "unary", "1000", str(SEED))
        return Hooked(start, ticks, hooks.next_fact(), versions(endpoint, TrialHooksStub), samples(there.datalog))


def play(address: str, *words: str) -> list[dict[str, Any]]:
    """What a client of the SDK tells of a trial."""
    with program("client.py", address, *words) as client:
        facts = client.facts_until(done=True)
        client.finish()
    return facts[:-1]


def samples(path: Path) -> list[DatalogSample]:
    data, place, found = path.read_bytes(), 0, []
    while place < len(data):
        length, place = _DecodeVarint32(data, place)
        found.append(DatalogSample.FromString(data[place : place + length]))
        place += length
    return found


def versions(address: str, make_stub: Any) -> dict[str, str]:
    with grpc.insecure_channel(address.removeprefix("grpc://")) as channel:
        info = make_stub(channel).Version(VersionRequest(), timeout=TIMEOUT_S, wait_for_ready=True)
    return {one.name: one.version for one in info.versions}


def labels_of(sample: DatalogSample, actor: int, last: dict[int, trials_pb2.Observation]) -> bytes:
    """The picture that an actor saw; deltas are put over what it saw last."""
    data = sample.observations.observations[sample.observations.actors_map[actor]]
    seen = trials_pb2.Observation.FromString(data.content)
    if not data.snapshot:
        last[actor].observations.MergeFrom(seen.observations)
        seen = last[actor]
    last[actor] = seen
    return bytes(seen.observations["eye.segmentation"].uint8s.array)


def turn_for(labels: bytes) -> float:
    """As the seeker should steer: worked out row by row."""
    rows = [labels[start : start + SIDE] for start in range(0, len(labels), SIDE)]
    columns = [column for row in rows for column in range(SIDE) if row[column] == GOAL]
    if not columns:
        return 1.0
    offset = (sum(columns) / len(columns) + 0.5) / SIDE - 0.5
    return min(1.0, max(-1.0, -4 * offset))


def as_float32(value: float) -> float:
    number: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return number


def weighed(reward: float) -> float:
    """The world's reward and the client's feedback, -2 at half the confidence; rewards of 0 do not count."""
    return (reward * 1.0 - 2.0 * 0.5) / 1.5 if reward else -2.0


def test_a_human_and_two_agents_play(there: Stage) -> None:
    start, *ticks = play(there.server.address, "unary", "12", str(SEED))
    told = [seeker.facts_until(ended=start["trial"]) for seeker in there.seekers]
    assert start["versions"]["worldloom"]
    assert (start["actor"], start["counts"]) == (0, [1, 2])
    assert start["sees"] == {"eye.rgb": 3 * SIDE * SIDE, "reward": 1}
    assert [tick["tick"] for tick in ticks] == list(range(1, 13))
    assert all(tick["sees"] == start["sees"] and not tick["over"] for tick in ticks)
    # In tick 0 both agents gave the human half a point and wrote to it, and the first sent its message back.
    assert (ticks[0]["feedbacks"], ticks[0]["reward"]) == (3, 0.5)  # the world's reward of 0 does not count
    assert (ticks[1]["feedbacks"], ticks[1]["reward"]) == (1, 0.0)
    assert [sorted(names) for _, names in ticks[0]["heard"]] == [["move", "turn"]] * 2
    assert [sender for sender, _ in ticks[0]["heard"]] == [1, 2]
    assert ticks[1]["heard"] == [[1, ["turn"]]]
    assert {"actor": 1, "message_from": 0, "text": "['turn']"} in told[0]
    assert not any("message_from" in fact for fact in told[1])
    for actor, facts in enumerate(told, start=1):
        rewards = [fact["reward"] for fact in facts if "reward" in fact]
        assert len(rewards) == 12
        assert sorted({round(reward, 4) for reward in rewards}) == [
            round(weighed(0.0), 4),
            weighed(1.0),
        ]  # it got a goal
        assert all(fact["actor"] == actor for fact in facts)
        assert all(fact["feedbacks"] == 2 for fact in facts if "reward" in fact)


def test_streaming_to_the_end(there: Stage) -> None:
    start, *ticks = play(there.server.address, "stream", "1000", str(SEED))
    for seeker in there.seekers:
        assert seeker.facts_until(ended=start["trial"])
    assert [tick["tick"] for tick in ticks] == list(range(1, 31))
    assert [tick["over"] for tick in ticks] == [False] * 29 + [True]
    assert ticks[-1]["sees"] == start["sees"]


def test_its_environment_serves_our_trials(tmp_path: Path) -> None:
    config = trials_pb2.EnvironmentConfig()
    config.world_settings["colour"].strings.array.append("blue")
    content = base64.b64encode(config.SerializeToString()).decode()
    with service("environment") as (environment, endpoint):
        external = f"trial_params:\n  environment: {{endpoint: '{endpoint}', config: !!binary {content}}}\n"
        with stage(tmp_path, external) as there:
            start, *ticks = play(there.server.address, "unary", "1000")
            assert environment.next_fact() == {"started": start["trial"], "settings": ["colour"]}
            assert environment.next_fact() == {"message_from": 0, "text": "['turn']"}
            assert environment.next_fact() == {"ended": start["trial"]}
            for seeker in there.seekers:
                seeker.facts_until(ended=start["trial"])
        assert versions(endpoint, EnvironmentStub)["counter"] == "4.5.6"
    # Its picture has a goal at the right edge, so that both agents turn right as fast as they can; the human does not.
    assert [tick["total"] for tick in ticks] == [[-2.0 * tick] for tick in range(1, 6)]
    assert [tick["over"] for tick in ticks] == [False] * 4 + [True]
    assert [tick["sees"] for tick in ticks] == [{"total": 1, "eye.segmentation": 4}] * 5
    assert all([-1, ["turn"]] in tick["heard"] for tick in ticks)


def test_its_hooks_change_our_trials(hooked: Hooked) -> None:
    assert hooked.versions["shortener"] == "7.8.9"
    assert hooked.fact["pre_trial"] == hooked.start["trial"]
    assert hooked.fact["actors"] == ["player", "agent", "agent"]
    assert [tick["over"] for tick in hooked.ticks] == [False] * (STEPS - 1) + [True]


def test_its_agents_decide_from_our_pixels(hooked: Hooked) -> None:
    """Every action is what the picture of its tick asks for, worked out anew from the datalog."""
    kept = [sample for sample in hooked.samples if sample.trial_id == hooked.start["trial"]]
    assert [sample.observations.tick_id for sample in kept] == list(range(STEPS + 1))
    last: dict[int, trials_pb2.Observation] = {}
    turns, deltas = [], 0
    for sample in kept[:-1]:
        for actor in (1, 2):
            wanted = as_float32(turn_for(labels_of(sample, actor, last)))
            action = trials_pb2.Action.FromString(sample.actions[actor].content)
            assert list(action.actions["turn"].floats.array) == [pytest.approx(wanted, abs=1e-6)]
            turns.append(wanted)
        deltas += sum(not one.snapshot for one in sample.observations.observations)
    assert len({round(turn, 3) for turn in turns}) > 10  # what they saw was different nearly every time
    assert deltas == 2 * (STEPS - 1)


def test_its_agents_in_the_hands_of_another_orchestrator(there: Stage) -> None:
    """Our Environment service, driven by hand as an orchestrator does it, with agents of the SDK."""
    with service("agent") as (seeker, endpoint):
        for stub in (TrialStub, EnvironmentStub):
            assert versions(there.server.address, stub)["worldloom"]
        assert versions(endpoint, AgentStub)["seeker"] == "1.2.3"
        with (
            grpc.insecure_channel(there.server.address) as to_environment,
            grpc.insecure_channel(endpoint.removeprefix("grpc://")) as to_agent,
        ):
            environment, agent = EnvironmentStub(to_environment), AgentStub(to_agent)
            counts = [1, 2]
            start = env_api.EnvStartRequest(trial_id="mine", actor_counts=counts)
            seen = environment.Start(start, timeout=TIMEOUT_S).observation_set
            for actor in (1, 2):
                request = agent_api.AgentStartRequest(trial_id="mine", actor_id=actor, actor_counts=counts)
                agent.Start(request, timeout=TIMEOUT_S)
            for tick in range(1, 11):
                update = env_api.EnvUpdateRequest(trial_id="mine")
                update.action_set.actions.append(b"")
                for actor in (1, 2):
                    data = seen.observations[seen.actors_map[actor]]
                    decide = agent_api.AgentDecideRequest(trial_id="mine", actor_id=actor)
                    decide.observation.CopyFrom(Observation(tick_id=seen.tick_id, timestamp=seen.timestamp, data=data))
                    update.action_set.actions.append(agent.Decide(decide, timeout=TIMEOUT_S).action.content)
                reply = environment.Update(update, timeout=TIMEOUT_S)
                seen = reply.observation_set
                assert (seen.tick_id, len(seen.actors_map), reply.end_trial) == (tick, 3, False)
                assert [one.actor_id for one in reply.feedbacks] == [0, 1, 2]
            for actor in (1, 2):
                agent.End(agent_api.AgentEndRequest(trial_id="mine", actor_id=actor), timeout=TIMEOUT_S)
            environment.End(env_api.EnvEndRequest(trial_id="mine"), timeout=TIMEOUT_S)
        assert [seeker.next_fact() for _ in range(2)] == [{"actor": n, "ended": "mine"} for n in (1, 2)]
