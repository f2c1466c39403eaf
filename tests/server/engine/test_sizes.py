"""Sizes of frames: what JoinWorld accepts, the renderer draws."""

from typing import Any

import pytest

from scripts.support.engine_streams import RUNNING, EngineHarness, refused
from worldloom.render.choose import make_renderer
from worldloom.render.cpu import CPURenderer
from worldloom.render.renderer import Renderer

LONG: dict[str, Any] = {"max_view_pixels": 2**31 - 1, "max_reply_bytes": 2**31 - 1}
JOIN: dict[str, Any] = {"max_reply_bytes": 2**31 - 1, "observations": ["eye.rgb", "eye.depth"]}


@pytest.mark.parametrize("name", ["cpu", "gl"])
@pytest.mark.parametrize("samples", [1, 4])
def test_the_longest_side_that_is_accepted_is_drawn(name: str, samples: int) -> None:
    renderer: Renderer = make_renderer(name)
    try:
        most = renderer.max_side_pixels
        harness = EngineHarness(renderer, **LONG)
        for width, height in ((most, 1), (1, most), (most, 2)):
            stream = harness.stream()
            stream.join(stream.create("catch"), width=width, height=height, samples=samples, **JOIN)
            told = stream.step("eye.rgb", "eye.depth")
            assert told.state == RUNNING
            assert told.observations["eye.rgb"].shape == (height, width, 3)
            assert told.observations["eye.rgb"].any()
            with refused("INVALID_ARGUMENT", "'width'", f"{most + 1}: expected", f"1 to {most}"):
                stream.reset(width=most + 1)
            assert stream.step("eye.rgb").state == RUNNING
            stream.leave()
    finally:
        renderer.close()


@pytest.mark.parametrize("side", ["width", "height"])
def test_a_renderer_with_a_lower_limit(cpu: CPURenderer, side: str) -> None:
    """A graphics device may draw less than worldloom allows at most."""
    harness = EngineHarness(cpu)
    harness.engine.directory.max_side_pixels = 100
    stream = harness.stream()
    world = stream.create("catch")
    with refused("INVALID_ARGUMENT", f"'{side}' is 101", "1 to 100", "renderer"):
        stream.join(world, **{side: 101})
    stream.join(world, **{side: 100})
    assert stream.step("eye.gray").state == RUNNING
