"""`worldloom worlds`: list the families of worlds."""

import argparse
import json

from worldloom.server.commands.families import add_families, add_family_options
from worldloom.terminal import print_columns
from worldloom.worlds.registry import FamilyError, find_family, known_families


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `worldloom worlds`."""
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    add_family_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the list. A family that cannot be loaded is listed with the reason."""
    add_families(args.families, args.model_dirs, args.gym_id, args.gym_import, args.gym_kwarg, args.texture_dirs)
    found = [_entry(name) for name in known_families()]
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    rows = [(one["family"] or "", one["text"] or f"cannot be used: {one['problem']}") for one in found]
    print_columns(rows, indent=0)
    print("\n`worldloom describe FAMILY` describes one of them." if rows else "There are no families.")
    return 0


def _entry(name: str) -> dict[str, str | None]:
    try:
        return {"family": name, "text": find_family(name).text, "problem": None}
    except FamilyError as error:
        return {"family": name, "text": None, "problem": str(error)}
