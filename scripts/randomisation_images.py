"""Draw the images of docs/randomisation.md: for each variation a row of lanes of several families. `make docs` runs it.

All lanes have one seed and differ in what varies alone.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from worldloom.client import VectorEnv
from worldloom.demo.images import tile
from worldloom.worlds.randomisation.settings import VARIATIONS, VISUAL

IMAGES = Path(__file__).parents[1] / "docs/randomisation"
COLUMNS, SIZE, GAP = 8, 96, 2
FAMILIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "catch": ("catch", {}),
    "cartpole": ("cartpole", {}),
    "maze": ("maze", {}),
    "walker": ("dmc", {"domain": "walker", "task": "walk"}),
}
AMOUNTS = {"colors": 0.4, "textures": 1.0, "sizes": 1.0, "lights": 1.0, "camera": 0.2, "sky": 0.5, "background": 1.0}
"""Amount of each variation in its image."""
_STEPS = 4


def draw(settings: Mapping[str, Any]) -> np.ndarray:
    """Draw a row of lanes for each family, with these settings; the first lane of each row does not vary."""
    rows = []
    for family, own in FAMILIES.values():
        frames = [_frames(family, {**own, **varied}, lanes) for varied, lanes in (({}, 1), ({**settings}, COLUMNS - 1))]
        rows.append(np.concatenate(frames))
    sheet: np.ndarray = tile(np.concatenate(rows), COLUMNS, GAP)
    return sheet


def _frames(family: str, settings: Mapping[str, Any], lanes: int) -> np.ndarray:
    if settings.keys() & {f"vary_{one.name}" for one in VARIATIONS}:
        settings = {**settings, "vary_seed": 7, "variation": list(range(lanes))}
    options: Any = {"width": SIZE, "height": SIZE, "samples": 4, "renderer": "cpu"}
    with VectorEnv("local", family, lanes, observations=["eye.rgb"], settings=settings, **options) as env:
        env.reset(seed=[5] * lanes)
        env.action_space.seed(1)
        actions = {name: np.repeat(action[:1], lanes, axis=0) for name, action in env.action_space.sample().items()}
        for _ in range(_STEPS):
            observations = env.step(actions)[0]
        return np.array(observations["eye.rgb"])


def main() -> None:
    """Draw all images."""
    IMAGES.mkdir(exist_ok=True)
    for one in (VARIATIONS[what] for what in VISUAL):
        Image.fromarray(draw({f"vary_{one.name}": AMOUNTS[one.name]})).save(IMAGES / f"{one.name}.png", optimize=True)


if __name__ == "__main__":
    main()
