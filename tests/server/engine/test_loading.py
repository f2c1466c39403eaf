"""Families that take long to make are made beside the engine: whoever asked waits, nobody else does."""

import queue
import threading
from collections.abc import Iterator

import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from dm_env_rpc.v1.extensions import properties_pb2

from scripts.support.messages import packed
from tests.support.faulty_families import Slow
from worldloom.kernels.tables import U8
from worldloom.render.cpu import CPURenderer
from worldloom.server.config import Limits
from worldloom.server.dm_env_rpc.session import Session
from worldloom.server.engine.engine import Engine
from worldloom.worlds.randomisation import pictures
from worldloom.worlds.registry import Registry

SOON_S = 20.0


class Running:
    """An engine on its thread, and streams of it."""

    def __init__(self) -> None:
        self.engine = Engine(lambda: CPURenderer(1), Limits())
        self.engine.start()

    def stream(self) -> "Stream":
        return Stream(self.engine)


class Stream:
    """One stream."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.replies: queue.Queue[rpc.EnvironmentResponse] = queue.Queue()
        self.session = Session(engine, "test", lambda data: self.replies.put(rpc.EnvironmentResponse.FromString(data)))
        engine.post(self.session.open)

    def ask(self, **payload: object) -> None:
        data = rpc.EnvironmentRequest(**payload).SerializeToString()
        self.engine.post(lambda: self.session.receive(data))

    def step_reply(self) -> rpc.EnvironmentResponse:
        return self.replies.get(timeout=SOON_S)

    def create(self, family: str, **settings: object) -> None:
        self.ask(create_world=rpc.CreateWorldRequest(settings=packed({"family": family, "seed": 0, **settings})))

    def close(self) -> None:
        self.engine.post(self.session.close)


@pytest.fixture
def running(fresh_registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    made = Running()
    fresh_registry.add("tests.support.faulty_families:Slow")
    Slow.began.clear()
    Slow.gate.clear()
    yield made
    Slow.gate.set()
    made.engine.stop()


def check_others_step(running: Running) -> None:
    other = running.stream()
    other.create("catch")
    name = other.step_reply().create_world.world_name
    other.ask(join_world=rpc.JoinWorldRequest(world_name=name))
    assert other.step_reply().HasField("join_world")
    for _ in range(3):
        other.ask(step=rpc.StepRequest())
        assert other.step_reply().step.state == rpc.RUNNING


def test_others_go_on_while_a_family_is_made(running: Running) -> None:
    waiting = running.stream()
    waiting.create("slow")
    assert Slow.began.wait(SOON_S)
    check_others_step(running)
    assert waiting.replies.empty()
    Slow.gate.set()
    assert waiting.step_reply().create_world.world_name.startswith("slow-")


def test_others_go_on_while_pictures_are_made(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    began, gate, build = threading.Event(), threading.Event(), pictures._build_backgrounds

    def build_slowly(size: int) -> Iterator[tuple[str, list[U8]]]:
        began.set()
        assert gate.wait(SOON_S)
        return build(size)

    monkeypatch.setattr(pictures, "_build_backgrounds", build_slowly)
    waiting = running.stream()
    waiting.create("catch", vary_background=1.0)
    try:
        assert began.wait(SOON_S)
        check_others_step(running)
        assert waiting.replies.empty()
    finally:
        gate.set()
    assert waiting.step_reply().create_world.world_name.startswith("catch-")
    # Who uses the same pictures does not wait for the thread.
    running.stream().create("slow")
    assert Slow.began.wait(SOON_S)
    waiting.create("maze", vary_background=0.5)
    assert waiting.step_reply().create_world.world_name.startswith("maze-")


def test_others_go_on_while_a_family_is_described(running: Running) -> None:
    waiting = running.stream()
    key = "families.slow.settings.pace"
    read = properties_pb2.PropertyRequest(read_property=properties_pb2.ReadPropertyRequest(key=key))
    asked = rpc.EnvironmentRequest()
    asked.extension.Pack(read)
    waiting.ask(extension=asked.extension)
    assert Slow.began.wait(SOON_S)
    check_others_step(running)
    assert waiting.replies.empty()
    Slow.gate.set()
    reply = properties_pb2.PropertyResponse()
    assert waiting.step_reply().extension.Unpack(reply)
    assert tensor_utils.unpack_tensor(reply.read_property.value) == 1.0
    Slow.gate.clear()
    waiting.ask(extension=asked.extension)
    assert waiting.step_reply().HasField("extension")  # kept from before


def test_two_who_want_the_same_share_it(running: Running) -> None:
    streams = [running.stream(), running.stream()]
    for stream in streams:
        stream.create("slow")
    Slow.gate.set()
    names = {stream.step_reply().create_world.world_name for stream in streams}
    assert len(names) == 2
    pools = {running.engine.directory.worlds[name].pool for name in names}
    assert len(pools) == 1


def test_what_is_there_is_not_made_again(running: Running) -> None:
    Slow.gate.set()
    stream = running.stream()
    stream.create("slow")
    assert stream.step_reply().HasField("create_world")
    Slow.gate.clear()
    stream.create("slow")
    assert stream.step_reply().HasField("create_world")


@pytest.mark.parametrize(("agents", "code", "words"), [(4, 3, "for this test"), (3, 13, "KeyError")])
def test_one_that_fails_is_told_to_whoever_asked(running: Running, agents: int, code: int, words: str) -> None:
    Slow.gate.set()
    stream = running.stream()
    stream.create("slow", agents=agents)
    error = stream.step_reply().error
    assert error.code == code
    assert words in error.message
    assert not running.engine.directory.worlds
    check_others_step(running)


def test_wrong_settings_are_refused_at_once(running: Running) -> None:
    stream = running.stream()
    stream.create("slow", agent=2)
    assert "did you mean 'agents'?" in stream.step_reply().error.message
    assert not Slow.began.is_set()


def test_no_world_is_made_for_a_stream_that_has_gone(running: Running) -> None:
    stream = running.stream()
    stream.create("slow")
    assert Slow.began.wait(SOON_S)
    stream.close()
    Slow.gate.set()
    last = running.stream()
    last.create("slow")  # made after the other, by the same thread
    assert last.step_reply().HasField("create_world")
    assert len(running.engine.directory.worlds) == 1
    assert stream.replies.empty()


def test_the_engine_stops_while_a_family_is_made(running: Running) -> None:
    stream, other = running.stream(), running.stream()
    stream.create("slow")
    other.create("slow", pace=2.0)
    assert Slow.began.wait(SOON_S)
    running.engine.stop()
    assert stream.replies.empty()


def test_a_family_that_requires_a_setting_can_be_used(
    fresh_registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot be built when the server starts, and this is no problem to warn of."""
    fresh_registry.add("tests.support.toy:NamedToy")
    made = Running()
    try:
        assert not any("cannot be used" in record.getMessage() for record in caplog.records)
        stream = made.stream()
        stream.create("named_toy", color="blue")
        assert stream.step_reply().HasField("create_world")
    finally:
        made.engine.stop()
