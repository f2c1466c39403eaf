"""Draw the images of docs/randomisation.md: for each variation a row of lanes of several families. `make docs` runs it.

All lanes of a family have one seed and differ in what varies alone. It is chosen so that all that varies is in sight.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from worldloom.client import VectorEnv
from worldloom.demo.images import tile
from worldloom.worlds.randomisation.settings import VARIATIONS, VISUAL

IMAGES = Path(__file__).parents[1] / "docs/randomisation"
COLUMNS, SIZE, GAP = 8, 96, 2


class Example(NamedTuple):
    """A moment of a family's episode."""

    family: str
    settings: Mapping[str, Any]
    seed: int
    steps: int
    """Steps from the first observation."""


EXAMPLES = (
    Example("catch", {}, seed=5, steps=4),
    Example("cartpole", {}, seed=5, steps=4),
    Example("maze", {}, seed=0, steps=0),
    Example("dmc", {"domain": "walker", "task": "walk"}, seed=5, steps=4),
)
AMOUNTS = {"colors": 0.4, "textures": 1.0, "sizes": 1.0, "lights": 1.0, "camera": 0.2, "sky": 0.5, "background": 1.0}
"""Amount of each variation in its image."""


def draw(settings: Mapping[str, Any]) -> np.ndarray:
    """Draw a row of lanes for each family, with these settings; the first lane of each row does not vary."""
    rows = []
    for example in EXAMPLES:
        rows.append(np.concatenate([_frames(example, {}, 1), _frames(example, settings, COLUMNS - 1)]))
    sheet: np.ndarray = tile(np.concatenate(rows), COLUMNS, GAP)
    return sheet


def _frames(example: Example, varied: Mapping[str, Any], lanes: int) -> np.ndarray:
    settings = {**example.settings, **varied}
    if settings.keys() & {f"vary_{one.name}" for one in VARIATIONS}:
        settings = {**settings, "vary_seed": 7, "variation": list(range(lanes))}
    options: Any = {"width": SIZE, "height": SIZE, "samples": 4, "renderer": "cpu"}
    with VectorEnv("local", example.family, lanes, observations=["eye.rgb"], settings=settings, **options) as env:
        observations, _ = env.reset(seed=[example.seed] * lanes)
        env.action_space.seed(1)
        actions = {name: np.repeat(action[:1], lanes, axis=0) for name, action in env.action_space.sample().items()}
        for _ in range(example.steps):
            observations = env.step(actions)[0]
        return np.array(observations["eye.rgb"])


def main() -> None:
    """Draw all images."""
    IMAGES.mkdir(exist_ok=True)
    for one in (VARIATIONS[what] for what in VISUAL):
        Image.fromarray(draw({f"vary_{one.name}": AMOUNTS[one.name]})).save(IMAGES / f"{one.name}.png", optimize=True)


if __name__ == "__main__":
    main()
