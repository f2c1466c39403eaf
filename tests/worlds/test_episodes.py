"""Kernels that record episodes, compared with the same rules in plain NumPy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from worldloom.worlds.lanes import FIRST, INTERRUPTED, LAST, MID, RUNNING, TERMINATED
from worldloom.worlds.pool import count_running, find_invalid_lane, next_episode_seeds, record_first_step, record_step
from worldloom.worlds.random import mix

CAPACITY = 12


def columns(seed: int, agents: int) -> dict[str, np.ndarray]:
    """Columns of a pool, with random values."""
    rng = np.random.default_rng(seed)
    return {
        "steps": rng.integers(0, 9, CAPACITY),
        "reward": rng.normal(size=(CAPACITY, agents)).astype(np.float32),
        "discount": rng.uniform(size=CAPACITY).astype(np.float32),
        "step_type": rng.integers(0, 3, CAPACITY).astype(np.uint8),
        "status": rng.integers(1, 4, CAPACITY).astype(np.uint8),
    }


def some_lanes(rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(CAPACITY)[: rng.integers(0, CAPACITY + 1)]


@given(
    lanes=st.lists(st.integers(-2, CAPACITY + 1), max_size=9),
    in_use=st.lists(st.sampled_from([True, True, True, False]), min_size=CAPACITY, max_size=CAPACITY),
)
def test_the_first_lane_that_is_wrong_is_found(lanes: list[int], in_use: list[bool]) -> None:
    strange = [place for place, lane in enumerate(lanes) if not 0 <= lane < CAPACITY or not in_use[lane]]
    again = [place for place, lane in enumerate(lanes) if lane in lanes[place + 1 :]]
    mark = np.random.default_rng(0).integers(0, 9, CAPACITY)
    found = find_invalid_lane(np.array(lanes, np.int64), np.array(in_use), mark)
    assert found == (strange or again or [-1])[0]


@given(seed=st.integers(0, 2**32))
def test_running_lanes_are_counted(seed: int) -> None:
    lanes, status = some_lanes(np.random.default_rng(seed)), columns(seed, 1)["status"]
    assert count_running(lanes, status) == np.count_nonzero(status[lanes] == RUNNING)


@given(seed=st.integers(0, 2**32))
def test_each_episode_of_a_lane_has_a_seed_of_its_own(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lanes, lane_seed = some_lanes(rng), rng.integers(0, 2**64, CAPACITY, np.uint64)
    episode = rng.integers(-1, 2**40, CAPACITY)
    expected = episode.copy()
    expected[lanes] += 1
    seeds = np.empty(len(lanes), np.uint64)
    next_episode_seeds(lanes, lane_seed, episode, seeds)
    assert (episode == expected).all()
    assert (seeds == mix(lane_seed[lanes], expected[lanes].astype(np.uint64))).all()


@given(seed=st.integers(0, 2**32), agents=st.integers(1, 3))
def test_beginning_an_episode(seed: int, agents: int) -> None:
    lanes, held, expected = some_lanes(np.random.default_rng(seed)), columns(seed, agents), columns(seed, agents)
    for name, value in (("steps", 0), ("reward", 0), ("discount", 1), ("step_type", FIRST), ("status", RUNNING)):
        expected[name][lanes] = value
    record_first_step(lanes, **held)
    for name, column in held.items():
        assert (column == expected[name]).all(), name


@given(seed=st.integers(0, 2**32), agents=st.integers(1, 3), max_steps=st.integers(1, 9), adds_reward=st.booleans())
def test_going_on_with_an_episode(seed: int, agents: int, max_steps: int, adds_reward: bool) -> None:
    rng = np.random.default_rng(seed)
    lanes, held, expected = some_lanes(rng), columns(seed, agents), columns(seed, agents)
    gained, terminated = rng.normal(size=(len(lanes), agents)).astype(np.float32), rng.random(len(lanes)) < 0.3
    # Empty where a family interrupts no episodes.
    truncated = rng.random(len(lanes)) < 0.3 if seed % 2 else np.zeros(0, np.bool_)
    expected["steps"][lanes] += 1
    late = ~terminated & ((expected["steps"][lanes] >= max_steps) | (truncated if seed % 2 else False))
    expected["reward"][lanes] = expected["reward"][lanes] + gained if adds_reward else gained
    expected["discount"][lanes] = np.where(terminated, 0.0, 1.0)
    expected["step_type"][lanes] = np.where(terminated | late, LAST, MID)
    expected["status"][lanes] = np.select([terminated, late], [TERMINATED, INTERRUPTED], RUNNING)
    record_step(lanes, gained, terminated, truncated, max_steps, adds_reward, **held)
    for name, column in held.items():
        assert (column == expected[name]).all(), name
