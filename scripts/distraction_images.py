"""Draw the images of docs/distractions.md: for each preset, eight lanes of each of four tasks. `make docs` runs it.

The lanes have one seed for what they simulate and differ in what distracts alone.
"""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from worldloom.client import VectorEnv
from worldloom.demo.images import tile
from worldloom.worlds.randomisation.presets import PRESETS

IMAGES = Path(__file__).parents[1] / "docs/distractions"
TASKS = (("cartpole", "swingup"), ("walker", "walk"), ("reacher", "easy"), ("finger", "spin"))
COLUMNS, SIZE, GAP = 8, 64, 1
_STEPS = 20


def draw(name: str) -> np.ndarray:
    """Draw the sheet of a preset."""
    rows = []
    for domain, task in TASKS:
        settings: dict[str, Any] = {"domain": domain, "task": task, "distraction": name}
        settings |= {"vary_seed": 3, "variation": list(range(COLUMNS))}
        options: Any = {"width": SIZE, "height": SIZE, "renderer": "cpu", "observations": ["eye.rgb"]}
        with VectorEnv("local", "dmc", COLUMNS, settings=settings, **options) as env:
            env.reset(seed=[5] * COLUMNS)
            action = {key: np.zeros_like(value) for key, value in env.action_space.sample().items()}
            for _ in range(_STEPS):
                observations = env.step(action)[0]
            rows.append(np.array(observations["eye.rgb"]))
    sheet: np.ndarray = tile(np.concatenate(rows), COLUMNS, GAP)
    return sheet


def main() -> None:
    """Draw all images."""
    IMAGES.mkdir(exist_ok=True)
    for name in PRESETS:
        Image.fromarray(draw(name)).save(IMAGES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
