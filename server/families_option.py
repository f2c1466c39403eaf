"""The option `--family MODULE:CLASS`, for every command that has to do with families."""

import argparse
import os
import sys

from worldloom.worlds.registry import add_family


def add_family_option(parser: argparse.ArgumentParser) -> None:
    """Declare it."""
    parser.add_argument(
        "--family",
        action="append",
        dest="families",
        metavar="MODULE:CLASS",
        help="a family of your own to add, from a module that is installed or in this folder; may be given again",
    )


def add_families(args: argparse.Namespace) -> None:
    """Take in the families that were given."""
    places: list[str] = args.families or []
    if places and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does; a command's own search path lacks it
    for place in places:
        add_family(place)
