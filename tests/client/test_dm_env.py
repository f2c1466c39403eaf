"""make_dm_env: worlds as dm_env environments."""

from typing import Any

import dm_env
import numpy as np
import pytest
from dm_env import specs

from tests.support.shared_server import Served
from worldloom.client import ServerError, VectorEnv, make_dm_env


@pytest.mark.parametrize("transport", ["local", "tcp", "unix"])
def test_episodes(server: Served, transport: str) -> None:
    address = {"local": "local", "tcp": server.tcp, "unix": server.unix}[transport]
    sees = ["eye.rgb", "ball"]
    with VectorEnv("local", "catch", 1, width=16, height=8, observations=sees, seed=3, renderer="cpu") as env:
        renderer = "cpu" if transport == "local" else "auto"
        made = make_dm_env(
            address, "catch", width=16, height=8, observations=sees, seed=3, settings={"rows": 10}, renderer=renderer
        )
        assert made.action_spec().keys() == {"paddle"}
        assert made.observation_spec()["eye"]["rgb"].shape == (8, 16, 3)
        step, (obs, _) = made.reset(), env.reset()
        ends = 0
        for number in range(25):
            check(step, obs, env)
            action = number % 3 - 1
            step = made.step({"paddle": np.int32(action)})
            obs, reward, terminated, _, _ = env.step({"paddle": np.array([action])})
            assert (step.reward or 0.0) == reward[0]
            assert step.last() == terminated[0]
            if step.last():
                assert step.discount == 0.0
                ends += 1
        assert ends == 2
        made.close()


def check(step: dm_env.TimeStep, obs: dict[str, np.ndarray], env: VectorEnv) -> None:
    assert np.array_equal(step.observation["eye"]["rgb"], obs["eye.rgb"][0])
    assert np.array_equal(step.observation["ball"], obs["ball"][0])
    assert step.observation.keys() == {"eye", "ball"}


def test_specs_contain_the_observations(server: Served) -> None:
    made = make_dm_env(server.tcp, "maze", observations=["eye.rgb", "eye.depth", "position"])
    expected: Any = made.observation_spec()
    assert isinstance(expected["position"], specs.BoundedArray)
    seen = made.reset().observation
    expected["position"].validate(seen["position"])
    expected["eye"]["rgb"].validate(seen["eye"]["rgb"])
    expected["eye"]["depth"].validate(seen["eye"]["depth"])
    made.close()


def test_close_destroys_the_world(server: Served) -> None:
    with VectorEnv(server.tcp, "catch", 1) as watcher:
        before = int(watcher._streams.first_world.read_property("counters.worlds"))
        made = make_dm_env(server.tcp, "catch")
        made.reset()
        assert int(watcher._streams.first_world.read_property("counters.worlds")) == before + 1
        made.close()
        made.close()
        assert int(watcher._streams.first_world.read_property("counters.worlds")) == before
        with pytest.raises(ValueError, match="settings has 'lanes': expected the argument num_envs of VectorEnv"):
            make_dm_env(server.tcp, "catch", settings={"lanes": 2})
        with pytest.raises(ServerError, match="did you mean 'eye"):
            make_dm_env(server.tcp, "catch", observations=["eye.rbg"])
        assert int(watcher._streams.first_world.read_property("counters.worlds")) == before
