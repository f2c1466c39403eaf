"""Poses kept of lanes before a step that asks for flow: by agent, once for a repeated action, for no other step."""

from typing import Any

import numpy as np
import pytest

from scripts.support.engine_streams import EngineHarness, Stream, refused
from tests.client.test_flow import MAZE, SIZE, check
from worldloom.client import Camera
from worldloom.worlds.family import Family
from worldloom.worlds.maze.family import Maze

NAMES = ["eye.flow", "eye.depth", "eye.segmentation", "step_type"]


def camera_of(stream: Stream) -> Camera:
    half_height, near, far, pose = (stream.read(f"camera.eye.{key}") for key in ("half_height", "near", "far", "pose"))
    return Camera(SIZE["width"], SIZE["height"], half_height, False, float(near[0]), float(far[0]), pose)


def test_several_agents_and_an_action_that_is_repeated(harness: EngineHarness) -> None:
    streams = [harness.stream(), harness.stream()]
    settings = {**MAZE, "max_steps": 50}
    world = streams[0].create("maze", agents=2, lanes=3, action_repeat=2, seed=6, **settings)
    for stream in streams:
        stream.join(world, observations=NAMES, **SIZE)
    rng = np.random.default_rng(0)
    before: list[Camera] = []
    moved = 0
    for step in range(4):
        for stream in streams:
            move = rng.uniform(-1, 1, (3, 2)).astype(np.float32)
            turn = rng.uniform(-1, 1, 3).astype(np.float32)
            stream.post_step(*NAMES, **({"move": move, "turn": turn} if step else {}))
        harness.settle()
        seen = [stream.step_reply().observations for stream in streams]
        now = [camera_of(stream) for stream in streams]
        for agent, camera in enumerate(now):
            check(seen[agent], seen[agent]["step_type"] == 0, before[agent] if step else camera, camera)
            moved += int((np.abs(seen[agent]["eye.flow"]) > 0.5).any(axis=(1, 2, 3)).sum())
        before = now
    assert moved > 10


def test_steps_that_do_not_ask_for_it_write_no_scene_before(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    write: Any = Maze.write_instances

    def counted(self: Family, *given: Any) -> None:
        calls.append(given)
        write(self, *given)

    monkeypatch.setattr(Maze, "write_instances", counted)
    stream = harness.stream()
    stream.join(stream.create("maze", lanes=2), observations=["eye.rgb", "eye.flow"], **SIZE)
    for names, expected in ((["eye.rgb"], 1), (["eye.flow"], 2), (["eye.rgb", "eye.flow"], 2), ([], 0)):
        for _ in range(3):  # the first of these may be prepared
            stream.step(*names)
        calls.clear()
        stream.step(*names)
        assert len(calls) == expected, names


def test_a_family_that_fails_before_the_step_fails_it(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = harness.stream()
    stream.join(stream.create("maze", lanes=2), observations=["eye.flow"], **SIZE)
    stream.step("eye.flow")
    write: Any = Maze.write_instances
    with monkeypatch.context() as patch:
        patch.setattr(Maze, "write_instances", lambda *_: 1 / 0)
        with refused("INTERNAL", "failed while it observed"):
            stream.step("eye.flow")
    assert Maze.write_instances is write
    assert not stream.step("eye.flow").observations["eye.flow"].any(), "the next step begins an episode"
