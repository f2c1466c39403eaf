"""Both renderers draw what docs/rendering.md says: every test scene, compared with the reference pixel by pixel."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support import reference_renderer as reference
from tests.support.scenes import SCENES
from tests.support.step_before import step_before
from worldloom.kernels.outputs import OUTPUT_NAMES
from worldloom.kernels.tables import PreviousTable, ViewTable
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene

SIZE = 72
SIZES = {"blocks_2d": 48}
"""Sizes in pixels. A square of the board is then four pixels, and edges of its inner square cross pixel centres."""

EVERY_SCENE = pytest.mark.parametrize("name", SCENES)
EVERY_SAMPLING = pytest.mark.parametrize("samples", [1, 4])

# Away from silhouettes.
COLOR_LEVELS = 1  # float32, or a texture's 8 bit fraction, may round a channel to the other side of a half
COLOR_BIAS = 0.1  # levels, the mean of a channel: but as often up as down; measured 0.04
COLOR_SHARE = 0.9995  # and a last bit may choose the other of two mip levels; no such pixel was met so far
DEPTH_RELATIVE = 1e-5  # some last bits of float32, more where a surface is seen edge-on; measured 7e-6
DEPTH_SHARE_4 = 0.998  # a point on an edge within a round surface may take the facet next to its own,
DEPTH_RELATIVE_4 = 5e-3  # whose plane, seen at the pixel's centre, is this close; measured 2e-3 in 0.1 % of pixels
NORMAL_ERROR = 3e-5  # the camera's axes are orthonormal to float32 only, more where seen edge-on; measured 2.2e-5
NORMAL_EDGE_ERROR = 1e-4  # and the rim of a round surface is edge-on; measured 8e-5
FLOW_ERROR = {"cpu": 1e-5, "gl": 3e-4}  # pixels: float64 or float32, divided by w; measured 6e-6 and 2e-4
FLOW_ERROR_4 = 2e-2  # pixels: the facet next to its own; measured 8e-3 in 0.1 % of pixels
NORMAL_ERROR_4 = 0.1  # as for depth, the facet next to its own; measured 5e-2 in 0.1 % of pixels
# On silhouettes: vertices are rounded to 1/256 pixel, so one point in some hundred along an edge changes sides.
EDGE_SHARE = 0.99  # measured 0.9925
EDGE_SHARE_OF_BOTH = 0.997  # but both round alike; measured 0.9986


class Expected(NamedTuple):
    """The reference frames of a view, and the pixels where they may differ."""

    frames: dict[str, NDArray[Any]]
    edges: NDArray[np.bool_]


@cache
def build(name: str, samples: int) -> tuple[Scene, ViewTable, PreviousTable]:
    size = SIZES.get(name, SIZE)
    scene, views = SCENES[name](size, size, samples)
    return scene, views, step_before(scene, views)


@cache
def expect(name: str, samples: int) -> list[Expected]:
    scene, views, previous = build(name, samples)
    expected = []
    for view in range(len(views.lane)):
        hits = reference.cast(scene, views, view)
        expected.append(
            Expected(
                reference.render(scene, views, view, hits, previous),
                reference.silhouettes(scene, views, view, hits),
            )
        )
    return expected


_drawn: dict[tuple[str, str, int], list[dict[str, NDArray[Any]]]] = {}


def draw(renderer: Renderer, name: str, samples: int) -> list[dict[str, NDArray[Any]]]:
    """Return the frames of each view of a scene, drawn once for all tests."""
    key = renderer.name, name, samples
    if key not in _drawn:
        scene, views, previous = build(name, samples)
        offsets, size_bytes = lay_out(views)
        arena = allocate_arena(size_bytes)
        renderer.draw(scene, views, arena, offsets, previous=previous)
        _drawn[key] = [
            {output: get_frame(arena, views, offsets, view, output) for output in OUTPUT_NAMES}
            for view in range(len(views.lane))
        ]
    return _drawn[key]


def levels_apart(got: NDArray[np.uint8], expected: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the largest difference of any channel, for each pixel."""
    apart = np.abs(got.astype(np.int64) - expected)
    return np.asarray(apart.max(axis=-1) if apart.ndim == 3 else apart)


def agree(
    got: dict[str, NDArray[Any]],
    expected: dict[str, NDArray[Any]],
    edges: NDArray[np.bool_],
    samples: int,
    flow_error: float,
    edge_share: float = EDGE_SHARE,
) -> None:
    """Assert that two renderings are the same within the tolerances above."""
    away = ~edges
    apart = levels_apart(got["rgb"], expected["rgb"])
    assert (apart[away] <= COLOR_LEVELS).mean() >= COLOR_SHARE
    assert (apart[edges] <= COLOR_LEVELS).mean() >= edge_share
    bias = (got["rgb"].astype(np.int64) - expected["rgb"])[away].mean(axis=0)
    assert np.abs(bias).max() <= COLOR_BIAS

    off = np.abs(got["depth"] - expected["depth"]) / expected["depth"]
    if samples == 1:
        assert off[away].max() <= DEPTH_RELATIVE
    else:
        assert off[away].max() <= DEPTH_RELATIVE_4
        assert (off[away] <= DEPTH_RELATIVE).mean() >= DEPTH_SHARE_4
    assert (off[edges] <= DEPTH_RELATIVE_4).mean() >= edge_share

    apart = np.abs(got["normals"] - expected["normals"]).max(axis=-1)
    if samples == 1:
        assert apart[away].max() <= NORMAL_ERROR
    else:
        assert apart[away].max() <= NORMAL_ERROR_4
        assert (apart[away] <= NORMAL_ERROR).mean() >= DEPTH_SHARE_4
    assert (apart[edges] <= NORMAL_EDGE_ERROR).mean() >= edge_share

    apart = np.abs(got["flow"] - expected["flow"]).max(axis=-1)
    if samples == 1:
        assert apart[away].max() <= flow_error
    else:
        assert apart[away].max() <= FLOW_ERROR_4
        assert (apart[away] <= flow_error).mean() >= DEPTH_SHARE_4
    assert (apart[edges] <= FLOW_ERROR_4).mean() >= edge_share

    same_label = got["segmentation"] == expected["segmentation"]
    assert same_label[away].all()
    assert same_label[edges].mean() >= edge_share


@EVERY_SAMPLING
@EVERY_SCENE
def test_a_renderer_draws_what_the_rules_say(renderer: Renderer, name: str, samples: int) -> None:
    for got, expected in zip(draw(renderer, name, samples), expect(name, samples), strict=True):
        agree(got, expected.frames, expected.edges, samples, FLOW_ERROR[renderer.name])


@EVERY_SAMPLING
@EVERY_SCENE
def test_gray_is_the_brightness_of_the_finished_pixel(renderer: Renderer, name: str, samples: int) -> None:
    for got in draw(renderer, name, samples):
        brightness = (got["rgb"].astype(np.int64) @ (77, 150, 29) + 128) >> 8
        assert np.array_equal(got["gray"], brightness)


@pytest.mark.gl
@EVERY_SAMPLING
@EVERY_SCENE
def test_the_renderers_agree(cpu: Renderer, gl: Renderer, name: str, samples: int) -> None:
    pairs = zip(draw(gl, name, samples), draw(cpu, name, samples), expect(name, samples), strict=True)
    for by_gl, by_cpu, expected in pairs:
        agree(by_gl, by_cpu, expected.edges, samples, FLOW_ERROR["gl"], EDGE_SHARE_OF_BOTH)


@EVERY_SCENE
def test_scenes_leave_something_to_expect(name: str) -> None:
    for expected in expect(name, 1):
        assert (~expected.edges).mean() > 0.4
        assert len(np.unique(expected.frames["segmentation"])) > 3
        assert len(np.unique(expected.frames["rgb"].reshape(-1, 3), axis=0)) > 20
