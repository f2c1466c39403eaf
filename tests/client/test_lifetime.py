"""Lifetimes: kept observations do not change, and envs that are garbage collected leave nothing behind."""

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from scripts.support.stream_client import free_port
from tests.support.shared_server import Served
from worldloom.client import BadAction, CannotConnect, VectorEnv

LANES = 16


def make(server: Served, transport: str, seed: int = 1) -> VectorEnv:
    if transport == "local":
        return VectorEnv("local", "catch", LANES, renderer="cpu", seed=seed)
    return VectorEnv(server.tcp, "catch", LANES, transport="shm" if transport == "shm" else "grpc", seed=seed)


def actions(step: int) -> dict[str, np.ndarray]:
    return {"paddle": np.random.default_rng(step).integers(-1, 2, LANES)}


@pytest.mark.parametrize("transport", ["local", "grpc", "shm"])
def test_kept_observations_do_not_change(server: Served, transport: str) -> None:
    """Observations that are kept for different times, also as views of views, while memory is reused."""
    with make(server, transport) as env, make(server, "grpc") as other:
        other.reset()
        kept = [env.reset()[0]["eye.rgb"][2:, ::2, ::2]]
        copies = [kept[0].copy()]
        last: list[tuple[np.ndarray, np.ndarray]] = []
        for step in range(30):
            seen = env.step(actions(step))[0]["eye.rgb"]
            expected = other.step(actions(step))[0]["eye.rgb"]
            assert np.array_equal(seen, expected)
            if step < 12 or step % 5 == 0:
                kept.append(seen[2:, ::2, ::2])
                copies.append(seen[2:, ::2, ::2].copy())
            last = [*last[-2:], (seen, expected)]
            for one, copy in (*zip(kept, copies, strict=True), *last):
                assert np.array_equal(one, copy)
            if step == 20:
                kept, copies = kept[-1:], copies[-1:]
        env.close()
        gc.collect()
        for one, copy in zip(kept, copies, strict=True):
            assert np.array_equal(one, copy)


@pytest.mark.parametrize("transport", ["local", "grpc", "shm"])
def test_observations_can_be_written(server: Served, transport: str) -> None:
    with make(server, transport) as env, make(server, "grpc") as other:
        env.reset()[0]["eye.rgb"][:] = 0
        other.reset()
        for step in range(12):
            seen = env.step(actions(step))[0]["eye.rgb"]
            assert np.array_equal(seen, other.step(actions(step))[0]["eye.rgb"])
            seen[:] = step


def test_shared_memory_is_reused(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    with make(server, "shm") as env:
        env.reset()
        places = {env.step(actions(step))[0]["eye.rgb"].__array_interface__["data"][0] for step in range(40)}
        assert len(places) == 2, "the env keeps the last observations, and a step is drawn into others"
        held = [env.step(actions(step))[0]["eye.rgb"] for step in range(4)]
        assert len({one.__array_interface__["data"][0] for one in held} | places) == 4
        assert env.unshared_steps == 0
        assert not caplog.records
        held += [env.step(actions(step))[0]["eye.rgb"] for step in range(2)]  # these come in the replies
        assert env.unshared_steps == 2
        (record,) = caplog.records
        assert (record.name, record.levelname) == ("worldloom.client", "WARNING")
        assert "shared memory has room for 4 steps" in record.getMessage()
        del held
        again = {env.step(actions(step))[0]["eye.rgb"].__array_interface__["data"][0] for step in range(40)}
        assert again == places
        assert env.unshared_steps == 2


def test_dropped_steps_change_no_kept_observations(server: Served) -> None:
    with make(server, "shm") as env:
        held = [env.reset()[0]["eye.rgb"] for _ in range(3)]
        copies = [one.copy() for one in held]
        for step in range(8):
            env.send(actions(step))
            env.reset()
            with pytest.raises(BadAction):
                env.send({"paddle": [2] * LANES})
            assert all(np.array_equal(one, copy) for one, copy in zip(held, copies, strict=True))


def test_reply_buffers_of_a_local_env_are_reused(server: Served) -> None:
    with make(server, "local") as env:
        env.reset()
        places = {env.step(actions(step))[0]["eye.rgb"].__array_interface__["data"][0] for step in range(40)}
    assert len(places) <= 4


UNCLOSED = """
import sys
import threading
from worldloom.client import VectorEnv
VectorEnv(sys.argv[1], "catch", 4).reset()  # garbage collected at once
env = VectorEnv(sys.argv[1], "catch", 4)
print(int(env._streams.first_world.read_property("counters.worlds")))
obs, _ = env.reset()
env.send({"paddle": [0, 0, 0, 0]})  # and in the middle of a step
"""


def test_envs_that_are_garbage_collected_close_without_output(server: Served) -> None:
    with VectorEnv(server.tcp, "catch", 4) as watcher:
        before = int(watcher._streams.first_world.read_property("counters.worlds"))
        run = subprocess.run(
            [sys.executable, "-X", "dev", "-c", UNCLOSED, server.tcp], capture_output=True, text=True, timeout=60
        )
        assert (run.returncode, run.stdout, run.stderr) == (0, f"{before + 1}\n", "")
        assert int(watcher._streams.first_world.read_property("counters.worlds")) == before


def test_local_envs_that_are_not_closed_end_without_a_traceback(tmp_path: Path) -> None:
    code = "from worldloom.client import VectorEnv; env = VectorEnv('local', 'catch', 4); env.reset()"
    run = subprocess.run(
        [sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert run.returncode == 0
    assert "Traceback" not in run.stderr


def test_no_files_stay_open(server: Served) -> None:
    def cycle() -> None:
        with make(server, "shm") as env:
            kept = env.reset()[0]["eye.rgb"]
        del env
        assert kept.any()

    def open_files() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    for _ in range(3):
        cycle()
    before = open_files()
    for _ in range(10):
        cycle()
    assert open_files() <= before + 4  # gRPC keeps a few for its own work


def test_threads_end_with_their_connection(server: Served) -> None:
    """A thread of gRPC that holds a lock while Python ends would make it wait for that lock, for ever."""
    before = set(threading.enumerate())
    for lanes in range(1, 20):
        env = VectorEnv(server.tcp, "catch", lanes, transport="grpc")
        env.reset()
        env.close()
        assert set(threading.enumerate()) == before
    with pytest.raises(CannotConnect):
        VectorEnv(f"127.0.0.1:{free_port()}", "catch", 1)
    assert set(threading.enumerate()) == before
