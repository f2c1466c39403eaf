"""Flow of lanes that are stepped: what the motion of cameras and instances between two steps makes of it.

The maze stands still, so where its camera was and is, and the depth, tell the flow of every wall. The ball and the
paddle of catch move by whole cells.
"""

from typing import Any

import numpy as np
import pytest

from tests.support.shared_server import Served
from worldloom.client import Camera, VectorEnv, points_of

LANES, WIDTH, HEIGHT = 6, 20, 16
SIZE: dict[str, Any] = {"width": WIDTH, "height": HEIGHT}
ERROR_PX = 2e-3
"""Depth is exact to 1e-5 of itself, and a wall seen edge-on has moved by as many pixels as it is far."""
MAZE: dict[str, Any] = {"size": 5, "goals": 1, "max_steps": 5, "speed": 1.0}


def expected_flow(depth: np.ndarray, before: Camera, now: Camera) -> tuple[np.ndarray, np.ndarray]:
    """Return the flow of what stands still, by lane, and a mask of the pixels that were before the camera then."""
    world = now.to_world(points_of(depth, now)).astype(np.float64)
    flow, seen = np.zeros((*depth.shape, 2)), np.zeros(depth.shape, bool)
    for lane in range(len(depth)):
        pose = before.pose[lane].astype(np.float64)
        x, y, z = np.moveaxis((world[lane] - pose[:, 3]) @ pose[:, :3], -1, 0)
        half = float(before.half_height[lane])
        with np.errstate(invalid="ignore", divide="ignore"):
            column = (x / (half * WIDTH / HEIGHT * -z) + 1) * WIDTH / 2
            row = (1 - y / (half * -z)) * HEIGHT / 2
        now_row, now_column = np.mgrid[:HEIGHT, :WIDTH] + 0.5
        flow[lane] = np.stack([now_column - column, now_row - row], axis=-1)
        seen[lane] = -z > before.near * 1.01
    return flow, seen


def open_maze(address: str = "local", **given: Any) -> VectorEnv:
    names = ["eye.flow", "eye.depth", "eye.segmentation", "step_type"]
    if address == "local":
        given["renderer"] = "cpu"
    made: Any = VectorEnv
    env: VectorEnv = made(address, "maze", LANES, observations=names, settings=MAZE, seed=4, **SIZE, **given)
    return env


def check(frames: Any, is_first: np.ndarray, before: Camera, now: Camera) -> None:
    expected, seen = expected_flow(frames["eye.depth"], before, now)
    still = (frames["eye.segmentation"] == 2) & seen & ~is_first[:, None, None]
    apart = np.abs(frames["eye.flow"] - expected).max(axis=-1)
    bound = ERROR_PX * (1 + np.abs(expected).max(axis=-1))
    assert (apart[still] <= bound[still]).all()
    assert not frames["eye.flow"][is_first].any()


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("where", ["local", "tcp"])
def test_walls_of_a_maze_move_by_the_camera_alone(server: Served, mode: Any, where: str) -> None:
    with open_maze("local" if where == "local" else server.tcp, autoreset=mode) as env:
        env.action_space.seed(2)
        frames: Any = env.reset()[0]
        assert not frames["eye.flow"].any()
        before, moved, last_moves, ended = env.camera(), 0, 0, np.zeros(LANES, bool)
        for _ in range(12):
            frames, _, terminated, truncated, info = env.step(env.action_space.sample())
            now = env.camera()
            is_last = terminated | truncated
            if mode == "same_step":
                check(frames, is_last, before, now)
                assert ("final_obs" in info) == bool(is_last.any())
                for lane in np.flatnonzero(is_last):
                    last_moves += bool(np.abs(info["final_obs"][lane]["eye.flow"]).max() > 0.1)
            elif mode == "disabled":
                check(frames, ended, before, now)
                ended = ended | is_last
                if ended.all():
                    frames = env.reset(options={"reset_mask": np.ones(LANES, bool)})[0]
                    assert not frames["eye.flow"].any()
                    now, ended = env.camera(), np.zeros(LANES, bool)
            else:
                check(frames, frames["step_type"] == 0, before, now)
            moved += int((np.abs(frames["eye.flow"]) > 0.5).any(axis=(1, 2, 3)).sum())
            before = now
        assert moved > 20
        assert (last_moves > 5) == (mode == "same_step")


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_lanes_that_a_reset_leaves_out_have_not_moved(mode: Any) -> None:
    """Their flow is 0 in its frames, and that of the next step is from where they were."""
    mask = np.arange(LANES) % 2 == 1
    with open_maze(autoreset=mode) as env:
        env.reset()
        env.action_space.seed(2)
        for _ in range(2):
            shown: Any = env.step(env.action_space.sample())[0]
        assert (np.abs(shown["eye.flow"]).max(axis=(1, 2, 3)) > 0.1).sum() > LANES // 2
        last_depth = shown["eye.depth"].copy()
        frames: Any = env.reset(options={"reset_mask": mask})[0]
        assert not frames["eye.flow"].any()
        assert np.array_equal(frames["eye.depth"][~mask], last_depth[~mask])
        before = env.camera()
        frames = env.step(env.action_space.sample())[0]
        check(frames, np.zeros(LANES, bool), before, env.camera())
        assert (np.abs(frames["eye.flow"]).max(axis=(1, 2, 3)) > 0.1).sum() > LANES // 2


def test_balls_fall_by_a_cell_and_paddles_go_as_they_were_told() -> None:
    settings = {"rows": 6, "columns": 6}
    side = 64
    made: Any = VectorEnv
    with made(
        "local", "catch", LANES, renderer="cpu", observations=["eye.flow", "eye.segmentation", "ball", "paddle"],
        settings=settings, width=side, height=side, seed=1,
    ) as env:  # fmt: skip
        labels = {"paddle": 3, "ball": 4}
        observed: Any = env.reset()[0]
        cell_px = None
        for _ in range(9):
            last = observed
            observed, _, _, _, _ = env.step({"paddle": np.array([-1, 0, 1, 1, 0, -1])})
            for lane in range(LANES):
                flow, label = observed["eye.flow"][lane], observed["eye.segmentation"][lane]
                begins = observed["ball"][lane].flat[0] < last["ball"][lane].flat[0]
                if begins:
                    assert not flow.any()
                    continue
                ball = flow[label == labels["ball"]]
                cell_px = cell_px or float(ball[:, 1].max())
                assert np.abs(ball - (0, cell_px)).max() < 1e-4
                step = int(observed["paddle"][lane]) - int(last["paddle"][lane])
                assert np.abs(flow[label == labels["paddle"]] - (step * cell_px, 0)).max() < 1e-4
                assert not flow[label == 0].any()
        assert cell_px is not None
        assert 6 < cell_px < side / 6
