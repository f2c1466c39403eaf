"""Rollouts and `step(out=...)` have what plain steps of another env return, whatever memory it comes through."""

import gc
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.shared_server import Served
from worldloom.client import BadAction, ClientError, VectorEnv

LANES = 3
TRANSPORTS = ("local", "grpc", "shm")


def make(address: str, transport: str, **arguments: Any) -> VectorEnv:
    if transport == "local":
        return VectorEnv("local", "catch", LANES, width=6, height=5, renderer="cpu", **arguments)
    if transport == "shm" and "eye" not in "".join(arguments.get("observations", ["eye"])):
        transport = "grpc"  # numbers are in replies in any case
    return VectorEnv(address, "catch", LANES, width=6, height=5, transport=transport, **arguments)  # type: ignore[arg-type]


def arrays_of(found: Any) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in (found if isinstance(found, dict) else {"": found}).items()}


def check_equal(found: Any, expected: dict[str, np.ndarray]) -> None:
    assert arrays_of(found).keys() == expected.keys()
    for name, array in arrays_of(found).items():
        assert array.dtype == expected[name].dtype
        np.testing.assert_array_equal(array, expected[name])


def sample(env: VectorEnv, rng: np.random.Generator) -> Any:
    moves = rng.integers(-1, 2, LANES)
    return moves + 1 if isinstance(env.single_action_space, gymnasium.spaces.Discrete) else {"paddle": moves}


ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"observations": ["eye.rgb", "eye.depth", "ball"]},
    {"observations": ["ball"], "streams": 2},
    {"flat": True, "channels": "first"},
    {"flat": True, "observations": ["eye.gray"], "channels": "first", "autoreset": "same_step"},
    {"observations": ["eye.rgb", "reward"], "channels": "last", "streams": 3},
    {"frame_stack": 2, "autoreset": "disabled"},
    {"flat": True, "frame_stack": 3, "channels": "first"},
]


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(TRANSPORTS), st.sampled_from(ARGUMENTS), st.data())
def test_a_rollout_has_what_steps_return(server: Served, transport: str, arguments: dict[str, Any], data: Any) -> None:
    """Loops over a rollout, with steps and resets between them and in them, beside an env that steps plainly."""
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    length = data.draw(st.integers(1, 7))
    with make(server.tcp, transport, **arguments) as env, make("", "local", **arguments) as plain:
        expected, _ = plain.reset(seed=1)
        env.reset(seed=1)
        rollout = env.rollout(length)
        for _ in range(data.draw(st.integers(1, 3))):
            for _ in range(data.draw(st.integers(0, 2))):
                actions = sample(env, rng)
                found, expected = env.step(actions)[0], plain.step(actions)[0]
                check_equal(found, arrays_of(expected))
            if data.draw(st.booleans()):
                expected, _ = plain.reset(seed=2)
                env.reset(seed=2)
            seen, told, given_actions = [], [], []
            for observations in rollout:
                check_equal(observations, arrays_of(expected))
                seen.append(arrays_of(expected))
                actions = sample(env, rng)
                given_actions.append(arrays_of(actions))
                result, expected_result = env.step(actions, out=rollout), plain.step(actions)
                expected = expected_result[0]
                check_equal(result[0], arrays_of(expected))
                for k in (1, 2, 3):
                    np.testing.assert_array_equal(result[k], expected_result[k])
                assert result[4].keys() == expected_result[4].keys()
                told.append(expected_result[1:4])
            check_equal(rollout.observations, {name: np.stack([one[name] for one in seen]) for name in seen[0]})
            check_equal(rollout.last_observations, arrays_of(expected))
            for k, array in enumerate((rollout.rewards, rollout.terminated, rollout.truncated)):
                np.testing.assert_array_equal(array, [one[k] for one in told])
            stacked = {name: np.stack([one[name] for one in given_actions]) for name in given_actions[0]}
            for name, array in arrays_of(rollout.actions).items():
                np.testing.assert_array_equal(array, stacked[name])
            assert len(rollout.infos) == length


@pytest.mark.parametrize("transport", ["local", "shm"])
@pytest.mark.parametrize("arguments", [{}, {"flat": True, "channels": "first"}, {"observations": ["eye.depth"]}])
def test_frames_are_drawn_into_the_rollout(server: Served, transport: str, arguments: dict[str, Any]) -> None:
    with make(server.tcp, transport, **arguments) as env:
        env.reset(seed=3)
        rollout = env.rollout(4)
        assert rollout.is_shared == (transport == "shm")
        frames = rollout.observations if env.single_observation_space.shape else rollout.observations.popitem()[1]
        assert frames.reshape(4 * LANES, *frames.shape[2:]).base is not None, "steps and lanes are one dimension"
        for _ in range(3):
            for _ in rollout:
                result = env.step(sample(env, np.random.default_rng(0)), out=rollout)[0]
                observed = result if isinstance(result, np.ndarray) else next(iter(result.values()))
                assert np.shares_memory(observed, frames) or rollout.position == 4
        assert env.unshared_steps == 0


def test_the_first_step_after_the_last_begins_anew(server: Served) -> None:
    with make(server.tcp, "local", flat=True) as env:
        env.reset(seed=0)
        rollout = env.rollout(2)
        for k in range(5):
            env.step(np.ones(LANES, int), out=rollout)
            assert rollout.position == k % 2 + 1
        assert len(rollout) == 2
        assert len(rollout.infos) == 1


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_out_is_written_and_returned(server: Served, transport: str) -> None:
    names = ["eye.rgb", "ball"]
    with make(server.tcp, transport, observations=names) as env, make("", "local", observations=names) as plain:
        out, _ = env.reset(seed=4)
        plain.reset(seed=4)
        out = {name: np.zeros_like(array) for name, array in out.items()}
        strided = np.zeros((LANES, 5, 6, 6), np.uint8)[..., ::2]
        for k in range(6):
            if k == 4:
                out["eye.rgb"] = strided  # not contiguous: it is copied into
            actions = {"paddle": [k % 3 - 1] * LANES}
            result, expected = env.step(actions, out=out), plain.step(actions)
            for name in names:
                assert result[0][name] is out[name]
                np.testing.assert_array_equal(out[name], expected[0][name])
            np.testing.assert_array_equal(result[1], expected[1])


def test_wrong_out_is_refused_and_nothing_is_stepped(server: Served) -> None:
    with make(server.tcp, "local") as env, make(server.tcp, "local") as other:
        frames, _ = env.reset(seed=4)
        other.reset(seed=4)
        right = frames["eye.rgb"].copy()
        read_only = right.copy()
        read_only.flags.writeable = False
        for out, words in [
            (right, "out is ndarray: expected arrays for 'eye.rgb'"),
            ({}, "expected arrays for 'eye.rgb'"),
            ({"eye.rgb": right, "ball": right}, "'eye.rgb', 'ball': expected arrays"),
            ({"eye.rgb": right[:2]}, r"uint8 \[2, 5, 6, 3\]: expected a NumPy array uint8 \[3, 5, 6, 3\]"),
            ({"eye.rgb": right.astype(float)}, "float64"),
            ({"eye.rgb": right.tolist()}, "is list: expected a NumPy array"),
            ({"eye.rgb": read_only}, "read-only"),
            ({"eye.rgb": np.lib.stride_tricks.as_strided(right, strides=(0, 18, 3, 1))}, "elements that share memory"),
        ]:
            with pytest.raises(ValueError, match=words):
                env.step({"paddle": [1, 1, 1]}, out=out)
        with pytest.raises(ClientError, match="another env"):
            env.step({"paddle": [1, 1, 1]}, out=other.rollout(2))
        rollout = env.rollout(2)
        with pytest.raises(BadAction):
            env.step({"paddle": [7, 1, 1]}, out=rollout)
        assert rollout.position == 0
        one, two = env.step({"paddle": [1, 1, 1]}), other.step({"paddle": [1, 1, 1]})
        np.testing.assert_array_equal(one[0]["eye.rgb"], two[0]["eye.rgb"])


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_arrays_of_out_that_overlap_are_refused(server: Served, transport: str) -> None:
    names = ["eye.rgb", "eye.gray"]
    with make(server.tcp, transport, observations=names) as env, make("", "local", observations=names) as plain:
        env.reset(seed=4)
        plain.reset(seed=4)
        memory = np.zeros(LANES * 5 * 6 * 4, np.uint8)
        every = memory.reshape(LANES, 5, 6, 4)
        frames, gray = memory[: LANES * 90].reshape(LANES, 5, 6, 3), memory[LANES * 90 :].reshape(LANES, 5, 6)
        actions = {"paddle": [1] * LANES}
        for out in (
            {"eye.rgb": frames, "eye.gray": memory[LANES * 60 : LANES * 90].reshape(LANES, 5, 6)},
            {"eye.rgb": every[..., :3], "eye.gray": every[..., 2]},
        ):
            with pytest.raises(ValueError, match=r"out for 'eye\.gray' and for 'eye\.rgb' share memory: expected"):
                env.step(actions, out=out)
        for out in (
            {"eye.rgb": frames, "eye.gray": gray},  # one after the other
            {"eye.rgb": every[..., :3], "eye.gray": every[..., 3]},  # between each other
            {"eye.rgb": frames[::-1, :, ::-1], "eye.gray": gray},
        ):
            seen, expected = env.step(actions, out=out)[0], plain.step(actions)[0]
            for name in names:
                np.testing.assert_array_equal(seen[name], expected[name])


def test_a_rollout_needs_a_reset_and_a_step_in_each_turn(server: Served) -> None:
    with make(server.tcp, "local", flat=True) as env:
        with pytest.raises(ValueError, match="steps is 0: expected"):
            env.rollout(0)
        rollout = env.rollout(3)
        with pytest.raises(gymnasium.error.ResetNeeded):
            next(iter(rollout))
        env.reset()
        with pytest.raises(ClientError, match=r"0 steps were taken in turn 0 of a loop over a rollout: expected"):
            for _ in rollout:
                pass

        def step_twice_in(twice: int) -> None:
            for turn, _ in enumerate(rollout):
                for _ in range(2 if turn == twice else 1):
                    env.step(env.action_space.sample(), out=rollout)

        for turn in (0, 2):  # the last turn, too, where the next step is again the first
            with pytest.raises(ClientError, match=rf"2 steps were taken in turn {turn} of a loop over a rollout"):
                step_twice_in(turn)


def test_a_rollout_too_large_for_the_server_is_copied_into(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    """The limit of shared memory is the server's; the client has memory of its own."""
    with VectorEnv(server.tcp, "catch", 64, width=512, height=512, transport="shm", flat=True) as env:
        env.reset(seed=0)
        rollout = env.rollout(100)  # 5 GB, more than servers share; two sets of it are used
        assert not rollout.is_shared
        assert "shared memory" in caplog.text
        env.step(np.ones(64, int), out=rollout)
        assert rollout.observations[0].any()


def test_plain_steps_beside_a_rollout_leave_it_alone(server: Served) -> None:
    with make(server.tcp, "shm", flat=True) as env:
        env.reset(seed=5)
        rollout = env.rollout(3)
        for _ in rollout:
            env.step(np.ones(LANES, int), out=rollout)
        kept = rollout.observations.copy()
        for _ in range(6):
            env.step(np.zeros(LANES, int))
        np.testing.assert_array_equal(rollout.observations, kept)
        assert env.unshared_steps == 6
        del rollout
        gc.collect()
        env.step(np.zeros(LANES, int))
        env.step(np.zeros(LANES, int))
        assert env.unshared_steps < 8


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_rollouts_in_turn(server: Served, transport: str) -> None:
    """The last of several is drawn into over shared memory, the others are copied into; all are right."""
    with make(server.tcp, transport, flat=True) as env, make("", "local", flat=True) as plain:
        env.reset(seed=6)
        expected, _ = plain.reset(seed=6)
        rng = np.random.default_rng(0)
        rollouts, kept = [env.rollout(2), env.rollout(3)], {}
        for turn in (0, 1, 0, 0, 1):
            seen = []
            for observations in rollouts[turn]:
                seen.append(expected.copy())
                np.testing.assert_array_equal(observations, seen[-1])
                actions = sample(env, rng)
                env.step(actions, out=rollouts[turn])
                expected = plain.step(actions)[0]
            kept[turn] = np.stack(seen)
            for number, frames in kept.items():
                np.testing.assert_array_equal(rollouts[number].observations, frames)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_dicts_that_are_returned_are_the_callers(server: Served, transport: str) -> None:
    names = ["eye.rgb", "ball"]
    with make(server.tcp, transport, observations=names) as env, make("", "local", observations=names) as plain:
        first, _ = env.reset(seed=6)
        plain.reset(seed=6)
        first["eye.rgb"] = first["eye.rgb"] / 255.0
        rollout = env.rollout(2)
        for _ in range(2):
            for observations in rollout:
                del observations["ball"]
                actions = {"paddle": [1, 0, -1]}
                result, expected = env.step(actions, out=rollout)[0], plain.step(actions)[0]
                check_equal(result, arrays_of(expected))
                result["eye.rgb"] = result["eye.rgb"] / 255.0
            rollout.observations.clear()
            check_equal(rollout.last_observations, arrays_of(expected))


def test_reading_the_current_observations_changes_nothing(server: Served) -> None:
    with make(server.tcp, "local", flat=True) as env:
        env.reset(seed=7)
        rollout = env.rollout(2)
        for _ in rollout:
            env.step(np.ones(LANES, int), out=rollout)
        before = rollout.observations.copy()
        np.testing.assert_array_equal(rollout.current_observations, rollout.last_observations)
        np.testing.assert_array_equal(rollout.observations, before)
        assert (rollout.position, len(rollout.infos)) == (2, 2)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_rollouts_and_steps_that_were_sent(server: Served, transport: str) -> None:
    with make(server.tcp, transport, flat=True, streams=2) as env, make("", "local", flat=True) as plain:
        env.reset(seed=8)
        plain.reset(seed=8)
        env.send(np.ones(LANES, int))
        with pytest.raises(ClientError, match=r"a rollout of lane 0 while another is under way: expected env.recv"):
            env.rollout(2)
        env.recv()
        rollout = env.rollout(2)
        env.send(np.ones(LANES, int))
        count = 0
        while count < LANES:  # in parts
            count += len(env.recv(min_lanes=1)[4]["env_id"])
        env.step(np.zeros(LANES, int), out=rollout)
        plain.step(np.ones(LANES, int))
        np.testing.assert_array_equal(rollout.observations[0], plain.step(np.ones(LANES, int))[0])


def test_shared_memory_that_cannot_be_opened_again(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has replaced it by then: what it draws there must not be taken from the memory of before."""

    def fail(*_: object) -> None:
        raise OSError("too many open files")

    with make(server.tcp, "shm", flat=True) as env, make("", "local", flat=True) as plain:
        env.reset(seed=9)
        plain.reset(seed=9)
        with monkeypatch.context() as patch:
            patch.setattr("worldloom.client.vector_world.SharedFrames", fail)
            rollout = env.rollout(3)
        assert not rollout.is_shared
        for k in range(5):
            actions = np.full(LANES, k % 3)
            found, expected = env.step(actions, out=rollout if k % 2 else None)[0], plain.step(actions)[0]
            np.testing.assert_array_equal(found, expected)
