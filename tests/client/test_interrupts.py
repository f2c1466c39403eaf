"""Interrupts, forks and losses: nothing hangs, and nothing that was received is lost."""

import logging
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

from scripts.support.server_process import ServerProcess
from tests.support.own_thread import in_own_thread
from tests.support.shared_server import Served
from worldloom import ClientError, LostConnection, VectorEnv, make_dm_env
from worldloom.client.streams import LaneStream, LaneStreams

HANDING_OVER = ("vector_env.py", "episodes.py", "rollout.py", "results.py", "spaces.py")
"""Modules that a result passes through after it was taken, on its way to the caller."""
MAX_OCCURRENCES = 3
"""Times that a line is interrupted: lines of loops come again."""
CALLS_WITHOUT_NEW_LINES = 25
"""Calls after which all lines count as seen: some belong to ends of episodes, or to replies that come late."""


def first_stream(env: VectorEnv) -> LaneStream:
    assert isinstance(env._streams, LaneStreams)
    return env._streams._streams[0]


class Interrupts:
    """KeyboardInterrupt at each line of the client's code in turn, as a signal may raise it."""

    def __init__(self) -> None:
        self._done: set[tuple[CodeType, int, int]] = set()
        self._calls_without = 0
        self.place = ("", "")
        """The module and function that the last one came in."""

    @property
    def is_left(self) -> bool:
        """Some lines may not have been interrupted."""
        return self._calls_without < CALLS_WITHOUT_NEW_LINES

    def call(self, function: Callable[[], Any]) -> Any:
        """Return the function's result; None if it came to a line that had not been interrupted, and now was."""
        seen: Counter[tuple[CodeType, int]] = Counter()

        def trace(frame: FrameType, event: str, _: object) -> Any:
            path = Path(frame.f_code.co_filename)
            if path.parent.name != "client" or "tests" in path.parts:
                return None
            if event == "line":
                line = (frame.f_code, frame.f_lineno)
                seen[line] += 1
                point = (*line, min(seen[line], MAX_OCCURRENCES))
                if point not in self._done:
                    self._done.add(point)
                    self.place = (path.name, frame.f_code.co_name)
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        self._calls_without += 1
        sys.settrace(trace)
        try:
            return function()
        except KeyboardInterrupt:
            self._calls_without = 0
            return None
        finally:
            sys.settrace(before)


def assert_same(found: Any, expected: Any) -> None:
    """Compare the observations, rewards and ends of a step, and final observations in its info."""
    for one, other in zip(found[:4], expected[:4], strict=True):
        assert np.array_equal(one, other)
    final, expected_final = (result[4].get("final_obs") for result in (found, expected))
    assert (final is None) == (expected_final is None)
    if final is not None:
        for one, other in zip(final, expected_final, strict=True):
            assert (one is None and other is None) or np.array_equal(one, other)


@pytest.mark.parametrize(
    ("transport", "autoreset", "frame_stack"),
    [
        ("socket", "next_step", 1),
        ("socket", "same_step", 2),
        ("socket", "disabled", 2),
        ("shm", "same_step", 1),
        ("grpc", "next_step", 2),
        ("grpc", "same_step", 1),
    ],
)
@in_own_thread
def test_interrupts_at_each_line_of_a_step(server: Served, transport: Any, autoreset: Any, frame_stack: int) -> None:
    """A step that was sent can be received, any other can be taken anew, and no later one is different."""
    rng = np.random.default_rng(1)
    arguments: dict[str, Any] = {"width": 8, "height": 8, "flat": True, "autoreset": autoreset, "seed": 3}
    arguments |= {"frame_stack": frame_stack, "transport": transport, "timeout_s": 20, "settings": {"max_steps": 4}}
    with VectorEnv(server.tcp, "catch", 3, **arguments) as env, VectorEnv(server.tcp, "catch", 3, **arguments) as other:
        assert env.transport == transport
        connection = env._streams.first_world.connection
        env.reset()
        other.reset()
        interrupts, received, ends = Interrupts(), 0, 0
        while interrupts.is_left:
            actions = rng.integers(0, 3, 3)
            sent = connection.sent
            found = interrupts.call(partial(env.step, actions))
            if found is None and connection.sent == sent:
                with pytest.raises(ClientError, match="nothing to receive"):
                    env.recv()
                found = env.step(actions)
            elif found is None and first_stream(env).is_under_way:
                received += 1
                found = env.recv()
            expected = other.step(actions)
            if found is None:  # it was on its way to the caller
                assert interrupts.place[0] in HANDING_OVER or interrupts.place == ("streams.py", "_receive")
            else:
                assert_same(found, expected)
            ended = expected[2] | expected[3]
            ends += int(ended.any())
            mask = ended & (rng.random(3) < 0.5)
            if autoreset == "disabled" and mask.any():
                options = {"reset_mask": mask}
                assert np.array_equal(env.reset(options=options)[0], other.reset(options=options)[0])
            assert connection.sent == connection.taken
        assert received > 50
        assert ends > 10


@pytest.mark.parametrize("transport", ["socket", "grpc"])
@in_own_thread
def test_interrupts_at_each_line_of_a_reset(server: Served, transport: Any) -> None:
    """The next reset works, whatever was under way."""
    arguments: dict[str, Any] = {"width": 8, "height": 8, "flat": True, "frame_stack": 2, "transport": transport}
    actions = np.ones(3, np.int64)
    with VectorEnv(server.tcp, "catch", 3, **arguments) as env, VectorEnv(server.tcp, "catch", 3, **arguments) as other:
        env.reset(seed=1)
        interrupts, seed = Interrupts(), 1
        while interrupts.is_left:
            seed += 1
            if seed % 2:
                env.send(actions)
            interrupts.call(partial(env.reset, seed=seed))
            assert np.array_equal(env.reset(seed=seed)[0], other.reset(seed=seed)[0])
            assert_same(env.step(actions), other.step(actions))


@pytest.mark.parametrize("transport", ["socket", "grpc"])
@in_own_thread
def test_interrupts_at_each_line_of_a_send_of_some_lanes(server: Served, transport: Any) -> None:
    """The lanes have their actions and the step was sent, or the same call can be made again."""
    arguments: dict[str, Any] = {"width": 8, "height": 8, "flat": True, "transport": transport, "seed": 3}
    rng = np.random.default_rng(1)
    with VectorEnv(server.tcp, "catch", 3, **arguments) as env, VectorEnv(server.tcp, "catch", 3, **arguments) as other:
        env.reset()
        other.reset()
        interrupts = Interrupts()
        while interrupts.is_left:
            actions = rng.integers(0, 3, 3)
            env.send(actions[:1], [0])
            interrupts.call(partial(env.send, actions[1:], [1, 2]))
            if not first_stream(env).is_under_way:
                env.send(actions[1:], [1, 2])
            assert_same(env.recv(), other.step(actions))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where the tests were started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("streams", [1, 2])
def test_real_interrupts_while_a_step_is_under_way(server: Served, streams: int) -> None:
    """The step can be received, or a reset goes on at once; the episodes are those without an interrupt."""
    rng = random.Random(1)
    arguments = {"width": 32, "height": 32, "flat": True, "seed": 3}
    actions = np.ones(8, np.int64)
    with (
        VectorEnv(server.tcp, "catch", 8, streams=streams, timeout_s=20, **arguments) as env,  # type: ignore[arg-type]
        VectorEnv(server.tcp, "catch", 8, **arguments) as other,  # type: ignore[arg-type]
    ):
        env.reset()
        other.reset()
        interrupts = 0
        for _ in range(40):
            timer = threading.Timer(rng.uniform(0.0, 0.01), os.kill, (os.getpid(), signal.SIGINT))
            is_sent = False
            try:
                timer.start()
                while True:
                    is_sent = False
                    env.send(actions)
                    is_sent = True
                    obs = env.recv()[0]
                    is_sent = False
                    assert np.array_equal(obs, other.step(actions)[0])
            except KeyboardInterrupt:
                interrupts += 1
            timer.join()
            if is_sent and interrupts % 2:
                try:
                    env.recv()
                except ClientError as error:
                    assert "env.send(actions)" in str(error)  # noqa: PT017
            for each in (env, other):  # whatever was under way
                each.reset(seed=interrupts)
        assert interrupts == 40


def test_a_forked_process_drops_its_copy_of_an_env(server: Served) -> None:
    """It has none of the threads of the connection, and waits for nothing."""
    env = VectorEnv(server.tcp, "catch", 4, flat=True)
    env.reset()
    child = os.fork()
    if child == 0:
        try:
            del env
            os._exit(7)
        finally:
            os._exit(1)
    until_s = time.monotonic() + 60
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > until_s:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError("the child hangs")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(status) == 7
    env.step(np.zeros(4, np.int64))
    env.close()


@pytest.mark.parametrize("autoreset", ["disabled", "same_step"])
def test_a_reset_of_some_lanes_while_a_step_is_under_way(autoreset: str) -> None:
    """It would drop the step of the others, so it is refused, and the step can be received."""
    with VectorEnv("local", "catch", 3, flat=True, autoreset=autoreset) as env:  # type: ignore[arg-type]
        env.reset(seed=1)
        env.send(np.zeros(3, np.int64))
        with pytest.raises(ClientError, match="a reset with a mask of lane 0 while another is under way"):
            env.reset(options={"reset_mask": np.array([True, False, False])})
        assert len(env.recv()[1]) == 3
        env.reset(options={"reset_mask": np.array([True, False, False])})


def test_dropped_steps_are_no_reason_to_warn(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), VectorEnv(server.tcp, "catch", 3, flat=True, transport="shm") as env:
        obs, _ = env.reset(seed=1)
        for _ in range(3):
            env.send(np.zeros(3, np.int64))
            obs, _ = env.reset()
        assert obs.any()
        assert not caplog.records
        kept = [env.step(np.zeros(3, np.int64))[0] for _ in range(8)]
        assert len(kept) == 8
        assert len(caplog.records) == 1


def test_a_lost_server_is_lost_for_every_stream_and_call() -> None:
    server = ServerProcess()
    env = VectorEnv(server.address, "catch", 4, flat=True, streams=2)
    env.reset()
    server.kill()

    def send_and_receive() -> None:
        env.send(np.zeros(4, np.int64))
        env.recv(1)

    for call in (
        send_and_receive,
        lambda: env.step(np.zeros(4, np.int64)),
        env.recv,
        env.reset,
        env.async_reset,
    ):
        with pytest.raises(LostConnection):
            call()
    env.close()


def test_names_that_an_env_asks_for_by_itself() -> None:
    for name in ("eye.rgb@shm", "eye.rgb@final", "final_lanes"):
        with pytest.raises(ValueError, match="the env asks for those by itself"):
            VectorEnv("local", "catch", 2, observations=["eye.rgb", name], autoreset="same_step")


def test_seeds_of_lanes_at_the_beginning() -> None:
    """A seed for each lane, as `reset` takes them, over any number of streams."""
    given = [5, 2**63, 7, 2**64 - 1]
    with VectorEnv("local", "catch", 4, flat=True) as env:
        expected, _ = env.reset(seed=given)
    for streams in (1, 3):
        with VectorEnv("local", "catch", 4, flat=True, seed=given, streams=streams) as env:
            assert np.array_equal(env.reset()[0], expected)
    with pytest.raises(ValueError, match="seed has None for a lane"):
        VectorEnv("local", "catch", 2, seed=[1, None])  # type: ignore[list-item]


def test_repeated_actions_of_a_dm_env() -> None:
    once, thrice = (make_dm_env("local", "cartpole", seed=1, action_repeat=repeat) for repeat in (1, 3))
    once.reset()
    thrice.reset()
    action = thrice.action_spec()["force"].generate_value() * 0 + 0.5
    rewards = [once.step({"force": action}).reward for _ in range(3)]
    assert thrice.step({"force": action}).reward == np.float32(rewards[0]) + rewards[1] + rewards[2]
    once.close()
    thrice.close()
