"""Flow of single views: motions that are known, points that were not seen, and what there is no step before for."""

from typing import Any

import numpy as np
import pytest

from tests.support import reference_renderer as reference
from tests.support.scene_builder import Look, Piece, build, ground, pose
from tests.support.step_before import step_before
from worldloom.kernels.outputs import DEPTH, FLOW, SEGMENTATION
from worldloom.kernels.tables import PreviousTable, ViewTable
from worldloom.render import cpu
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.cpu import CPURenderer
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.render.views import look_at, make_views

SIZE = 64
ERROR = {"cpu": 1e-5, "gl": 3e-4}
"""Pixels, as in test_reference.py."""


def draw(renderer: Renderer, scene: Scene, views: ViewTable, previous: PreviousTable | None) -> dict[str, np.ndarray]:
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    renderer.draw(scene, views, arena, offsets, previous=previous)
    return {name: get_frame(arena, views, offsets, 0, name) for name in ("flow", "depth", "segmentation")}


def stage(**how: Any) -> tuple[Scene, ViewTable, PreviousTable]:
    """Return a wall that faces the camera, a box before it, and the same for one step before."""
    scene = build(
        (
            Look(),
            [Piece("box", pose((0, 8, 0), (20, 0.1, 20)), "808080", 1), Piece("box", pose((0, 5, 0)), "ff0000", 2)],
        )
    )
    how = {"camera": look_at((0, 0, 0), (0, 1, 0)), "fov_degrees": 90.0, **how}
    views = make_views([0], width=SIZE, height=SIZE, outputs=FLOW | DEPTH | SEGMENTATION, **how)
    return scene, views, same(scene, views)


def same(scene: Scene, views: ViewTable) -> PreviousTable:
    rows = scene.rows(views.lane[:1])[0]
    first_row = np.zeros(len(views.lane), np.int32)
    mesh, before = scene.instances.mesh[rows], scene.instances.pose[rows]
    return PreviousTable(first_row, views.camera.copy(), views.half_height.copy(), mesh.copy(), before.copy())


@pytest.mark.parametrize("height_m", [np.nan, 12.0])
def test_what_does_not_move_has_none(renderer: Renderer, height_m: float) -> None:
    scene, views, previous = stage(orthographic_height=height_m)
    assert np.abs(draw(renderer, scene, views, previous)["flow"]).max() <= ERROR[renderer.name]


@pytest.mark.parametrize("height_m", [np.nan, 12.0])
def test_an_instance_that_moves(renderer: Renderer, height_m: float) -> None:
    scene, views, previous = stage(orthographic_height=height_m)
    previous.pose[1, :, 3] -= (0.5, 0, 0.25)  # it has moved to the right and up since
    frames = draw(renderer, scene, views, previous)
    box = (frames["segmentation"] == 2) & (np.abs(frames["depth"] - 4.5) < 1e-4)  # its front
    metre_px = SIZE / 12 if height_m == 12 else SIZE / 9
    assert box.sum() > 20
    assert np.abs(frames["flow"][box] - (0.5 * metre_px, -0.25 * metre_px)).max() <= ERROR[renderer.name]
    assert np.abs(frames["flow"][frames["segmentation"] == 1]).max() <= ERROR[renderer.name]


def test_a_camera_that_turns_moves_the_sky_and_one_that_is_orthographic_does_not(renderer: Renderer) -> None:
    turn = np.radians(3.0)
    camera = look_at((0, 0, 0), (np.sin(turn), -np.cos(turn), 0))  # away from the wall
    for height_m in (np.nan, 12.0):
        scene, views, previous = stage(camera=camera, orthographic_height=height_m)
        previous.camera[0] = look_at((0, 0, 0), (0, -1, 0))
        flow = draw(renderer, scene, views, previous)["flow"]
        if height_m == 12:
            assert not flow.any()
            continue
        x = (np.arange(SIZE) + 0.5) / 32 - 1
        before = np.tan(np.arctan(x) - turn)  # in the row through the middle, more or less
        expected = 32 * (x - before)
        assert np.abs(np.abs(flow[31, :, 0]) - expected).max() < 0.02


def test_a_change_of_the_field_of_view(renderer: Renderer) -> None:
    scene, views, previous = stage()
    previous.half_height[0] = 2.0  # the camera has zoomed in since, by two
    flow = draw(renderer, scene, views, previous)["flow"]
    from_middle = np.stack(np.meshgrid(*2 * [np.arange(SIZE) + 0.5 - SIZE / 2]), axis=-1)
    assert np.abs(flow - from_middle / 2).max() <= ERROR[renderer.name]


@pytest.mark.parametrize("change", ["no mesh", "other mesh", "nowhere"])
def test_what_was_not_there_has_not_moved_in_the_world(renderer: Renderer, change: str) -> None:
    scene, views, previous = stage()
    previous.camera[0, 0, 3] = -0.5  # the camera has moved to the right
    expected = draw(renderer, scene, views, previous)["flow"]
    previous.pose[1, :, 3] -= 1.0
    if change == "nowhere":
        previous.pose[1, 0, 0] = np.nan
    else:
        previous.mesh[1] = -1 if change == "no mesh" else previous.mesh[1] + 1
    assert np.array_equal(draw(renderer, scene, views, previous)["flow"], expected)
    assert np.abs(expected).max() > 1


def test_points_that_were_not_seen_have_none(renderer: Renderer) -> None:
    scene = build((Look(), [ground("808080", 1)]))
    camera = look_at((0, 0, 1), (0, 3, 0))
    views = make_views([0], camera=camera, width=SIZE, height=SIZE, near=0.5, outputs=FLOW | DEPTH | SEGMENTATION)
    previous = same(scene, views)
    previous.camera[0] = look_at((0, 2.5, 1), (0, 5.5, 0))  # further on: what is near now was behind it
    frames = draw(renderer, scene, views, previous)
    shown = frames["segmentation"] == 1
    flow, expected = frames["flow"][shown], reference.render(scene, views, 0, previous=previous)["flow"][shown]
    unseen = ~expected.any(axis=-1)
    assert 0.1 < unseen.mean() < 0.9
    # At the depth of the near plane rounding decides.
    differs = unseen ^ ~flow.any(axis=-1)
    assert differs.sum() <= 2
    # Pixels next to it were far outside of the frame then.
    size = 1 + np.abs(expected).max(axis=-1)
    assert (np.abs(flow - expected).max(axis=-1)[~differs] <= 1e-5 * size[~differs]).all()


def test_without_a_step_before_there_is_none(renderer: Renderer) -> None:
    scene, views, previous = stage()
    previous.camera[0, 0, 3] = -0.5
    assert not draw(renderer, scene, views, None)["flow"].any()
    assert draw(renderer, scene, views, previous)["flow"].any()
    assert not draw(renderer, scene, views, None)["flow"].any()
    assert not draw(renderer, scene, views, previous._replace(first_row=np.full(1, -1, np.int32)))["flow"].any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"first_row": np.zeros(2, np.int32)}, r"previous.first_row: expected a contiguous int32 \[1\]"),
        ({"first_row": np.zeros(1, np.int64)}, "got int64"),
        ({"first_row": np.array([1], np.int32)}, "view 0: previous.first_row is 1, expected rows of the 2"),
        ({"first_row": np.array([-2], np.int32)}, "view 0: previous.first_row is -2"),
        ({"half_height": np.zeros(1, np.float32)}, "view 0: previous.half_height is 0.0"),
        ({"camera": np.full((1, 3, 4), np.nan, np.float32)}, "view 0: previous.camera is"),
        ({"pose": np.zeros((1, 3, 4), np.float32)}, "previous.pose: expected"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(renderer: Renderer, change: dict[str, Any], message: str) -> None:
    scene, views, previous = stage()
    with pytest.raises(ValueError, match=message):
        draw(renderer, scene, views, previous._replace(**change))


@pytest.mark.parametrize("samples", [1, 4])
def test_other_outputs_are_the_same_beside_it(renderer: Renderer, samples: int) -> None:
    scene, views, previous = stage(samples=samples)
    previous = step_before(scene, views, seed=3)
    beside = draw(renderer, scene, views, previous)
    views.outputs[:] = FLOW
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    renderer.draw(scene, views, arena, offsets, previous=previous)
    assert np.array_equal(get_frame(arena, views, offsets, 0, "flow"), beside["flow"])


def test_a_draw_that_fails_leaves_no_step_before(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, views, previous = stage()
    previous.camera[0, 0, 3] = -0.5

    def fail(*sizes: int) -> None:
        raise MemoryError

    with CPURenderer(1) as renderer:
        with monkeypatch.context() as patched:
            patched.setattr(cpu, "allocate_scratch", fail)
            with pytest.raises(MemoryError):
                draw(renderer, scene, views, previous)
        assert not draw(renderer, scene, views, None)["flow"].any()
        assert draw(renderer, scene, views, previous)["flow"].any()
