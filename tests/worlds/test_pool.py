"""Pools compared with a plain model: episodes follow the protocol, and lanes do not affect each other."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.toy import Toy
from worldloom.kernels.tables import I64, NO_MESH
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.episodes import FIRST, INTERRUPTED, LAST, MID, RUNNING, TERMINATED, find_invalid_lane
from worldloom.worlds.family import State, StepResult
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import integers, lane_seeds, mix

ASSETS = AssetLibrary(texture_size=8)
AGENTS, LONGEST, MAX_STEPS = 2, 6, 4
PUSHES = st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0])
"""Actions whose sums are exact."""


def make_pool(scene: Scene | None = None, **settings: object) -> Pool:
    chosen = {"agents": AGENTS, "longest": LONGEST, "max_steps": MAX_STEPS, **settings}
    return Pool(Toy(chosen, ASSETS), scene or Scene(ASSETS))


def seeds_from(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint64)


def push(*rows: tuple[float, float]) -> dict[str, np.ndarray]:
    """Return the same push for every agent of a lane."""
    return {"push": np.repeat(np.array(rows, np.float32).reshape(-1, 1, 2), AGENTS, axis=1)}


def idle(lanes: I64, agents: int = AGENTS) -> dict[str, np.ndarray]:
    return {"push": np.zeros((len(lanes), agents, 2), np.float32)}


@dataclass
class Lane:
    """Expected results of one lane."""

    seed: int
    status: int = INTERRUPTED
    step_type: int = LAST
    episode: int = -1
    count: int = 0
    end: int = 0
    reward: float = 0.0
    discount: float = 1.0
    pushed: tuple[float, float] = (0.0, 0.0)

    def step(self, pushed: tuple[float, float]) -> None:
        if self.status != RUNNING:
            self.episode += 1
            self.count, self.pushed = 0, (0.0, 0.0)
            self.end = 1 + int(integers(mix(seeds_from(self.seed), self.episode), 0, LONGEST)[0])
            self.status, self.step_type, self.reward, self.discount = RUNNING, FIRST, 0.0, 1.0
            return
        self.count += 1
        self.pushed = (self.pushed[0] + pushed[0], self.pushed[1] + pushed[1])
        self.reward = sum(pushed)
        if self.count >= self.end:
            self.status, self.step_type, self.discount = TERMINATED, LAST, 0.0
        elif self.count >= MAX_STEPS:
            self.status, self.step_type, self.discount = INTERRUPTED, LAST, 1.0
        else:
            self.status, self.step_type, self.discount = RUNNING, MID, 1.0


class WorldsComeAndGo(RuleBasedStateMachine):
    """Add, step, interrupt and free lanes at random in one of two pools over one scene; the other must not change."""

    def __init__(self) -> None:
        super().__init__()
        scene = Scene(ASSETS)
        self.pool = make_pool(scene)
        self.model: dict[int, Lane] = {}
        self.next_seed = 0
        self.other = make_pool(scene)
        self.bystanders = self.other.add(lane_seeds(99, 3))
        for _ in range(2):
            self.other.step(self.bystanders, idle(self.bystanders))
        self.other.views(self.bystanders, "eye")
        self.before = self.snapshot()

    def snapshot(self) -> list[bytes]:
        """Return the state and the frames of the lanes of the other pool."""
        lanes, pool = self.bystanders, self.other
        rows = pool.scene.rows(pool.scene_lane[lanes])
        return [
            *(getattr(pool.state, name)[lanes].tobytes() for name in pool.state.fields),
            *(getattr(pool, name)[lanes].tobytes() for name in ("status", "step_type", "steps", "reward")),
            *(column[rows].tobytes() for column in pool.scene.instances),
        ]

    def some(self, data: st.DataObject) -> list[int]:
        return data.draw(st.lists(st.sampled_from(sorted(self.model)), unique=True)) if self.model else []

    @rule(count=st.integers(0, 9))
    def add(self, count: int) -> None:
        seeds = np.arange(self.next_seed, self.next_seed + count).astype(np.uint64)
        self.next_seed += count
        lanes = self.pool.add(seeds)
        assert lanes.dtype == np.int64
        assert len(set(lanes.tolist())) == count
        assert not set(lanes.tolist()) & set(self.model)
        rows = self.pool.scene.rows(self.pool.scene_lane[lanes])
        assert (self.pool.scene.instances.mesh[rows] == NO_MESH).all()
        self.model |= {lane: Lane(int(seed)) for lane, seed in zip(lanes.tolist(), seeds, strict=True)}

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        lanes = self.some(data)
        self.pool.free(np.array(lanes, np.int64))
        for lane in lanes:
            del self.model[lane]

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        lanes = self.some(data)
        pushes = [data.draw(st.tuples(PUSHES, PUSHES)) for _ in lanes]
        self.pool.step(np.array(lanes, np.int64), push(*pushes))
        for lane, pushed in zip(lanes, pushes, strict=True):
            self.model[lane].step(pushed)

    @rule(times=st.integers(1, 9))
    def step_everyone(self, times: int) -> None:
        lanes = np.array(sorted(self.model), np.int64)
        for _ in range(times):
            self.pool.step(lanes, push(*[(1.0, 0.5)] * len(lanes)))
            for lane in self.model.values():
                lane.step((1.0, 0.5))

    @rule(data=st.data())
    def interrupt(self, data: st.DataObject) -> None:
        lanes = self.some(data)
        self.pool.interrupt(np.array(lanes, np.int64))
        for lane in lanes:
            self.model[lane].status = INTERRUPTED

    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        self.pool.views(np.array(self.some(data), np.int64), "eye")

    @rule(data=st.data(), stranger=st.sampled_from([-1, 10_000]))
    def ask_for_lanes_that_are_not_there(self, data: st.DataObject, stranger: int) -> None:
        freed = next((lane for lane in range(self.pool.capacity) if lane not in self.model), stranger)
        for wrong in (stranger, freed):
            lanes = np.array([*self.some(data), wrong], np.int64)
            for call in (self.pool.free, self.pool.interrupt, lambda some: self.pool.step(some, idle(some))):
                with pytest.raises(ValueError, match=f"lane {wrong} of toy: expected a lane that is in use"):
                    call(lanes)

    @invariant()
    def everyone_is_as_expected(self) -> None:
        pool = self.pool
        for number, lane in self.model.items():
            state = {name: getattr(pool.state, name)[number] for name in pool.state.fields}
            assert (pool.state.lane_seed[number], pool.status[number]) == (lane.seed, lane.status)
            assert (pool.step_type[number], pool.episode[number]) == (lane.step_type, lane.episode)
            assert (pool.reward[number] == lane.reward).all()
            assert pool.discount[number] == lane.discount
            if lane.episode >= 0:
                assert (state["count"], state["end"], pool.steps[number]) == (lane.count, lane.end, lane.count)
                assert (state["pushed"][:AGENTS] == lane.pushed).all()

    @invariant()
    def bystanders_are_as_they_were(self) -> None:
        assert self.snapshot() == self.before

    @invariant()
    def room_is_no_more_than_twice_what_was_ever_needed(self) -> None:
        assert self.pool.capacity <= 2 * self.next_seed


TestWorldsComeAndGo = WorldsComeAndGo.TestCase
TestWorldsComeAndGo.settings = hypothesis_settings(max_examples=60, stateful_step_count=40)


def run_until_end(pool: Pool) -> tuple[int, int, float]:
    """Return the steps of a single lane's first episode, its last status and discount."""
    lanes = pool.add(seeds_from(5))
    pool.step(lanes, idle(lanes))
    while pool.status[lanes[0]] == RUNNING:
        pool.step(lanes, idle(lanes))
    assert pool.step_type[lanes[0]] == LAST
    return int(pool.steps[lanes[0]]), int(pool.status[lanes[0]]), float(pool.discount[lanes[0]])


def test_a_natural_end_counts_more_than_the_time_limit_at_the_same_step() -> None:
    end, status, discount = run_until_end(make_pool(longest=50, max_steps=1000))
    assert (status, discount) == (TERMINATED, 0.0)
    assert end > 1
    assert run_until_end(make_pool(longest=50, max_steps=end)) == (end, TERMINATED, 0.0)
    assert run_until_end(make_pool(longest=50, max_steps=end - 1)) == (end - 1, INTERRUPTED, 1.0)
    assert run_until_end(make_pool(longest=50, max_steps=end + 1)) == (end, TERMINATED, 0.0)


def test_the_step_after_last_begins_the_next_episode_and_ignores_its_action() -> None:
    pool = make_pool(max_steps=1, longest=1000)
    lanes = pool.add(seeds_from(5, 6))
    pool.step(lanes, push((1, 1), (1, 1)))
    assert pool.step_type[lanes].tolist() == [FIRST, FIRST]
    assert (pool.reward[lanes] == 0).all()
    assert (pool.state.pushed[lanes] == 0).all()
    first = pool.state.seed[lanes].copy()
    pool.step(lanes[:1], push((1, 1)))
    assert pool.step_type[lanes].tolist() == [LAST, FIRST]
    pool.step(lanes, push((1, 1), (0.5, 0.25)))
    assert pool.step_type[lanes].tolist() == [FIRST, LAST]
    assert pool.episode[lanes].tolist() == [1, 0]
    assert (pool.state.pushed[lanes[0]] == 0).all()
    assert pool.reward[lanes].tolist() == [[0.0, 0.0], [0.75, 0.75]]
    assert (pool.state.seed[lanes] == first).tolist() == [False, True]


def test_lanes_are_answered_in_the_order_they_were_asked_for() -> None:
    pool = make_pool(longest=1000, max_steps=1000)
    lanes = pool.add(lane_seeds(0, 5))
    pool.step(lanes, idle(lanes))
    backwards = lanes[::-1]
    pool.step(backwards, push((1, 0), (0, 0.5), (0.25, 0), (-1, 0), (0, 0)))
    assert pool.reward[backwards, 0].tolist() == [1, 0.5, 0.25, -1, 0]
    assert pool.observe(backwards[:2], "end").tolist() == pool.state.end[backwards[:2]].tolist()


def test_growth_leaves_everyone_as_they_are_to_the_byte() -> None:
    pool = make_pool()
    lanes = pool.add(lane_seeds(1, 7))
    for _ in range(3):
        pool.step(lanes, idle(lanes))
    columns = ("scene_lane", "status", "step_type", "episode", "steps", "reward", "discount")

    def held() -> list[bytes]:
        state = [getattr(pool.state, name)[lanes].tobytes() for name in pool.state.fields]
        return state + [getattr(pool, name)[lanes].tobytes() for name in columns]

    before, capacity = held(), pool.capacity
    pool.add(lane_seeds(2, 1000))
    assert pool.capacity >= 1007 > capacity
    assert held() == before


def test_freed_lanes_are_used_again_before_there_is_more_room() -> None:
    pool = make_pool()
    lanes = pool.add(lane_seeds(0, 100))
    pool.free(lanes[10:60])
    capacity = pool.capacity
    again = pool.add(lane_seeds(1, 50))
    assert set(again.tolist()) == set(lanes[10:60].tolist())
    assert pool.capacity == capacity
    assert len(pool.scene.lanes.first_row) == 100


def test_the_family_is_called_once_a_step_and_only_for_who_is_asked() -> None:
    pool = make_pool(longest=1000, max_steps=1000)
    lanes = pool.add(lane_seeds(0, 1000))
    toy = pool.family
    assert isinstance(toy, Toy)
    pool.step(lanes, idle(lanes))
    pool.step(lanes, idle(lanes))
    pool.interrupt(lanes[:10])
    pool.step(lanes[:25], idle(lanes[:25]))
    pool.step(lanes[:0], idle(lanes[:0]))
    assert toy.calls == [("reset", 1000), ("step", 1000), ("reset", 10), ("step", 15)]


def test_a_refused_call_changes_nothing() -> None:
    pool = make_pool()
    lanes = pool.add(lane_seeds(0, 4))
    pool.step(lanes, idle(lanes))
    twice = lanes[[0, 1, 0]]
    for call in (pool.free, pool.interrupt, lambda some: pool.step(some, idle(some))):
        with pytest.raises(ValueError, match=f"lane {lanes[0]} of toy is listed twice"):
            call(twice)
    pool.free(lanes[3:])
    with pytest.raises(ValueError, match=f"lane {lanes[3]} of toy: expected a lane that is in use"):
        pool.free(lanes)
    assert pool.status[lanes[:3]].tolist() == [RUNNING] * 3
    pool.free(lanes[:3])
    assert sorted(pool.add(lane_seeds(1, 4)).tolist()) == sorted(lanes.tolist())


def best_of(times: int, action: Callable[[], object]) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        taken.append(time.perf_counter() - began)
    return min(taken)


def test_coming_and_going_costs_what_is_asked_for_not_what_is_there() -> None:
    seeds = lane_seeds(3, 100)

    def come_and_go(pool: Pool) -> None:
        pool.free(pool.add(seeds))

    small, large = make_pool(), make_pool()
    small.add(lane_seeds(0, 200))
    large.add(lane_seeds(0, 200_000))
    come_and_go(small)
    come_and_go(large)
    # A thousand times as many lanes are there. Twenty leaves room for colder caches and a busy machine.
    assert best_of(30, lambda: come_and_go(large)) < 20 * best_of(30, lambda: come_and_go(small))


def test_thousands_of_lanes_come_without_a_loop_over_them() -> None:
    pool = make_pool()
    seeds = lane_seeds(0, 100_000)
    pool.free(pool.add(seeds))
    taken: list[I64] = []
    cost_s = best_of(1, lambda: taken.append(pool.add(seeds)))
    assert len(np.unique(taken[0])) == 100_000
    # It takes some 10 ms; a loop that touched ten arrays for each lane would take a second.
    assert cost_s < 0.25


class Odd(Toy):
    """A family that returns its result in another form: other dtypes, lists, views."""

    form: Callable[[StepResult], StepResult]

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> StepResult:
        return type(self).form(super().step(state, lanes, actions))


def test_an_outcome_may_come_in_any_form_that_numpy_takes() -> None:
    forms: list[Callable[[Any], Any]] = [
        lambda outcome: outcome,
        lambda outcome: (outcome.reward.astype(np.float64), outcome.terminated.astype(np.uint8)),
        lambda outcome: (outcome.reward.tolist(), outcome.terminated.tolist()),
        lambda outcome: (np.asfortranarray(outcome.reward), np.repeat(outcome.terminated, 2)[::2]),
        lambda outcome: (outcome.reward[:, :1], outcome.terminated),
        lambda outcome: (np.broadcast_to(outcome.reward, outcome.reward.shape), outcome.terminated),
    ]
    seen = []
    for form in forms:
        pool = Pool(type("Form", (Odd,), {"form": staticmethod(form)})({"agents": AGENTS}, ASSETS), Scene(ASSETS))
        lanes = pool.add(lane_seeds(0, 9))
        for step in range(12):
            pool.step(lanes, push(*[(step / 4, lane / 8) for lane in range(9)]))
        seen.append([getattr(pool, name)[lanes].tolist() for name in ("reward", "discount", "step_type", "status")])
    assert all(one == seen[0] for one in seen)


def test_an_outcome_that_does_not_fit_is_refused_and_nothing_noted() -> None:
    forms: list[Callable[[Any], Any]] = [
        lambda outcome: (outcome.reward[:-1], outcome.terminated),
        lambda outcome: (outcome.reward, outcome.terminated[:-1]),
        lambda outcome: (np.repeat(outcome.reward, 3, axis=1), outcome.terminated),
    ]
    for form in forms:
        pool = Pool(type("Form", (Odd,), {"form": staticmethod(form)})({"agents": AGENTS}, ASSETS), Scene(ASSETS))
        lanes = pool.add(lane_seeds(0, 3))
        pool.step(lanes, idle(lanes))
        with pytest.raises(ValueError, match="could not broadcast"):
            pool.step(lanes, idle(lanes))
        assert pool.steps[lanes].tolist() == [0, 0, 0]


def test_lanes_may_be_named_in_any_form() -> None:
    forms: list[Callable[[I64], np.ndarray]] = [
        lambda lanes: lanes,
        lambda lanes: lanes.astype(np.int32),
        lambda lanes: np.repeat(lanes, 2)[::2],
        lambda lanes: np.broadcast_to(lanes, lanes.shape),
    ]
    compiled = len(find_invalid_lane.signatures)  # type: ignore[attr-defined]
    for form in forms:
        pool = make_pool()
        lanes = form(pool.add(lane_seeds(0, 5)))
        pool.step(lanes, idle(lanes))
        assert pool.views(lanes, "eye").lane.tolist() == pool.scene_lane[lanes].tolist()
        pool.interrupt(lanes[1:])
        assert pool.status[lanes].tolist() == [RUNNING, *[INTERRUPTED] * 4]
        pool.free(lanes)
    assert len(find_invalid_lane.signatures) <= max(1, compiled)  # type: ignore[attr-defined]
