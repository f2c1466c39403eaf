"""Contact sheet of every domain of dm_control's suite, drawn by worldloom and by MuJoCo:
`python -m tests.support.mujoco_contact_sheet docs/mujoco-contact-sheet.png`.

Above each pair: the share of pixels with the same label, and the mean difference of colours, of 255, away from edges.
"""

import argparse
import os

import numpy as np
from PIL import Image

from tests.support.contact_sheet import write_text
from tests.support.mujoco_frames import MujocoFrames, WorldloomFrames, compare_frames
from worldloom.kernels.tables import U8
from worldloom.render.choose import make_renderer
from worldloom.render.renderer import Renderer
from worldloom.worlds.mujoco.dm_control.suite import TASKS, TaskEnvironment

WIDTH, HEIGHT = 176, 132
GAP, MARGIN, TITLE = 2, 16, 22
COLUMNS = 3
PAPER, INK, FAINT = (251, 249, 245), (44, 48, 58), (140, 140, 142)
MORE = (("quadruped", "escape"),)
"""Tasks to draw besides the first of each domain."""
STEPS = 25
LEGEND = (
    "left by worldloom, right by MuJoCo:",
    "same state, same camera.",
    "percent: pixels of the same label.",
    "then: how far colours are apart,",
    "of 255, away from edges.",
)


def pair(domain: str, task: str, renderer: Renderer, shadows: bool) -> tuple[U8, str]:
    """Draw a state of a task by worldloom and by MuJoCo, side by side, and describe the difference."""
    environment = TaskEnvironment(domain, task, None).environment
    environment.reset()
    rng, spec = np.random.default_rng(3), environment.action_spec()
    for _ in range(STEPS):
        environment.step(rng.uniform(spec.minimum, spec.maximum))
    model, data = environment.physics.model.ptr, environment.physics.data.ptr
    ours, theirs = WorldloomFrames(model, renderer), MujocoFrames(model, WIDTH, HEIGHT, shadows)
    name = ours.model_scene.cameras[0].name if model.cam(0).name == "eye" else model.cam(0).name
    (mine,) = ours.see([data], name, WIDTH, HEIGHT, shadows)
    wanted = theirs.see(data, 0, ours.model_scene, WIDTH, HEIGHT)
    theirs.close()
    difference = compare_frames(mine, wanted)
    gap = np.full((HEIGHT, GAP, 3), PAPER, np.uint8)
    both: U8 = np.concatenate([mine.rgb, gap, wanted.rgb], axis=1)
    return both, f"{100 * difference.labels:.1f} % · {difference.color:.1f}"


def lay_out_sheet(renderer: Renderer, shadows: bool) -> U8:
    """Draw all pairs in a grid, with their names."""
    shown = [(domain, tasks[0]) for domain, tasks in TASKS.items()]
    shown = sorted([*shown, *MORE])
    cell_width, cell_height = 2 * WIDTH + GAP + MARGIN, TITLE + HEIGHT + MARGIN // 2
    rows = -(-len(shown) // COLUMNS)
    sheet = np.empty((rows * cell_height + MARGIN, COLUMNS * cell_width + MARGIN, 3), np.uint8)
    sheet[:] = PAPER
    for number, (domain, task) in enumerate(shown):
        top, left = number // COLUMNS * cell_height + MARGIN // 2, number % COLUMNS * cell_width + MARGIN
        both, words = pair(domain, task, renderer, shadows)
        sheet[top + TITLE : top + TITLE + HEIGHT, left : left + both.shape[1]] = both
        write_text(sheet, f"{domain} {task}".replace("_", " "), left, top + TITLE // 2, INK, 15)
        write_text(sheet, words, left + both.shape[1], top + TITLE // 2, FAINT, 12, from_right=True)
        print(f"drew {domain} {task}: {words}", flush=True)
    top, left = (rows - 1) * cell_height + MARGIN // 2 + TITLE, (COLUMNS - 1) * cell_width + MARGIN
    for line, text in enumerate(LEGEND if len(shown) % COLUMNS else ()):
        write_text(sheet, text, left, top + 10 + 22 * line, FAINT, 15)
    return sheet


def main() -> None:
    """Draw the sheet and write it."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("file", help="the PNG file to write")
    arguments.add_argument("--shadows", action="store_true", help="draw shadows")
    args = arguments.parse_args()
    file = args.file
    renderer = make_renderer("cpu")
    sheet = lay_out_sheet(renderer, args.shadows)
    renderer.close()
    Image.fromarray(sheet).save(file)
    print(f"wrote {file}: {sheet.shape[1]} x {sheet.shape[0]} pixels, {os.path.getsize(file) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
