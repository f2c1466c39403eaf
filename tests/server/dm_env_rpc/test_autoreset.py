"""Vector worlds against a model of their lanes: autoreset, repeated actions, lane numbers, seeds and resets by lane."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.support.engine_streams import INTERRUPTED, RUNNING, EngineHarness, Stream, refused
from scripts.support.messages import StepReply
from tests.support.lane_model import FIRST, LAST, MID, LaneModel, Plain, lane_seed
from worldloom.render.cpu import CPURenderer
from worldloom.server.engine import slices

MODES = ("next_step", "same_step", "disabled")
FAMILIES: dict[str, dict[str, Any]] = {
    "catch": {"rows": 3, "columns": 4, "max_steps": 7},
    "cartpole": {"max_steps": 4},
    "maze": {"size": 5, "goals": 1, "max_steps": 5, "speed": 1.0},
}
OBSERVATIONS = {"catch": ("eye.rgb", "ball"), "cartpole": ("eye.gray", "pose"), "maze": ("eye.rgb", "map.depth")}
SIZE = {"width": 9, "height": 7}


class PlainWorld:
    """A world without lanes on a stream of its own."""

    def __init__(self, harness: EngineHarness, family: str, seed: int, names: Sequence[str]) -> None:
        self._stream = harness.stream()
        self._world = self._stream.create(family, seed=seed, **FAMILIES[family])
        self._stream.join(self._world, **SIZE)
        self._names = names

    def begin(self) -> Plain:
        self._stream.reset()
        return self._step({})

    def advance(self, actions: Mapping[str, np.ndarray]) -> Plain:
        return self._step(actions)

    def reseed(self, seed: int) -> None:
        self._stream.reset_world(self._world, seed=np.uint64(seed))

    def _step(self, actions: Mapping[str, np.ndarray]) -> Plain:
        reply = self._stream.step("reward", "discount", *self._names, **actions)
        told = reply.observations
        is_last = reply.state != RUNNING
        return Plain(told["reward"][()], float(told["discount"]), is_last, {name: told[name] for name in self._names})


class Comparison:
    """A vector world, and a model of each of its lanes."""

    def __init__(
        self,
        harness: EngineHarness,
        family: str,
        mode: str,
        repeat: int,
        numbers: Sequence[int],
        seed: int = 5,
        as_first: bool = False,
    ) -> None:
        self.lanes = len(numbers)
        self.mode = mode
        self.names = OBSERVATIONS[family]
        self.numbers = numbers
        self.stream = harness.stream()
        self.world = self.stream.create(
            family,
            seed=seed,
            lanes=self.lanes,
            autoreset=mode,
            action_repeat=repeat,
            first_lane=numbers[0] if as_first else np.array(numbers),
            **FAMILIES[family],
        )
        self.stream.join(self.world, **SIZE)
        self.models = [
            LaneModel(PlainWorld(harness, family, lane_seed(seed, number), self.names), mode, repeat)
            for number in numbers
        ]
        self.asked = ["reward", "discount", "step_type", *self.names]
        if mode == "same_step":
            self.asked += ["final_lanes", *(f"{name}@final" for name in self.names)]

    def step(self, rng: np.random.Generator, held: Sequence[bool] | None = None) -> StepReply:
        """Step with random actions, and compare with the models; after a reset of some lanes `held` are the others."""
        actions = {spec.name: _random_actions(rng, spec) for spec in self.stream.specs.actions.values()}
        self.stream.post_step(*self.asked, **actions)
        while not self.stream.replies:
            self.stream.harness.tick()
        reply = self.stream.step_reply()
        assert reply.state == RUNNING
        told = reply.observations
        ended = []
        for lane, model in enumerate(self.models):
            if held is not None and held[lane]:
                expected = model.hold()
            else:
                expected = model.step({name: values[lane] for name, values in actions.items()})
            assert told["reward"][lane].tobytes() == np.asarray(expected.reward, told["reward"].dtype).tobytes()
            assert told["discount"][lane] == expected.discount
            assert told["step_type"][lane] == expected.step_type
            for name in self.names:
                assert told[name][lane].tobytes() == expected.observations[name].tobytes(), name
            if expected.final is not None:
                ended.append((lane, expected.final))
        if self.mode == "same_step":
            assert told["final_lanes"].tolist() == [lane for lane, _ in ended]
            for name in self.names:
                assert told[f"{name}@final"].shape == (len(ended), *told[name].shape[1:])
                for row, (_, final) in zip(told[f"{name}@final"], ended, strict=True):
                    assert row.tobytes() == final[name].tobytes(), name
        return reply

    def reset(self, **how: Any) -> None:
        """Reset the world as ResetWorld does, and the models as it should."""
        self.stream.reset_world(self.world, **how)
        mask = how.get("reset_mask", [True] * self.lanes)
        seed_mask = how.get("seed_mask", [True] * self.lanes)
        for lane, model in enumerate(self.models):
            if mask[lane]:
                seed = None
                if "seed" in how and seed_mask[lane]:
                    given = how["seed"]
                    seed = lane_seed(given, self.numbers[lane]) if np.ndim(given) == 0 else int(given[lane])
                model.reset(seed)


def _random_actions(rng: np.random.Generator, spec: Any) -> np.ndarray:
    shape = tuple(spec.shape)
    if spec.name == "paddle":
        return rng.integers(-1, 2, shape).astype(np.int32)
    return rng.uniform(-1, 1, shape).astype(np.float32)


@given(data=st.data())
@settings(max_examples=60)
def test_lanes_follow_the_rules(cpu: CPURenderer, data: st.DataObject) -> None:
    """Any mode, repetition and numbering of lanes, with resets of all and of some, and seeds for all and for each."""
    harness = EngineHarness(cpu)
    mode = data.draw(st.sampled_from(MODES))
    numbers = data.draw(st.lists(st.integers(0, 2**40), min_size=1, max_size=4, unique=True))
    comparison = Comparison(
        harness,
        data.draw(st.sampled_from(sorted(FAMILIES))),
        mode,
        data.draw(st.integers(1, 4)),
        numbers,
        data.draw(st.integers(0, 2**62)),
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    lanes = len(numbers)
    bools = st.lists(st.booleans(), min_size=lanes, max_size=lanes)
    seeds = st.lists(st.integers(0, 2**62), min_size=lanes, max_size=lanes)
    comparison.step(rng)
    for _ in range(data.draw(st.integers(1, 12))):
        kinds = ["step", "step", "step", "all", "seed", "seeds", "some seeds"]
        kind = data.draw(st.sampled_from(kinds if mode == "next_step" else [*kinds, "some", "some"]))
        held = None
        if kind == "all":
            comparison.reset()
        elif kind == "seed":
            comparison.reset(seed=data.draw(st.integers(0, 2**62)))
        elif kind == "seeds":
            comparison.reset(seed=data.draw(seeds))
        elif kind == "some seeds":
            comparison.reset(seed=data.draw(seeds), seed_mask=data.draw(bools))
        elif kind == "some":
            mask = data.draw(bools)
            how: dict[str, Any] = data.draw(
                st.one_of(
                    st.just({}),
                    st.fixed_dictionaries({"seed": st.integers(0, 2**62)}),
                    st.fixed_dictionaries({"seed": seeds, "seed_mask": bools}),
                )
            )
            comparison.reset(reset_mask=mask, **how)
            held = [not reset for reset in mask]
        comparison.step(rng, held)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_many_episodes_begun_a_few_at_a_time(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch, family: str, mode: str
) -> None:
    """A server divides such work over ticks; another stream is served in between."""
    monkeypatch.setattr(slices, "_CHUNK_S", 0.0)
    harness.engine.divided_work_s = 0.0
    comparison = Comparison(harness, family, mode, 2, range(7, 12), as_first=True)
    rng = np.random.default_rng(1)
    for _ in range(9):
        comparison.step(rng)
    assert not harness.engine._next_episodes.waiting


def test_halves_of_a_world_are_the_world(harness: EngineHarness) -> None:
    whole, left, right = (harness.stream() for _ in range(3))
    whole.join(whole.create("catch", seed=9, lanes=6, rows=4), **SIZE)
    left.join(left.create("catch", seed=9, lanes=4, rows=4), **SIZE)
    right.join(right.create("catch", seed=9, lanes=2, first_lane=4, rows=4), **SIZE)
    assert right.read("world.lane_numbers").tolist() == [4, 5]
    for _ in range(8):
        told = [stream.step("eye.rgb", "ball").observations for stream in (whole, left, right)]
        for name in ("eye.rgb", "ball"):
            assert told[0][name].tobytes() == told[1][name].tobytes() + told[2][name].tobytes()


def test_only_ended_lanes_are_drawn_again(harness: EngineHarness) -> None:
    """Frames of last states: one for each lane that ended, none in steps that end nothing or do not ask."""
    stream = harness.stream()
    stream.join(stream.create("cartpole", seed=1, lanes=4, autoreset="same_step", max_steps=3), **SIZE)
    counted = []
    for asked in (("eye.rgb", "final_lanes", "eye.rgb@final"), ("eye.rgb", "final_lanes")):
        stream.reset()
        for _ in range(4):
            before = stream.read("counters.views")
            ended = len(stream.step(*asked).observations["final_lanes"])
            counted.append((ended, int(stream.read("counters.views") - before)))
    assert counted == [(0, 4), (0, 4), (0, 4), (4, 8), (0, 4), (0, 4), (0, 4), (4, 4)]


def test_repeated_steps_are_not_drawn(harness: EngineHarness) -> None:
    stream = harness.stream()
    stream.join(stream.create("cartpole", seed=1, lanes=4, action_repeat=5), **SIZE)
    before = stream.read("counters.views")
    stream.step("eye.rgb")
    stream.step("eye.rgb")
    assert stream.read("counters.views") - before == 8
    assert stream.read("world.steps").tolist() == [5] * 4
    assert stream.read("world.steps_per_s") == 50 / 5


def test_repeated_actions_in_a_world_without_lanes(harness: EngineHarness) -> None:
    """The protocol's own transitions stand: the end of the episode is the state of the reply."""
    stream = harness.stream()
    stream.join(stream.create("cartpole", seed=1, action_repeat=4, max_steps=6), **SIZE)
    assert [stream.step().state for _ in range(4)] == [RUNNING, RUNNING, INTERRUPTED, RUNNING]


def test_final_observations_are_of_the_agent_that_asks(harness: EngineHarness) -> None:
    """Two agents of one maze see the end of an episode each with its own eyes."""
    one, two = harness.stream(), harness.stream()
    made = {"seed": 3, "agents": 2, "size": 5, "max_steps": 2}
    world = one.create("maze", lanes=2, autoreset="same_step", **made)
    plain_one, plain_two = harness.stream(), harness.stream()
    plain = plain_one.create("maze", **made)
    for stream, name in ((one, world), (two, world), (plain_one, plain), (plain_two, plain)):
        stream.join(name, **SIZE)
    for _ in range(3):
        last = harness.step_all(one, two, see=("eye.rgb", "eye.rgb@final", "final_lanes"))
    for _ in range(3):
        expected = harness.step_all(plain_one, plain_two, see=("eye.rgb",))
    for told, alone in zip(last, expected, strict=True):
        assert told.observations["final_lanes"].tolist() == [0, 1]
        assert told.observations["eye.rgb@final"][0].tobytes() == alone.observations["eye.rgb"].tobytes()
    assert last[0].observations["eye.rgb@final"].tobytes() != last[1].observations["eye.rgb@final"].tobytes()


def test_ended_lanes_wait(harness: EngineHarness) -> None:
    stream = harness.stream()
    world = stream.create("catch", seed=1, lanes=3, autoreset="disabled", max_steps=2)
    stream.join(world, **SIZE)
    kinds = [stream.step("step_type").observations["step_type"].tolist() for _ in range(4)]
    assert kinds == [[FIRST] * 3, [MID] * 3, [LAST] * 3, [LAST] * 3]
    stream.reset_world(world, reset_mask=[True, False, True])
    assert stream.step("step_type").observations["step_type"].tolist() == [FIRST, LAST, FIRST]
    assert stream.step("step_type").observations["step_type"].tolist() == [MID, LAST, MID]
    assert stream.read("world.episode").tolist() == [1, 0, 1]
    stream.reset_world(world, reset_mask=[False, True, False])
    stream.reset()  # a reset of all, in place of that of one
    assert stream.step("step_type").observations["step_type"].tolist() == [FIRST] * 3


def test_resets_of_some_lanes_add_up(harness: EngineHarness) -> None:
    stream, other = harness.stream(), harness.stream()
    world = stream.create("catch", seed=1, lanes=3, autoreset="disabled")
    stream.reset_world(world, reset_mask=[True, False, False])  # before the first step: all lanes begin
    stream.join(world, **SIZE)
    assert stream.step("step_type").observations["step_type"].tolist() == [FIRST] * 3
    stream.step()
    other.post_reset_world(world, reset_mask=[True, False, False])  # by a stream that has not joined
    assert stream.step().state == INTERRUPTED
    other.take("reset_world")
    stream.reset_world(world, reset_mask=[False, True, False])
    assert stream.step("step_type").observations["step_type"].tolist() == [FIRST, FIRST, MID]


def test_resets_skip_no_episode(harness: EngineHarness) -> None:
    """Right after the end of an episode a reset begins the same one in all modes, with its first state."""
    told: dict[str, list[dict[str, bytes]]] = {}
    for mode in MODES:
        stream = harness.stream()
        stream.join(stream.create("catch", seed=8, lanes=3, autoreset=mode, max_steps=2), **SIZE)
        told[mode] = []
        for _ in range(4):
            for _ in range(3):
                stream.step()
            stream.reset()
            first = stream.step("eye.rgb", "step_type", "reward", "discount")
            told[mode].append({name: value.tobytes() for name, value in first.observations.items()})
            assert stream.read("world.steps").tolist() == [0] * 3
            stream.reset()
    assert told["next_step"] == told["same_step"] == told["disabled"]


def test_a_mask_without_lanes(harness: EngineHarness) -> None:
    stream = harness.stream()
    world = stream.create("catch")
    with refused("INVALID_ARGUMENT", "'reset_mask' of a world without lanes"):
        stream.reset_world(world, reset_mask=[True])


def test_the_specs_say_which_observations_vary(harness: EngineHarness) -> None:
    stream = harness.stream()
    stream.join(stream.create("catch", lanes=3, autoreset="same_step"), **SIZE)
    shapes = {spec.name: tuple(spec.shape) for spec in stream.specs.observations.values()}
    assert shapes["final_lanes"] == (-1,)
    assert shapes["eye.rgb@final"] == (-1, 7, 9, 3)
    assert shapes["ball@final"] == (-1, 2)
    assert not [name for name in ("reward@final", "discount@final", "step_type@final") if name in shapes]
    for mode in ("next_step", "disabled"):
        plain = harness.stream()
        plain.join(plain.create("catch", lanes=3, autoreset=mode), **SIZE)
        assert not [name for name in plain.names if "final" in name]


def test_destroying_a_world_whose_episodes_begin(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step that waits is answered with an error, and nothing is left."""
    monkeypatch.setattr(slices, "_CHUNK_S", 0.0)
    stream, other = harness.stream(), harness.stream()
    world = stream.create("catch", seed=1, lanes=40, autoreset="same_step", max_steps=1)
    stream.join(world, **SIZE)
    stream.step()
    harness.engine.divided_work_s = 0.0
    stream.post_step("eye.rgb", "eye.rgb@final")
    harness.tick()
    assert not stream.replies
    other.destroy(world)
    with refused("NOT_FOUND", "it was destroyed"):
        stream.take("step")
    stream.leave()
    harness.check_empty()


def test_a_stream_that_ends_while_episodes_begin(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "_CHUNK_S", 0.0)
    stream, other = harness.stream(), harness.stream()
    world = stream.create("catch", seed=1, lanes=9, autoreset="same_step", max_steps=1)
    stream.join(world, **SIZE, shm=True)
    stream.step()
    harness.engine.divided_work_s = 0.0
    stream.post_step("eye.rgb@shm", "final_lanes")
    harness.tick()
    stream.close()
    for _ in range(12):
        harness.tick()
    harness.engine.divided_work_s = 1.0
    other.join(world, **SIZE)
    assert other.step("step_type").observations["step_type"].tolist() == [FIRST] * 9


@pytest.mark.parametrize(
    ("given_settings", "words"),
    [
        ({"autoreset": "same_step"}, ("'autoreset' without 'lanes'",)),
        ({"first_lane": 3}, ("'first_lane' without 'lanes'",)),
        ({"seed": [1, 2]}, ("a list in setting 'seed' without 'lanes'",)),
        ({"lanes": 2, "seed": [1, 2, 3]}, ("'seed' has 3 elements", "expected 2, one for each lane")),
        ({"lanes": 2, "seed": [1.5, 2.0]}, ("setting 'seed' is 1.5",)),
        ({"lanes": 2, "first_lane": [4, 4]}, ("'first_lane' has a number twice",)),
        ({"lanes": 2, "first_lane": -1}, ("'first_lane' is -1",)),
        ({"lanes": 2, "autoreset": "always"}, ("'autoreset' is 'always'", "next_step, same_step, disabled")),
        ({"action_repeat": 0}, ("'action_repeat' is 0",)),
        ({"lanes": 2, "reset_mask": [True, True]}, ("'reset_mask' is one of ResetWorld",)),
    ],
)
def test_settings_of_worlds_that_are_refused(
    harness: EngineHarness, given_settings: dict[str, Any], words: Sequence[str]
) -> None:
    stream = harness.stream()
    with refused("INVALID_ARGUMENT", *words):
        stream.create("catch", **given_settings)
    harness.check_empty()


@pytest.mark.parametrize(
    ("mode", "given_settings", "words"),
    [
        ("next_step", {"reset_mask": [True, True]}, ("autoreset 'next_step'", "expected 'disabled'")),
        ("disabled", {"reset_mask": [True]}, ("'reset_mask' is [True]", "expected 2 bools")),
        ("disabled", {"reset_mask": [1, 0]}, ("'reset_mask' is [1, 0]",)),
        ("disabled", {"reset_mask": [True, True], "rows": 5}, ("'reset_mask' with 'rows'",)),
        ("disabled", {"seed_mask": [True, True]}, ("'seed_mask' without a list in 'seed'",)),
        ("disabled", {"seed": 3, "seed_mask": [True, True]}, ("'seed_mask' without a list in 'seed'",)),
        ("disabled", {"seed": [3]}, ("'seed' has 1 elements",)),
        ("disabled", {"autoreset": "same_step"}, ("'autoreset' cannot change",)),
        ("disabled", {"action_repeat": 2}, ("'action_repeat' cannot change",)),
        ("disabled", {"first_lane": 2}, ("'first_lane' cannot change",)),
    ],
)
def test_settings_of_resets_that_are_refused(
    harness: EngineHarness, mode: str, given_settings: dict[str, Any], words: Sequence[str]
) -> None:
    stream = harness.stream()
    world = stream.create("catch", lanes=2, seed=4, autoreset=mode)
    stream.join(world, **SIZE)
    stream.step()
    with refused("INVALID_ARGUMENT", *words):
        stream.reset_world(world, **given_settings)
    assert stream.step("step_type").observations["step_type"].tolist() == [MID, MID]


def test_seeds_of_lanes_can_be_read(harness: EngineHarness) -> None:
    stream = harness.stream()
    world = stream.create("catch", lanes=3, seed=np.array([5, 6, 2**64 - 1], np.uint64))
    stream.join(world, **SIZE)
    assert stream.read("world.seed").tolist() == [5, 6, 2**64 - 1]
    stream.reset_world(world, seed=[1, 2, 3], seed_mask=[True, False, False])
    assert stream.read("world.seed").tolist() == [5, 6, 2**64 - 1]
    stream.reset_world(world, seed=[-1, 2, 3])
    assert stream.read("world.seed").tolist() == [-1, 2, 3]
    stream.reset_world(world, seed=8)
    assert stream.read("world.seed") == 8
    assert (stream.read("world.autoreset"), stream.read("world.action_repeat")) == ("next_step", 1)


def test_a_lane_with_its_own_seed_keeps_it_in_another_pool(harness: EngineHarness) -> None:
    """Settings that move the world to another pool keep the seeds of its lanes."""
    stream, other = harness.stream(), harness.stream()
    world = stream.create("catch", lanes=2, seed=4, columns=9)
    stream.join(world, **SIZE)
    stream.reset_world(world, seed=[70, 80], seed_mask=[False, True])
    stream.reset_world(world, max_steps=5)
    other.join(other.create("catch", seed=[4, 80], lanes=2, max_steps=5, columns=9), **SIZE)
    for _ in range(5):
        assert stream.step("ball").observations["ball"].tolist() == other.step("ball").observations["ball"].tolist()


def _final_stream(harness: EngineHarness) -> Stream:
    stream = harness.stream()
    stream.join(stream.create("catch", lanes=3, autoreset="same_step", max_steps=2, seed=3), **SIZE)
    return stream


def test_replies_without_an_end_have_one_form(harness: EngineHarness) -> None:
    """The same size, and final observations of length 0; a request in another order gets the same values."""
    stream = _final_stream(harness)
    sizes = set()
    for _ in range(2):
        reply = stream.step("eye.rgb@final", "reward", "final_lanes", "eye.rgb")
        sizes.add(len(harness.sent[0]) if harness.sent else 0)
        assert reply.observations["eye.rgb@final"].shape == (0, 7, 9, 3)
        assert reply.observations["final_lanes"].shape == (0,)
    last = stream.step("eye.rgb@final", "reward", "final_lanes", "eye.rgb")
    assert last.observations["final_lanes"].tolist() == [0, 1, 2]
    assert last.observations["eye.rgb@final"].shape == (3, 7, 9, 3)
    assert len(sizes) == 1
