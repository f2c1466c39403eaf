"""Shared memory between real processes: nothing of it is left, however either side ends."""

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.support.background_client import BackgroundClient
from scripts.support.engine_streams import refused
from scripts.support.reference_world import ReferenceWorld
from scripts.support.server_process import ServerProcess, serving
from scripts.support.shared_memory import MappedSegment, segment_files, segment_mappings
from scripts.support.stream_client import TIMEOUT_S, StreamClient
from worldloom.render.cpu import CPURenderer

AT_ONCE_S = 5.0
SIZE: dict[str, Any] = {"width": 24, "height": 16}
SEE = ("eye.rgb", "eye.rgb@shm", "map.depth", "map.depth@shm")
OTHER_USER = 65534
OPEN_AS_ANOTHER = """
import os, sys
os.setgroups([]), os.setgid(int(sys.argv[1])), os.setuid(int(sys.argv[1]))
try:
    print(os.open(sys.argv[2], os.O_RDONLY))
except PermissionError:
    print("denied")
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving() as made:
        yield made
        wait_until_none(made)


@contextmanager
def sharing(address: str, family: str = "maze", lanes: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A client in another process, which has shared memory."""
    command = [sys.executable, "-m", "tests.support.sharing_client", address, family, str(lanes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "shared\n", "the client did not get that far"
            yield process
        finally:
            process.kill()


def wait_for(what: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + AT_ONCE_S
    while not what():
        assert time.monotonic() < deadline_s, "it did not come to that in time"


def wait_until_none(server: ServerProcess) -> None:
    """The server has let go of all segments: neither open nor mapped."""
    wait_for(lambda: not segment_files(server.pid) and not segment_mappings(server.pid))


def files_in_shared_directory() -> set[str]:
    return set(os.listdir("/dev/shm")) if Path("/dev/shm").is_dir() else set()


@pytest.mark.parametrize("lanes", [None, 3])
def test_the_same_bytes_here_in_the_reply_and_as_drawn_directly(
    server: ServerProcess, cpu: CPURenderer, lanes: int | None
) -> None:
    direct = ReferenceWorld(cpu, "maze", 8, lanes or 1, size=7)
    with StreamClient(server.address) as wire:
        world = wire.create("maze", seed=8, size=7, **({"lanes": lanes} if lanes else {}))
        wire.join(world, **SIZE, shm=True)
        mapped = MappedSegment(wire.property)
        assert segment_mappings(server.pid) == [mapped.inode]
        for step in range(10):
            told = wire.step(*SEE, turn=np.full(lanes or (), 0.5))
            direct.step(turn=0.5)
            for name in ("eye.rgb", "map.depth"):
                drawn = direct.draw(name, **SIZE)
                assert told.observations[name].tobytes() == drawn.tobytes(), (step, name)
                assert mapped.frames(told.observations[f"{name}@shm"], drawn).tobytes() == drawn.tobytes(), (step, name)
        wire.leave()
        wire.destroy(world)


@pytest.mark.parametrize("end", ["leave", "reset", "destroy", "half close", "cancel"])
def test_the_server_lets_go(server: ServerProcess, end: str) -> None:
    with StreamClient(server.address) as wire, StreamClient(server.address) as other:
        world = wire.create("maze", lanes=2)
        wire.join(world, **SIZE, shm=True)
        mapped = MappedSegment(wire.property)
        seen = wire.step(*SEE).observations
        assert segment_mappings(server.pid) == [mapped.inode]
        if end == "leave":
            wire.leave()
        elif end == "reset":
            wire.leave()
            wire.join(world, **SIZE)
        elif end == "destroy":
            other.destroy(world)
        elif end == "half close":
            wire.half_close()
            assert not wire.read_rest()
        else:
            wire.call.cancel()
        wait_until_none(server)
        assert np.array_equal(mapped.frames(seen["eye.rgb@shm"], seen["eye.rgb"]), seen["eye.rgb"])
        if end == "reset":
            wire.leave()
        if end != "destroy":
            other.destroy(world)


@pytest.mark.parametrize("lanes", [0, 64])
def test_a_client_that_is_killed(server: ServerProcess, lanes: int) -> None:
    before = files_in_shared_directory()
    with sharing(server.address, lanes=lanes) as client:
        assert len(segment_mappings(server.pid)) == 1
        client.kill()
        client.wait(TIMEOUT_S)
        wait_until_none(server)
    assert files_in_shared_directory() == before


def test_a_server_that_is_killed() -> None:
    """And before that, its limit."""
    before = files_in_shared_directory()
    server = ServerProcess("--max-shared-bytes", "2000000")
    try:
        with sharing(server.address, "catch", 4) as client, StreamClient(server.address) as wire:
            world = wire.create("maze", lanes=64)
            with refused("RESOURCE_EXHAUSTED", "--max-shared-bytes", "2000000 at most"):
                wire.join(world, shm=True, observations=["eye.rgb@shm"])
            wire.join(world, observations=["eye.rgb"])
            wire.step("eye.rgb")
            server.kill()
            out, _ = client.communicate("look\nlook\n", TIMEOUT_S)
            assert out == "the same\nthe same\n"
    finally:
        server.kill()
    assert files_in_shared_directory() == before


def test_a_client_does_its_worst_to_its_own(server: ServerProcess, cpu: CPURenderer) -> None:
    """It maps it twice and three times, writes all over it and takes pages away while it is painted."""
    witness = BackgroundClient(server.address)
    direct = ReferenceWorld(cpu, "maze", 8, size=7)
    with StreamClient(server.address) as bad, StreamClient(server.address) as good:
        worlds = [wire.create("maze", seed=8, size=7) for wire in (bad, good)]
        for wire, world in zip((bad, good), worlds, strict=True):
            wire.join(world, **SIZE, shm=True)
        mapped, again, beside = MappedSegment(bad.property), MappedSegment(bad.property), MappedSegment(good.property)
        file = mapped.open()
        with pytest.raises(PermissionError):
            os.ftruncate(file, 0)
        os.fchmod(file, 0)
        os.close(file)
        for step in range(12):
            bad.send_step(*SEE)
            for memory in (mapped, again):
                memory.array[:] = step
                memory.memory.madvise(mmap.MADV_REMOVE)
            bad.step_reply()  # whatever is there by now is the client's own doing
            seen = good.step(*SEE).observations
            direct.step()
            for name in ("eye.rgb", "map.depth"):
                drawn = direct.draw(name, **SIZE)
                assert seen[name].tobytes() == drawn.tobytes()
                assert beside.frames(seen[f"{name}@shm"], drawn).tobytes() == drawn.tobytes()
        seen = bad.step(*SEE).observations
        direct.step()
        drawn = direct.draw("eye.rgb", **SIZE)
        assert seen["eye.rgb"].tobytes() == drawn.tobytes()
        assert again.frames(seen["eye.rgb@shm"], drawn).tobytes() == drawn.tobytes()
        witness.stop()
        for wire, world in zip((bad, good), worlds, strict=True):
            wire.leave()
            wire.destroy(world)


def test_whose_it_is(server: ServerProcess) -> None:
    """Of two streams each finds its own. Another user finds nothing."""
    with StreamClient(server.address) as one, StreamClient(server.address) as two:
        worlds = [wire.create("catch") for wire in (one, two)]
        for wire, world in zip((one, two), worlds, strict=True):
            wire.join(world, **SIZE, shm=True)
        maps = [MappedSegment(wire.property) for wire in (one, two)]
        assert sorted(segment_mappings(server.pid)) == sorted(mapped.inode for mapped in maps)
        assert maps[0].inode != maps[1].inode
        assert maps[0].token != maps[1].token
        for mapped in maps:
            found = os.stat(mapped.name)
            assert (found.st_mode & 0o7777, found.st_uid, found.st_nlink) == (0o600, os.getuid(), 0)
            if os.getuid() == 0:  # nobody else can become another user
                command = [sys.executable, "-c", OPEN_AS_ANOTHER, str(OTHER_USER), mapped.name]
                run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
                assert run.stdout == "denied\n", run.stderr
        for wire, world in zip((one, two), worlds, strict=True):
            wire.leave()
            wire.destroy(world)
