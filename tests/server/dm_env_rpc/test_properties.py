"""Properties of the world a stream is in: what they say, and that pictures change by those that can be written."""

import errno
import importlib.metadata
from typing import Any

import numpy as np
import pytest

from scripts.support.engine_streams import EngineHarness, Stream, refused
from scripts.support.reference_world import ReferenceWorld
from worldloom.render.cpu import CPURenderer

SIZE: dict[str, Any] = {"width": 16, "height": 12}
LIGHTS: dict[str, list[float]] = {
    "light_direction": [0.3, -0.9, -0.2],
    "light_color": [2.0, 0.1, 0.5],
    "ambient": [0.9, 0.2, 0.1],
    "ambient_ground": [0.0, 1.5, 0.3],
    "sky_horizon": [1.0, 0.0, 0.25],
    "sky_zenith": [0.0, 1.0, 0.5],
    "fog_color": [0.25, 0.5, 1.0],
    "fog_range": [0.25, 1.5],
}


TOP_LEVEL = {"server", "limits", "create_settings", "join_settings", "families", "capacity", "counters", "timers"}


def joined(harness: EngineHarness, family: str = "maze", world: str | None = None, **settings: Any) -> Stream:
    stream = harness.stream()
    stream.join(stream.create(family, **{"seed": 6, **settings}) if world is None else world, **SIZE)
    return stream


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.tobytes() == other.tobytes()


@pytest.mark.parametrize("degrees", [1.0, 40, 170.0])
def test_a_field_of_view_is_for_its_stream_and_camera_alone(
    harness: EngineHarness, cpu: CPURenderer, degrees: float
) -> None:
    one = joined(harness, agents=2, size=7)
    two, other = joined(harness, world=one.world), joined(harness, agents=2, size=7)
    see = ("eye.rgb", "eye.depth", "map.rgb")
    assert one.read("camera.eye.field_of_view") == pytest.approx(75.0)
    one.write("camera.eye.field_of_view", degrees)
    assert one.read("camera.eye.field_of_view") == pytest.approx(degrees)
    assert two.read("camera.eye.field_of_view") == pytest.approx(75.0)
    direct = ReferenceWorld(cpu, "maze", 6, agents=2, size=7)
    for _ in range(2):
        direct.step()
        told = harness.step_all(one, two, other, see=see)
        wide = float(np.tan(np.radians(degrees) / 2))
        for agent, half_height, seen in (
            (0, wide, told[0].observations),
            (1, None, told[1].observations),
            (0, None, told[2].observations),
        ):
            for name in see:
                changed = half_height if name.startswith("eye") else None
                assert same(seen[name], direct.draw(name, agent, **SIZE, half_height=changed)), name
    assert not same(told[0].observations["eye.rgb"], told[2].observations["eye.rgb"])


def test_a_field_of_view_lasts_until_the_stream_leaves(harness: EngineHarness) -> None:
    stream = joined(harness)
    stream.write("camera.eye.field_of_view", 30.0)
    stream.reset(width=8)
    stream.step("eye.rgb")
    assert stream.read("camera.eye.field_of_view") == pytest.approx(30.0)
    stream.leave()
    stream.join(stream.world)
    assert stream.read("camera.eye.field_of_view") == pytest.approx(75.0)


@pytest.mark.parametrize(("family", "camera"), [("maze", "map"), ("catch", "eye")])
def test_the_height_of_an_orthographic_picture(
    harness: EngineHarness, cpu: CPURenderer, family: str, camera: str
) -> None:
    stream, other = joined(harness, family), joined(harness, family)
    key, name = f"camera.{camera}.height_m", f"{camera}.rgb"
    before = stream.read(key)
    stream.write(key, 3)
    direct = ReferenceWorld(cpu, family, 6)
    direct.step()
    changed, unchanged = harness.step_all(stream, other, see=(name,))
    assert same(changed.observations[name], direct.draw(name, **SIZE, half_height=1.5))
    assert same(unchanged.observations[name], direct.draw(name, **SIZE, half_height=float(before) / 2))
    assert same(unchanged.observations[name], direct.draw(name, **SIZE))
    assert not same(changed.observations[name], unchanged.observations[name])


@pytest.mark.parametrize("family", ["maze", "catch", "cartpole"])
@pytest.mark.parametrize("columns", [*([one] for one in LIGHTS), list(LIGHTS)])
def test_light_is_for_its_world_alone(
    harness: EngineHarness, cpu: CPURenderer, family: str, columns: list[str]
) -> None:
    lit, other = joined(harness, family, lanes=2), joined(harness, family, lanes=2)
    lighting = {column: LIGHTS[column] for column in columns}
    for column, value in lighting.items():
        lit.write(f"world.lighting.{column}", np.array(value, np.float32))
        np.testing.assert_array_equal(lit.read(f"world.lighting.{column}"), np.array(value, np.float32))
    direct, plain = ReferenceWorld(cpu, family, 6, 2), ReferenceWorld(cpu, family, 6, 2)
    for _ in range(3):
        direct.step()
        plain.step()
        changed, unchanged = harness.step_all(lit, other, see=("eye.rgb", "eye.depth"))
        assert same(changed.observations["eye.rgb"], direct.draw("eye.rgb", **SIZE, lighting=lighting))
        assert same(unchanged.observations["eye.rgb"], plain.draw("eye.rgb", **SIZE))
        assert same(changed.observations["eye.depth"], unchanged.observations["eye.depth"])
    if len(columns) > 1:
        assert not same(changed.observations["eye.rgb"], unchanged.observations["eye.rgb"])


def test_everyone_in_a_world_has_its_light_and_the_next_world_in_its_lanes_has_not(harness: EngineHarness) -> None:
    one = joined(harness, agents=2)
    two = joined(harness, world=one.world)
    fresh = joined(harness, agents=2).step("eye.rgb").observations["eye.rgb"]
    one.write("world.lighting.ambient", [5.0, 0.0, 0.0])
    lit, _ = harness.step_all(one, two, see=("eye.rgb",))
    assert not same(lit.observations["eye.rgb"], fresh)
    assert two.read("world.lighting.ambient").tolist() == [5, 0, 0]
    one.leave()
    two.leave()
    two.join(one.world, **SIZE, agent=0)
    two.step()
    assert two.read("world.lighting.ambient").tolist() == [5, 0, 0], "it stays until the world is gone"
    two.leave()
    one.destroy(one.world)
    again = joined(harness, agents=2)
    assert same(again.step("eye.rgb").observations["eye.rgb"], fresh)


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("camera.eye.field_of_view", 0.5),
        ("camera.eye.field_of_view", 171.0),
        ("camera.eye.field_of_view", float("nan")),
        ("camera.eye.field_of_view", "wide"),
        ("camera.eye.field_of_view", [40.0, 40.0]),
        ("camera.map.height_m", 0.0),
        ("world.lighting.light_direction", [0.0, 0.0, 0.0]),
        ("world.lighting.light_direction", [0.0, float("inf"), 0.0]),
        ("world.lighting.light_color", [9.0, 0.0, 0.0]),
        ("world.lighting.ambient", [1.0, 1.0]),
        ("world.lighting.sky_zenith", [0.0, -0.1, 0.0]),
        ("world.lighting.fog_range", [-1.0, 4.0]),
    ],
)
def test_wrong_values_change_nothing(harness: EngineHarness, key: str, wrong: Any) -> None:
    stream = joined(harness)
    picture, before = stream.step("eye.rgb").observations["eye.rgb"], stream.read(key)
    stream.reset_world(stream.world, seed=6)
    with refused("INVALID_ARGUMENT", key.rpartition(".")[2]):
        stream.write(key, wrong)
    np.testing.assert_array_equal(stream.read(key), before)
    assert same(stream.step("eye.rgb").observations["eye.rgb"], picture)


def test_what_can_only_be_read(harness: EngineHarness) -> None:
    stream = joined(harness)
    for key in ("world.seed", "world.episode", "world.name", "server.version", "counters.steps", "limits.max_worlds"):
        with refused("PERMISSION_DENIED", key):
            stream.write(key, 1)


def test_the_version_needs_no_file(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has too many files open still tells it."""
    expected = importlib.metadata.version("worldloom")

    def fail(_name: str) -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(importlib.metadata, "version", fail)
    assert harness.stream().read("server.version") == expected


def test_the_page_is_told_by_servers_that_have_one(harness: EngineHarness) -> None:
    stream = harness.stream()
    with refused("NOT_FOUND", "server.page"):
        stream.read("server.page")
    harness.engine.page_url = "https://[::]:9080/"
    assert stream.read("server.page") == "https://[::]:9080/"
    assert "server.page" in stream.list_properties("server")


def test_what_the_properties_of_a_world_say(harness: EngineHarness) -> None:
    stream = joined(harness, "catch", rows=3, seed=2**64 - 1)
    assert stream.read("world.name") == stream.world
    assert stream.read("world.family") == "catch"
    assert stream.read("world.seed") == 2**64 - 1
    assert [stream.read(f"world.{name}") for name in ("agent", "agents_joined", "episode", "steps")] == [0, 1, -1, 0]
    counts = []
    for _ in range(5):
        stream.step()
        counts.append((int(stream.read("world.episode")), int(stream.read("world.steps"))))
    assert counts == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


def test_properties_of_a_world_are_there_while_one_is_in_it(harness: EngineHarness) -> None:
    stream, killer = harness.stream(), harness.stream()
    assert set(stream.list_properties()) == TOP_LEVEL
    for key in ("world.seed", "camera.eye.field_of_view"):
        with refused("NOT_FOUND", key):
            stream.read(key)
    stream.join(stream.create("maze"))
    assert {"world", "camera"} <= set(stream.list_properties())
    killer.destroy(stream.world)
    with refused("NOT_FOUND"):
        stream.write("camera.eye.field_of_view", 40.0)
    assert "world" not in stream.list_properties()
    stream.leave()
    assert set(stream.list_properties()) == TOP_LEVEL


def test_every_property_that_is_listed_can_be_read_as_its_spec_says(harness: EngineHarness) -> None:
    stream = joined(harness, "maze", lanes=3)
    stream.step("eye.rgb")
    waiting, seen = [""], 0
    while waiting:
        for key, spec in stream.list_properties(waiting.pop()).items():
            if spec.is_listable:
                waiting.append(key)
            if spec.is_readable:
                shape = np.shape(stream.read(key))
                told = [
                    size if expected == -1 else expected for size, expected in zip(shape, spec.spec.shape, strict=True)
                ]
                assert list(shape) == told, key
                assert spec.description
                seen += 1
    assert seen > 60


@pytest.mark.parametrize("seed", [-(2**63), -1, 0, 2**63, 2**64 - 1])
@pytest.mark.parametrize("family", ["catch", "dmc"])
def test_the_seed_is_read_as_it_was_given(harness: EngineHarness, family: str, seed: int) -> None:
    stream = harness.stream()
    given = np.uint64(seed) if seed >= 2**63 else np.int64(seed)
    stream.join(stream.create(family, seed=given), **SIZE)
    assert int(stream.read("world.seed")) == seed
    stream.reset_world(stream.world, seed=np.int64(-5))
    assert int(stream.read("world.seed")) == -5
    first = stream.step("eye.rgb").observations["eye.rgb"]
    stream.reset_world(stream.world, seed=np.uint64(2**64 - 5))  # the same 64 bits
    assert int(stream.read("world.seed")) == 2**64 - 5
    assert same(stream.step("eye.rgb").observations["eye.rgb"], first)
