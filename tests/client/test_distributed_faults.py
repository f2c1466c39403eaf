"""An env over several servers in trouble: interrupts, losses in a reset, bad directories, servers that come back."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.support.server_process import ServerProcess
from tests.client.test_distributed import GIVEN, LANES, MODES, addresses, force, freeze, started_servers, wait_for
from worldloom.client import ClientError, LostConnection, VectorEnv
from worldloom.client.lane_table import PlacedStream

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two() -> Iterator[list[ServerProcess]]:
    with started_servers(2) as started:
        yield started


@pytest.mark.parametrize("transport", ["socket", "grpc"])
@pytest.mark.parametrize("sent", [0, 1, 2])
def test_an_interrupt_costs_nothing(
    two: list[ServerProcess], transport: Any, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when a step was sent to none, one or both of the servers."""
    with VectorEnv(addresses(two), "cartpole", LANES, transport=transport, **GIVEN) as env:
        env.reset(seed=0)
        left = [sent]
        step, receive = PlacedStream.step, PlacedStream.receive

        def interrupt(method: Any) -> Any:
            def interrupted(self: PlacedStream, *arguments: Any) -> None:
                if not left[0]:
                    raise KeyboardInterrupt
                left[0] -= 1
                method(self, *arguments)

            return interrupted

        for _ in range(3):
            left[0] = sent
            with monkeypatch.context() as patch:
                patch.setattr(PlacedStream, "step", interrupt(step))
                if sent == 2:
                    patch.setattr(PlacedStream, "receive", interrupt(receive))
                with pytest.raises(KeyboardInterrupt):
                    env.step(force(0))
            if sent:
                assert len(env.recv()[1]) == sent * LANES // 2
            else:
                with pytest.raises(ClientError, match="nothing to receive"):
                    env.recv()
            assert len(env.step(force(0))[1]) == LANES


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_noticed", [False, True])
def test_a_reset_waits_for_lanes_whose_server_it_finds_lost(mode: Any, is_noticed: bool) -> None:
    with (
        started_servers(2) as started,
        VectorEnv(addresses(started), "cartpole", LANES, autoreset=mode, **GIVEN) as env,
        VectorEnv("local", "cartpole", LANES, renderer="cpu", autoreset=mode, **GIVEN) as local,
    ):
        for one in (env, local):
            one.reset(seed=1)
            one.step(force(0))
        started[0].kill()
        if is_noticed:
            wait_for(lambda: env.servers[0].state == "lost")
        found, info = env.reset(seed=2)
        expected, _ = local.reset(seed=2)
        assert not info["lost"].any()
        for step in range(30):
            for name in expected:
                assert np.array_equal(found[name], expected[name]), (step, name)
            found, *_, info = env.step(force(step))
            expected = local.step(force(step))[0]
            assert not info["lost"].any()


class Answers:
    """A directory whose answers are given."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls = 0

    def addresses(self) -> Any:
        self.calls += 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    "bad", [["host-without-port"], [1, None], "127.0.0.1:1", None, OSError("no way"), SystemExit("no"), KeyError()]
)
def test_a_bad_answer_of_a_directory_changes_nothing(two: list[ServerProcess], bad: Any) -> None:
    directory = Answers([two[0].address])
    with VectorEnv(directory, "cartpole", LANES, **GIVEN) as env:
        env.reset(seed=0)
        directory.answer = bad
        before = directory.calls
        wait_for(lambda: directory.calls >= before + 2)
        assert not env.step(force(0))[4]["lost"].any()
        directory.answer = addresses(two)
        wait_for(lambda: len(env.servers) == 2)


def test_a_server_that_was_frozen_has_room_for_its_lanes_again() -> None:
    with (
        started_servers(2, "--max-lanes", str(LANES // 2)) as started,
        VectorEnv(addresses(started), "cartpole", LANES, **GIVEN) as env,
    ):
        env.reset(seed=0)
        freeze(started[0])
        wait_for(lambda: env.step(force(0))[4]["lost"].any())
        os.kill(started[0].pid, signal.SIGCONT)
        began_s = time.monotonic()
        wait_for(lambda: not env.step(force(0))[4]["lost"].any())
        assert time.monotonic() - began_s < 30  # not the minute that worlds of lost clients are kept


def test_a_loss_tells_why_no_other_server_takes_the_lanes(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("sesame")
    with started_servers(1) as open_to_all, started_servers(1, "--token-file", str(token)) as guarded:
        given = [open_to_all[0].address, guarded[0].address]
        with VectorEnv(given, "cartpole", LANES, timeout_s=2, **GIVEN) as env:
            assert [server.lanes for server in env.servers] == [LANES, 0]
            env.reset()
            open_to_all[0].kill()
            with pytest.raises(LostConnection, match="there is no token"):
                _step_for_long(env)


def _step_for_long(env: VectorEnv) -> None:
    for step in range(100):
        env.step(force(step))
