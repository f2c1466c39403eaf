"""Procedural textures: square, uint8 [size, size, 3], seamless where they repeat."""

import numpy as np

from worldloom.kernels.tables import F32, U8

DEFAULT_SIZE = 256


def checker(size: int = DEFAULT_SIZE, squares: int = 2, light: int = 235, dark: int = 120) -> U8:
    """Return a checkerboard of `squares` x `squares` fields."""
    field = np.arange(size) * squares // size
    return _gray(np.where((field[:, None] + field) % 2 == 0, light, dark))


def brick(size: int = DEFAULT_SIZE, rows: int = 8, columns: int = 4, seed: int = 1) -> U8:
    """Return a wall of offset bricks of slightly different tones, with lighter mortar."""
    rng = np.random.default_rng(seed)
    y, x = np.meshgrid(np.arange(size) / size * rows, np.arange(size) / size * columns, indexing="ij")
    row = np.floor(y).astype(int)
    shifted = x + 0.5 * (row % 2)
    column = np.floor(shifted).astype(int) % columns
    to_joint = np.minimum(
        np.minimum(y - row, row + 1 - y) * size / rows, np.minimum(shifted % 1, 1 - shifted % 1) * size / columns
    )
    inside = np.clip((to_joint - 0.012 * size) / (0.006 * size), 0, 1)[..., None]
    tone = rng.uniform(0.82, 1.08, (rows, columns))[row, column][..., None]
    grain = 1 + 0.16 * (_fractal(size, seed + 1)[..., None] - 0.5)
    bricks = np.array([186, 98, 74]) * tone * grain
    mortar = np.array([205, 197, 184]) * grain
    return _bytes(mortar + inside * (bricks - mortar))


def wood(size: int = DEFAULT_SIZE, planks: int = 4, seed: int = 2) -> U8:
    """Return planks along u, with grain and dark joints."""
    rng = np.random.default_rng(seed)
    v = np.arange(size) / size * planks
    plank = v.astype(int)
    along = _fractal(size, seed + 1)
    stretched = along[:, (np.arange(size) // 4 * 4 + rng.integers(0, 4)) % size]
    rings = 0.5 + 0.5 * np.sin((v[:, None] * 9 + rng.uniform(0, 9, planks)[plank][:, None] + 3.0 * along) * 2 * np.pi)
    tone = rng.uniform(0.85, 1.1, planks)[plank][:, None]
    joint = np.clip(np.minimum(v % 1, 1 - v % 1) * size / planks / 2.0, 0.45, 1)[:, None]
    shade = (tone * joint * (0.88 + 0.10 * rings + 0.10 * stretched))[..., None]
    return _bytes(np.array([196, 148, 98]) * shade)


def noise(size: int = DEFAULT_SIZE, low: int = 150, high: int = 245, seed: int = 3) -> U8:
    """Return soft gray clouds of several sizes."""
    return _gray(low + (high - low) * _fractal(size, seed))


def stripes(size: int = DEFAULT_SIZE, count: int = 6, light: int = 235, dark: int = 110) -> U8:
    """Return stripes along v."""
    return _gray(np.broadcast_to(np.where(np.arange(size) * 2 * count // size % 2 == 0, light, dark), (size, size)))


def dots(size: int = DEFAULT_SIZE, count: int = 4, light: int = 240, dark: int = 90) -> U8:
    """Return dark discs in rows on a light ground."""
    off = (np.arange(size) + 0.5) / size * count % 1 - 0.5
    inside = np.clip((0.3 - np.hypot(off[:, None], off)) * size / count, 0, 1)
    return _gray(light + inside * (dark - light))


def marble(size: int = DEFAULT_SIZE, seed: int = 4) -> U8:
    """Return pale stone with dark veins."""
    bent = np.sin(2 * np.pi * (2 * np.arange(size) / size + 2.5 * _fractal(size, seed)))
    return _gray(238 - 120 * (1 - np.abs(bent)) ** 3)


def scenery(size: int = DEFAULT_SIZE, seed: int = 0) -> U8:
    """Return a picture of coloured clouds, different for each seed."""
    rng = np.random.default_rng(seed)
    low, high, light = rng.uniform(0, 255, (3, 3))
    first, second = _fractal(size, 2 * seed + 11)[..., None], _fractal(size, 2 * seed + 12)[..., None]
    return _bytes(low + first * (high - low) + np.clip(3 * second - 1.6, 0, 1) * (light - low))


def drift(size: int = DEFAULT_SIZE, frame: int = 0, frames: int = 12, seed: int = 0) -> U8:
    """Return a frame of a film: coloured waves, which have moved once across the picture after so many frames."""
    rng = np.random.default_rng(seed)
    at, turn = 2 * np.pi * np.arange(size) / size, 2 * np.pi * frame / frames
    bend = 1.5 * np.sin(at[:, None] + turn) + 1.5 * np.sin(at + rng.uniform(0, 6))
    waves = [np.sin((1 + channel) * at - turn + bend + rng.uniform(0, 6)) for channel in range(3)]
    return _bytes(128 + 110 * np.stack(waves, axis=2))


def _fractal(size: int, seed: int, octaves: int = 5) -> F32:
    """Return value noise in 0..1, summed over octaves; it repeats without a seam."""
    rng = np.random.default_rng(seed)
    total = np.zeros((size, size))
    for octave in range(octaves):
        cells = 4 << octave
        lattice = rng.uniform(0, 1, (cells, cells))
        at = np.arange(size) / size * cells
        low = at.astype(int)
        t = at - low
        t = t * t * (3 - 2 * t)
        high = (low + 1) % cells
        across = lattice[:, low] + t * (lattice[:, high] - lattice[:, low])
        total += (across[low] + t[:, None] * (across[high] - across[low])) / 2**octave
    total -= total.min()
    return np.asarray(total / max(total.max(), 1e-9), np.float32)


def _gray(level: np.ndarray) -> U8:
    return _bytes(np.repeat(level[..., None], 3, axis=2))


def _bytes(colors: np.ndarray) -> U8:
    levels: U8 = np.clip(np.rint(colors), 0, 255).astype(np.uint8)
    return levels
