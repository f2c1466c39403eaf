"""Environments with their own Python code through VectorEnv: the numbers and pictures are Gymnasium's own."""

import gc
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pygame
import pytest
from gymnasium import spaces
from PIL import Image

from tests.support.gym_lanes import GymLanes
from tests.support.odd_environments import Counting, Sampling
from worldloom.client import ServerError, VectorEnv
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.gym.family import Gym
from worldloom.worlds.gym.permissions import allow_gym_ids, allow_gym_kwargs
from worldloom.worlds.lanes import RUNNING, TERMINATED
from worldloom.worlds.pool import Pool

LANES, SEED = 3, 5


def make_env(env_id: str, observations: list[str], lanes: int = LANES, **given: Any) -> VectorEnv:
    settings = {"id": env_id, **given.pop("settings", {})}
    return VectorEnv("local", "gym", lanes, settings=settings, observations=observations, renderer="cpu", **given)


def sample(theirs: GymLanes, rng: np.random.Generator) -> list[Any]:
    space: Any = theirs.envs[0].action_space
    return [rng.integers(space.start, space.start + space.n) for _ in theirs.envs]


@pytest.mark.parametrize(
    ("env_id", "kwargs", "size"),
    [
        ("CartPole-v1", "", (600, 400)),
        ("FrozenLake-v1", '{"is_slippery": false, "map_name": "8x8"}', (512, 512)),
        ("Blackjack-v1", "", (384, 376)),
        ("MountainCar-v0", '{"goal_velocity": 0.01}', (600, 400)),
    ],
)
def test_200_steps_and_pictures_are_those_of_gymnasium(env_id: str, kwargs: str, size: tuple[int, int]) -> None:
    given = (
        {} if not kwargs else {"goal_velocity": 0.01} if "goal" in kwargs else {"is_slippery": False, "map_name": "8x8"}
    )
    theirs = GymLanes(env_id, SEED, LANES, "rgb_array", **given)
    width, height = size
    asked = [*theirs.names, "failed", "eye.rgb", "eye.gray"]
    with make_env(env_id, asked, settings={"kwargs": kwargs}, width=width, height=height) as env:
        seen, _ = env.reset(seed=SEED)
        theirs.check(seen)
        rng = np.random.default_rng(0)
        ended = 0
        for step in range(200):
            actions = sample(theirs, rng)
            seen, *outcome, _ = env.step({"action": np.array(actions)})
            theirs.step(actions)
            theirs.check(seen, *outcome)
            ended += int((outcome[1] | outcome[2]).sum())
            if step % 20 == 0:
                rgb = theirs.pictures()
                assert np.array_equal(seen["eye.rgb"], rgb)
                red, green, blue = np.moveaxis(rgb.astype(int), -1, 0)
                assert np.array_equal(seen["eye.gray"], (77 * red + 150 * green + 29 * blue + 128) >> 8)
        assert ended >= LANES
        assert not seen["failed"].any()
    theirs.close()


def test_pictures_are_scaled() -> None:
    theirs = GymLanes("CartPole-v1", SEED, LANES, "rgb_array")
    for width, height, resampling in ((60, 40, Image.Resampling.BOX), (700, 900, Image.Resampling.BILINEAR)):
        with make_env("CartPole-v1", ["eye.rgb"], width=width, height=height) as env:
            seen, _ = env.reset(seed=SEED)
            for frame, picture in zip(seen["eye.rgb"], theirs.pictures(), strict=True):
                expected = Image.fromarray(picture).resize((width, height), resampling)
                assert np.array_equal(frame, np.asarray(expected))
    theirs.close()


def test_shadows_and_samples_do_not_change_pictures() -> None:
    theirs = GymLanes("CartPole-v1", SEED, LANES, "rgb_array")
    height, width = theirs.pictures()[0].shape[:2]
    with make_env("CartPole-v1", ["eye.rgb"], width=width, height=height, shadows=True, samples=4) as env:
        assert np.array_equal(env.reset(seed=SEED)[0]["eye.rgb"], theirs.pictures())
    theirs.close()


def test_only_rgb_and_gray_are_offered() -> None:
    with pytest.raises(ServerError, match=r"expected some of .*eye\.rgb, eye\.gray$"):
        make_env("CartPole-v1", ["eye.depth"])


def test_frames_do_not_change_the_numbers() -> None:
    for env_id in ("CartPole-v1", "odd/Point-v0"):
        allow_gym_ids(["*"])
        runs = []
        for asked in (["observation"], ["observation", "eye.rgb"]):
            with make_env(env_id, asked, width=32, height=32) as env:
                env.reset(seed=SEED)
                env.action_space.seed(0)
                steps = [env.step(env.action_space.sample()) for _ in range(30)]
                runs.append([(s[0]["observation"].tobytes(), *(one.tobytes() for one in s[1:4])) for s in steps])
        assert runs[0] == runs[1]


def count(env: VectorEnv, steps: int) -> list[tuple[Any, ...]]:
    """Step `odd/Counting-v0` and return what came: counts, failures, rewards and ends."""
    found = []
    for _ in range(steps):
        action = {"action.0": np.zeros(env.num_envs, np.int64), "action.1": np.ones((env.num_envs, 2), np.int8)}
        seen, reward, terminated, truncated, _ = env.step(action)
        counts = seen["observation.count"][:, 0].astype(int).tolist()
        outcome = (one.tolist() for one in (reward, terminated, truncated))
        found.append((counts, seen["failed"].tolist(), *outcome))
    return found


COUNTED = ["observation.count", "observation.parity", "failed"]


def test_an_environment_may_truncate_by_itself() -> None:
    allow_gym_ids(["odd/*"])
    with make_env("odd/Counting-v0", COUNTED, lanes=2) as env:
        env.reset(seed=0)
        found = count(env, 7)
    assert [one[3] for one in found] == [[True, False] if k == 5 else [False, False] for k in range(7)]
    assert [one[4] for one in found] == [[False, True] if k == 4 else [False, False] for k in range(7)]
    assert [one[0] for one in found] == [[1, 1], [2, 2], [3, 3], [4, 4], [5, 5], [6, 0], [0, 1]]
    with make_env("odd/Counting-v0", COUNTED, lanes=2, settings={"max_steps": 2}) as env:
        env.reset(seed=0)
        assert [one[4] for one in count(env, 3)] == [[False, False], [True, True], [False, False]]


@pytest.mark.parametrize("fault", ["step", "exit", "own", "cancelled", "shape", "reward", "none", "3.5"])
def test_an_environment_that_raises_costs_its_own_lane(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    allow_gym_ids(["odd/*"])
    allow_gym_kwargs(["fault"])
    settings = {"kwargs": f'{{"fault": "{fault}"}}'}
    with make_env("odd/Counting-v0", COUNTED, lanes=2, settings=settings) as env:
        env.reset(seed=0)
        made = Counting.alive
        found = count(env, 5)
        assert Counting.alive == made, "the environment that failed is closed when another takes its place"
    counts, failed, rewards, terminated, truncated = zip(*found, strict=True)
    assert [one[0] for one in counts] == [1, 2, 3, 4, 5]
    assert [one[0] for one in rewards] == [1, 2, 3, 4, 5]
    assert failed == ([False, False], [False, False], [False, True], [False, False], [False, False])
    assert terminated == ([False, False], [False, False], [False, True], [False, False], [False, False])
    assert [one[1] for one in rewards] == [1, 2, 0, 0, 1]
    assert not np.any(truncated)
    assert [one[1] for one in counts][3:] == [0, 1], "the next episode is that of a new environment"
    assert len([one for one in caplog.records if "odd/Counting-v0 raised an error" in one.message]) == 1


def make_pool(fault: str) -> tuple[Pool, np.ndarray]:
    allow_gym_ids(["odd/*"])
    allow_gym_kwargs(["fault"])
    assets = AssetLibrary()
    pool = Pool(Gym({"id": "odd/Counting-v0", "kwargs": f'{{"fault": "{fault}"}}'}, assets), Scene(assets))
    lanes = pool.add(np.arange(2, dtype=np.uint64))
    pool.begin(lanes)
    return pool, lanes


def step_pool(pool: Pool, lanes: np.ndarray, steps: int = 3) -> None:
    actions: dict[str, np.ndarray] = {"action.0": np.zeros((2, 1), np.int64), "action.1": np.ones((2, 1, 2), np.int8)}
    for _ in range(steps):
        pool.step(lanes, actions)


def test_keyboard_interrupt_is_the_environments_own_on_other_threads_and_the_users_on_the_main_one() -> None:
    """Python raises the user's on the main thread; a server's engine has one of its own."""
    pool, lanes = make_pool("interrupt")
    with ThreadPoolExecutor(1) as other:
        other.submit(step_pool, pool, lanes).result()
    assert pool.observe(lanes, "failed").tolist() == [False, True]
    assert pool.status[lanes].tolist() == [RUNNING, TERMINATED]
    pool, lanes = make_pool("interrupt")
    with pytest.raises(KeyboardInterrupt):
        step_pool(pool, lanes)


def test_an_environment_whose_reset_raises_ends_with_its_first_step() -> None:
    allow_gym_ids(["odd/*"])
    allow_gym_kwargs(["fault"])
    with make_env("odd/Counting-v0", COUNTED, lanes=2, settings={"kwargs": '{"fault": "reset"}'}) as env:
        seen, _ = env.reset(seed=0)
        assert seen["failed"].tolist() == [False, True]
        assert count(env, 1)[0][1:] == ([False, True], [1, 0], [False, True], [False, False])


def test_a_picture_that_cannot_be_made_is_black_and_costs_nothing_else() -> None:
    allow_gym_ids(["odd/*"])
    allow_gym_kwargs(["fault"])
    settings = {"kwargs": '{"fault": "render"}'}
    asked = [*COUNTED, "eye.rgb"]
    with make_env("odd/Counting-v0", asked, lanes=2, settings=settings, width=6, height=4) as env:
        env.reset(seed=0)
        for step in range(1, 5):
            action = {"action.0": np.zeros(2, np.int64), "action.1": np.ones((2, 2), np.int8)}
            seen, reward, *_ = env.step(action)
            assert (seen["eye.rgb"][0] == (step, 2 * step, 3 * step)).all()
            assert (seen["eye.rgb"][1] == seen["eye.rgb"][0] * (step != 2)).all()
            assert reward.tolist() == [step, step]
            assert not seen["failed"].any()


def test_environments_are_closed_with_their_world() -> None:
    allow_gym_ids(["odd/*"])
    gc.collect()
    before = Counting.alive
    with make_env("odd/Counting-v0", COUNTED, lanes=8) as env:
        env.reset(seed=0)
        assert Counting.alive >= before + 8
        env.reset(seed=1)
        assert Counting.alive <= before + 8 + 3, "some are the family's own"
        kept = Counting.alive - 8
    gc.collect()
    assert Counting.alive <= kept


def test_final_frames_are_pictures_too() -> None:
    allow_gym_ids(["odd/*"])
    with make_env("odd/Counting-v0", [*COUNTED, "eye.rgb"], lanes=2, width=6, height=4, autoreset="same_step") as env:
        env.reset(seed=0)
        for step in range(1, 7):
            action = {"action.0": np.zeros(2, np.int64), "action.1": np.ones((2, 2), np.int8)}
            seen, _, terminated, truncated, info = env.step(action)
            if step == 5:
                assert truncated.tolist() == [False, True]
                assert (info["final_obs"][1]["eye.rgb"] == (5, 10, 15)).all()
                assert (seen["eye.rgb"][1] == 0).all()
        assert terminated.tolist() == [True, False]
        assert (info["final_obs"][0]["eye.rgb"] == (6, 12, 18)).all()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"id": "CartPole-v1", "kwargs": '{"g": 1}'}, "cannot be made with the keyword arguments g=1"),
        ({"id": "FrozenLake-v1", "kwargs": '{"map_name": "9x9"}'}, "cannot be made .*KeyError"),
        ({"id": "Ant-v5", "kwargs": '{"reset_noise_scale": -1}'}, "cannot be made with .*reset_noise_scale=-1: .*high"),
        ({"id": "Ant-v5", "kwargs": '{"reset_noise_scale": "big"}'}, "cannot be made with .*TypeError"),
        ({"id": "Ant-v5", "kwargs": '{"reset_noise_scale": [0.1, 0.2]}'}, "cannot be made with .*TypeError"),
        ({"id": "Ant-v5", "kwargs": '{"contact_force_range": 5}'}, "cannot be made with .*TypeError"),
        ({"id": "Ant-v4", "kwargs": '{"reset_noise_scale": "big"}'}, "cannot be made with .*TypeError"),
        ({"id": "Ant-v5", "kwargs": '{"main_body": "nope"}'}, "fails in its first steps with .*KeyError"),
        ({"id": "Ant-v5", "kwargs": '{"main_body": 99}'}, "fails in its first steps with .*main_body=99"),
        ({"id": "Ant-v5", "kwargs": '{"healthy_z_range": [1]}'}, "fails in its first steps with .*ValueError"),
        ({"id": "Ant-v5", "kwargs": '{"healthy_reward": [1, 2]}'}, "fails in its first steps with .*TypeError"),
        (
            {"id": "Ant-v5", "kwargs": '{"ctrl_cost_weight": "x"}'},
            "fails in its first steps with .*ctrl_cost_weight='x'",
        ),
        ({"id": "odd/Endless-v0"}, "is Sequence: expected Box"),
        ({"id": "LunarLander-v3"}, r"pip install 'gymnasium\[box2d\]'"),
        ({"id": "os:path"}, "expected the id of an environment"),
        ({"kwargs": "{}"}, "setting 'id' is missing"),
        ({"id": "CartPole-v1", "max_steps": -1}, "setting 'max_steps' is -1"),
    ],
)
def test_what_cannot_be_made_is_an_error_of_the_setting(settings: dict[str, Any], text: str) -> None:
    allow_gym_ids(["*"])
    with pytest.raises(ServerError, match=f"^INVALID_ARGUMENT: .*{text}"):
        VectorEnv("local", "gym", 2, settings=settings, renderer="cpu")


class Blind(Counting):
    """An environment whose pictures need something that is missing."""

    def render(self) -> Any:
        raise RuntimeError("no screen")


class Mute(Counting):
    """An environment that cannot be made, and does not say why."""

    def __init__(self, render_mode: str | None = None) -> None:
        raise AssertionError


def register(make: Any) -> str:
    """Register an environment of this test, and return its id."""
    allow_gym_ids(["odd/*"])
    gymnasium.register("odd/Own-v0", make)
    return "odd/Own-v0"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Blind, "its render.. fails: RuntimeError: no screen"),
        (lambda: Sampling(spaces.Discrete(2), spaces.Discrete(2)), "its render modes are none, without rgb_array"),
    ],
)
def test_who_asks_for_pictures_that_there_are_not_is_told_why_and_what_to_ask_for(make: Any, reason: str) -> None:
    text = rf"names 'eye.rgb': .* this environment has no pictures, for {reason}; ask for .*observations=\['observation"
    with pytest.raises(ServerError, match=text):
        VectorEnv("local", "gym", 2, settings={"id": register(make)}, renderer="cpu")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (Mute, r"AssertionError: raise AssertionError \(test_environments.py, line \d+\)\); docs/gym.md names tasks"),
        (
            "no_such_module:Env",
            "needs the module 'no_such_module', which cannot be imported .* to lie in the directory",
        ),
    ],
)
def test_the_reason_for_which_an_environment_cannot_be_made(make: Any, text: str) -> None:
    with pytest.raises(ServerError, match=rf"^INVALID_ARGUMENT: setting 'id' is 'odd/Own-v0', which .*{text}"):
        VectorEnv("local", "gym", 2, settings={"id": register(make)}, renderer="cpu")


@pytest.mark.parametrize("env_id", ["CartPole-v1", "MountainCar-v0", "Pendulum-v1"])
def test_memory_of_a_lane_is_that_of_the_surfaces_it_draws_to(env_id: str) -> None:
    with closing(gymnasium.make(env_id, render_mode="rgb_array")) as made:
        made.reset(seed=0)
        made.render()
        surfaces = [one for one in vars(made.unwrapped).values() if isinstance(one, pygame.Surface)]
        held = sum(one.get_pitch() * one.get_height() for one in surfaces)
    family = Gym({"id": env_id}, AssetLibrary())
    estimated = family.memory_bytes(10) - family.memory_bytes(9)
    assert held <= estimated <= 1.1 * held


def test_lanes_are_made_like_those_of_a_vector_environment() -> None:
    theirs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * LANES)
    expected, _ = theirs.reset(seed=SEED)
    with make_env("CartPole-v1", ["observation"]) as env:
        seen, _ = env.reset(seed=SEED)
        assert np.array_equal(seen["observation"], expected)
    theirs.close()


def test_ranges_of_elements_and_final_observations() -> None:
    names = ["observation"]
    env = VectorEnv("local", "gym", 2, settings={"id": "CartPole-v1"}, autoreset="same_step", observations=names)
    with closing(env):
        env.reset(seed=0)
        for _ in range(40):
            _, _, terminated, _, infos = env.step({"action": np.ones(2, np.int64)})
            if terminated.any():
                break
        final = [one for one in infos["final_obs"] if one is not None]
        assert len(final) == terminated.sum() > 0
        assert all(abs(one["observation"][2]) > 0.2 for one in final)  # radians; the pole has fallen
