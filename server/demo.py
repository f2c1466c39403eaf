"""`worldloom demo`: many worlds of several kinds, drawn together for a few seconds, counted, and saved as a picture."""

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from worldloom.kernels.tables import I64, OUTPUTS, U8, ViewTable, each_column
from worldloom.render.arena import lay_out, make_arena, picture
from worldloom.render.choose import NAMES, choose, explain, make_renderer
from worldloom.render.png import write_png
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.render.show import depth_colors, label_colors, tile
from worldloom.render.views import frame_bytes, make_views, output_bits, select_views
from worldloom.server.demo_parts import Kind
from worldloom.server.demo_scenes import make_worlds

ASKED = (("rgb",), OUTPUTS)
"""What is asked for in turn, an equal share of the time each."""
MOST_LANES, LEAST_SIZE, MOST_SIZE, MOST_SECONDS = 65536, 8, 512, 3600.0
FAR = 60.0
_BATCH_BYTES = 64 << 20
"""Of the pictures of one batch at most."""
_SHEET_COLUMNS, _SHEET_ROWS = 8, 4
_SHEET_SIZE = 128
"""Pixels of a picture on the sheet, unless larger ones were asked for."""
_GAP = 6
_BAR = 24


class Count(NamedTuple):
    """What was drawn while one set of outputs was asked for."""

    outputs: tuple[str, ...]
    batches: int
    views: int
    seconds: float

    @property
    def views_per_second(self) -> float:
        """Moving the worlds included."""
        return self.views / self.seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `worldloom demo`."""
    parser.add_argument("--renderer", choices=NAMES, default="auto", help="what draws")
    parser.add_argument("--device", type=int, metavar="N", help="the graphics device to draw on, as doctor lists them")
    parser.add_argument("--lanes", type=_whole(1, MOST_LANES), default=256, metavar="N", help="how many worlds")
    parser.add_argument("--seconds", type=_seconds, default=3.0, metavar="S", help="how long to draw")
    parser.add_argument(
        "--size", type=_whole(LEAST_SIZE, MOST_SIZE), default=64, metavar="PIXELS", help="width and height of a view"
    )
    parser.add_argument("--out", type=Path, default=Path("out/demo.png"), metavar="FILE", help="the picture to write")


def run(args: argparse.Namespace) -> int:
    """Draw, say how fast it went, and save the picture."""
    _make_writable(args.out)
    choice = choose(args.renderer, args.device)
    scene, kinds = make_worlds(args.lanes)
    shares = ", ".join(f"{len(kind.lanes)} {kind.name}" for kind in kinds)
    print(f"{args.lanes} worlds ({shares}), {args.size} x {args.size} pixels each")
    with closing(make_renderer(choice.name, choice.device)) as renderer:
        print(f"renderer {renderer.name}, {renderer.device}. {explain(choice, args.renderer)}", flush=True)
        counts = [_draw_for(renderer, scene, kinds, args.size, outputs, args.seconds / len(ASKED)) for outputs in ASKED]
        print("\n" + _table(counts) + "\n", flush=True)
        write_png(args.out, make_sheet(renderer, scene, kinds, max(args.size, _SHEET_SIZE)))
    print(f"saved {args.out}: some of the worlds, and of the last row of them depth and labels")
    return 0


def make_sheet(renderer: Renderer, scene: Scene, kinds: list[Kind], size: int, second: float = 1.0) -> U8:
    """A sheet of worlds side by side in rgb, smooth-edged; under the last row the same in depth, and in labels."""
    columns = min(_SHEET_COLUMNS, _lane_count(kinds))
    rows = min(_SHEET_ROWS, _lane_count(kinds) // columns)
    place = np.arange(rows * columns)
    # Diagonals of one kind: every row and every column has all of them.
    kind_of = (place // columns + place % columns) % len(kinds)
    shown = [kinds[kind].lanes[number] for kind, number in zip(kind_of, place // len(kinds), strict=True)]
    outputs = output_bits(("rgb", "depth", "segmentation"))
    views = select_views(_make_views(kinds, size, outputs, samples=4, second=second), np.array(shown))
    offsets, size_bytes = lay_out(views)
    arena = make_arena(size_bytes)
    renderer.draw(scene, views, arena, offsets)

    def pictures(output: str, first: int = 0) -> np.ndarray:
        return np.stack([picture(arena, views, offsets, view, output) for view in range(first, len(shown))])

    last_row = (rows - 1) * columns
    depth = depth_colors(pictures("depth", last_row), FAR)
    labels = label_colors(pictures("segmentation", last_row))
    return tile(np.concatenate([pictures("rgb"), depth, labels]), columns, _GAP)


def _draw_for(
    renderer: Renderer, scene: Scene, kinds: list[Kind], size: int, outputs: tuple[str, ...], seconds: float
) -> Count:
    """Move the worlds and draw all of them, batch after batch, until the time is over."""
    views = _make_views(kinds, size, output_bits(outputs), samples=1)
    batches = list(_batches(views))
    arena = make_arena(max(size_bytes for _, _, size_bytes in batches))
    renderer.draw(scene, batches[0][0], arena, batches[0][1])  # so that memory is there before the clock runs
    done = drawn = 0
    with _progress(", ".join(outputs)) as show:
        began = time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds or not done:
            if done % len(batches) == 0:
                _move(kinds, views, second=passed)
            batch, offsets, _ = batches[done % len(batches)]
            renderer.draw(scene, batch, arena, offsets)
            done += 1
            drawn += len(batch.lane)
            passed = time.perf_counter() - began
            show(min(1.0, passed / seconds), drawn / passed)
    return Count(outputs, done, drawn, passed)


def _make_views(kinds: list[Kind], size: int, outputs: int, samples: int, second: float = 0.0) -> ViewTable:
    """A view of every lane; view k is lane k's, since nothing but the kinds has taken lanes of the scene."""
    lanes = np.arange(_lane_count(kinds))
    fov, height = np.empty(lanes.size), np.empty(lanes.size)
    for kind in kinds:
        fov[kind.lanes], height[kind.lanes] = kind.fov_degrees, kind.orthographic_height
    views = make_views(
        lanes,
        fov_degrees=fov,
        orthographic_height=height,
        far=FAR,
        width=size,
        height=size,
        outputs=outputs,
        samples=samples,
    )
    _move(kinds, views, second)
    return views


def _move(kinds: list[Kind], views: ViewTable, second: float) -> None:
    for kind in kinds:
        views.camera[kind.lanes] = kind.move(second)


def _batches(views: ViewTable) -> Iterator[tuple[ViewTable, I64, int]]:
    """Stretches of the table that share its memory, each with its offsets in the arena and the bytes it takes."""
    step = max(1, _BATCH_BYTES // int(frame_bytes(views)[0].sum()))
    for start in range(0, len(views.lane), step):
        batch = each_column(views, itemgetter(slice(start, start + step)))
        yield batch, *lay_out(batch)


def _lane_count(kinds: list[Kind]) -> int:
    return sum(len(kind.lanes) for kind in kinds)


def _table(counts: list[Count]) -> str:
    """What was counted, in columns."""
    rows = [("asked for", "views a second", "batches", "frames of each")]
    rows += [(", ".join(c.outputs), f"{c.views_per_second:,.0f}", f"{c.batches:,}", f"{c.views:,}") for c in counts]
    first, *others = (max(len(cell) for cell in column) for column in zip(*rows, strict=True))
    lines = [
        "   ".join([row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], others, strict=True))])
        for row in rows
    ]
    totals = ", ".join(f"{sum(c.views for c in counts if name in c.outputs):,} {name}" for name in OUTPUTS)
    return "\n".join([*lines, "", f"frames in all: {totals}"])


@contextmanager
def _progress(what: str) -> Iterator[Callable[[float, float], None]]:
    """A line that grows on a terminal, and is wiped away at the end; elsewhere one line that says what is under way."""
    terminal = sys.stderr.isatty()
    if not terminal:
        print(f"drawing {what}", file=sys.stderr, flush=True)
    shown_at = 0.0

    def show(part: float, views_per_second: float) -> None:
        nonlocal shown_at
        if terminal and time.monotonic() - shown_at > 0.1:
            shown_at = time.monotonic()
            bar = "#" * round(part * _BAR)
            print(
                f"\r[{bar:.<{_BAR}}] {views_per_second:,.0f} views a second: {what}",
                end="",
                file=sys.stderr,
                flush=True,
            )

    try:
        yield show
    finally:
        if terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _make_writable(path: Path) -> None:
    """Make the folder, and find out before anything is drawn whether the picture can be saved."""
    if path.suffix.lower() != ".png":
        raise ValueError(f"--out {path}: expected a name that ends in .png")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        was_there = path.exists()
        with path.open("ab"):
            pass
        if not was_there:
            path.unlink()
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror} ({error.filename})") from error


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, got {text!r}")
        return number

    return parse


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"expected a number above 0, at most {MOST_SECONDS:.0f}, got {text!r}")
    return number
