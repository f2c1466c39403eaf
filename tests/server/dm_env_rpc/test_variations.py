"""Variations in worlds of several streams: pools that are shared or not, and ResetWorld."""

from typing import Any

import numpy as np

from scripts.support.engine_streams import EngineHarness, refused

VARIED: dict[str, Any] = {"vary_colors": 0.5, "vary_camera": 0.1}


def test_worlds_share_a_pool_where_the_same_varies(harness: EngineHarness) -> None:
    streams = [harness.stream() for _ in range(4)]
    settings = [{**VARIED, "vary_seed": 1}, {**VARIED, "variation": 4}, {**VARIED, "vary_colors_at": "step"}, {}]
    worlds = [stream.create("catch", seed=1, **given) for stream, given in zip(streams, settings, strict=True)]
    pools = [harness.engine.directory.worlds[world].pool for world in worlds]
    assert pools[0] is pools[1]
    assert len(set(map(id, pools))) == 3
    for stream, world in zip(streams, worlds, strict=True):
        stream.join(world, width=8, height=8)
    frames = [stream.step("eye.rgb").observations["eye.rgb"].tobytes() for stream in streams]
    assert len(set(frames)) == 4
    alone = harness.stream()
    alone.join(alone.create("catch", seed=1, **settings[1]), width=8, height=8)
    assert alone.step("eye.rgb").observations["eye.rgb"].tobytes() == frames[1]


def test_what_varies_can_change_with_a_reset(harness: EngineHarness) -> None:
    stream, plain = harness.stream(), harness.stream()
    stream.join(stream.create("catch", seed=1, **VARIED), width=8, height=8)
    plain.join(plain.create("catch", seed=1), width=8, height=8)
    first = stream.step("eye.rgb").observations["eye.rgb"].tobytes()
    unvaried = plain.step("eye.rgb").observations["eye.rgb"].tobytes()
    assert first != unvaried
    stream.reset_world(stream.world, seed=1, vary_colors=0.0, vary_camera=0.0)
    assert stream.step("eye.rgb").observations["eye.rgb"].tobytes() == unvaried
    stream.reset_world(stream.world, seed=1, **VARIED)
    assert stream.step("eye.rgb").observations["eye.rgb"].tobytes() == first
    stream.reset_world(stream.world, variation=0, seed=1)
    assert stream.step("eye.rgb").observations["eye.rgb"].tobytes() == first
    stream.reset_world(stream.world, variation=1, seed=1)
    assert stream.step("eye.rgb").observations["eye.rgb"].tobytes() != first


def test_lists_are_for_worlds_with_lanes(harness: EngineHarness) -> None:
    stream = harness.stream()
    with refused("INVALID_ARGUMENT", "a list in setting 'variation' of a world without lanes"):
        stream.create("catch", variation=[1, 2], **VARIED)
    stream.join(stream.create("catch", **VARIED))
    stream.step()
    with refused("INVALID_ARGUMENT", "a list in setting 'variation' of a world without lanes"):
        stream.reset_world(stream.world, variation=[1, 2])


def test_a_property_has_the_numbers(harness: EngineHarness) -> None:
    stream = harness.stream()
    stream.join(stream.create("catch", lanes=3, vary_seed=1, variation=[4, 5, 6], **VARIED), observations=["variation"])
    stream.step("variation")
    assert stream.read("world.variation").tolist() == [4, 5, 6]
    stream.write("world.variation", np.array([7, 8, 9]))
    assert stream.read("world.variation").tolist() == [4, 5, 6]
    stream.reset_world(stream.world)
    assert stream.step("variation").observations["variation"].tolist() == [7, 8, 9]
    stream.reset_world(stream.world, vary_colors=0.7)
    assert stream.step("variation").observations["variation"].tolist() == [7, 8, 9]
    for wrong, expected in (
        (np.array([1, 2, -5]), "'world.variation' is -5 at [2]: expected an integer from -1 to 2147483647"),
        (np.array([1, 2**31, 3]), "'world.variation' is 2147483648 at [1]: expected an integer from -1 to 2147483647"),
        (np.array([1.5, 1, 1]), "'world.variation' came as doubles: expected int64s"),
        (np.array([1, 2]), "expected shape [3]"),
    ):
        with refused("INVALID_ARGUMENT", expected):
            stream.write("world.variation", wrong)
