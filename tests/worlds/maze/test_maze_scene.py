"""The maze's scene: its rows compared with the state, and frames compared with both."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.determinism import draw
from tests.worlds.maze.test_maze import make_pool, some_actions
from worldloom.kernels.outputs import output_bits
from worldloom.kernels.tables import I64, NO_MESH, InstanceTable, map_columns
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.maze.family import Maze
from worldloom.worlds.maze.scene import AGENT, FLOOR, GOAL, WALL, WALL_HEIGHT
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds


@pytest.fixture(scope="module")
def renderer() -> Iterator[CPURenderer]:
    with CPURenderer() as made:
        yield made


def rows_of(pool: Pool, lane: int) -> InstanceTable:
    rows = pool.scene.rows(pool.scene_lane[[lane]])[0]
    return map_columns(pool.scene.instances, lambda column: column[rows])


def all_rows(pool: Pool, lanes: I64) -> list[bytes]:
    """Return all rows and columns that the frames of each lane depend on."""
    rows, look = pool.scene.rows(pool.scene_lane[lanes]), pool.scene.lanes
    mesh = pool.scene.instances.mesh[rows]
    return [
        b"".join(
            [mesh[k].tobytes()]
            + [column[rows[k]][mesh[k] != NO_MESH].tobytes() for column in pool.scene.instances[1:]]
            + [column[pool.scene_lane[lane]].tobytes() for column in look[2:]]
        )
        for k, lane in enumerate(lanes)
    ]


@pytest.mark.parametrize(("size", "lanes"), [(5, 100), (7, 300), (9, 300), (15, 60), (31, 20)])
def test_walls_have_the_sides_and_tops_that_can_be_seen(size: int, lanes: int) -> None:
    """Cut to the size of a block, the rectangles are exactly the borders of wall and open blocks, and the tops."""
    pool, added = make_pool(lanes, size=size)
    pool.views(added, "map")
    for lane in added.tolist():
        walls, rows = pool.state.walls[lane], rows_of(pool, lane)
        sides, tops, floors = set(), set(), 0
        for row in np.flatnonzero(rows.mesh == pool.family.assets.mesh("one-sided quad")):
            right, out, up, at = rows.pose[row].T
            if rows.label[row] == FLOOR:
                np.testing.assert_array_equal(at, (size / 2, size / 2, 0))
                floors += 1
            elif out[2] == -1:
                assert at[2] == WALL_HEIGHT
                corner = at - right / 2 - up / 2
                tops |= {
                    (int(corner[0]) + i, int(corner[1]) + j) for i in range(int(right[0])) for j in range(int(up[1]))
                }
            else:
                assert at[2] == WALL_HEIGHT / 2
                assert rows.uv_scale[row, 0] == np.abs(right).sum()  # a texture a metre
                length = int(np.abs(right).sum())
                for k in range(length):
                    middle = at + right * ((k + 0.5) / length - 0.5)
                    way, wall = np.floor(middle - 0.5 * out).astype(int), np.floor(middle + 0.5 * out).astype(int)
                    sides.add((*way[:2].tolist(), *wall[:2].tolist()))
        y, x = np.nonzero(walls)
        assert floors == 1
        assert tops == set(zip(x.tolist(), y.tolist(), strict=True))
        # A side stands between a way, which it faces, and the wall it belongs to.
        assert sides == {
            (i, j, i + east, j + north)
            for j, i in np.argwhere(walls == 0).tolist()
            for east, north in ((1, 0), (-1, 0), (0, 1), (0, -1))
            if walls[j + north, i + east]
        }


def test_drawing_again_changes_nothing_and_a_new_maze_everything() -> None:
    pool, lanes = make_pool(30, agents=2, textures="random", lighting="random")
    pool.views(lanes, "eye")
    first = all_rows(pool, lanes)
    pool.views(lanes, "map")
    assert all_rows(pool, lanes) == first
    pool.interrupt(lanes[:10])
    pool.step(lanes[:10], some_actions(pool, 10, np.random.default_rng(1)))
    pool.views(lanes, "eye")
    again = all_rows(pool, lanes)
    assert again[10:] == first[10:]
    assert not set(again[:10]) & set(first)


def test_lanes_that_were_used_before_look_like_new_ones() -> None:
    """Freed lanes of the pool and the scene are reused in another order, drawn or not, and keep nothing of before."""
    setting: dict[str, Any] = {"agents": 2, "goals": 5, "textures": "random", "lighting": "random"}
    fresh, lanes = make_pool(40, seed=2, **setting)
    fresh.views(lanes, "eye")
    expected = all_rows(fresh, lanes)
    pool, old = make_pool(60, seed=1, **setting)
    pool.views(old[:50], "eye")
    other = Pool(pool.family, pool.scene)
    pool.free(old[5:45])
    guests = other.add(lane_seeds(9, 10))
    other.step(guests, some_actions(pool, 10, np.random.default_rng(0)))
    other.views(guests, "eye")
    other.free(guests)
    new = pool.add(lane_seeds(2, 40))
    pool.step(new, some_actions(pool, 40, np.random.default_rng(0)))
    pool.views(new, "eye")
    assert all_rows(pool, new) == expected


def test_the_map_shows_what_is_where(renderer: CPURenderer) -> None:
    """The map shows the right label and depth at the middle of every block, north up."""
    size, scale = 9, 5
    pool, lanes = make_pool(20, agents=3, goals=5)
    views = pool.views(
        lanes, "map", width=size * scale, height=size * scale, outputs=output_bits(["segmentation", "depth"])
    )
    for lane, shown in zip(lanes.tolist(), draw(pool, views, renderer), strict=True):
        middle = slice(scale // 2, None, scale)
        labels, depth = (shown[name][middle, middle][::-1] for name in ("segmentation", "depth"))
        expected = np.where(pool.state.walls[lane], WALL, FLOOR)
        for places, label in ((pool.state.goal_position[lane], GOAL), (pool.state.position[lane], AGENT)):
            x, y = places.astype(int).T
            expected[y, x] = label
        np.testing.assert_array_equal(labels, expected)
        # Exact in float32 but for the subtraction from the far plane; shadows lie 4 mm above the floor.
        np.testing.assert_allclose(depth[expected == WALL], 2.0, atol=1e-6)
        np.testing.assert_allclose(depth[expected == FLOOR], 3.0, atol=1e-6)


def test_the_eye_sees_as_far_as_the_way_goes(renderer: CPURenderer) -> None:
    """An agent begins in the middle of a block, facing along a corridor: the wall at its end is square to it."""
    pool, lanes = make_pool(200, seed=4)
    views = pool.views(lanes, "eye", width=33, height=33, outputs=output_bits(["segmentation", "depth"]))
    walls_seen = 0
    for lane, shown in zip(lanes.tolist(), draw(pool, views, renderer), strict=True):
        (x, y), (east, north) = pool.state.position[lane, 0], np.rint(pool.state.facing[lane, 0])
        blocks = 0
        while not pool.state.walls[lane, int(y + blocks * north), int(x + blocks * east)]:
            blocks += 1
        if shown["segmentation"][16, 16] == WALL:
            np.testing.assert_allclose(shown["depth"][16, 16], blocks - 0.5, rtol=2e-6)  # a few roundings of float32
            walls_seen += 1
        assert not (shown["segmentation"] == AGENT).any()
    assert walls_seen > 100


def test_agents_see_each_other_but_not_themselves(renderer: CPURenderer) -> None:
    pool, lanes = make_pool(60, agents=2, size=5)
    rng = np.random.default_rng(3)
    for _ in range(30):
        pool.step(lanes, some_actions(pool, 60, rng))
    asked = output_bits(["segmentation"])
    seen = [
        np.array([(one["segmentation"] == AGENT).mean() for one in draw(pool, views, renderer)])
        for views in (pool.views(lanes, "eye", agent, width=48, height=48, outputs=asked) for agent in (0, 1))
    ]
    to_other = pool.state.position[:, 1] - pool.state.position[:, 0]
    distance = np.linalg.norm(to_other, axis=1)
    for agent, sign in ((0, 1), (1, -1)):
        ahead = sign * (to_other * pool.state.facing[:, agent]).sum(axis=1)
        assert (seen[agent][ahead < -0.4] == 0).all()  # behind it: then there is nobody to be seen
        close = (distance < 0.8) & (ahead > 0.8 * distance)
        assert close.any()
        assert (seen[agent][close] > 0.02).all()


def test_a_taken_goal_is_gone(renderer: CPURenderer) -> None:
    pool, lanes = make_pool(1, goals=2)
    pool.state.position[0, 0] = pool.state.goal_position[0, 0]
    pool.step(lanes, {"move": np.full((1, 1, 2), 0.01, np.float32), "turn": np.zeros((1, 1), np.float32)})
    views = pool.views(lanes, "map", width=90, height=90, outputs=output_bits(["segmentation"]))
    y, x = np.nonzero(draw(pool, views, renderer)[0]["segmentation"] == GOAL)
    left = pool.state.goal_position[0, 1]
    np.testing.assert_allclose((x.mean() / 10 + 0.05, 9 - y.mean() / 10 - 0.05), left, atol=0.05)  # half a pixel


@pytest.mark.parametrize(("name", "columns"), [("textures", ("texture", "color")), ("lighting", ())])
def test_looks_are_fixed_or_by_chance(name: str, columns: tuple[str, ...]) -> None:
    looks = {}
    for choice in ("fixed", "random"):
        setting: dict[str, Any] = {name: choice}
        pool, lanes = make_pool(40, **setting)
        pool.views(lanes, "eye")
        floor = pool.scene.rows(pool.scene_lane[lanes])[:, 0]
        table = pool.scene.lanes
        parts = (
            [getattr(pool.scene.instances, column)[floor] for column in columns]
            if columns
            else [table.light_direction, table.light_color, table.sky_zenith, table.fog_range]
        )
        looks[choice] = [len(np.unique(part, axis=0)) for part in parts]
    assert set(looks["fixed"]) == {1}
    assert min(looks["random"]) > 3


def test_pools_share_what_they_take_into_the_library() -> None:
    assets = AssetLibrary(texture_size=8)
    Maze({}, assets)
    table = assets.table
    Maze({"textures": "random"}, assets)
    assert assets.table is table
    assert len(table.texels) == 8
    Pool(Maze({}, assets), Scene(assets))
