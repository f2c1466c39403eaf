"""Parts that commands about families share: `--family` and `--model-dir`, and text in columns."""

import argparse
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from worldloom.worlds.registry import add_family


def add_family_options(parser: argparse.ArgumentParser) -> None:
    """Add `--family MODULE:CLASS` and `--model-dir DIRECTORY`."""
    parser.add_argument(
        "--family",
        action="append",
        dest="families",
        metavar="MODULE:CLASS",
        help="a family to add, from an installed module or one in the current directory; may be given again",
    )
    parser.add_argument(
        "--model-dir",
        action="append",
        default=[],
        dest="model_dirs",
        metavar="DIRECTORY",
        type=Path,
        help="a directory that models of the family mujoco may be read from; may be given again",
    )


def add_families(places: Sequence[str] | None, model_dirs: Sequence[Path]) -> None:
    """Register the given families, and allow the model directories."""
    if places and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does; console scripts do not
    for place in places or ():
        add_family(place)
    if model_dirs:
        try:
            from worldloom.worlds.mujoco.models.files import allow_model_dirs
        except ImportError as error:
            raise ValueError(f"--model-dir {str(model_dirs[0])!r} cannot be allowed: {error}") from error
        allow_model_dirs(model_dirs)


_GAP = "  "
_LEAST_TEXT = 30
"""Width below which the last column is put on lines of its own."""
_WIDEST = 120
"""Maximum length of lines, however wide the terminal is."""


def terminal_width() -> int:
    """Return the width to write in."""
    return min(shutil.get_terminal_size((100, 24)).columns, _WIDEST)


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Wrap a text into indented lines."""
    return textwrap.wrap(
        text, max(width, len(indent) + 20), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def in_columns(rows: Sequence[Sequence[str]], width: int, indent: str = "  ") -> list[str]:
    """Align rows of cells in columns; the last cell of each row is wrapped.

    Columns that are empty throughout are left out. Where there is no room beside the others, texts go below them.
    """
    if not rows:
        return []
    shown = [any(row[column] for row in rows) for column in range(len(rows[0]) - 1)]
    cells = [[cell for cell, show in zip(row, shown, strict=False) if show] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines: list[str] = []
    for row, text in zip(cells, (row[-1] for row in rows), strict=True):
        start = indent + _GAP.join(cell.ljust(size) for cell, size in zip(row, widths, strict=True))
        if width - len(start) - len(_GAP) >= _LEAST_TEXT:
            first, *others = wrapped(text, width, " " * len(start + _GAP)) or [""]
            lines += [start + first[len(start) :], *others]
        else:
            lines += [start, *wrapped(text, width, indent + " " * 4)]
    return [line.rstrip() for line in lines]
