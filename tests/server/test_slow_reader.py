"""A client that stops reading holds up nobody but itself, and takes no more memory than its share."""

import statistics
import time
from collections.abc import Iterator

import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc

from scripts.support.server_process import ServerProcess, serving
from scripts.support.stream_client import TIMEOUT_S, StreamClient

REQUESTS = 3000
MOST_GROWTH_BYTES = 16 << 20
"""One answer is 12 KiB, so keeping them all would take 35 MiB. What is kept: 1024 requests of some bytes, one answer,
and what gRPC has in its buffers."""
MOST_SLOWER = 3.0
"""Median with the slow reader over median without. Nothing is left to do for it once its requests have come, so that
should be 1; the rest is room for a machine that does other things as well."""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving() as made:
        yield made


def median_s(wires: list[StreamClient], rounds: int = 30) -> float:
    """Of rounds in which all these step at once."""
    taken_s = []
    for _ in range(rounds):
        begun_s = time.perf_counter()
        for wire in wires:
            wire.send_step("eye.rgb", "reward")
        for wire in wires:
            assert wire.step_reply().observations.keys() == {"eye.rgb", "reward"}
        taken_s.append(time.perf_counter() - begun_s)
    return statistics.median(taken_s)


def calmest_s(wires: list[StreamClient]) -> float:
    """The least of some medians: other work of this machine comes in bursts."""
    return min(median_s(wires) for _ in range(3))


@pytest.fixture
def others(server: ServerProcess) -> Iterator[list[StreamClient]]:
    wires = [StreamClient(server.address) for _ in range(4)]
    for wire, family in zip(wires, ("catch", "cartpole", "maze", "maze"), strict=True):
        wire.join(wire.create(family, seed=1))
    yield wires
    for wire in wires:
        wire.close()


def test_others_keep_their_rate_and_memory_is_bounded(server: ServerProcess, others: list[StreamClient]) -> None:
    median_s(others)  # the first steps make room for replies
    without_s = calmest_s(others)
    before = server.resident_bytes
    with StreamClient(server.address) as slow:
        slow.join(slow.create("catch"))
        step = rpc.EnvironmentRequest(step=slow.step_request(["eye.rgb"], {})).SerializeToString()
        for _ in range(REQUESTS):
            slow.send_bytes(step)
        slow.half_close()
        median_s(others)  # it sends meanwhile, from this very process: nothing to compare with
        assert slow.all_sent.wait(TIMEOUT_S)
        server.wait_until_idle()
        most = server.resident_bytes
        with_s = calmest_s(others)
        most = max(most, server.resident_bytes)
        assert most - before < MOST_GROWTH_BYTES
        assert with_s < MOST_SLOWER * without_s
        answers = slow.read_rest()
        assert len(answers) == REQUESTS, "late, but each is answered"
        kinds = [answer.WhichOneof("payload") for answer in answers]
        assert kinds == ["step"] * REQUESTS


def test_a_slow_reader_in_a_world_holds_up_its_partner_only_by_not_stepping(server: ServerProcess) -> None:
    """Its answers are made as long as it asks for them; that it does not read them is no concern of its partner."""
    with StreamClient(server.address) as slow, StreamClient(server.address) as partner:
        world = slow.create("maze", agents=2)
        slow.join(world)
        partner.join(world)
        for _ in range(40):
            slow.send_step("eye.rgb")
        for _ in range(5):
            partner.step("eye.rgb")
        assert partner.property("world.steps") == 4


def test_many_slow_readers_leave_nothing_behind(server: ServerProcess) -> None:
    with StreamClient(server.address) as watcher:
        before = watcher.property("counters.streams")
        for _ in range(3):
            wires = [StreamClient(server.address) for _ in range(8)]
            for wire in wires:
                wire.join(wire.create("cartpole"))
                for _ in range(200):
                    wire.send_step("eye.rgb")
            for wire in wires:
                wire.close()
        deadline_s = time.monotonic() + TIMEOUT_S
        while watcher.property("counters.streams") > before:
            assert time.monotonic() < deadline_s
