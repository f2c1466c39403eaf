"""Modes of autoreset, repeated actions, stacked frames and streams: the episodes of a model that knows the rules."""

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.lane_model import FIRST, LAST, Expected, LaneModel, Plain, lane_seed
from tests.support.shared_server import Served
from worldloom.client import ClientError, VectorEnv

LANES = 3
MODES = ["next_step", "same_step", "disabled"]
# A push to one side ends an episode at the end of the rail, others end by their time limit: at different times.
GIVEN: dict[str, Any] = {"width": 6, "height": 5, "settings": {"rail": 2.0, "max_steps": 22}}
NAMES = ["eye.gray", "eye.rgb", "pose", "reward"]


class PlainEnv:
    """Episodes of one lane, one step at a time, from an env of one lane without any options."""

    def __init__(self) -> None:
        self._env = VectorEnv("local", "cartpole", 1, renderer="cpu", observations=NAMES, **GIVEN)
        self._seed: int | None = None

    def begin(self) -> Plain:
        seed, self._seed = self._seed, None
        found = self._env.reset(seed=seed)[0]
        return Plain(np.float32(0), 1.0, False, {name: array[0] for name, array in found.items()})

    def advance(self, actions: Mapping[str, np.ndarray]) -> Plain:
        found, reward, terminated, truncated, _ = self._env.step({"force": actions["force"][None]})
        observations = {name: array[0] for name, array in found.items()}
        is_last = bool(terminated[0] or truncated[0])
        return Plain(np.float32(reward[0]), 1.0 - terminated[0], is_last, observations)

    def reseed(self, seed: int) -> None:
        self._seed = seed


@pytest.fixture(scope="module")
def plain_envs() -> Iterator[list[PlainEnv]]:
    made = [PlainEnv() for _ in range(LANES)]
    yield made
    for one in made:
        one._env.close()


class StackedLane:
    """The model of a lane with stacked frames and statistics."""

    def __init__(self, plain: PlainEnv, mode: str, repeat: int, stack: int, channels: str | None) -> None:
        self.model = LaneModel(plain, mode, repeat)
        self._channels = channels
        self._frames: dict[str, deque[np.ndarray]] = {name: deque(maxlen=stack) for name in ("eye.gray", "eye.rgb")}
        self._mode = mode
        self._is_last = False
        self.rewards: list[float] = []

    def step(self, force: np.ndarray, is_held: bool = False) -> tuple[Expected, dict[str, np.ndarray], Any]:
        """Return the outcome, the observations and the final ones."""
        found = self.model.hold() if is_held else self.model.step({"force": force})
        is_waiting = self._mode == "disabled" and self._is_last and found.step_type == LAST
        final = None
        if found.step_type == FIRST and not is_held:
            self._refill(found)
            self.rewards = []
        elif not is_waiting and not is_held:
            self.rewards.append(float(found.reward))
            for name, frames in self._frames.items():
                frames.append((found.final or found.observations)[name])
            if found.final is not None:
                final = self._view({**found.final, "reward": found.reward})
                self._refill(found)
        self._is_last = found.step_type == LAST
        return found, self._view({**found.observations, "reward": found.reward}), final

    def _refill(self, found: Expected) -> None:
        for name, frames in self._frames.items():
            frames.extend([found.observations[name]] * (frames.maxlen or 1))

    def _view(self, observations: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        shown = dict(observations)
        for name, frames in self._frames.items():
            last = [frame if frame.ndim == 3 else frame[..., None] for frame in frames]
            stacked = np.concatenate(last, axis=-1)
            shown[name] = np.moveaxis(stacked, -1, 0) if self._channels == "first" else stacked
            if self._channels is None and len(frames) == 1:
                shown[name] = frames[0]
        return shown


FORCES = st.lists(st.sampled_from([-1.0, -0.25, 1.0]), min_size=LANES, max_size=LANES)
SEEDS = st.lists(st.none() | st.integers(0, 2**64 - 1), min_size=LANES, max_size=LANES)


# Not shrunk: an example takes a tenth of a second, and that would take longer than a test may.
@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
@pytest.mark.parametrize("mode", MODES)
def test_episodes_are_those_of_the_model(plain_envs: list[PlainEnv], mode: Any, data: st.DataObject) -> None:
    repeat, stack, streams = (data.draw(st.integers(1, 3), label=label) for label in ("repeat", "stack", "streams"))
    channels: Any = data.draw(st.sampled_from([None, "last", "first"]), label="channels")
    numbers: Any = data.draw(st.sampled_from([0, 5, [7, 2, 2**40]]), label="first_lane")
    seed = data.draw(st.integers(0, 2**64 - 1), label="seed")
    lanes = [StackedLane(plain, mode, repeat, stack, channels) for plain in plain_envs]
    with VectorEnv(
        "local",
        "cartpole",
        LANES,
        renderer="cpu",
        observations=NAMES,
        autoreset=mode,
        action_repeat=repeat,
        frame_stack=stack,
        channels=channels,
        streams=streams,
        first_lane=numbers,
        episode_statistics=True,
        **GIVEN,
    ) as env:
        assert env.autoreset_mode is env.metadata["autoreset_mode"] is AutoresetMode[mode.upper()]
        for number, lane in zip(
            numbers if isinstance(numbers, list) else range(numbers, numbers + LANES), lanes, strict=True
        ):
            lane.model.reset(lane_seed(seed, number))
        check_reset(lanes, env.reset(seed=seed), np.ones(LANES, bool))
        for _ in range(data.draw(st.integers(1, 8), label="parts")):
            check_steps(env, lanes, [np.array(data.draw(FORCES), np.float32)] * data.draw(st.integers(1, 12)))
            if data.draw(st.booleans(), label="reset"):
                seeds = data.draw(SEEDS, label="seeds")
                mask = np.ones(LANES, bool)
                options = None
                if mode != "next_step" and data.draw(st.booleans(), label="some"):
                    mask = np.array(data.draw(st.lists(st.booleans(), min_size=LANES, max_size=LANES)))
                    options = {"reset_mask": mask}
                for index in np.flatnonzero(mask).tolist():
                    lanes[index].model.reset(seeds[index])
                check_reset(lanes, env.reset(seed=seeds, options=options), mask)
                assert options is None or list(options) == ["reset_mask"]  # wrappers read it after us


def check_reset(lanes: list[StackedLane], found: tuple[Any, dict[str, Any]], mask: np.ndarray) -> None:
    observations, info = found
    assert info == {}
    for index, lane in enumerate(lanes):
        _, expected, _ = lane.step(np.float32(0), is_held=not mask[index])  # type: ignore[arg-type]
        for name in NAMES:
            assert np.array_equal(observations[name][index], expected[name]), name


def check_steps(env: VectorEnv, lanes: list[StackedLane], actions: list[np.ndarray]) -> None:
    for force in actions:
        observations, reward, terminated, truncated, info = env.step({"force": force})
        outcomes = [lane.step(force[index]) for index, lane in enumerate(lanes)]
        ended = np.zeros(LANES, bool)
        for index, (outcome, expected, final) in enumerate(outcomes):
            assert reward[index] == outcome.reward
            assert terminated[index] == (outcome.step_type == LAST and outcome.discount == 0)
            assert truncated[index] == (outcome.step_type == LAST and outcome.discount == 1)
            for name in NAMES:
                assert np.array_equal(observations[name][index], expected[name]), name
            ended[index] = outcome.step_type == LAST and bool(lanes[index].rewards)
            if final is not None:
                for name in NAMES:
                    assert np.array_equal(info["final_obs"][index][name], final[name]), name
                    row = info["_final_lanes"].tolist().index(index)
                    assert np.array_equal(info["_final_stacked"][name][row], final[name])
        has_final = env.autoreset_mode is AutoresetMode.SAME_STEP and ended.any()
        assert ("final_obs" in info) == ("final_info" in info) == has_final
        assert ("episode" in info) == ended.any()
        if has_final:
            assert info["_final_obs"].tolist() == info["_final_info"].tolist() == ended.tolist()
            assert info["_final_lanes"].tolist() == np.flatnonzero(ended).tolist()
            assert [one is not None for one in info["final_obs"]] == ended.tolist()
            assert info["final_info"]["episode"]["r"].tolist() == info["episode"]["r"].tolist()
        if ended.any():
            check_statistics(info, lanes, ended)


def check_statistics(info: Mapping[str, Any], lanes: list[StackedLane], ended: np.ndarray) -> None:
    assert info["_episode"].tolist() == ended.tolist()
    for index, lane in enumerate(lanes):
        expected = lane.rewards if ended[index] else []
        assert info["episode"]["l"][index] == len(expected)
        assert info["episode"]["r"][index] == sum(expected)  # added in the same order, so the same bits
        assert (info["episode"]["t"][index] > 0) == ended[index]
        if ended[index]:
            lane.rewards = []


def act(lane: int, step: int) -> float:
    return [1.0, -1.0, 0.5, -0.25][(lane * 7 + step // 9) % 4]


def record(env: VectorEnv, steps: int) -> dict[int, list[tuple[Any, ...]]]:
    """Step all lanes together; return what each lane saw."""
    seen: dict[int, list[tuple[Any, ...]]] = {lane: [] for lane in range(env.num_envs)}
    frames, _ = env.reset()
    for step in range(steps):
        for lane in seen:
            seen[lane].append((frames[lane].tobytes(),))
        force = np.array([[act(lane, step)] for lane in seen])
        frames, *outcome, info = env.step(force)
        for lane in seen:
            final = info["final_obs"][lane].tobytes() if info.get("_final_obs", np.zeros(9))[lane] else None
            length = info["episode"]["l"][lane] if "episode" in info else 0
            seen[lane].append((*(array[lane] for array in outcome), final, length))
    return seen


@pytest.mark.parametrize("place", ["local", "grpc", "shm"])
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_lanes_in_any_order_see_the_same(server: Served, mode: Any, place: Any) -> None:
    """Results of recv equal those of step, whichever streams are ready, and in whatever order actions are sent."""
    many: dict[str, Any] = {
        **GIVEN, "flat": True, "observations": ["eye.gray"], "autoreset": mode, "seed": 11, "frame_stack": 2,
        "episode_statistics": True,
    }  # fmt: skip
    address = "local" if place == "local" else server.tcp
    more: dict[str, Any] = {} if place == "local" else {"transport": place}
    steps = 50
    with VectorEnv("local", "cartpole", 7, renderer="cpu", **many) as env:
        expected = record(env, steps)
    rng = np.random.default_rng(3)
    seen: dict[int, list[tuple[Any, ...]]] = {lane: [] for lane in range(7)}
    taken = np.zeros(7, int)
    with VectorEnv(address, "cartpole", 7, streams=3, **more, **many) as env:
        env.async_reset()
        under_way = 7
        while under_way:
            frames, *outcome, info = env.recv(min_lanes=int(rng.integers(1, under_way + 1)))
            lanes = info["env_id"]
            under_way -= len(lanes)
            for row, lane in enumerate(lanes.tolist()):
                if taken[lane]:
                    final = info["final_obs"][row].tobytes() if info.get("_final_obs", np.zeros(9))[row] else None
                    length = info["episode"]["l"][row] if "episode" in info else 0
                    seen[lane].append((*(array[row] for array in outcome), final, length))
                seen[lane].append((frames[row].tobytes(),))
            again = rng.permutation(lanes[taken[lanes] < steps])
            for part in np.array_split(again, 2):
                if len(part):
                    env.send(np.array([[act(lane, taken[lane])] for lane in part]), part)
                    taken[part] += 1
            under_way += len(again)
        assert env.transport == place
    for lane, all_seen in expected.items():
        assert seen[lane][:-1] == all_seen  # without the frame after the last step


def test_two_envs_equal_one_of_twice_the_size() -> None:
    many: dict[str, Any] = {"renderer": "cpu", "flat": True, "seed": 5, "width": 8, "height": 8}
    with (
        VectorEnv("local", "maze", 6, **many) as whole,
        VectorEnv("local", "maze", 3, **many) as left,
        VectorEnv("local", "maze", 3, first_lane=3, **many) as right,
        VectorEnv("local", "maze", 3, first_lane=[4, 0, 2], **many) as some,
    ):
        frames = whole.reset()[0]
        assert np.array_equal(frames, np.concatenate([left.reset()[0], right.reset()[0]]))
        assert np.array_equal(frames[[4, 0, 2]], some.reset()[0])


@pytest.fixture
def streams() -> Iterator[VectorEnv]:
    with VectorEnv("local", "catch", 4, renderer="cpu", flat=True, streams=2, width=8, height=8) as env:
        yield env


@pytest.mark.parametrize(
    ("misuse", "error", "words"),
    [
        (lambda env: env.send(np.zeros(1, int), [4]), ValueError, "env_id has 4 to 4: expected lanes from 0 to 3"),
        (lambda env: env.send(np.zeros(2, int), [1, 1]), ValueError, "env_id has a lane twice"),
        (lambda env: env.send(np.zeros(0, int), []), ValueError, "expected the indices of some lanes"),
        (lambda env: env.send(np.zeros(1, int), [0.5]), ValueError, "env_id is float64 [1]"),
        (lambda env: env.send(np.zeros(3, int), [0, 1]), ValueError, "actions have shape [3]: expected integers [2]"),
        (lambda env: env.send(np.full(2, 3), [0, 1]), ValueError, "actions are 3 at [0]"),
        (lambda env: env.recv(), ClientError, "nothing to receive"),
        (lambda env: env.recv(0), ValueError, "min_lanes is 0: expected an integer from 1 to 4"),
        (lambda env: env.reset(seed=[1, 2]), ValueError, "seed has 2 elements: expected 4"),
        (lambda env: env.reset(seed=[1, 2, 3, "x"]), TypeError, "seed[3] is 'x': expected one integer"),
        (lambda env: env.reset(options={"reset_mask": np.ones(4, bool)}), ValueError, "expected none"),
    ],
)
def test_misuse_changes_nothing(streams: VectorEnv, misuse: Callable[[VectorEnv], Any], error: Any, words: str) -> None:
    streams.reset(seed=1)
    expected = streams.step(np.ones(4, int))[0]
    streams.reset(seed=1)
    with pytest.raises(error, match=re.escape(words)):
        misuse(streams)
    assert np.array_equal(streams.step(np.ones(4, int))[0], expected)


def test_lanes_that_have_an_action_or_are_under_way(streams: VectorEnv) -> None:
    streams.reset()
    streams.send(np.ones(1, int), [1])
    with pytest.raises(ClientError, match="an action for lane 1, which has one"):
        streams.send(np.ones(2, int), [0, 1])
    with pytest.raises(ClientError, match="an action for lane 1, which has one"):
        streams.step(np.ones(4, int))
    with pytest.raises(ClientError, match="nothing to receive"):
        streams.recv()
    streams.send(np.ones(1, int), [0])
    with pytest.raises(ClientError, match="a step of lane 1 while another is under way"):
        streams.send(np.ones(1, int), [1])
    with pytest.raises(ClientError, match="min_lanes is 3 with 2 lanes under way"):
        streams.recv(3)
    assert streams.recv()[4]["env_id"].tolist() == [0, 1]
    streams.send(np.ones(2, int), np.array([2, 0], np.uint8))
    streams.reset()  # drops what was sent
    assert streams.step(np.ones(4, int))[4] == {}


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (
            {"autoreset": "never"},
            ValueError,
            "autoreset is 'never': expected one of 'next_step', 'same_step', 'disabled'",
        ),
        ({"action_repeat": 0}, ValueError, "action_repeat is 0: expected an integer from 1"),
        ({"frame_stack": 0}, ValueError, "frame_stack is 0: expected an integer from 1"),
        ({"streams": 5}, ValueError, "streams is 5: expected an integer from 1 to 4"),
        ({"first_lane": -1}, ValueError, "first_lane is -1: expected an integer from 0"),
        ({"first_lane": [1, 2]}, ValueError, "first_lane has 2 numbers: expected 4 different ones"),
        ({"first_lane": [1, 2, 3, 1]}, ValueError, "first_lane has 4 numbers: expected 4 different ones"),
        (
            {"settings": {"autoreset": "disabled"}},
            ValueError,
            "settings has 'autoreset': expected the argument autoreset",
        ),
    ],
)
def test_invalid_arguments(given: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        VectorEnv("local", "catch", 4, renderer="cpu", **given)


def test_masks_of_resets() -> None:
    with VectorEnv("local", "catch", 2, renderer="cpu", autoreset=AutoresetMode.DISABLED, observations=["ball"]) as env:
        with pytest.raises(gymnasium.error.ResetNeeded, match=re.escape("expected env.reset() first")):
            env.reset(options={"reset_mask": np.ones(2, bool)})
        env.reset()
        for bad in (np.ones(3, bool), np.ones(2), [[True, False]]):
            with pytest.raises(ValueError, match=re.escape("expected bool [2], true for a reset")):
                env.reset(options={"reset_mask": bad})
        with pytest.raises(ValueError, match="expected none, 'reset_mask' or 'variation'"):
            env.reset(options={"reset_mask": np.ones(2, bool), "other": 1})
        env.reset(options={"reset_mask": [True, False]})


def test_wrappers_of_gymnasium_in_each_mode() -> None:
    for mode in ("next_step", "same_step"):
        given: dict[str, Any] = {"autoreset": mode, "settings": {"rows": 4}, "flat": True, "renderer": "cpu", "seed": 1}
        with (
            VectorEnv("local", "catch", 3, **given) as env,
            VectorEnv("local", "catch", 3, episode_statistics=True, **given) as other,
        ):
            wrapped: Any = wrappers.RecordEpisodeStatistics(env)
            wrapped.reset()
            other.reset()
            for _ in range(12):
                theirs, ours = wrapped.step(np.zeros(3, int))[4], other.step(np.zeros(3, int))[4]
                assert ("episode" in theirs) == ("episode" in ours)
                if "episode" in theirs:
                    assert ours["_episode"].tolist() == theirs["_episode"].tolist()
                    for key in ("r", "l"):
                        assert ours["episode"][key].tolist() == theirs["episode"][key].tolist()
                        assert ours["episode"][key].dtype == theirs["episode"][key].dtype
            listed: Any = wrappers.DictInfoToList(other)
            listed.reset()
            for _ in range(3):
                infos = listed.step(np.zeros(3, int))[4]
            assert [info["episode"]["l"] for info in infos] == [3] * 3
            if mode == "same_step":
                assert [info["final_obs"].shape for info in infos] == [(64, 64, 3)] * 3
                assert [info["final_info"]["episode"]["l"] for info in infos] == [3] * 3
