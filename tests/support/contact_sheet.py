"""Contact sheet of the test scenes: `python -m tests.support.contact_sheet docs/contact-sheet.png`.

Beside the colours: gray, depth (near is bright, in steps of equal ratio) and labels, as the cpu renderer has them.
Above: how many pixels, edges included, are within one level of the reference.
"""

import argparse
import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tests.support import reference_renderer as reference
from tests.support.scenes import SCENES
from worldloom.kernels.outputs import OUTPUT_NAMES
from worldloom.kernels.tables import U8, ViewTable
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.choose import make_renderer
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene

WIDTH, HEIGHT = 192, 144  # a square of `blocks_2d` is twelve pixels
SMALL = 3  # how many times smaller the other outputs are shown
GAP, MARGIN, TITLE = 3, 20, 26
COLUMNS = 2
PAPER, INK, FAINT = (251, 249, 245), (44, 48, 58), (140, 140, 142)
NEAR_TO_FAR = np.array([(253, 231, 37), (122, 209, 81), (34, 168, 132), (42, 120, 142), (65, 68, 135), (68, 1, 84)])
NOTHING = (236, 234, 230)
LABELS = np.frombuffer(
    bytes.fromhex("e2725b 2a8c8c e9b44c 7a4b6b 8fc1d4 5f7f5b e8a6a1 2c3e5c b5533c 9cb89a e6cfa5 626eb4 3c3c42 d68cbe"),
    np.uint8,
).reshape(-1, 3)


class Drawn(NamedTuple):
    """One view, by everyone who draws."""

    name: str
    by: dict[str, dict[str, NDArray[Any]]]


def draw_all(renderers: list[Renderer]) -> list[Drawn]:
    """Every view of every scene."""
    drawn = []
    for name, make in SCENES.items():
        scene, views = make(WIDTH, HEIGHT, samples=4)
        by_renderer = {renderer.name: _draw(renderer, scene, views) for renderer in renderers}
        for view in range(len(views.lane)):
            by = {who: pictures[view] for who, pictures in by_renderer.items()}
            title = name.replace("_", " ") + (f" {view + 1}" if len(views.lane) > 1 else "")
            drawn.append(Drawn(title, {**by, "reference": reference.render(scene, views, view)}))
            print(f"drew {title}", flush=True)
    return drawn


def _draw(renderer: Renderer, scene: Scene, views: ViewTable) -> list[dict[str, NDArray[Any]]]:
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    renderer.draw(scene, views, arena, offsets)
    return [
        {output: get_frame(arena, views, offsets, view, output) for output in OUTPUT_NAMES}
        for view in range(len(views.lane))
    ]


def lay_out_sheet(drawn: list[Drawn]) -> U8:
    """All views in a grid, and a word on what is shown in the last cell."""
    who = list(drawn[0].by)
    cell_width = len(who) * (WIDTH + GAP) + WIDTH // SMALL
    cell_height = TITLE + HEIGHT + MARGIN
    rows = -(-(len(drawn) + 1) // COLUMNS)
    sheet = np.empty((rows * cell_height + MARGIN // 2, COLUMNS * (cell_width + MARGIN) + MARGIN, 3), np.uint8)
    sheet[:] = PAPER
    for number, one in enumerate(drawn):
        top, left = number // COLUMNS * cell_height + MARGIN // 2, number % COLUMNS * (cell_width + MARGIN) + MARGIN
        write_text(sheet, one.name, left, top + TITLE // 2, INK, 17)
        write_text(sheet, _agreement(one), left + cell_width, top + TITLE // 2, FAINT, 12, from_right=True)
        for place, name in enumerate(who):
            _paste(sheet, one.by[name]["rgb"], left + place * (WIDTH + GAP), top + TITLE)
        first = one.by[who[0]]
        for place, small in enumerate((_gray(first["gray"]), _depth(first), _labels(first["segmentation"]))):
            _paste(sheet, small, left + len(who) * (WIDTH + GAP), top + TITLE + place * HEIGHT // SMALL)
    top, left = (rows - 1) * cell_height + MARGIN // 2, (COLUMNS - 1) * (cell_width + MARGIN) + MARGIN
    for line, text in enumerate(
        (
            f"each scene: {', '.join(who)},",
            "then gray, depth and labels.",
            "four samples a pixel.",
            "percent: pixels within one level",
            "of the reference, edges included.",
        )
    ):
        write_text(sheet, text, left, top + TITLE + 12 + 24 * line, FAINT, 17)
    return sheet


def _agreement(one: Drawn) -> str:
    expected = one.by["reference"]["rgb"].astype(int)
    shares = {
        name: (abs(pictures["rgb"] - expected).max(axis=2) <= 1).mean()
        for name, pictures in one.by.items()
        if name != "reference"
    }
    return "   ".join(f"{name} {100 * share:.2f}%" for name, share in shares.items())


def _paste(sheet: U8, pixels: U8, left: int, top: int) -> None:
    sheet[top : top + len(pixels), left : left + pixels.shape[1]] = pixels


def _gray(gray: U8) -> U8:
    blocks = gray.reshape(HEIGHT // SMALL, SMALL, WIDTH // SMALL, SMALL).mean(axis=(1, 3))
    return np.repeat(np.rint(blocks).astype(np.uint8)[..., None], 3, axis=2)


def _depth(pictures: dict[str, NDArray[Any]]) -> U8:
    depth = pictures["depth"][1::SMALL, 1::SMALL].astype(np.float64)
    seen = depth < pictures["depth"].max() if (pictures["segmentation"] == 0).any() else np.ones(depth.shape, np.bool_)
    logs = np.log(depth)
    nearest, farthest = logs[seen].min(), np.percentile(logs[seen], 97)
    place = np.clip((logs - nearest) / (farthest - nearest), 0, 1) * (len(NEAR_TO_FAR) - 1)
    low = np.minimum(place.astype(int), len(NEAR_TO_FAR) - 2)
    colors = NEAR_TO_FAR[low] + (place - low)[..., None] * (NEAR_TO_FAR[low + 1] - NEAR_TO_FAR[low])
    return np.where(seen[..., None], colors, NOTHING).astype(np.uint8)


def _labels(labels: U8) -> U8:
    small = labels[1::SMALL, 1::SMALL, None]
    return np.where(small == 0, NOTHING, LABELS[(small[..., 0] - 1) % len(LABELS)]).astype(np.uint8)


def write_text(
    sheet: U8, text: str, x: int, y: int, color: tuple[int, int, int], size: int, from_right: bool = False
) -> None:
    """Write a line of text into a sheet, around the height y, from x on or up to it."""
    image = Image.fromarray(sheet)
    ImageDraw.Draw(image).text((x, y), text, color, ImageFont.load_default(size), anchor="rm" if from_right else "lm")
    sheet[...] = np.asarray(image)


def main() -> None:
    """Draw the sheet and write it."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("file", help="the PNG file to write")
    file = arguments.parse_args().file
    names = ["cpu"] if os.environ.get("WORLDLOOM_SKIP_GL") == "1" else ["cpu", "gl"]
    renderers = [make_renderer(name) for name in names]
    sheet = lay_out_sheet(draw_all(renderers))
    for renderer in renderers:
        renderer.close()
    Image.fromarray(sheet).save(file)
    print(f"wrote {file}: {sheet.shape[1]} x {sheet.shape[0]} pixels, {os.path.getsize(file) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
