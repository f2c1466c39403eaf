"""The pictures of docs/worlds.md: some lanes of each family, each further on than the one before it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from worldloom.demo.film import LABEL_PALETTE, depth_colors, label_colors, tile
from worldloom.kernels.outputs import DEPTH, RGB, SEGMENTATION, outputs_of
from worldloom.kernels.tables import U8, ViewTable
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.worlds.family import Family, Spec
from worldloom.worlds.pool import LAST, Pool
from worldloom.worlds.random import lane_seeds

COLUMNS, SIZE, GAP = 6, 160, 4
SHEET_SHAPE = (3 * (SIZE + GAP) + GAP, COLUMNS * (SIZE + GAP) + GAP, 3)
_SWATCH = 14


Actions: TypeAlias = dict[str, np.ndarray]


def _catch_pilot(pool: Pool, lanes: np.ndarray) -> Actions:
    """Goes for the ball."""
    ball, paddle = pool.observe(lanes, "ball"), pool.observe(lanes, "paddle")
    return {"paddle": np.sign(ball[:, 1] - paddle)[:, None]}


def _cartpole_pilot(pool: Pool, lanes: np.ndarray) -> Actions:
    """Pumps the pole up, and holds it when it is there."""
    x, cosine, sine = pool.observe(lanes, "pose").T
    speed, turning = pool.observe(lanes, "velocity").T
    lacking = turning**2 / 60 + 0.49 * (cosine - 1)  # joules, below 0 until it can reach the top
    pump = 1.46 * lacking * np.sign(turning * cosine) - 1.55 * x - 0.28 * speed
    hold = 2.6 * sine + 1.24 * turning + 0.06 * x - 0.13 * speed
    force = np.where(cosine > 0.9, hold, pump)
    return {"force": np.clip(force, -1, 1).astype(np.float32)[:, None]}


def _maze_pilot(pool: Pool, lanes: np.ndarray) -> Actions:
    """Goes on while the way is free, and turns where it is not: every other agent to the left."""
    agents = range(pool.family.agents)
    position, heading = (
        np.stack([pool.observe(lanes, name, agent) for agent in agents], axis=1) for name in ("position", "heading")
    )
    column, row = np.moveaxis((position + 0.8 * heading).astype(int), 2, 0)
    blocked = pool.state.walls[lanes[:, None], row, column] != 0
    side = np.where(np.arange(pool.family.agents) % 2, 1.0, -1.0)
    move = np.stack([np.where(blocked, 0.2, 1.0), np.zeros(blocked.shape)], axis=2)
    return {"move": move.astype(np.float32), "turn": np.where(blocked, side, 0.0).astype(np.float32)}


@dataclass(frozen=True)
class Shown:
    """How a family is shown."""

    pilot: Callable[[Pool, np.ndarray], Actions] | None = None
    """Who acts; without one, chance does."""
    settings: dict[str, object] = field(default_factory=dict)
    first: int = 1
    """Steps of the first lane."""
    more: int = 5
    """Steps that each lane is further on than the one before it."""
    hold: int = 8
    """Steps for which a random action is held: chance alone would tremble on the spot."""
    seed: int = 0


_SHOWN = {
    "catch": Shown(_catch_pilot, first=1, more=3),
    "cartpole": Shown(_cartpole_pilot, first=20, more=30),
    "maze": Shown(
        _maze_pilot, {"agents": 4, "goals": 6, "textures": "random", "lighting": "random"}, first=4, more=9, seed=123
    ),
}


def shown_settings(name: str) -> dict[str, object]:
    """What a family's pictures are drawn with, other than its defaults."""
    return _SHOWN.get(name, Shown()).settings


def draw_cameras(family: type[Family], renderer: Renderer) -> dict[str, U8]:
    """A sheet for each camera: a row in colours, a row of depth, a row of labels."""
    shown = _SHOWN.get(family.name, Shown())
    assets = AssetLibrary()
    pool = Pool(family(shown.settings, assets), Scene(assets))
    lanes = _play(pool, shown)
    sheets = {}
    for camera in pool.family.cameras:
        smooth = pool.views(lanes, camera.name, width=SIZE, height=SIZE, outputs=RGB, samples=4)
        plain = pool.views(lanes, camera.name, width=SIZE, height=SIZE, outputs=DEPTH | SEGMENTATION)
        (rgb,), (depth, labels) = _draw(pool, smooth, renderer), _draw(pool, plain, renderer)
        rows = np.concatenate([rgb, depth_colors(depth, plain.far), label_colors(labels)])
        sheets[camera.name] = tile(rows, COLUMNS, GAP)
    return sheets


def _draw(pool: Pool, views: ViewTable, renderer: Renderer) -> list[np.ndarray]:
    """The pictures of all views, [views, height, width, ...], in each output they ask for."""
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    renderer.draw(pool.scene, views, arena, offsets)
    asked = [output.name for output in outputs_of(int(views.outputs[0]))]
    everyone = range(len(views.lane))
    return [np.stack([get_frame(arena, views, offsets, view, name) for view in everyone]) for name in asked]


def label_swatch(label: int) -> U8:
    """The colour that stands for a label."""
    swatch: U8 = np.broadcast_to(LABEL_PALETTE[label], (_SWATCH, _SWATCH, 3)).copy()
    return swatch


def _play(pool: Pool, shown: Shown) -> np.ndarray:
    """Lanes that have come as far as they should; none rests at its end."""
    lanes = pool.add(lane_seeds(shown.seed, COLUMNS))
    rng = np.random.default_rng(shown.seed)
    wanted = shown.first + shown.more * np.arange(COLUMNS)
    actions: Actions = {}
    for step in range(int(wanted.max()) + 1):
        if shown.pilot and step:
            actions = shown.pilot(pool, lanes)
        elif step % shown.hold == 0:
            actions = {spec.name: _random(spec, rng, pool) for spec in pool.family.actions}
        going = (step <= wanted) | (pool.step_type[lanes] == LAST)
        pool.step(lanes[going], {name: action[going] for name, action in actions.items()})
    return lanes


def _random(spec: Spec, rng: np.random.Generator, pool: Pool) -> np.ndarray:
    low, high = spec.minimum or 0.0, spec.maximum or 0.0
    shape = (COLUMNS, pool.family.agents, *spec.shape)
    if np.dtype(spec.dtype).kind in "iu":
        return rng.integers(np.asarray(low, int), np.asarray(high, int) + 1, shape).astype(spec.dtype)
    return rng.uniform(low, high, shape).astype(spec.dtype)
