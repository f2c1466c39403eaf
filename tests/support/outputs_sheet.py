"""Image of test scenes, their normals and flow for docs/rendering.md: `python -m tests.support.outputs_sheet FILE`."""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.scenes import SCENES
from tests.support.step_before import step_before
from worldloom.demo.images import flow_colors, normal_colors, tile
from worldloom.kernels.outputs import FLOW, NORMALS, RGB
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.cpu import CPURenderer
from worldloom.render.views import select_views

SHOWN = ("spheres", "rings", "lamplit_table", "brick_corridor")
SIZE, GAP = 200, 4


def main() -> None:
    """Draw the first view of each scene, and write the sheet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="the PNG file to write")
    rows: dict[str, list[np.ndarray]] = {"rgb": [], "normals": [], "flow": []}
    with CPURenderer() as renderer:
        for number, name in enumerate(SHOWN):
            for output, bits, samples in (("rgb", RGB, 4), ("normals", NORMALS, 1), ("flow", FLOW, 1)):
                scene, views = SCENES[name](SIZE, SIZE, samples, bits)
                views = select_views(views, [0])
                offsets, size_bytes = lay_out(views)
                arena = allocate_arena(size_bytes)
                renderer.draw(scene, views, arena, offsets, previous=step_before(scene, views, number))
                rows[output].append(get_frame(arena, views, offsets, 0, output))
    shown = [np.stack(rows["rgb"]), normal_colors(np.stack(rows["normals"]))]
    shown.append(np.stack([flow_colors(flow) for flow in rows["flow"]]))
    sheet = tile(np.concatenate(shown), len(SHOWN), GAP)
    Image.fromarray(sheet).save(parser.parse_args().file, optimize=True)


if __name__ == "__main__":
    main()
