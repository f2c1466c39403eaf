"""The options that add families and allow what they may use, for every command that has to do with families."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from worldloom.worlds.registry import add_family


def add_family_options(parser: argparse.ArgumentParser) -> None:
    """Add `--family`, `--model-dir`, `--texture-dir`, and those of the family gym."""
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
    parser.add_argument(
        "--texture-dir",
        action="append",
        default=[],
        dest="texture_dirs",
        metavar="DIRECTORY",
        type=Path,
        help="a directory that pictures for textures and backgrounds may be read from; may be given again",
    )
    for name, metavar, text in (
        ("id", "PATTERN", "a pattern of ids that the family gym may make; those of Gymnasium itself unless given"),
        ("import", "MODULE", "a module to import, which registers environments with Gymnasium"),
        ("kwarg", "NAME", "a keyword argument of environments that may be set"),
    ):
        parser.add_argument(
            f"--gym-{name}", action="append", default=[], metavar=metavar, help=f"{text}; may be given again"
        )


def add_families(
    places: Sequence[str] | None,
    model_dirs: Sequence[Path],
    gym_ids: Sequence[str] = (),
    gym_modules: Sequence[str] = (),
    gym_kwargs: Sequence[str] = (),
    texture_dirs: Sequence[Path] = (),
) -> None:
    """Register the given families, and allow the directories of models and pictures, and what gym may make."""
    if (places or gym_modules) and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does; console scripts do not
    for place in places or ():
        add_family(place)
    if model_dirs:
        try:
            from worldloom.worlds.mujoco.models.files import allow_model_dirs
        except ImportError as error:
            raise ValueError(f"--model-dir {str(model_dirs[0])!r} cannot be allowed: {error}") from error
        allow_model_dirs(model_dirs)
    if texture_dirs:
        from worldloom.worlds.randomisation.pictures import allow_texture_dirs

        allow_texture_dirs(texture_dirs)
    if gym_ids or gym_modules or gym_kwargs:
        # Imported here: Gymnasium takes a while to load, and most commands need it for nothing else.
        from worldloom.worlds.gym.permissions import allow_gym_ids, allow_gym_kwargs, import_gym_modules

        import_gym_modules(gym_modules)
        allow_gym_ids(gym_ids)
        allow_gym_kwargs(gym_kwargs)
