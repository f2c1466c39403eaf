"""`worldloom describe FAMILY`: print settings, actions, observations, cameras and labels of a family."""

import argparse
import json
from collections.abc import Iterator, Sequence

from worldloom.server.commands.families import add_families, add_family_options, in_columns, terminal_width, wrapped
from worldloom.worlds.describe import Description, describe, format_range, format_type, format_value
from worldloom.worlds.registry import find_family
from worldloom.worlds.settings import parse_assignments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `worldloom describe`."""
    parser.add_argument("name", metavar="FAMILY", help="its name, as `worldloom worlds` lists them")
    parser.add_argument("more_words", nargs="*", metavar="NAME=VALUE", help="settings to describe it with")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    add_family_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the description."""
    add_families(args.families, args.model_dirs)
    family = find_family(args.name)
    described = describe(family, parse_assignments(family.settings, args.more_words))
    print(json.dumps(described, indent=2) if args.json else "\n".join(_lines(described, terminal_width())))
    return 0


def _lines(of: Description, width: int) -> Iterator[str]:
    """Return the description as lines of text."""
    yield of["family"]
    yield from wrapped(of["text"], width, "  ")
    yield from _section("Settings: type, default, range", [_setting(one) for one in of["settings"]], width)
    if of["missing"]:
        yield ""
        yield from wrapped(f"What more there is depends on {' and '.join(of['missing'])}: say NAME=VALUE.", width, "")
        return
    agents = "one agent" if of["agents"] == 1 else f"each of {of['agents']} agents"
    yield from _section(f"Actions of {agents}", [_spec(one) for one in of["actions"]], width)
    yield from _section(f"Observations of {agents}", [_spec(one) for one in of["observations"]], width)
    yield from _section("Observations that every world has", [_spec(one) for one in of["every_world"]], width)
    yield from _section("Cameras", [(one["name"], one["text"]) for one in of["cameras"]], width)
    pictures = [(one["name"], format_type(one), one["text"]) for camera in of["cameras"] for one in camera["outputs"]]
    yield from _section("Pictures they take", pictures, width)
    labels = [(f"{one['label']:>3}", one["text"]) for one in of["labels"]]
    yield from _section("Labels in segmentation", labels, width)


def _section(title: str, rows: Sequence[tuple[str, ...]], width: int) -> Iterator[str]:
    yield ""
    yield title
    yield from in_columns(rows, width) or ["  none"]


def _setting(one: Description) -> tuple[str, ...]:
    value, default = format_value(one["value"]), format_value(one["default"])
    text = one["text"] if value == default else f"{one['text']} Here: {value}."
    return one["name"], one["type"], default, format_range(one), text


def _spec(one: Description) -> tuple[str, ...]:
    hidden = " Hidden: not to be seen in the pictures." if one.get("hidden") else ""
    return one["name"], format_type(one), format_range(one), one["text"] + hidden
