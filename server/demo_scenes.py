"""The worlds that `worldloom demo` draws: four kinds, every lane with its own light, colours and shapes.

Nothing here loops over lanes: a kind fills the rows of all its lanes with a few array expressions, and moves them so.
"""

import numpy as np

from worldloom.kernels.tables import F32, NO_MESH
from worldloom.render.scene import Scene
from worldloom.render.views import look_at
from worldloom.server.demo_parts import (
    PAINTS,
    Kind,
    add,
    around,
    colors,
    make_library,
    pick,
    poses,
    put,
    set_looks,
    shadows,
)


def make_worlds(lanes: int, seed: int = 4) -> tuple[Scene, list[Kind]]:
    """A scene with that many lanes, dealt out to the kinds in turn."""
    scene = Scene(make_library())
    rng = np.random.default_rng(seed)
    makers = (_make_yard, _make_corridor, _make_island, _make_board)
    shares = [len(range(k, lanes, len(makers))) for k in range(len(makers))]
    return scene, [make(scene, share, rng) for make, share in zip(makers, shares, strict=True) if share]


def _make_yard(scene: Scene, count: int, rng: np.random.Generator) -> Kind:
    """Blocks, pillars and balls on a floor, with shadows, seen from a camera that goes round."""
    things = 9
    lanes, rows = add(scene, count, 1 + 2 * things)
    look = set_looks(scene, lanes, rng, fog_range=(7.0, 26.0))
    floor = pick(colors("f4e6cc e8d9c3 d9e0d8 c9b79c e7d7d0 cfd8e3"), rng, count)
    texture = rng.choice([scene.assets.texture(name) for name in ("wood", "checker", "noise")], count)
    put(scene, rows[:, 0], "plane", poses((0, 0, 0), (60, 60, 1)), floor, 1, texture, (20, 20))
    k = np.arange(things)
    angle = 2.39996 * k + rng.uniform(0, 7, (count, 1))
    radius = 0.78 * np.sqrt(k) + rng.uniform(-0.1, 0.1, (count, things))
    wide = rng.uniform(0.45, 0.95, (count, things))
    size = np.stack([wide, wide, rng.uniform(0.35, 1.0, (count, things)) * np.where(k < 5, 1.7, 1.0)], axis=-1)
    size[:, 0] = (1.3, 1.3, 0.5)
    shape = rng.integers(0, 3, (count, things))
    shape[:, 0], shape[:, 1] = 0, 2  # a ball on a pedestal in the middle
    size[shape == 2] = size[shape == 2][:, :1]
    at = np.stack([radius * np.cos(angle), radius * np.sin(angle), size[..., 2] / 2], axis=-1)
    at[:, 1] = np.stack([0 * wide[:, 1], 0 * wide[:, 1], 0.5 + size[:, 1, 2] / 2], axis=-1)
    placed = poses(at, size, rng.uniform(0, 2, (count, things)))
    upright, pressed = (
        np.array([scene.assets.mesh(name) for name in names])[shape]
        for names in (("box", "pillar", "ball"), ("box", "pillar in facets", "ball in facets"))
    )
    put(scene, rows[:, 1 : 1 + things], upright, placed, pick(PAINTS, rng, (count, things)), 2 + k)
    dimmed = 0.74 * floor * look.ambient / (look.ambient + look.sun * look.sun_at[:, 2:])
    put(scene, rows[:, 1 + things :], pressed, shadows(placed, look.sun_at), dimmed[:, None], 1)
    phase, height = rng.uniform(0, 2 * np.pi, count), rng.uniform(2.0, 3.2, count)

    def move(second: float) -> F32:
        return look_at(around(look, phase, second, 5.6, height), (0.0, 0.0, 0.5))

    return Kind("yard", lanes, move)


def _make_corridor(scene: Scene, count: int, rng: np.random.Generator) -> Kind:
    """A brick corridor with pillars and floating balls, open to the sky at its end, seen by someone who walks in it."""
    pairs, balls, long = 7, 7, 36.0
    lanes, rows = add(scene, count, 4 + 3 * pairs + balls)
    look = set_looks(scene, lanes, rng, fog_range=(3.0, 22.0))
    scene.lanes.ambient[lanes], scene.lanes.ambient_ground[lanes] = 1.25 * look.ambient, 1.15 * look.ambient
    texture = rng.choice([scene.assets.texture(name) for name in ("brick", "brick", "noise")], count)
    wall = pick(colors("ffffff e9dcc9 dfe8f0 ffd9c4 cfe3d6"), rng, count)
    half = rng.uniform(1.35, 1.8, count)
    for row, side in ((0, -1), (1, 1)):
        at = np.stack([side * (half + 0.1), 0 * half + long / 2, 0 * half + 1.3], axis=-1)
        put(scene, rows[:, row], "box", poses(at, (0.2, long, 2.6)), wall, 1, texture, (long / 2, 1.3))
    for row, height, label, name in ((2, -0.1, 2, "wood"), (3, 2.7, 3, "noise")):
        pose = poses((0, long / 2, height), (4.4, long, 0.2))
        put(scene, rows[:, row], "box", pose, 0.92 * wall, label, scene.assets.texture(name), (2, long / 2))
    y = 4.0 + 4.4 * np.arange(pairs)
    trim = pick(PAINTS, rng, (count, 1))
    for part, side in ((0, -1), (1, 1)):
        at = np.stack(np.broadcast_arrays(side * (half[:, None] - 0.12), y, 1.3), axis=-1)
        target = rows[:, 4 + part * pairs : 4 + (part + 1) * pairs]
        put(scene, target, "pillar", poses(at, (0.34, 0.34, 2.6)), trim, 4)
    at = np.stack(np.broadcast_arrays(0.0, y - 2.2, 2.58), axis=-1)
    put(scene, rows[:, 4 + 2 * pairs : 4 + 3 * pairs], "box", poses(at, (0.8, 0.3, 0.06)), 3.0, 5)  # lamps
    aside = rng.uniform(-0.95, 0.95, (count, balls))
    ahead = 3.9 + 1.5 * np.arange(balls) + rng.uniform(-0.5, 0.5, (count, balls))
    size = rng.uniform(0.35, 0.85, (count, balls))
    phase = rng.uniform(0, 2 * np.pi, (count, balls))
    floating = rows[:, -balls:]
    put(scene, floating, "ball", poses((0, 0, 0)), pick(PAINTS, rng, (count, balls)), 6 + np.arange(balls))

    def move(second: float) -> F32:
        at = np.stack([aside, ahead, 0.85 + 0.35 * np.sin(phase + 1.7 * second)], axis=-1)
        scene.instances.pose[floating] = poses(at, size[..., None] * np.ones(3))
        sway, walk = phase[:, 0] + 0.6 * second, 1.2 + np.sin(phase[:, 1] + 0.4 * second)
        eye = np.stack([0.5 * np.sin(sway), walk, 1.2 + 0.03 * np.sin(9 * second + phase[:, 2])], axis=-1)
        return look_at(eye, eye + np.stack([0.22 * np.cos(sway), 0 * sway + 1, 0 * sway - 0.06], axis=-1))

    return Kind("corridor", lanes, move, fov_degrees=66)


def _make_island(scene: Scene, count: int, rng: np.random.Generator) -> Kind:
    """An island of square columns coloured by height, with trees, in a sea that fades into the sky."""
    side, trees = 11, 10
    lanes, rows = add(scene, count, 1 + side * side + 2 * trees)
    look = set_looks(scene, lanes, rng, fog_range=(7.0, 22.0))
    sea = 0.45 * look.zenith + 0.25 * look.horizon + 0.3 * np.array([0.12, 0.46, 0.56])
    put(scene, rows[:, 0], "plane", poses((0, 0, 0), (80, 80, 1)), sea, 1)
    y, x = (axis.ravel() - (side - 1) / 2 for axis in np.mgrid[:side, :side])
    wave = rng.uniform(0.5, 1.3, (4, count, 1))
    shift = rng.uniform(0, 7, (4, count, 1))
    hills = np.sin(wave[0] * x + shift[0]) * np.sin(wave[1] * y + shift[1]) + 0.6 * np.sin(wave[2] * x + wave[3] * y)
    rise = 1.5 + 0.75 * hills - 0.085 * (x * x + y * y)
    height = np.round(np.clip(rise, -0.5, 3) * 5) / 5 * 0.55
    green = colors("e8d5a3 a9c46c 7fae5d 5f8f58 9a8f85 f3f1ec")
    desert = colors("e9c9a0 d99a6c c27a55 a55f4c 8a5347 efe0cf")
    ice = colors("dfe6ea c8d6dc b4c4cf 9fb0c0 8b9bb0 ffffff")
    climate = rng.integers(0, 4, (count, 1))
    band = np.clip(height / 0.3, 0, 5).astype(int)
    paint = np.stack([green, green, desert, ice])[climate, band] * rng.uniform(0.94, 1.04, (count, side * side, 1))
    at = np.stack(np.broadcast_arrays(0.5 * x, 0.5 * y, height / 2 - 0.25), axis=-1)
    tall = np.stack(np.broadcast_arrays(0.5, 0.5, height + 0.5), axis=-1)
    mesh = np.where(height > 0, scene.assets.mesh("box"), NO_MESH)
    put(scene, rows[:, 1 : 1 + side * side], mesh, poses(at, tall), paint, 2 + band)
    order = np.where((height > 0.2) & (height < 1.2), rng.uniform(0, 1, height.shape), 2.0)
    cell = np.argsort(order, axis=1)[:, :trees]
    grows = np.take_along_axis(order, cell, axis=1) < 1
    foot = np.stack([0.5 * x[cell], 0.5 * y[cell], np.take_along_axis(height, cell, axis=1)], axis=-1)
    size = rng.uniform(0.3, 0.5, (count, trees, 1))
    for start, name, lift, shape, color in (
        (-2 * trees, "pillar", 0.35, (0.2, 0.2, 0.7), colors("7b5a43")[0]),
        (-trees, "ball", 1.1, (1.0, 1.0, 1.2), pick(colors("4f7f52 6c9a4e d08a3c c9565a 3f7a6c"), rng, (count, 1))),
    ):
        pose = poses(foot + lift * size * (0, 0, 1), size * shape)
        target = rows[:, start : start + trees or None]
        put(scene, target, np.where(grows, scene.assets.mesh(name), NO_MESH), pose, color, 8)
    phase, above = rng.uniform(0, 2 * np.pi, count), rng.uniform(3.2, 4.2, count)

    def move(second: float) -> F32:
        return look_at(around(look, phase, second, 6.4, above), (0.0, 0.0, 0.3))

    return Kind("island", lanes, move, fov_degrees=40)


def _make_board(scene: Scene, count: int, rng: np.random.Generator) -> Kind:
    """A game seen from straight above: rows of bricks, a bat, and a ball that bounces."""
    across, down = 8, 6
    bricks = across * down
    lanes, rows = add(scene, count, 2 + 2 * (bricks + 2))
    look = scene.lanes
    look.light_direction[lanes], look.light_color[lanes] = (0.5, -0.6, -1.0), 0.5
    look.ambient[lanes], look.ambient_ground[lanes] = 0.62, 0.30
    theme = np.arange(count) % 4
    field = colors("202846 ebdfc8 21382f 3b2642")[theme]
    frame = colors("3d4a7a c9b48f 4c7263 6f4a78")[theme]
    look.sky_horizon[lanes] = look.sky_zenith[lanes] = frame
    put(scene, rows[:, 0], "plane", poses((0, 0, 0), (10, 10, 1)), frame, 2)
    put(scene, rows[:, 1], "plane", poses((0, 0, 0.1), (9.2, 9.2, 1)), field, 1)
    y, x = (axis.ravel() for axis in np.mgrid[:down, :across])
    stands = rng.uniform(0, 1, (count, bricks)) < rng.uniform(0.8, 1.2, (count, 1)) - 0.1 * y
    ramps = colors("f25f5c f7a072 ffe066 70c1b3 247ba0 8a6bb8 f9c74f f9844a f3722c e5446d 9b4f96 577590")
    paint = ramps[y + 6 * (np.arange(count)[:, None] // 2 % 2)]
    at = np.stack(np.broadcast_arrays(1.12 * (x - (across - 1) / 2), 3.9 - 0.58 * y, 0.6), axis=-1)
    mesh = np.where(stands, scene.assets.mesh("plane"), NO_MESH)
    aside, shade = np.array([0.07, -0.09, -0.2]), 0.72 * field
    put(scene, rows[:, 2 : 2 + bricks], mesh, poses(at + aside, (1.0, 0.46, 1)), shade[:, None], 1)
    put(scene, rows[:, 2 + bricks : 2 + 2 * bricks], mesh, poses(at, (1.0, 0.46, 1)), paint, 3 + y)
    bat_rows, ball_rows = rows[:, -4:-2].T, rows[:, -2:].T
    bright = pick(colors("ffffff ffd166 ef476f 06d6a0"), rng, count)
    for (shadow_row, row), flat, name, label in ((bat_rows, "plane", "plane", 9), (ball_rows, "disc", "ball", 10)):
        put(scene, shadow_row, flat, poses((0, 0, 0)), shade, 1)
        put(scene, row, name, poses((0, 0, 0)), bright, label)
    phase = rng.uniform(0, 4, (2, count))

    def bounce(place: np.ndarray) -> np.ndarray:
        """Back and forth between -1 and 1."""
        return np.asarray(np.abs(place % 4 - 2) - 1)

    def move(second: float) -> F32:
        x, y = 4.2 * bounce(phase[0] + 0.9 * second), 2.1 * bounce(phase[1] + 1.3 * second) - 1.9
        ball = np.stack(np.broadcast_arrays(x, y, 0.8), axis=-1)
        bat = np.stack(np.broadcast_arrays(np.clip(0.85 * x, -3.6, 3.6), -4.15, 0.8), axis=-1)
        for (shadow_row, row), at, size in ((bat_rows, bat, (1.9, 0.34, 1.0)), (ball_rows, ball, (0.62, 0.62, 0.62))):
            scene.instances.pose[shadow_row], scene.instances.pose[row] = poses(at + aside, size), poses(at, size)
        return look_at(np.broadcast_to((0.0, 0.0, 5.0), (count, 3)), (0.0, 0.0, 0.0), up=(0.0, 1.0, 0.0))

    return Kind("board", lanes, move, orthographic_height=10.0)
