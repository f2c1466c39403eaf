"""Pictures in shared memory: the same bytes as in replies, in a ring, and nothing of it stays behind."""

import fcntl
import gc
import os
from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.support.engine_streams import RUNNING, EngineHarness, Stream, refused
from scripts.support.reference_world import ReferenceWorld
from scripts.support.shared_memory import MappedSegment, segment_files
from worldloom.kernels.outputs import DEFAULT_OUTPUT_NAMES
from worldloom.render.cpu import CPURenderer

SIZE: dict[str, Any] = {"width": 10, "height": 6}
MAZE = [f"{camera}.{output}" for camera in ("eye", "map") for output in DEFAULT_OUTPUT_NAMES]
CASES = {"catch": {"rows": 4}, "cartpole": {"max_steps": 5}, "maze": {"size": 5, "max_steps": 4}}


def shared(name: str) -> str:
    return f"{name}@shm"


def joined(harness: EngineHarness, family: str = "maze", world: dict[str, Any] | None = None, **how: Any) -> Stream:
    stream = harness.stream()
    stream.join(stream.create(family, **{"seed": 3, **(world or {})}), **{**SIZE, "shm": True, **how})
    return stream


@pytest.fixture(autouse=True)
def _close_all(harness: EngineHarness) -> Any:
    """Whatever a test leaves open is closed after it, and then nothing is left."""
    streams: list[Stream] = []
    make = harness.stream

    def stream() -> Stream:
        streams.append(make())
        return streams[-1]

    harness.stream = stream  # type: ignore[method-assign]
    yield
    for one in streams:
        one.close()
    assert harness.engine.directory.shared_bytes == 0


# What is offered.


@pytest.mark.parametrize("lanes", [None, 1, 3])
def test_every_picture_is_offered_there_too(harness: EngineHarness, lanes: int | None) -> None:
    lead = [] if lanes is None else [lanes]
    plain = joined(harness, world={"lanes": lanes} if lanes else {}, shm=False)
    stream = joined(harness, world={"lanes": lanes} if lanes else {})
    assert set(stream.names) == {*plain.names, *map(shared, MAZE)}
    specs = {spec.name: spec for spec in stream.specs.observations.values()}
    for name in MAZE:
        assert specs[shared(name)].dtype == rpc.INT64
        assert list(specs[shared(name)].shape) == [*lead, 3]
    assert not [name for name in plain.names if "@" in name]


def test_just_what_is_named_has_room(harness: EngineHarness) -> None:
    stream = joined(harness, observations=["map.gray@shm", "reward", "eye.rgb"])
    assert set(stream.names) == {"map.gray@shm", "reward", "eye.rgb"}
    assert list(stream.list_properties("shm.offsets.map")) == ["shm.offsets.map.gray"]
    assert stream.read("shm.slot_bytes") == 4096  # 10 × 6 pixels, on to the next page
    assert stream.read("shm.size_bytes") == 4096 + 4 * 4096
    none = joined(harness, observations=["eye.rgb"])
    for key in ("shm.name", "shm.token"):
        with refused("NOT_FOUND", "shm"):
            none.read(key)
    with refused("INVALID_ARGUMENT", "'eye.rgb@shm'", "did you mean 'eye.rgb'"):
        joined(harness, shm=False, observations=["eye.rgb@shm"])


# What is painted.


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("lanes", [None, 1, 5])
@pytest.mark.parametrize("family", CASES)
def test_the_same_bytes_as_in_the_reply_and_as_drawn_directly(
    harness: EngineHarness, cpu: CPURenderer, family: str, lanes: int | None, samples: int
) -> None:
    """All pictures here, in the reply, and both at once, in any order; another stream steps beside it."""
    world = CASES[family] | ({"lanes": lanes} if lanes else {})
    stream, other = (joined(harness, family, world, samples=samples) for _ in range(2))
    direct = ReferenceWorld(cpu, family, 3, lanes or 1, **CASES[family])
    mapped = MappedSegment(stream.read)
    names = sorted(name.removesuffix("@shm") for name in stream.names if "@shm" in name)
    both = [*names, *map(shared, names), "reward", "step_type"]
    for see in (both, both[::-1], [*map(shared, names), "discount"], both, names, [shared(names[1])], both):
        replies = harness.step_all(stream, other, see=see)
        direct.step()
        seen = replies[0].observations
        assert set(seen) == set(see)
        for name in names:
            drawn = direct.draw(name, **SIZE, samples=samples)
            expected = drawn if lanes else drawn[0]
            if name in seen:
                assert seen[name].tobytes() == expected.tobytes(), name
            if shared(name) in seen:
                assert mapped.frames(seen[shared(name)], expected).tobytes() == expected.tobytes(), name
        for name in set(see) - {*names, *map(shared, names)}:
            assert seen[name].tobytes() == direct.observe(name).tobytes(), name
    assert np.reshape(replies[0].observations[shared(names[0])], (-1, 3))[0, 0] == 5 % mapped.slots, (
        "six steps painted here"
    )


def test_lanes_lie_one_after_the_other_and_pictures_are_aligned(harness: EngineHarness) -> None:
    stream = joined(harness, world={"lanes": 3})
    mapped = MappedSegment(stream.read)
    for step in range(9):
        seen = stream.step(*map(shared, MAZE)).observations
        taken = np.zeros(mapped.size_bytes, int)
        for name in MAZE:
            places = seen[shared(name)]
            each = 10 * 6 * {"rgb": 3, "depth": 4}.get(name.split(".")[1], 1)
            assert places[:, 0].tolist() == [step % 4] * 3
            assert places[:, 2].tolist() == [each] * 3
            assert np.diff(places[:, 1]).tolist() == [each] * 2
            assert places[0, 1] % 64 == 0
            expected = 4096 + (step % 4) * stream.read("shm.slot_bytes") + stream.read(f"shm.offsets.{name}")
            assert places[0, 1] == expected
            taken[places[0, 1] : places[0, 1] + 3 * each] += 1
        assert taken.max() == 1
        assert not taken[:4096].any()


def test_what_was_painted_stays_for_all_but_one_of_the_slots(harness: EngineHarness) -> None:
    """Steps that paint nothing here do not count."""
    stream = joined(harness)
    mapped = MappedSegment(stream.read)
    history: list[tuple[np.ndarray, bytes]] = []
    for step in range(20):
        seen = stream.step("eye.rgb", "eye.rgb@shm", turn=0.7).observations
        history.append((mapped.frames(seen["eye.rgb@shm"], seen["eye.rgb"]), seen["eye.rgb"].tobytes()))
        stream.step("map.rgb", "reward", turn=0.7)
        for picture, as_it_was in history[-mapped.slots :]:
            assert picture.tobytes() == as_it_was, step
        stream.step(turn=0.7)
    assert len({as_it_was for _, as_it_was in history}) > 10


@given(choices=st.lists(st.one_of(st.none(), st.integers(-2, 7), st.integers(-(2**63), 2**63 - 1)), max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_client_chooses_the_set_that_a_step_is_painted_into(
    harness: EngineHarness, choices: list[int | None]
) -> None:
    """Whatever it writes: a number that is none of a set leaves it to the server, which goes on after the last one."""
    stream = joined(harness, world={"lanes": 2})
    mapped = MappedSegment(stream.read)
    choice, last = mapped.array[64:72].view(np.int64), -1
    for step, chosen in enumerate(choices):
        if chosen is not None:
            choice[0] = chosen
        is_one = 1 <= int(choice[0]) <= mapped.slots
        last = int(choice[0]) - 1 if is_one else (last + 1) % mapped.slots
        names = ["eye.rgb", "eye.rgb@shm"] if step % 3 == 2 else ["eye.rgb@shm"]  # both ways to observe
        seen = stream.step(*names, turn=0.7).observations
        assert seen["eye.rgb@shm"][:, 0].tolist() == [last] * 2
        assert seen["eye.rgb@shm"][0, 1] == 4096 + last * stream.read("shm.slot_bytes") + stream.read(
            "shm.offsets.eye.rgb"
        )
        if "eye.rgb" in seen:
            assert mapped.frames(seen["eye.rgb@shm"], seen["eye.rgb"]).tobytes() == seen["eye.rgb"].tobytes()
    stream.close()


def test_streams_that_ask_for_the_same_are_drawn_as_one_into_different_places(harness: EngineHarness) -> None:
    """One has room for less than the other, so that the same picture begins elsewhere."""
    wide = joined(harness, observations=[*map(shared, MAZE), "map.rgb"])
    slim = joined(harness, observations=["map.rgb@shm", "map.rgb"])
    assert wide.read("shm.offsets.map.rgb") > slim.read("shm.offsets.map.rgb") == 0
    draws = harness.engine.counters.draws
    for step in range(6):
        told = harness.step_all(wide, slim, see=("map.rgb@shm", "map.rgb"))
        for stream, (_, seen) in zip((wide, slim), told, strict=True):
            mapped = MappedSegment(stream.read)
            assert np.array_equal(mapped.frames(seen["map.rgb@shm"], seen["map.rgb"]), seen["map.rgb"])
        if step == 2:
            wide.step("eye.rgb@shm")  # its ring is one ahead from here on
    assert harness.engine.counters.draws == draws + 7


# Other settings, and the end.


def test_reset_to_another_size_makes_another_segment_and_the_old_stays_with_its_client(harness: EngineHarness) -> None:
    stream = joined(harness)
    before = MappedSegment(stream.read)
    seen = stream.step("eye.rgb", "eye.rgb@shm").observations
    old = before.frames(seen["eye.rgb@shm"], seen["eye.rgb"])
    stream.reset()
    assert MappedSegment(stream.read).token == before.token, "nothing has changed"
    stream.reset(width=20)
    after = MappedSegment(stream.read)
    assert (after.token, after.inode) != (before.token, before.inode)
    assert harness.engine.directory.shared_bytes == after.size_bytes
    for _ in range(5):
        new = stream.step("eye.rgb", "eye.rgb@shm").observations
        assert new["eye.rgb"].shape == (6, 20, 3)
        assert np.array_equal(after.frames(new["eye.rgb@shm"], new["eye.rgb"]), new["eye.rgb"])
        assert old.tobytes() == seen["eye.rgb"].tobytes()
    stream.reset(shm=False)
    assert "eye.rgb@shm" not in stream.names
    assert harness.engine.directory.shared_bytes == 0
    assert not before.is_open_in_server
    assert not after.is_open_in_server
    stream.reset(shm=True, observations=["eye.gray@shm"])
    assert MappedSegment(stream.read).size_bytes == harness.engine.directory.shared_bytes


@pytest.mark.parametrize("end", ["leave", "close", "destroy", "destroy and leave", "destroy and join another"])
@pytest.mark.parametrize("lanes", [None, 4])
def test_nothing_is_left(harness: EngineHarness, end: str, lanes: int | None) -> None:
    stream, killer = joined(harness, world={"lanes": lanes} if lanes else {}), harness.stream()
    mapped = MappedSegment(stream.read)
    seen = stream.step("eye.rgb", "eye.rgb@shm").observations
    other = killer.create("catch")
    if end in ("leave", "close"):
        getattr(stream, end)()
    killer.destroy(stream.world)
    assert harness.engine.directory.shared_bytes == 0
    assert not mapped.is_open_in_server
    assert np.array_equal(mapped.frames(seen["eye.rgb@shm"], seen["eye.rgb"]), seen["eye.rgb"]), "the client's own"
    if end == "destroy and leave":
        stream.leave()
    elif end == "destroy and join another":
        stream.join(other, shm=True)
        assert MappedSegment(stream.read).size_bytes == harness.engine.directory.shared_bytes
        stream.leave()
    killer.destroy(other)
    harness.check_empty()


def test_a_step_that_waits_when_its_stream_or_its_world_ends(harness: EngineHarness) -> None:
    one, two, killer = (harness.stream() for _ in range(3))
    world = one.create("maze", agents=2)
    for stream in (one, two):
        stream.join(world, **SIZE, shm=True)
    one.post_step("eye.rgb@shm")
    assert one.waits
    one.close()
    assert two.step("eye.rgb@shm").state == RUNNING
    killer.join(world, shm=True)
    two.post_step("eye.rgb@shm")
    assert two.waits
    killer.leave()
    assert two.step_reply().state == RUNNING
    two.post_step("eye.rgb@shm")
    killer.destroy(world)
    with refused("NOT_FOUND"):
        two.step_reply()
    harness.check_empty()


# Limits.


def test_a_limit_on_all_of_it(cpu: CPURenderer) -> None:
    each = 4096 + 4 * 4096
    harness = EngineHarness(cpu, max_shared_bytes=2 * each)
    how: dict[str, Any] = {"observations": ["eye.rgb@shm", "eye.rgb"]}
    one, two = joined(harness, **how), joined(harness, **how)
    three = harness.stream()
    world = three.create("maze", seed=3)
    words = (f"{each} bytes", f"{2 * each} in use", f"{2 * each} at most", "--max-shared-bytes", "'observations'")
    with refused("RESOURCE_EXHAUSTED", *words):
        three.join(world, **SIZE, shm=True, **how)
    assert harness.engine.directory.shared_bytes == 2 * each
    with refused("FAILED_PRECONDITION"):
        three.step()
    three.join(world, **SIZE)
    with refused("RESOURCE_EXHAUSTED", "--max-shared-bytes"):
        three.reset(shm=True)
    assert three.step("eye.rgb").state == RUNNING

    mapped = MappedSegment(one.read)
    before = one.step("eye.rgb", "eye.rgb@shm").observations
    with refused("RESOURCE_EXHAUSTED", "--max-shared-bytes", f"than the {each} in use"):
        one.reset(width=400)
    after = one.step("eye.rgb", "eye.rgb@shm").observations
    assert after["eye.rgb"].shape == before["eye.rgb"].shape
    for seen in (before, after):
        assert np.array_equal(mapped.frames(seen["eye.rgb@shm"], seen["eye.rgb"]), seen["eye.rgb"])
    with refused(
        "RESOURCE_EXHAUSTED", "write a smaller number than 5 to the property 'shm.slots'", "--max-shared-bytes"
    ):
        one.write("shm.slots", 5)
    one.write("shm.slots", 3)
    one.reset(width=6, height=10)
    assert one.read("shm.slots") == 3, "it takes as much"
    one.reset(width=6, height=9)
    assert one.read("shm.slots") == 4
    one.reset(width=6, height=10)
    two.leave()
    three.reset(shm=True, **how)
    for stream in (one, two, three):
        stream.close()
    assert harness.engine.directory.shared_bytes == 0


def test_a_system_that_gives_none(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = joined(harness)
    world = stream.create("maze")
    other = harness.stream()
    gc.collect()  # segments of earlier tests
    files = len(segment_files(os.getpid()))

    def refuse(*_: object) -> int:
        raise OSError(24, "Too many open files")

    for name in ("memfd_create", "ftruncate"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse)
            with refused("RESOURCE_EXHAUSTED", "Too many open files", "'shm'"):
                other.join(world, shm=True)
            with refused("RESOURCE_EXHAUSTED", "Too many open files"):
                stream.reset(width=30)
    assert len(segment_files(os.getpid())) == files
    mapped = MappedSegment(stream.read)
    seen = stream.step("eye.rgb", "eye.rgb@shm").observations
    assert np.array_equal(mapped.frames(seen["eye.rgb@shm"], seen["eye.rgb"]), seen["eye.rgb"])
    other.join(world, shm=True)


# Whose it is, and what its client can do to it.


def test_properties_tell_of_the_own_segment_alone(harness: EngineHarness) -> None:
    one, two, out = joined(harness), joined(harness), harness.stream()
    maps = [MappedSegment(stream.read) for stream in (one, two)]
    assert len({mapped.token for mapped in maps}) == len({mapped.name for mapped in maps}) == 2
    for stream, other in ((one, maps[1]), (two, maps[0])):
        told = repr(stream.list_properties("shm"))
        for key in ("shm.name", "shm.token", "world.name"):
            told += str(stream.read(key))
        assert other.token not in told
        assert other.name not in told
        with refused("PERMISSION_DENIED", "shm.name"):
            stream.write("shm.name", other.name)
    for key in ("shm.name", "shm.token", "shm.offsets.eye.rgb", f"shm.{maps[0].token}"):
        with refused("NOT_FOUND"):
            out.read(key)
    assert "shm" not in out.list_properties()


def test_its_mode_and_its_seals(harness: EngineHarness) -> None:
    stream = joined(harness)
    mapped = MappedSegment(stream.read)
    file = mapped.open()
    try:
        found = os.fstat(file)
        assert (found.st_mode & 0o7777, found.st_uid, found.st_nlink) == (0o600, os.getuid(), 0)
        for size in (0, 4096, mapped.size_bytes - 1, mapped.size_bytes + 1, 1 << 40):
            with pytest.raises(PermissionError):
                os.ftruncate(file, size)
        for seal in (fcntl.F_SEAL_WRITE, fcntl.F_SEAL_SEAL):
            with pytest.raises(PermissionError):
                fcntl.fcntl(file, fcntl.F_ADD_SEALS, seal)
        with pytest.raises(PermissionError):
            os.posix_fallocate(file, mapped.size_bytes, 4096)
    finally:
        os.close(file)
    assert stream.step("eye.rgb@shm").state == RUNNING


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("step"), st.sets(st.sampled_from(["eye.rgb", "eye.depth", "map.gray"]))),
            st.tuples(st.just("reset"), st.sampled_from([7, 8, 20])),
            st.tuples(st.just("scribble"), st.integers(0, 255), st.floats(0, 1), st.floats(0, 1)),
        ),
        max_size=20,
    )
)
def test_scribbling_changes_nothing_but_what_is_scribbled_on(
    harness: EngineHarness, deeds: list[tuple[Any, ...]]
) -> None:
    """Steps, resets and scribbles in any order: what is painted next is right, and so are the neighbour's pictures."""
    stream, neighbour = joined(harness), joined(harness)
    mapped, beside = MappedSegment(stream.read), MappedSegment(neighbour.read)
    for deed, *how in deeds:
        if deed == "scribble":
            first, last = sorted(int(part * mapped.size_bytes) for part in how[1:])
            mapped.array[first:last] = how[0]
        elif deed == "reset":
            for one in (stream, neighbour):
                one.reset(width=how[0])
            if str(stream.read("shm.token")) != mapped.token:  # else it is the same, its head scribbled on or not
                mapped, beside = MappedSegment(stream.read), MappedSegment(neighbour.read)
        else:
            see = [*how[0], *map(shared, how[0])]
            told = harness.step_all(stream, neighbour, see=see)
            for name in how[0]:
                expected = told[1].observations[name]
                assert np.array_equal(told[0].observations[name], expected)
                for memory, (_, seen) in zip((mapped, beside), told, strict=True):
                    assert np.array_equal(memory.frames(seen[shared(name)], expected), expected)
    for one in (stream, neighbour):
        one.leave()
        one.destroy(one.world)
        one.close()
    harness.check_empty()
