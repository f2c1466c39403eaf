"""Points of depth frames lie where the reference's rays hit; cameras of envs are those that frames are drawn with."""

from typing import Any

import numpy as np
import pytest

from tests.support import reference_renderer as reference
from tests.support.scenes import SCENES
from tests.support.shared_server import Served
from worldloom.client import Camera, VectorEnv, points_of
from worldloom.kernels.outputs import DEPTH
from worldloom.kernels.tables import ViewTable
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.cpu import CPURenderer

WIDTH, HEIGHT = 96, 64


def camera_of(views: ViewTable, view: int) -> Camera:
    return Camera(
        int(views.width[view]),
        int(views.height[view]),
        views.half_height[view],
        bool(views.orthographic[view]),
        float(views.near[view]),
        float(views.far[view]),
        views.camera[view],
    )


@pytest.mark.parametrize("name", ["spheres", "blocks_2d", "brick_corridor", "sky_box"])
def test_points_are_where_rays_hit(name: str) -> None:
    scene, views = SCENES[name](WIDTH, HEIGHT, 1, DEPTH)
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    with CPURenderer(threads=1) as renderer:
        renderer.draw(scene, views, arena, offsets)
    compared = 0
    for view in range(len(views.lane)):
        camera = camera_of(views, view)
        points = points_of(get_frame(arena, views, offsets, view, "depth"), camera)
        assert (points.dtype.name, points.shape) == ("float32", (HEIGHT, WIDTH, 3))
        found = reference.cast(scene, views, view)
        edges, (hits,) = reference.silhouettes(scene, views, view, found), found.all
        hit = (hits.row >= 0).reshape(HEIGHT, WIDTH)
        seen = ~np.isnan(points).any(axis=-1)
        assert (seen == hit)[~edges].all()
        expected = np.full((HEIGHT, WIDTH, 3), np.nan)
        expected[hit] = reference._surface(scene, views, view, hits).point
        eye = views.camera[view, :, 3].astype(np.float64)
        away, depth = hit & ~edges, -points[..., 2]
        compared += int(np.count_nonzero(away))
        apart = np.linalg.norm(camera.to_world(points) - eye - expected, axis=-1)
        # The depth's own tolerance along a ray, and float32 of a world position.
        ray = np.linalg.norm(points, axis=-1) / depth
        size = np.abs(eye).max() + np.linalg.norm(expected, axis=-1)
        bound = 1e-5 * (camera.far if camera.is_orthographic else depth) * ray + 1e-6 * size
        assert (apart[away] <= bound[away]).all()
    assert compared > 100


def test_a_frame_for_each_lane_and_step() -> None:
    rng = np.random.default_rng(0)
    camera = Camera(
        6, 4, np.array([0.5, 2.0, 1.0], np.float32), False, 0.1, 9.0, rng.normal(size=(3, 3, 4)).astype(np.float32)
    )
    depth = rng.uniform(0.1, 12, (5, 3, 4, 6)).clip(max=9).astype(np.float32)
    points = points_of(depth, camera)
    world = camera.to_world(points)
    for lane in range(3):
        one = camera.select(lane)
        assert one.field_of_view == pytest.approx(np.degrees(2 * np.arctan(float(camera.half_height[lane]))))
        for step in range(5):
            alone = points_of(depth[step, lane], one)
            np.testing.assert_array_equal(points[step, lane], alone)
            np.testing.assert_allclose(world[step, lane], one.to_world(alone), rtol=1e-5, atol=1e-5)
    assert np.array_equal(np.isnan(points).all(axis=-1), depth == 9)
    # Pixel coordinates of docs/rendering.md, of the points, are pixel centres.
    x, y, d = points[..., 0], points[..., 1], -points[..., 2]
    half = camera.half_height[:, None, None].astype(np.float64)
    seen = depth < 9
    column = (x / (half * 1.5 * d) + 1) * 3 - 0.5
    row = (1 - y / (half * d)) * 2 - 0.5
    assert np.abs(column - np.arange(6))[seen].max() < 1e-5
    assert np.abs(row - np.arange(4)[:, None])[seen].max() < 1e-5


@pytest.mark.parametrize(
    ("depth", "message"),
    [
        (np.zeros((4, 6)), "float64"),
        (np.zeros((6, 4), np.float32), r"expected float32 \[..., 4, 6\]"),
        (np.zeros((4, 6, 1), np.float32), "channels"),
    ],
)
def test_depth_that_does_not_fit_is_refused(depth: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        points_of(depth, Camera(6, 4, np.float32(1.0), False, 0.1, 9.0))
    with pytest.raises(ValueError, match="pose is None"):
        Camera(6, 4, np.float32(1.0), False, 0.1, 9.0).to_world(np.zeros((4, 6, 3)))


def open_maze(address: str, **given: Any) -> VectorEnv:
    names = ["eye.depth", "map.depth", "position"]
    arguments = {"num_envs": 5, "width": 12, "height": 10, "observations": names, "seed": 3, **given}
    return VectorEnv(address, "maze", **arguments)


@pytest.mark.parametrize("streams", [1, 2])
def test_an_env_tells_its_cameras(server: Served, streams: int) -> None:
    with open_maze("local", renderer="cpu") as local, open_maze(server.tcp, streams=streams) as served:
        for env in (local, served):
            observed: Any = env.reset()[0]
            for _ in range(3):
                observed = env.step(env.action_space.sample())[0]
            eye, above = env.camera(), env.camera("map")
            assert (eye.width, eye.height, eye.is_orthographic, above.is_orthographic) == (12, 10, False, True)
            assert eye.half_height.shape == (5,)
            assert eye.pose.shape == (5, 3, 4)
            np.testing.assert_allclose(eye.pose[:, :2, 3], observed["position"], atol=1e-5)
            assert eye.field_of_view == pytest.approx(np.full(5, 75.0))
            assert above.field_of_view == 0
            # The map shows the floor at height 0 and walls above it.
            points = above.to_world(points_of(observed["map.depth"], above))
            heights = points[~np.isnan(points).any(axis=-1)][:, 2]
            assert np.abs(heights).min() < 1e-5
            seen = eye.to_world(points_of(observed["eye.depth"], eye))
            seen = seen[~np.isnan(seen).any(axis=-1)]
            assert seen[:, 2].min() > -1e-4


def test_a_camera_is_not_asked_for_while_a_step_is_under_way() -> None:
    with open_maze("local", renderer="cpu") as env:
        env.reset()
        env.send(env.action_space.sample())
        with pytest.raises(Exception, match="a look at a camera of lane 0 while another is under way"):
            env.camera()
        env.recv()
        with pytest.raises(Exception, match=r"camera\.top"):
            env.camera("top")
