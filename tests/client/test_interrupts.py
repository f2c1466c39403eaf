"""Interrupts, forks and losses: nothing hangs, and nothing that was received is lost."""

import logging
import os
import random
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from scripts.support.server_process import ServerProcess
from tests.support.shared_server import Served
from worldloom import ClientError, LostConnection, VectorEnv, make_dm_env


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
                    assert "env.send(actions)" in str(error) or "lost by an interrupt" in str(error)  # noqa: PT017
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
