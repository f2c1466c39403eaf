"""Worlds that are destroyed, under whoever is in them, and worlds that nobody wants any more."""

import pytest

from scripts.support.engine_streams import RUNNING, EngineHarness, Stream, refused
from worldloom.render.cpu import CPURenderer


@pytest.fixture
def pair(harness: EngineHarness) -> tuple[Stream, Stream]:
    """Two agents in the middle of an episode."""
    one, two = harness.stream(), harness.stream()
    world = one.create("maze", size=5, agents=2)
    one.join(world)
    two.join(world)
    harness.step_all(one, two)
    return one, two


def test_a_stream_cannot_destroy_the_world_it_has_joined(pair: tuple[Stream, Stream]) -> None:
    one, two = pair
    for stream in pair:
        with refused("FAILED_PRECONDITION", one.world):
            stream.destroy(one.world)
    assert [told.state for told in one.harness.step_all(*pair)] == [RUNNING] * 2
    one.leave()
    with refused("FAILED_PRECONDITION"):
        two.destroy(one.world)
    one.destroy(one.world)


def test_whoever_waits_in_a_destroyed_world_is_told_at_once(
    harness: EngineHarness, pair: tuple[Stream, Stream]
) -> None:
    one, _ = pair
    killer = harness.stream()
    one.post_step("eye.rgb")
    assert one.waits
    killer.destroy(one.world)
    with refused("NOT_FOUND", "gone", one.world):
        one.step_reply()
    for _ in range(2):
        for stream in pair:
            with refused("NOT_FOUND", "gone"):
                stream.step()
            with refused("NOT_FOUND", "gone"):
                stream.reset()
    harness.check_empty()


def test_a_reset_that_waits_in_a_destroyed_world_is_refused(
    harness: EngineHarness, pair: tuple[Stream, Stream]
) -> None:
    one, _ = pair
    outside, killer = harness.stream(), harness.stream()
    one.post_reset_world(one.world)
    outside.post_reset_world(one.world)
    assert one.waits
    assert outside.waits
    killer.destroy(one.world)
    for stream in (one, outside):
        with refused("NOT_FOUND", "gone"):
            stream.take("reset_world")


def test_a_step_and_the_end_of_its_world_in_one_tick(harness: EngineHarness, pair: tuple[Stream, Stream]) -> None:
    one, two = pair
    killer = harness.stream()
    one.post_step("eye.rgb")
    two.post_step("eye.rgb")
    killer.destroy(one.world)
    for stream in pair:
        with refused("NOT_FOUND", "gone"):
            stream.step_reply()
    harness.check_empty()


@pytest.mark.parametrize("shm", [False, True])
def test_from_a_destroyed_world_one_can_leave_or_go_straight_to_another(harness: EngineHarness, shm: bool) -> None:
    one, two, killer = (harness.stream() for _ in range(3))
    world, other = killer.create("maze", size=5, agents=2), killer.create("catch")
    one.join(world, shm=shm)
    two.join(world, shm=shm)
    killer.destroy(world)
    with refused("NOT_FOUND"):
        one.join(world)
    with refused("NOT_FOUND", "gone"):
        one.step()
    one.join(other)
    assert one.step().state == RUNNING
    with refused("FAILED_PRECONDITION"):
        killer.join(other)
    two.leave()
    two.leave()
    with refused("FAILED_PRECONDITION", "JoinWorld"):
        two.step()
    one.leave()
    killer.destroy(other)
    harness.check_empty()


def test_a_stream_that_vanishes_after_its_world_leaves_nothing(
    harness: EngineHarness, pair: tuple[Stream, Stream]
) -> None:
    killer = harness.stream()
    pair[0].post_step()
    assert pair[0].waits
    killer.destroy(pair[0].world)
    for stream in pair:
        stream.close()
    harness.check_empty()
    assert harness.engine.counters.streams == 1


def test_lanes_of_destroyed_worlds_are_used_again_and_show_nothing_of_before(harness: EngineHarness) -> None:
    stream = harness.stream()
    seen = []
    for _ in range(20):
        world = stream.create("maze", size=5, seed=4, lanes=5)
        stream.join(world, width=8, height=8)
        stream.step("eye.rgb")
        seen.append(stream.step("eye.rgb").observations["eye.rgb"].tobytes())
        stream.leave()
        stream.destroy(world)
    assert len(set(seen)) == 1
    (pool,) = harness.engine.directory.pools.by_key.values()
    assert pool.capacity <= 10
    harness.check_empty()


def test_worlds_of_many_settings_do_not_pile_up_pools(harness: EngineHarness) -> None:
    stream = harness.stream()
    for rows in range(3, 40):
        world = stream.create("catch", rows=rows)
        stream.reset_world(world, max_steps=rows)
        stream.join(world)
        assert stream.step().state == RUNNING
        stream.leave()
        stream.destroy(world)
    assert len(harness.engine.directory.pools.by_key) <= 9
    harness.check_empty()


def test_worlds_that_nobody_is_in_are_reaped_after_a_while(cpu: CPURenderer) -> None:
    now_s = [1000.0]
    harness = EngineHarness(cpu, clock=lambda: now_s[0], idle_world_s=60.0)
    stream, peer = harness.stream(), harness.stream()
    left, used, fresh = (stream.create("catch") for _ in range(3))
    stream.join(used)
    now_s[0] += 59
    assert not harness.engine.directory.reap()
    peer.reset_world(fresh)
    now_s[0] += 2
    assert [world.name for world in harness.engine.directory.reap()] == [left]
    with refused("NOT_FOUND", "--idle-world-s"):
        peer.join(left)
    now_s[0] += 1000
    assert [world.name for world in harness.engine.directory.reap()] == [fresh]
    assert stream.step().state == RUNNING
    stream.leave()
    now_s[0] += 59
    assert not harness.engine.directory.reap()
    now_s[0] += 2
    assert [world.name for world in harness.engine.directory.reap()] == [used]
    harness.check_empty()


def test_worlds_of_streams_that_broke_off_are_reaped_sooner(cpu: CPURenderer) -> None:
    now_s = [1000.0]
    harness = EngineHarness(cpu, clock=lambda: now_s[0], idle_world_s=600.0, lost_world_s=60.0)

    def reaped_after(seconds: float) -> set[str]:
        now_s[0] += seconds
        return {world.name for world in harness.engine.directory.reap()}

    killed, polite, maker, guest, first, second = (harness.stream() for _ in range(6))
    lost, left, unjoined, shared, visited = (
        stream.create("maze", agents=2) for stream in (killed, polite, maker, first, maker)
    )
    for stream, world in ((killed, lost), (polite, left), (guest, visited), (first, shared), (second, shared)):
        stream.join(world)
    polite.leave()
    for stream in (killed, polite, maker, guest, first):
        stream.session.close()
    assert reaped_after(59) == set()
    assert reaped_after(2) == {lost}
    watcher = harness.stream()
    with refused("NOT_FOUND", "--lost-world-s if its stream broke off"):
        watcher.join(lost)
    second.session.close()  # not the stream that created it, but that one is gone, too
    assert reaped_after(59) == set()
    assert reaped_after(2) == {shared}
    assert reaped_after(400) == set()
    assert reaped_after(600) == {left, unjoined, visited}
    harness.check_empty()


def test_a_client_that_comes_back_finds_its_world(cpu: CPURenderer) -> None:
    now_s = [1000.0]
    harness = EngineHarness(cpu, clock=lambda: now_s[0])
    stream = harness.stream()
    world = stream.create("catch", seed=3)
    stream.join(world)
    stream.step()
    stream.session.close()
    now_s[0] += 59
    assert not harness.engine.directory.reap()
    again = harness.stream()
    again.join(world)
    assert again.read("world.episode") == 0
    again.leave()
    now_s[0] += 61  # it was found again, so it has all of its time
    assert not harness.engine.directory.reap()
    now_s[0] += 600
    assert len(harness.engine.directory.reap()) == 1
