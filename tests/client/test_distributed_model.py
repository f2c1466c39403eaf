"""Random courses of an env over servers that come and go: every lane as in one engine in this process, to the byte."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from scripts.support.server_process import ServerProcess
from tests.client.test_distributed import GIVEN, MODES, force, started_servers
from worldloom.client import VectorEnv
from worldloom.client.distributed import DistributedLanes

pytestmark = pytest.mark.slow
LANES = 10


class Listed:
    """A directory of servers whose list a test changes."""

    def __init__(self, addresses: list[str]) -> None:
        self.listed = addresses

    def addresses(self) -> list[str]:
        return self.listed


@pytest.fixture(scope="module")
def three() -> Iterator[list[ServerProcess]]:
    with started_servers(3) as started:
        yield started


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(1, 30)),
        st.tuples(st.just("servers"), st.sets(st.integers(0, 2), min_size=1)),
        st.tuples(st.just("reset"), st.one_of(st.none(), st.integers(0, 9))),
        st.tuples(st.just("reset some"), st.lists(st.booleans(), min_size=LANES, max_size=LANES)),
        st.tuples(
            st.just("reset with seeds"),
            st.lists(st.one_of(st.none(), st.integers(0, 9)), min_size=LANES, max_size=LANES),
        ),
    ),
    min_size=3,
    max_size=12,
)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(events=EVENTS, frame_stack=st.sampled_from([1, 3]))
def test_lanes_do_not_notice_that_they_are_handed_over(
    three: list[ServerProcess], mode: Any, events: list[tuple[str, Any]], frame_stack: int
) -> None:
    directory = Listed([three[0].address, three[1].address])
    given = {**GIVEN, "autoreset": mode, "frame_stack": frame_stack, "episode_statistics": True, "seed": 3}
    with ExitStack() as stack:
        env = stack.enter_context(VectorEnv(directory, "cartpole", LANES, **given))
        local = stack.enter_context(VectorEnv("local", "cartpole", LANES, renderer="cpu", **given))
        both = (env, local)
        moved = stack.enter_context(count_moves(env))
        check_same([one.reset() for one in both])
        count = 0
        for kind, value in events:
            if kind == "servers":
                directory.listed = [three[index].address for index in sorted(value)]
                wait_until_known(env, directory.listed)
            elif kind == "step":
                for _ in range(value):
                    results = [one.step(force(count, LANES)) for one in both]
                    check_same(results)
                    count += 1
                    over = results[0][2] | results[0][3]
                    if mode == "disabled" and over.any():
                        check_same([one.reset(options={"reset_mask": over}) for one in both])
            elif kind == "reset some" and mode != "next_step":
                check_same([one.reset(options={"reset_mask": np.array(value)}) for one in both])
            elif kind in ("reset", "reset with seeds"):
                check_same([one.reset(seed=value) for one in both])
        event("handed over" if moved else "stayed")


@contextmanager
def count_moves(env: VectorEnv) -> Iterator[list[int]]:
    """Collect the numbers of lanes that are handed over at a time."""
    assert isinstance(env._streams, DistributedLanes)
    table = env._streams._homes.table
    move, moved = table.move, []

    def counted(lanes: np.ndarray, target: Any, source: Any = None) -> None:
        moved.append(len(lanes))
        move(lanes, target, source)

    table.move = counted  # type: ignore[method-assign]
    yield moved


def wait_until_known(env: VectorEnv, listed: list[str]) -> None:
    """Wait until the env knows the list of servers, and has made worlds for the lanes that will move."""
    until_s = time.monotonic() + 30
    while {server.address for server in env.servers if server.state == "up"} != set(listed):
        assert time.monotonic() < until_s, env.servers
        time.sleep(0.02)
    assert isinstance(env._streams, DistributedLanes)
    homes = env._streams._homes
    homes._retry_s = homes._balanced_s = 0.0
    homes.tend(np.zeros(LANES, bool))
    while homes.placer.is_busy:
        assert time.monotonic() < until_s
        time.sleep(0.002)


def check_same(results: list[Any]) -> None:
    """Compare the results of a step or a reset, but for the times of episodes."""
    (mine, *outcome, info), (theirs, *expected, other_info) = results
    assert not info.pop("lost").any()
    for name in theirs:
        assert np.array_equal(mine[name], theirs[name]), name
    for one, other in zip(outcome, expected, strict=True):
        assert np.array_equal(one, other)
    assert info.keys() == other_info.keys()
    for key in ("r", "l"):
        if "episode" in info:
            assert np.array_equal(info["episode"][key], other_info["episode"][key])
    if "final_obs" in info:
        assert np.array_equal(info["_final_obs"], other_info["_final_obs"])
        for lane in np.flatnonzero(info["_final_obs"]):
            for name, array in other_info["final_obs"][lane].items():
                assert np.array_equal(info["final_obs"][lane][name], array)
