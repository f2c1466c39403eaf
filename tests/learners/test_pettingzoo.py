"""PettingZoo's own tests, and agents of one world against the same agents on streams of dm_env_rpc."""

import pickle
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from hypothesis import given, settings
from hypothesis import strategies as st
from pettingzoo.test import parallel_api_test, parallel_seed_test
from pettingzoo.utils.conversions import parallel_to_aec

from scripts.support.server_process import ServerProcess, serving
from worldloom.client import BadAction, CannotConnect, ClientError, LostConnection, ServerError, VectorEnv
from worldloom.client.adaptors.pettingzoo import PettingZooEnv

SETTINGS = {"size": 5, "max_steps": 30}


def make(address: str = "local", agents: int = 3, **arguments: Any) -> PettingZooEnv:
    return PettingZooEnv(address, agents=agents, **{"width": 16, "height": 16, "settings": SETTINGS, **arguments})


@pytest.fixture(params=["local", "server"])
def address(request: pytest.FixtureRequest) -> str:
    return "local" if request.param == "local" else str(request.getfixturevalue("server_address"))


@pytest.mark.parametrize("agents", [1, 2, 8])
def test_parallel_api(address: str, agents: int) -> None:
    env = make(address, agents)
    parallel_api_test(env, num_cycles=100)
    env.close()


def test_seeds(address: str) -> None:
    parallel_seed_test(lambda: make(address), num_cycles=30)


def test_an_aec_env_of_it_runs() -> None:
    env = parallel_to_aec(make())
    env.reset(seed=1)
    for agent in env.agent_iter(max_iter=60):
        _, _, terminated, truncated, _ = env.last()
        env.step(None if terminated or truncated else env.action_space(agent).sample())
    env.close()


def play(env: PettingZooEnv, steps: int, seed: int) -> list[Any]:
    """Step with actions of this seed; a new episode whenever one ends."""
    random = np.random.default_rng(seed)
    found: list[Any] = [env.reset(seed=seed)]
    for _ in range(steps):
        if not env.agents:
            found.append(env.reset())
        actions = {agent: random.uniform(-1, 1, 3).astype(np.float32) for agent in env.agents}
        found.append(env.step(actions))
    return found


def assert_same(left: Any, right: Any) -> None:
    assert data_equivalence(left, right, exact=True)


def test_local_and_server_are_the_same(server_address: str) -> None:
    with_server, local = make(server_address), make()
    for left, right in zip(play(with_server, 70, 5), play(local, 70, 5), strict=True):
        assert_same(left, right)
    with_server.close()
    local.close()


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32), steps=st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_one_agent_is_a_vector_env_of_one_lane(seed: int, steps: list[int]) -> None:
    """Resets come at any time: in the middle of an episode, and after its end."""
    env, random = make(agents=1), np.random.default_rng(seed)
    model = VectorEnv("local", "maze", 1, width=16, height=16, settings=SETTINGS)
    for number, count in enumerate(steps):
        given_seed = seed if number == 0 else None
        observations, _ = env.reset(seed=given_seed)
        expected, _ = model.reset(seed=given_seed)
        np.testing.assert_array_equal(observations["agent_0"], expected["eye.rgb"][0])
        for _ in range(count):
            if not env.agents:
                break
            action = random.uniform(-1.5, 1.5, 3).astype(np.float32)  # clipped by default
            observations, rewards, terminated, truncated, _ = env.step({"agent_0": action})
            inside = action.clip(-1, 1)
            expected, reward, ended, cut, _ = model.step({"move": inside[None, :2], "turn": inside[2:]})
            np.testing.assert_array_equal(observations["agent_0"], expected["eye.rgb"][0])
            assert (rewards["agent_0"], terminated["agent_0"], truncated["agent_0"]) == (reward[0], ended[0], cut[0])
    env.close()
    model.close()


def test_agents_see_different_things_and_end_together() -> None:
    env = make(observations=["position", "eye.gray"], flat=False, settings={**SETTINGS, "max_steps": 3})
    observations, infos = env.reset(seed=2)
    assert list(observations) == list(infos) == env.agents == ["agent_0", "agent_1", "agent_2"]
    assert observations["agent_0"]["eye.gray"].shape == (16, 16)
    positions = np.array([observations[agent]["position"] for agent in env.agents])
    assert len(np.unique(positions, axis=0)) == 3
    stand: dict[str, Any] = {agent: {"move": [0.0, 0.0], "turn": 0.0} for agent in env.agents}
    for _ in range(3):
        _, rewards, terminated, truncated, _ = env.step(stand)
    assert truncated == dict.fromkeys(stand, True)
    assert terminated == dict.fromkeys(stand, False)
    assert all(isinstance(reward, float) for reward in rewards.values())
    assert env.agents == []
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(stand)
    env.close()


@pytest.mark.parametrize(("channels", "axis"), [(None, 2), ("first", 0)])
@pytest.mark.parametrize("flat", [True, False])
def test_frames_are_stacked(flat: bool, channels: Any, axis: int) -> None:
    """The last three frames of the episode; at its beginning its first one, three times."""
    own: dict[str, Any] = {"flat": flat, "observations": ["eye.gray"] if flat else ["eye.gray", "position"]}
    own["settings"] = {**SETTINGS, "max_steps": 6}
    env, model = make(channels=channels, frame_stack=3, **own), make(channels=channels or "last", **own)
    random = np.random.default_rng(1)
    frames: dict[str, list[np.ndarray]] = {}
    for number in range(20):
        if env.agents:
            actions: dict[str, Any] = {agent: random.uniform(-1, 1, 3).astype(np.float32) for agent in env.agents}
            if not flat:
                actions = {agent: {"move": action[:2], "turn": action[2]} for agent, action in actions.items()}
            found, plain = env.step(actions)[0], model.step(actions)[0]
        else:
            seed = 5 if number == 0 else None
            found, plain = env.reset(seed=seed)[0], model.reset(seed=seed)[0]
            frames = {}
        for agent, observation in plain.items():
            frame = observation if flat else observation["eye.gray"]
            frames[agent] = [*frames.get(agent, [frame, frame]), frame][-3:]
            stacked = found[agent] if flat else found[agent]["eye.gray"]
            np.testing.assert_array_equal(stacked, np.concatenate(frames[agent], axis=axis))
            assert found[agent] in env.observation_space(agent)
    env.close()
    model.close()


def test_spaces_and_pictures() -> None:
    env = make(observations=["map.rgb"], channels="first")
    assert env.observation_space("agent_1").shape == (3, 16, 16)
    assert env.action_space("agent_1").shape == (3,)
    assert env.metadata["render_fps"] > 0
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.render()
    observations, _ = env.reset(seed=1)
    assert all(observations[agent] in env.observation_space(agent) for agent in env.agents)
    pictures = [observations[agent].transpose(1, 2, 0) for agent in env.agents]
    np.testing.assert_array_equal(env.render(), np.concatenate(pictures, axis=1))
    env.close()


def test_wrong_actions_change_nothing() -> None:
    env = make(clip_actions=False)
    model = make(clip_actions=False)
    for one in (env, model):
        one.reset(seed=4)
    stand: dict[str, Any] = {agent: np.zeros(3, np.float32) for agent in env.agents}
    wrong: Any
    for wrong, text in (
        ({"agent_0": np.zeros(3)}, "actions of agent_0: expected those of agent_0, agent_1, agent_2"),
        ({**stand, "agent_1": np.zeros(2)}, "agent_1: actions have shape"),
        ({**stand, "agent_2": np.full(3, 2.0)}, "agent_2: action 'move' is 2.0"),
        ({**stand, "agent_2": np.full(3, np.nan)}, "agent_2: action 'move' is nan"),
        ({**stand, "agent_2": [[0.0], 0.0, 0.0]}, "agent_2: actions are not an array"),
        ({**stand, "agent_2": None}, "agent_2: actions have shape"),
        (list(stand.values()), "actions are list: expected a dict with the action of each agent"),
        (None, "actions are NoneType: expected a dict with the action of each agent"),
        (dict(enumerate(stand.values())), "actions of 0, 1, 2: expected those of agent_0, agent_1, agent_2"),
    ):
        with pytest.raises(BadAction, match=text):
            env.step(wrong)
    assert_same(env.step(stand), model.step(stand))
    env.close()
    model.close()


def test_wrong_actions_by_name_change_nothing() -> None:
    env, model = (make(agents=2, flat=False) for _ in range(2))
    for one in (env, model):
        one.reset(seed=4)
    stand: dict[str, Any] = {agent: {"move": [0.0, 0.0], "turn": 0.0} for agent in env.agents}
    for wrong, text in (
        (np.zeros(3, np.float32), "agent_1: actions are ndarray: expected a dict of 'move', 'turn'"),
        ({"move": [0.0, 0.0]}, "agent_1: actions are 'move': expected 'move', 'turn', each once"),
        ({"move": [[0.0], 0.0], "turn": 0.0}, "agent_1: action 'move' is not an array"),
    ):
        with pytest.raises(BadAction, match=text):
            env.step({**stand, "agent_1": wrong})
    assert_same(env.step(stand), model.step(stand))
    env.close()
    model.close()


@pytest.mark.parametrize("is_running", [False, True])
def test_wrong_seeds_change_nothing(address: str, is_running: bool) -> None:
    env, model = (make(address, seed=4) for _ in range(2))
    if is_running:
        for one in (env, model):
            one.reset()
    wrong: Any
    for wrong, error in (("a", TypeError), (1.5, TypeError), ([1], TypeError), (2**70, ValueError), (-1, ValueError)):
        with pytest.raises(error, match=r"seed is .*: expected (one|an) integer"):
            env.reset(seed=wrong)
        assert env.agents == model.agents
    if is_running:
        stand = {agent: np.zeros(3, np.float32) for agent in env.agents}
        assert_same(env.step(stand), model.step(stand))
    for seed in (None, 7):
        assert_same(env.reset(seed=seed), model.reset(seed=seed))
    env.close()
    model.close()


def test_a_lost_server() -> None:
    """The error says what to do, and the env goes on with a new world when there is a server again."""
    server = ServerProcess()
    try:
        env = make(server.address, seed=4)
        expected = env.reset()
        stand = {agent: np.zeros(3, np.float32) for agent in env.agents}
        env.step(stand)
    finally:
        server.kill()
    for call in (partial(env.step, stand), env.reset):
        with pytest.raises(LostConnection, match="reconnect when it is back"):
            call()
        assert env.agents == []
    with pytest.raises(CannotConnect):
        env.reconnect()
    with pytest.raises(ClientError, match=r"this env was closed: expected env.reconnect\(\)"):
        env.reset()
    with serving("--listen", server.address):
        env.reconnect(wait_s=60)
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(stand)
        assert_same(env.reset(), expected)
        env.step(stand)
        env.close()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"agents": 9}, ValueError, "agents is 9: expected an integer from 1 to 8"),
        ({"agents": "2"}, TypeError, "agents is '2': expected one integer"),
        ({"agents": None}, TypeError, "agents is None: expected one integer"),
        ({"timeout_s": 0}, ValueError, "timeout_s is 0: expected seconds, more than 0"),
        ({"action_repeat": 0}, ValueError, "action_repeat is 0: expected an integer from 1"),
        ({"frame_stack": 0}, ValueError, "frame_stack is 0: expected an integer from 1"),
        ({"seed": "a"}, TypeError, "seed is 'a': expected one integer"),
        ({"observations": ["eye.rgb@shm"]}, ValueError, "expected names without '@'"),
        ({"settings": {"agents": 2}}, ValueError, "settings has 'agents'"),
        ({"family": "catch"}, ServerError, "agents"),
        ({"observations": "eye.rgb"}, TypeError, "expected a list"),
        ({"observations": ["eye.rgb", "position"]}, ValueError, "expected exactly one"),
        ({"observations": ["nose.rgb"]}, ServerError, "nose.rgb"),
        ({"channels": "middle"}, ValueError, "channels is 'middle'"),
        ({"render_mode": "human"}, ValueError, "render_mode is 'human'"),
        ({"seed": -(2**70)}, ValueError, "seed"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make(**arguments)


def test_a_closed_env_and_a_pickled_one(address: str) -> None:
    env = make(address, seed=3)
    again = pickle.loads(pickle.dumps(env))
    assert_same(env.reset(), again.reset())
    for one in (env, again):
        one.close()
        one.close()
        with pytest.raises(ClientError, match="closed"):
            one.reset()
