"""Prepared steps give the same bytes as the stages of a tick, whatever happens between two of them."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.support.engine_streams import EngineHarness
from scripts.support.messages import RequestFailed
from worldloom.render.cpu import CPURenderer
from worldloom.render.renderer import Renderer
from worldloom.server.engine import engine as engine_module
from worldloom.server.engine.prepared import observe_prepared

WORLDS: tuple[dict[str, Any], ...] = (
    {"family": "catch", "lanes": 3, "rows": 4},
    {"family": "catch", "lanes": 1, "rows": 3, "autoreset": "same_step"},
    {"family": "catch", "lanes": 3, "rows": 4, "autoreset": "disabled"},
    {"family": "catch", "rows": 3},
    {"family": "cartpole", "lanes": 2, "max_steps": 6},
    {"family": "maze", "lanes": 2, "size": 5, "agents": 2, "max_steps": 9},
    {"family": "maze", "size": 5, "lighting": "random"},
)
ACTIONS = {"catch": ("paddle", "int32", ()), "cartpole": ("force", "float32", ()), "maze": ("turn", "float32", ())}
OBSERVATIONS = {
    "catch": [("eye.rgb", "reward"), ("eye.rgb", "reward", "discount", "step_type", "ball", "paddle"), ("reward",)],
    "cartpole": [("eye.depth", "eye.gray", "step_type"), ("pose", "velocity"), ("eye.rgb",)],
    "maze": [("eye.rgb", "map.rgb", "reward"), ("map.segmentation", "discount"), ("eye.rgb",)],
}
MOVES = (*["step"] * 6, "other", "neighbour", "reset", "reset_world", "rejoin", "see", "zoom", "light")


class Course:
    """Two streams in an engine: the bytes of all replies to their steps."""

    def __init__(self, renderer: Renderer, world: dict[str, Any], shm: bool) -> None:
        self.harness = EngineHarness(renderer)
        self.world, self.shm = world, shm
        self.family = str(world["family"])
        self.streams = [self.harness.stream(), self.harness.stream()]
        self.name = self.streams[0].create(seed=5, **world)
        self.joined: set[int] = set()
        self.join(0, 8)
        self.see = OBSERVATIONS[self.family][0]
        self.log: list[bytes | str] = []

    def join(self, which: int, width: int) -> None:
        self.streams[which].join(self.name, width=width, height=6, agent=which, shm=self.shm)
        self.joined.add(which)

    def move(self, kind: str, number: int) -> None:
        """Make a move, and note what is answered."""
        with_agents = self.world.get("agents", 1) > 1
        try:
            if kind == "step":
                self.step(number)
            elif kind == "see":
                choices = OBSERVATIONS[self.family]
                self.see = choices[number % len(choices)]
            elif kind == "rejoin":
                self.streams[0].leave()
                self.join(0, 5 + number)
            elif kind == "reset":
                self.streams[0].reset()
            elif kind == "reset_world" and 1 not in self.joined:  # it would wait for the other agent
                self.streams[0].reset_world(self.name, seed=number)
            elif kind == "zoom":
                view = "field_of_view" if self.family == "maze" else "height_m"
                self.streams[0].write(f"camera.eye.{view}", 5.0 + 4 * number)
            elif kind == "light":
                self.streams[0].write("world.lighting.light_color", np.full(3, number / 10, np.float32))
            elif kind == "neighbour":  # lanes of the same pool come and go, so that its arrays are others
                guest = self.harness.stream()
                world = guest.create(**{**self.world, "seed": 1, "lanes": 20 + number})
                guest.destroy(world)
            elif kind == "other" and with_agents and 1 not in self.joined:
                self.join(1, 8)
            elif kind == "other" and 1 in self.joined:
                self.streams[1].leave()
                self.joined.discard(1)
        except RequestFailed as error:
            self.log.append(error.text.replace(self.name, "NAME"))

    def step(self, number: int) -> None:
        name, dtype, shape = ACTIONS[self.family]
        lead = (self.world["lanes"],) if "lanes" in self.world else ()
        action = np.full((*lead, *shape), number % 3 - 1, dtype)
        see = [f"{one}@shm" if self.shm and one.startswith(("eye.", "map.")) else one for one in self.see]
        for which in sorted(self.joined):
            self.streams[which].post_step(*see, **{name: action})
        self.harness.tick()
        for which in sorted(self.joined):
            segment = self.streams[which].session.agent.segment  # type: ignore[union-attr]
            if segment is not None:
                self.log.append(bytes(segment._memory)[4096:])
        self.log += self.harness.sent
        self.harness.settle()
        for which in sorted(self.joined):
            self.streams[which].replies.clear()


def play(renderer: Renderer, world: dict[str, Any], shm: bool, moves: list[tuple[str, int]]) -> list[bytes | str]:
    course = Course(renderer, world, shm)
    for kind, number in moves:
        course.move(kind, number)
    return course.log


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(WORLDS),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 9)), min_size=4, max_size=30),
)
def test_the_same_bytes_as_by_the_stages(
    cpu: CPURenderer, world: dict[str, Any], shm: bool, moves: list[tuple[str, int]]
) -> None:
    prepared = play(cpu, world, shm, moves)
    with patch.object(engine_module, "observe_prepared", lambda *_: False):
        assert play(cpu, world, shm, moves) == prepared


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("shm", [False, True])
def test_repeated_steps_are_prepared(cpu: CPURenderer, world: dict[str, Any], shm: bool) -> None:
    told: list[bool] = []

    def observe(*arguments: Any) -> bool:
        told.append(observe_prepared(*arguments))
        return told[-1]

    with patch.object(engine_module, "observe_prepared", observe):
        play(cpu, world, shm, [("step", k) for k in range(6)])
    assert not told[0]  # the first step begins a sequence
    assert told.count(True) >= 2
