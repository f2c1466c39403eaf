"""Images of docs/worlds.md: some lanes of each family, each some steps further than the previous one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from worldloom.demo.images import LABEL_PALETTE, depth_colors, label_colors, tile
from worldloom.kernels.outputs import DEPTH, RGB, SEGMENTATION, outputs_of
from worldloom.kernels.tables import U8, ViewTable
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.worlds.episodes import LAST
from worldloom.worlds.family import Family, Spec
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds

COLUMNS, SIZE, GAP = 6, 160, 4
SHEET_SHAPE = (3 * (SIZE + GAP) + GAP, COLUMNS * (SIZE + GAP) + GAP, 3)
_SWATCH = 14


Actions: TypeAlias = dict[str, np.ndarray]


def _catch_policy(pool: Pool, lanes: np.ndarray) -> Actions:
    """Move the paddle towards the column of the ball."""
    ball, paddle = pool.observe(lanes, "ball"), pool.observe(lanes, "paddle")
    return {"paddle": np.sign(ball[:, 1] - paddle)[:, None]}


def _cartpole_policy(pool: Pool, lanes: np.ndarray) -> Actions:
    """Swing the pole up by adding energy, then balance it."""
    x, cosine, sine = pool.observe(lanes, "pose").T
    speed, turning = pool.observe(lanes, "velocity").T
    lacking = turning**2 / 60 + 0.49 * (cosine - 1)  # joules, negative until it can reach the top
    pump = 1.46 * lacking * np.sign(turning * cosine) - 1.55 * x - 0.28 * speed
    hold = 2.6 * sine + 1.24 * turning + 0.06 * x - 0.13 * speed
    force = np.where(cosine > 0.9, hold, pump)
    return {"force": np.clip(force, -1, 1).astype(np.float32)[:, None]}


def _maze_policy(pool: Pool, lanes: np.ndarray) -> Actions:
    """Move forward while there is no wall ahead, else turn: every other agent to the left."""
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
class Showcase:
    """Settings, policy and numbers of steps with which a family is shown."""

    policy: Callable[[Pool, np.ndarray], Actions] | None = None
    """Function that chooses the actions; they are random without one."""
    settings: dict[str, object] = field(default_factory=dict)
    first_steps: int = 1
    """Number of steps of the first lane."""
    steps_between: int = 5
    """Number of steps that each lane is ahead of the previous one."""
    hold_steps: int = 8
    """Number of steps for which a random action is held: with a new one each step, agents would stay near the start."""
    seed: int = 0


_SHOWCASES = {
    "catch": Showcase(_catch_policy, first_steps=1, steps_between=3),
    "cartpole": Showcase(_cartpole_policy, first_steps=20, steps_between=30),
    "maze": Showcase(
        _maze_policy,
        {"agents": 4, "goals": 6, "textures": "random", "lighting": "random"},
        first_steps=4,
        steps_between=9,
        seed=123,
    ),
}


def shown_settings(name: str) -> dict[str, object]:
    """Return the settings that a family's images are drawn with, other than its defaults."""
    return _SHOWCASES.get(name, Showcase()).settings


def draw_cameras(family: type[Family], renderer: Renderer) -> dict[str, U8]:
    """Draw an image for each camera: a row of colours, a row of depth, a row of labels."""
    showcase = _SHOWCASES.get(family.name, Showcase())
    assets = AssetLibrary()
    pool = Pool(family(showcase.settings, assets), Scene(assets))
    lanes = _step_lanes(pool, showcase)
    sheets = {}
    for camera in pool.family.cameras:
        smooth = pool.views(lanes, camera.name, width=SIZE, height=SIZE, outputs=RGB, samples=4)
        plain = pool.views(lanes, camera.name, width=SIZE, height=SIZE, outputs=DEPTH | SEGMENTATION)
        (rgb,), (depth, labels) = _draw(pool, smooth, renderer), _draw(pool, plain, renderer)
        rows = np.concatenate([rgb, depth_colors(depth, plain.far), label_colors(labels)])
        sheets[camera.name] = tile(rows, COLUMNS, GAP)
    return sheets


def _draw(pool: Pool, views: ViewTable, renderer: Renderer) -> list[np.ndarray]:
    """Draw views and return their frames, [views, height, width, ...], in each output that they request."""
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    renderer.draw(pool.scene, views, arena, offsets)
    requested = [output.name for output in outputs_of(int(views.outputs[0]))]
    every_view = range(len(views.lane))
    return [np.stack([get_frame(arena, views, offsets, view, name) for view in every_view]) for name in requested]


def label_swatch(label: int) -> U8:
    """Draw a square in the colour of a label."""
    swatch: U8 = np.broadcast_to(LABEL_PALETTE[label], (_SWATCH, _SWATCH, 3)).copy()
    return swatch


def _step_lanes(pool: Pool, showcase: Showcase) -> np.ndarray:
    """Add lanes and step each as often as it should; one whose episode is over begins another."""
    lanes = pool.add(lane_seeds(showcase.seed, COLUMNS))
    rng = np.random.default_rng(showcase.seed)
    target_steps = showcase.first_steps + showcase.steps_between * np.arange(COLUMNS)
    actions: Actions = {}
    for step in range(int(target_steps.max()) + 1):
        if showcase.policy and step:
            actions = showcase.policy(pool, lanes)
        elif step % showcase.hold_steps == 0:
            actions = {spec.name: _random_action(spec, rng, pool) for spec in pool.family.actions}
        is_stepped = (step <= target_steps) | (pool.step_type[lanes] == LAST)
        pool.step(lanes[is_stepped], {name: action[is_stepped] for name, action in actions.items()})
    return lanes


def _random_action(spec: Spec, rng: np.random.Generator, pool: Pool) -> np.ndarray:
    low, high = spec.minimum or 0.0, spec.maximum or 0.0
    shape = (COLUMNS, pool.family.agents, *spec.shape)
    if np.dtype(spec.dtype).kind in "iu":
        return rng.integers(np.asarray(low, int), np.asarray(high, int) + 1, shape).astype(spec.dtype)
    return rng.uniform(low, high, shape).astype(spec.dtype)
