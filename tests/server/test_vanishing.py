"""Clients that vanish: their partners go on at once, and what they leave behind is cleaned up."""

import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc

from scripts.support.server_process import ServerProcess, serving
from scripts.support.stream_client import TIMEOUT_S, StreamClient

AT_ONCE_S = 5.0
"""The system tells the server within milliseconds; keepalive, which notices by itself, would take half a minute."""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving("--idle-world-s", "1") as made:
        yield made


@contextmanager
def victim(address: str, world: str, steps: int) -> Iterator[subprocess.Popen[str]]:
    """A client in another process, of whom one step waits."""
    command = [sys.executable, "-m", "tests.support.vanishing_client", address, world, str(steps)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(what: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline_s, "it did not come to that in time"


def has_stepped(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "stepped\n", "the client did not get that far"


def test_killed_in_the_middle_of_a_step(server: ServerProcess) -> None:
    """Its own step waits when it dies. Its partner has it alone from then on."""
    with StreamClient(server.address) as partner:
        world = partner.create("maze", agents=2)
        partner.join(world)
        with victim(server.address, world, steps=3) as process:
            wait_for(lambda: partner.property("world.agents_joined") == 2)
            for _ in range(3):
                assert partner.step().state == rpc.RUNNING
            has_stepped(process)
            process.kill()
            process.wait(TIMEOUT_S)
            wait_for(lambda: bool(partner.property("world.agents_joined") == 1), AT_ONCE_S)
        steps = partner.property("world.steps")
        for _ in range(3):
            assert partner.step().state == rpc.RUNNING
        assert partner.property("world.steps") == steps + 3
        partner.leave()
        partner.destroy(world)


def test_killed_while_its_partner_waits(server: ServerProcess) -> None:
    with StreamClient(server.address) as partner, StreamClient(server.address) as watcher:
        world = partner.create("maze", agents=2)
        partner.join(world)
        with victim(server.address, world, steps=0) as process:
            has_stepped(process)
            wait_for(lambda: partner.property("world.agents_joined") == 2)
            assert partner.step().state == rpc.RUNNING
            refusals, steps = watcher.property("counters.refusals"), watcher.property("counters.steps")
            partner.send_step()  # waits: the victim has had its answer and never steps again
            partner.send(leave_world=rpc.LeaveWorldRequest())
            server.wait_until_idle()
            assert watcher.property("counters.steps") == steps
            begun_s = time.monotonic()
            process.kill()
            assert partner.step_reply().state == rpc.RUNNING
            assert time.monotonic() - begun_s < AT_ONCE_S
        partner.take("leave_world")
        assert watcher.property("counters.refusals") == refusals
        watcher.destroy(world)


class Cable:
    """Between a client and the server, until it is cut."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target = host, int(port)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._connect, daemon=True).start()

    def cut(self, with_reset: bool) -> None:
        """Close both ends; with a reset nothing that is under way arrives."""
        for end in self._ends:
            if with_reset:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._listener.close()

    def _connect(self) -> None:
        inner, _ = self._listener.accept()
        outer = socket.create_connection(self._target, TIMEOUT_S)
        outer.settimeout(None)
        self._ends = [inner, outer]
        for one, other in ((inner, outer), (outer, inner)):
            threading.Thread(target=_forward, args=(one, other), daemon=True).start()


def _forward(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(65_536):
            other.sendall(data)
    except OSError:
        pass  # it was cut


@pytest.mark.parametrize("with_reset", [False, True], ids=["closed", "reset"])
def test_a_connection_that_is_cut(server: ServerProcess, with_reset: bool) -> None:
    cable = Cable(server.address)
    with StreamClient(server.address) as partner, StreamClient(cable.address) as gone:
        world = partner.create("maze", agents=2)
        partner.join(world)
        gone.join(world)
        gone.send_step()
        partner.step()
        gone.step_reply()
        partner.send_step()
        begun_s = time.monotonic()
        cable.cut(with_reset)
        assert partner.step_reply().state == rpc.RUNNING
        assert time.monotonic() - begun_s < AT_ONCE_S
        partner.leave()
        partner.destroy(world)


@pytest.mark.parametrize("way", ["half closed", "cancelled"])
def test_a_stream_that_ends(server: ServerProcess, way: str) -> None:
    """Half closed it gets its answers first, and leaves then; cancelled it leaves at once."""
    with StreamClient(server.address) as partner, StreamClient(server.address) as gone:
        world = partner.create("maze", agents=2)
        partner.join(world)
        gone.join(world)
        gone.send_step("reward")
        gone.send_step("reward")
        if way == "half closed":
            gone.half_close()
            assert partner.step().state == rpc.RUNNING
            assert partner.step().state == rpc.RUNNING
            assert [answer.WhichOneof("payload") for answer in gone.read_rest()] == ["step", "step"]
        else:
            gone.call.cancel()
        assert partner.step().state == rpc.RUNNING, "alone"
        wait_for(lambda: partner.property("world.agents_joined") == 1, AT_ONCE_S)
        partner.leave()
        partner.destroy(world)


def test_everyone_of_a_world_vanishes_at_once(server: ServerProcess) -> None:
    """Eight agents in the middle of a step, one of whom resets the world."""
    with StreamClient(server.address) as watcher:
        world = watcher.create("maze", agents=8)
        wires = [StreamClient(server.address) for _ in range(8)]
        for wire in wires:
            wire.join(world)
        for wire in wires:
            wire.send_step()
        for wire in wires:
            wire.step_reply()
        wires[0].send(reset_world=rpc.ResetWorldRequest(world_name=world))
        for wire in wires[1:5]:
            wire.send_step()
        for wire in wires:
            wire.close()
        wait_for(lambda: watcher.property("counters.streams") == 1)
        watcher.join(world)
        assert watcher.property("world.agents_joined") == 1
        assert watcher.step().state == rpc.RUNNING
        watcher.leave()
        watcher.destroy(world)


def test_worlds_that_are_left_behind_are_reaped(server: ServerProcess) -> None:
    """Those of a client that was killed and those that nobody ever joined; not those that somebody is in."""
    with StreamClient(server.address) as keeper:
        kept = keeper.create("catch", lanes=5)
        keeper.join(kept)
        left = keeper.create("maze", agents=2)
        for _ in range(20):
            keeper.create("cartpole", lanes=3)
        with victim(server.address, left, steps=2) as process:
            has_stepped(process)
            wait_for(lambda: keeper.property("counters.worlds") == 2)
            assert keeper.property("counters.lanes") == 6, "the killed client's world lives as long as it does"
        wait_for(lambda: keeper.property("counters.worlds") == 1)
        assert keeper.property("counters.lanes") == 5
        assert keeper.step("reward").observations["reward"].shape == (5,)
        keeper.leave()
        wait_for(lambda: keeper.property("counters.worlds") == 0)
        assert keeper.property("counters.lanes") == 0
        keeper.send(join_world=rpc.JoinWorldRequest(world_name=kept))
        assert "--idle-world-s" in keeper.read().error.message


STEPPING = """
import sys, time, worldloom
env = worldloom.VectorEnv(sys.argv[1], "catch", 64)
env.reset()
print("stepped", flush=True)
time.sleep(600)
"""


def test_lanes_of_a_killed_client_are_freed_soon() -> None:
    """Long before those of worlds that nobody was in."""
    with serving("--lost-world-s", "0.5") as server, StreamClient(server.address) as watcher:
        kept = watcher.create("catch", lanes=5)
        command = [sys.executable, "-c", STEPPING, server.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                has_stepped(process)
                assert watcher.property("counters.lanes") == 64 + 5
            finally:
                process.kill()
        wait_for(lambda: watcher.property("counters.lanes") == 5)
        watcher.join(kept)
