"""A task of dm_control's through VectorEnv: what dm_control gives comes out at the other end, to the last bit."""

from typing import Any

import numpy as np
import pytest

from tests.support.shared_server import Served
from worldloom.client import VectorEnv
from worldloom.worlds.mujoco.dm_control.suite import suite

LANES, SEED, STEPS = 3, 5, 25
SETTINGS = {"domain": "reacher", "task": "hard", "time_limit": 0.2}
"""Ten steps an episode."""


@pytest.mark.parametrize("way", ["local", "tcp", "shm"])
def test_what_dm_control_gives_comes_out(way: str, server: Served) -> None:
    address = {"local": "local", "tcp": server.tcp, "shm": server.unix}[way]
    given: dict[str, Any] = {"local": {"renderer": "cpu"}, "tcp": {}, "shm": {"transport": "shm"}}[way]
    theirs = [suite.load("reacher", "hard", task_kwargs={"random": SEED + k, "time_limit": 0.2}) for k in range(LANES)]
    names = list(theirs[0].observation_spec())
    asked = [*names, "eye.rgb"]
    with VectorEnv(address, "dmc", LANES, width=16, height=16, observations=asked, settings=SETTINGS, **given) as env:
        space: Any = env.single_action_space["control"]  # type: ignore[index]
        assert (space.low.tolist(), space.high.tolist(), space.dtype) == ([-1, -1], [1, 1], np.float64)
        seen, _ = env.reset(seed=SEED)
        expected = [one.reset() for one in theirs]
        rng = np.random.default_rng(0)
        ended = 0
        for _ in range(STEPS):
            for k, one in enumerate(expected):
                for name in names:
                    assert np.array_equal(seen[name][k], one.observation[name])
                assert np.ptp(seen["eye.rgb"][k]) > 0
            actions = rng.uniform(-1, 1, (LANES, 2))
            seen, reward, terminated, truncated, _ = env.step({"control": actions})
            expected = [one.step(action) for one, action in zip(theirs, actions, strict=True)]
            assert reward.tolist() == [one.reward or 0.0 for one in expected]
            assert truncated.tolist() == [one.last() for one in expected]
            assert not terminated.any()
            ended += int(truncated.sum())
        assert ended == 2 * LANES
