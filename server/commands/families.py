"""The options `--family MODULE:CLASS` and `--model-dir DIRECTORY`, for every command that has to do with families."""

import argparse
import os
import sys
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
