"""Worlds with ever new settings are added and freed: memory stays bounded and other worlds are not affected."""

import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.determinism import draw, random_actions
from worldloom.kernels.outputs import OUTPUT_NAMES, output_bits
from worldloom.render.assets import AssetLibrary
from worldloom.render.choose import make_renderer
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.worlds.family import Family
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds
from worldloom.worlds.registry import find_family
from worldloom.worlds.settings import Setting, Value

SPARE_ROWS = 512
"""A small number, so that rows move often."""
ROUNDS = 60
FAMILIES = ("cartpole", "catch", "maze")


@pytest.fixture(scope="module", params=["cpu", pytest.param("gl", marks=pytest.mark.gl)])
def renderer(request: pytest.FixtureRequest) -> Iterator[Renderer]:
    made = make_renderer(request.param)
    yield made
    made.close()


def any_value(setting: Setting, rng: np.random.Generator) -> Value:
    """Draw one of all values of a setting."""
    if setting.choices:
        return str(rng.choice(setting.choices))
    assert setting.minimum is not None
    assert setting.maximum is not None
    if isinstance(setting.default, int):
        return int(rng.integers(int(setting.minimum), int(setting.maximum) + 1))
    return float(rng.uniform(setting.minimum, setting.maximum))


def any_family(name: str, rng: np.random.Generator, assets: AssetLibrary) -> Family:
    family = find_family(name)
    return family({setting.name: any_value(setting, rng) for setting in family.settings}, assets)


def show(pool: Pool, lanes: np.ndarray, renderer: Renderer) -> list[bytes]:
    """Return all frames of the first agent of each lane."""
    return [
        frame.tobytes()
        for camera in pool.family.cameras
        for one in draw(
            pool, pool.views(lanes, camera.name, width=20, height=16, outputs=output_bits(OUTPUT_NAMES)), renderer
        )
        for frame in one.values()
    ]


def act(pool: Pool, lanes: np.ndarray, seed: int) -> None:
    pool.step(lanes, {name: action[0] for name, action in random_actions(pool.family, 1, len(lanes), seed).items()})


class Server:
    """One library and one scene for all pools; `come_and_go` adds and frees worlds with other settings."""

    def __init__(self) -> None:
        self.assets = AssetLibrary(texture_size=16)
        self.scene = Scene(self.assets, SPARE_ROWS)
        self.rng = np.random.default_rng(5)
        self.strangers: list[tuple[Pool, np.ndarray]] = []
        self.rows_in_use = 0

    def add(self, family: Family, lanes: int) -> tuple[Pool, np.ndarray]:
        pool = Pool(family, self.scene)
        self.rows_in_use += lanes * family.rows_per_lane
        return pool, pool.add(lane_seeds(1, lanes))

    def come_and_go(self, renderer: Renderer) -> None:
        family = any_family(str(self.rng.choice(FAMILIES)), self.rng, self.assets)
        pool, lanes = self.add(family, int(self.rng.integers(1, 12)))
        self.strangers.append((pool, lanes))
        act(pool, lanes, seed=1)
        show(pool, lanes[:2], renderer)
        while len(self.strangers) > self.rng.integers(0, 4):
            pool, lanes = self.strangers.pop(int(self.rng.integers(len(self.strangers))))
            self.rows_in_use -= len(lanes) * pool.family.rows_per_lane
            pool.free(lanes)


def course(renderer: Renderer, strangers: bool) -> list[list[bytes]]:
    """Return the frames of a world of each family in each round."""
    server = Server()
    if strangers:  # whose lanes, ahead of the others, serve later strangers
        server.strangers = [server.add(find_family(FAMILIES[0])({}, server.assets), 12)]
    first = [server.add(find_family(name)({}, server.assets), 3) for name in FAMILIES]
    seen, places, moves = [], b"", 0
    for step in range(ROUNDS):
        if strangers:
            server.come_and_go(renderer)
            lanes, rows = len(server.scene.lanes.first_row), len(server.scene.instances.mesh)
            assert rows <= max(2 * server.rows_in_use, server.rows_in_use + max(SPARE_ROWS, lanes))
            assert lanes <= 3 * len(FAMILIES) + 5 * 12
        for pool, stays in first:
            if step:
                seen.append(show(pool, stays, renderer))
            act(pool, stays, seed=step)
        now = np.concatenate([server.scene.lanes.first_row[pool.scene_lane[stays]] for pool, stays in first]).tobytes()
        moves += now != places
        places = now
    assert moves > 5 or not strangers, "expected that the rows of those who stay are moved time and again"
    return seen


def test_whoever_stays_is_seen_as_if_nobody_else_were_there(renderer: Renderer) -> None:
    assert course(renderer, strangers=True) == course(renderer, strangers=False)


@pytest.mark.parametrize("name", FAMILIES)
def test_no_setting_adds_to_the_library(name: str) -> None:
    """A family adds its assets once, with its first world: assets for each setting would accumulate."""
    assets, rng = AssetLibrary(texture_size=8), np.random.default_rng(2)
    find_family(name)({}, assets)
    table = assets.table
    for _ in range(100):
        pool = Pool(any_family(name, rng, assets), Scene(assets))
        lanes = pool.add(lane_seeds(1, 1))
        act(pool, lanes, seed=1)
        for camera in pool.family.cameras:
            pool.views(lanes, camera.name)
    assert assets.table is table


@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_is_left_of_a_pool_that_is_dropped(name: str) -> None:
    server = Server()
    pool, lanes = server.add(find_family(name)({}, server.assets), 50)
    act(pool, lanes, seed=1)
    pool.views(lanes, "eye")
    pool.free(lanes)
    parts = [pool, pool.family, pool.state, pool.status, *(getattr(pool.state, field) for field in pool.state.fields)]
    traces = [weakref.ref(part) for part in parts]
    gc.disable()  # nothing may have to wait for it
    try:
        del pool, lanes, parts
        assert [trace() for trace in traces if trace() is not None] == []
    finally:
        gc.enable()
    assert len(server.scene.instances.mesh) <= SPARE_ROWS
