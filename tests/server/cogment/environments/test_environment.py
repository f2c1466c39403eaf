"""Trials in an engine: what their actors see is what pool and renderer make when driven by hand."""

import gc
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc

from scripts.support.messages import packed
from scripts.support.reference_world import ReferenceWorld
from tests.support.trial_engine import EngineHarness, Watcher, action, actor_class, config, same, starting, updating
from worldloom.kernels.outputs import OUTPUT_NAMES
from worldloom.protos.worldloom import trials_pb2
from worldloom.render.cpu import CPURenderer
from worldloom.server.dm_env_rpc.session import Session
from worldloom.worlds.lanes import RUNNING

IDLE = action()


@pytest.fixture
def harness(cpu: CPURenderer) -> EngineHarness:
    return EngineHarness(cpu)


def pushes(rng: np.random.Generator, direct: ReferenceWorld, actors: int) -> list[dict[str, Any]]:
    """Random actions of all actors."""
    return [
        {
            spec.name: rng.integers(
                np.asarray(spec.minimum or 0, int), np.asarray(spec.maximum or 0, int) + 1, spec.shape
            ).astype(spec.dtype)
            if np.dtype(spec.dtype).kind == "i"
            else rng.uniform(-1, 1, spec.shape).astype(spec.dtype)
            for spec in direct.pool.family.actions
        }
        for _ in range(actors)
    ]


def step_by_hand(direct: ReferenceWorld, given: list[dict[str, Any]]) -> None:
    direct.step(**{name: np.stack([one[name] for one in given])[None] for name in given[0]})


def expected_of(
    direct: ReferenceWorld, actor: int, names: tuple[str, ...], size: tuple[int, int]
) -> dict[str, np.ndarray]:
    width, height = size
    drawing = {name: {"width": width, "height": height} if "." in name else {} for name in names}
    return {name: direct.see(name, actor, **drawing[name])[0] for name in names}


CASTS: dict[str, list[tuple[int, tuple[str, ...], tuple[int, int]]]] = {
    "cartpole": [(1, ("eye.rgb", "reward", "pose"), (24, 16))],
    "catch": [(1, ("eye.gray", "discount", "step_type"), (20, 20))],
    "maze": [
        (2, ("eye.rgb", "eye.depth", "position", "goals_left"), (16, 12)),
        (0, ("map.rgb",), (64, 64)),
        (3, ("map.segmentation", "reward"), (9, 9)),
    ],
}
"""Family -> for each class how many actors, what they see, width and height."""


class Expected:
    """A trial that is played by hand."""

    def __init__(self, renderer: CPURenderer, family: str, seed: int, **settings: Any) -> None:
        self.cast = [(see, size) for count, see, size in CASTS[family] for _ in range(count)]
        agents = {"agents": len(self.cast)} if len(self.cast) > 1 else {}
        self.direct = ReferenceWorld(renderer, family, seed, **agents, **settings)
        self.direct.step()
        self._rng = np.random.default_rng(1)

    def push(self) -> list[bytes]:
        """Step with random actions, and return their contents."""
        given = pushes(self._rng, self.direct, len(self.cast))
        step_by_hand(self.direct, given)
        return [action(**one) for one in given]

    def check(self, seen: list[dict[str, np.ndarray]]) -> None:
        for actor, (shown, (see, size)) in enumerate(zip(seen, self.cast, strict=True)):
            same(shown, expected_of(self.direct, actor, see, size))

    @property
    def rewards(self) -> list[tuple[int, float]]:
        return list(enumerate(self.direct.pool.reward[self.direct.lanes[0]].tolist()))

    @property
    def has_ended(self) -> bool:
        return bool(self.direct.pool.status[self.direct.lanes[0]] != RUNNING)


@pytest.mark.parametrize("deltas", [False, True])
@pytest.mark.parametrize("family", CASTS)
def test_actors_see_what_the_world_shows_until_it_ends(
    harness: EngineHarness, cpu: CPURenderer, family: str, deltas: bool
) -> None:
    classes = [
        actor_class(f"c{number}", *see, deltas=deltas, width=width, height=height)
        for number, (_, see, (width, height)) in enumerate(CASTS[family])
    ]
    settings = {} if family == "catch" else {"max_steps": 9}
    expected = Expected(cpu, family, 7, **settings)
    watcher = Watcher()
    counts = [count for count, _, _ in CASTS[family]]
    first = harness.start("t", counts, config(*classes, family=family, seed=7, **settings))
    assert first.tick_id == 0
    assert all(one.snapshot for one in first.observations)
    expected.check(watcher.see(first))
    at_ns = first.timestamp
    for tick_id in range(1, 100):
        reply = harness.update("t", *expected.push())
        seen = reply.observation_set
        assert seen.tick_id == tick_id
        assert at_ns <= seen.timestamp <= time.time_ns()
        at_ns = seen.timestamp
        assert {one.snapshot for one in seen.observations} == {not deltas}
        expected.check(watcher.see(seen))
        assert [(one.actor_id, one.value) for one in reply.feedbacks] == expected.rewards
        assert all((one.tick_id, one.confidence) == (-1, float(one.value != 0)) for one in reply.feedbacks)
        assert not reply.messages
        assert reply.end_trial == expected.has_ended
        if reply.end_trial:
            break
    assert tick_id > 5
    harness.check_empty()


def test_rewards_have_the_confidence_of_the_configuration(harness: EngineHarness) -> None:
    """A ball falls beside the paddle: rewards of 0, then -1."""
    environment = config(actor_class("p", "reward"), family="catch", seed=7)
    environment.reward_confidence, environment.zero_reward_confidence = 0.5, 0.25
    harness.start("t", [1], environment)
    found: list[tuple[float, float]] = []
    is_over = False
    while not is_over:
        reply = harness.update("t", IDLE)
        found += [(one.value, one.confidence) for one in reply.feedbacks]
        is_over = reply.end_trial
    assert set(found[:-1]) == {(0.0, 0.25)}
    assert found[-1] in ((1.0, 0.5), (-1.0, 0.5))


def test_actions_that_are_not_sent_do_nothing(harness: EngineHarness, cpu: CPURenderer) -> None:
    harness.start("t", [2], config(actor_class("p", "position", "heading"), family="maze", seed=3))
    direct = ReferenceWorld(cpu, "maze", 3, agents=2)
    direct.step()
    direct.step(turn=np.array([[1.0, 0.0]]))
    reply = harness.update("t", action(turn=np.float32(1.0)), IDLE)
    for actor, shown in enumerate(Watcher().see(reply.observation_set)):
        same(shown, expected_of(direct, actor, ("position", "heading"), (0, 0)))


def test_settings_of_the_trial_win_over_those_of_the_environment(cpu: CPURenderer) -> None:
    harness = EngineHarness(cpu, config(actor_class("p", "goals_left"), family="maze", seed=1, goals=2))
    for trial_id, own, goals in (("a", {}, 2), ("b", {"goals": 5}, 5), ("c", {"goals": 7, "size": 15}, 7)):
        (seen,) = Watcher().see(harness.start(trial_id, [1], **own))
        assert seen["goals_left"] == goals


def test_a_configuration_that_comes_with_the_start_is_taken_instead_of_the_servers_own(cpu: CPURenderer) -> None:
    harness = EngineHarness(cpu, config(actor_class("p", "reward"), family="catch"))
    (seen,) = Watcher().see(harness.start("own", [1]))
    assert set(seen) == {"reward"}
    (seen,) = Watcher().see(harness.start("other", [1], config(actor_class("q", "goals_left"), family="maze")))
    assert set(seen) == {"goals_left"}


def test_the_same_seed_gives_the_same_bytes_and_none_gives_another_each_time(harness: EngineHarness) -> None:
    asked = [starting(name, [1], config(actor_class("p", "map.rgb"), family="maze"), seed=5) for name in "ab"]
    asked += [starting(name, [1], config(actor_class("p", "map.rgb"), family="maze")) for name in "cd"]
    replies = harness.ask_all(*(harness.environment.start(one) for one in asked))
    a, b, c, d = [one.observation_set.observations[0].content for one in replies]
    assert a == b
    assert len({a, c, d}) == 3


def test_actors_who_see_the_same_share_it(harness: EngineHarness) -> None:
    """Those with the map see the same, across classes; what an eye sees is its own."""
    classes = [
        actor_class("maps", "map.rgb", width=8, height=8),
        actor_class("eyes", "eye.rgb"),
        actor_class("more maps", "map.rgb", width=8, height=8),
    ]
    seen = harness.start("t", [2, 2, 2], config(*classes, family="maze", seed=2))
    assert list(seen.actors_map) == [0, 0, 1, 2, 0, 0]
    assert len(seen.observations) == 3
    seen = harness.update("t", *[IDLE] * 6).observation_set
    assert list(seen.actors_map) == [0, 0, 1, 2, 0, 0]


def test_a_delta_is_not_shared_with_those_who_take_none(harness: EngineHarness) -> None:
    classes = [actor_class("with", "map.rgb", deltas=True), actor_class("without", "map.rgb")]
    harness.start("t", [2, 1], config(*classes, family="maze", seed=2))
    turned = action(turn=np.float32(1.0))  # everything is another to see
    seen = harness.update("t", turned, turned, turned).observation_set
    assert [one.snapshot for one in seen.observations] == [False, True]
    assert list(seen.actors_map) == [0, 0, 1]


def test_a_delta_holds_what_changed(harness: EngineHarness) -> None:
    player = actor_class("p", "map.rgb", "goals_left", "position", "heading", "step_type", deltas=True)
    harness.start("t", [1], config(player, family="maze", seed=2))

    def changed(given: bytes, snapshot: bool = False) -> tuple[bool, set[str]]:
        (data,) = harness.update("t", given, snapshot=snapshot).observation_set.observations
        return data.snapshot, set(trials_pb2.ObservationDelta.FromString(data.content).observations)

    assert changed(IDLE) == (False, {"step_type"})
    assert changed(IDLE) == (False, set())
    assert changed(action(turn=np.float32(1.0))) == (False, {"heading", "map.rgb"})
    everything = {"map.rgb", "goals_left", "position", "heading", "step_type"}
    assert changed(IDLE, snapshot=True) == (True, everything)
    assert changed(IDLE) == (False, set())


def test_a_class_that_requests_nothing_sees_nothing_and_nothing_is_drawn(harness: EngineHarness) -> None:
    classes = [actor_class("blind"), actor_class("numbers", "position", deltas=True)]
    seen = harness.start("t", [2, 1], config(*classes, family="maze"))
    assert seen.observations[0].content == b""
    assert list(seen.actors_map) == [0, 0, 1]
    for _ in range(3):
        harness.update("t", IDLE, IDLE, IDLE)
    assert harness.engine.counters.draws == 0
    assert harness.engine.reply_buffers < 10


def test_only_what_classes_request_is_drawn(harness: EngineHarness) -> None:
    classes = [actor_class("eyes", "eye.rgb"), actor_class("maps", "map.depth"), actor_class("blind", "reward")]
    harness.start("t", [2, 1, 1], config(*classes, family="maze"))
    assert harness.engine.counters.frames == {**dict.fromkeys(OUTPUT_NAMES, 0), "rgb": 2, "depth": 1}
    assert harness.engine.counters.draws == 1


def test_a_hundred_trials_are_drawn_in_shared_batches(harness: EngineHarness) -> None:
    environment = config(actor_class("p", "eye.rgb", width=8, height=8), family="maze", seed=1)
    names = [f"t{number}" for number in range(100)]
    replies = harness.ask_all(*(harness.environment.start(starting(name, [2], environment)) for name in names))
    counters = harness.engine.counters
    for tick_id in range(1, 4):
        replies = harness.ask_all(*(harness.environment.update(updating(name, IDLE, IDLE)) for name in names))
        assert {reply.observation_set.tick_id for reply in replies} == {tick_id}
    assert (counters.ticks, counters.draws, counters.steps) == (4, 4, 800)
    assert counters.mean_batch == 200
    assert counters.trials == 100
    harness.ask_all(*(harness.environment.end(updating(name)) for name in names))
    harness.check_empty()


@pytest.fixture
def _without_garbage_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_without_garbage_collection")
def test_memory_of_observations_is_used_again(harness: EngineHarness) -> None:
    classes = [actor_class("a", "eye.rgb", deltas=True), actor_class("b", "eye.rgb")]
    harness.start("t", [1, 1], config(*classes, family="maze"))
    for _ in range(50):
        harness.update("t", action(turn=np.float32(1.0)), IDLE)
    assert harness.engine.reply_buffers <= 6


def test_trials_and_streams_share_a_batch(harness: EngineHarness, cpu: CPURenderer) -> None:
    harness.start("t", [1], config(actor_class("p", "eye.rgb"), family="catch", seed=4))
    sink: list[bytes] = []
    session = Session(harness.engine, "s", sink.append)

    def ask(**payload: Any) -> rpc.EnvironmentResponse:
        harness.engine.post(lambda: session.receive(rpc.EnvironmentRequest(**payload).SerializeToString()))
        harness.tick()
        return rpc.EnvironmentResponse.FromString(sink.pop())

    created = ask(create_world=rpc.CreateWorldRequest(settings=packed({"family": "maze", "seed": 4})))
    joined = ask(join_world=rpc.JoinWorldRequest(world_name=created.create_world.world_name))
    uid = next(uid for uid, spec in joined.join_world.specs.observations.items() if spec.name == "eye.rgb")
    step = rpc.EnvironmentRequest(step=rpc.StepRequest(requested_observations=[uid]))
    draws = harness.engine.counters.draws
    harness.engine.post(lambda: session.receive(step.SerializeToString()))
    reply = harness.update("t", IDLE)
    assert harness.engine.counters.draws == draws + 1
    catch, maze = ReferenceWorld(cpu, "catch", 4), ReferenceWorld(cpu, "maze", 4)
    for direct in (catch, catch, maze):
        direct.step()
    (shown,) = Watcher().see(reply.observation_set)
    same(shown, {"eye.rgb": catch.see("eye.rgb")[0]})
    observations = rpc.EnvironmentResponse.FromString(sink.pop()).step.observations
    assert observations[uid].uint8s.array == maze.see("eye.rgb")[0].tobytes()
