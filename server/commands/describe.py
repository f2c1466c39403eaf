"""`worldloom describe FAMILY`: print settings, actions, observations, cameras and labels of a family."""

import argparse
import json
from collections.abc import Sequence

from worldloom.server.commands.families import add_families, add_family_options
from worldloom.terminal import print_columns, print_heading, print_text
from worldloom.worlds.describe import Description, describe, format_range, format_type, format_value
from worldloom.worlds.randomisation.settings import VARIATION_SETTINGS
from worldloom.worlds.registry import find_family
from worldloom.worlds.settings import parse_assignments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `worldloom describe`."""
    parser.add_argument("name", metavar="FAMILY", help="its name, as `worldloom worlds` lists them")
    parser.add_argument("more_words", nargs="*", default=[], metavar="NAME=VALUE", help="settings to describe it with")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    add_family_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the description."""
    add_families(args.families, args.model_dirs, args.gym_id, args.gym_import, args.gym_kwarg, args.texture_dirs)
    family = find_family(args.name)
    described = describe(family, parse_assignments((*family.settings, *VARIATION_SETTINGS), args.more_words))
    if args.json:
        print(json.dumps(described, indent=2))
    else:
        _print(described)
    return 0


def _print(of: Description) -> None:
    """Print the description as text for people."""
    print_heading(of["family"])
    print_text(of["text"], indent=2)
    print()
    print_heading("Seeds")
    print_text(of["seeds"], indent=2)
    _print_section("Settings: type, default, range", [_setting(one) for one in of["settings"]])
    if of["variations"]:
        _print_variations(of["variations"])
    if of["missing"]:
        print()
        for name, values in of.get("allowed", {}).items():
            print_heading(f"Allowed here for {name}")
            print_text(", ".join(values), indent=2)
            print()
        print_text(
            f"What more there is, and what of this can vary, depends on {' and '.join(of['missing'])}: say NAME=VALUE."
        )
        return
    agents = "one agent" if of["agents"] == 1 else f"each of {of['agents']} agents"
    _print_section(f"Actions of {agents}", [_spec(one) for one in of["actions"]])
    _print_section(f"Observations of {agents}", [_spec(one) for one in of["observations"]])
    if of["variation_observations"]:
        title = "Observations of what varies, for those who name them"
        _print_section(title, [_spec(one) for one in of["variation_observations"]])
    _print_section("Observations that every world has", [_spec(one) for one in of["every_world"]])
    _print_section("Cameras", [(one["name"], one["text"]) for one in of["cameras"]])
    frames = [(one["name"], format_type(one), one["text"]) for camera in of["cameras"] for one in camera["outputs"]]
    _print_section("Frames", frames)
    labels = [(f"{one['label']:>3}", one["text"]) for one in of["labels"]]
    _print_section("Labels in segmentation", labels)


def _print_variations(variations: Sequence[Description]) -> None:
    """Print the settings of what can vary; those of the time when it is drawn together, as they say the same."""
    shown = [one for one in variations if not one["name"].endswith("_at")]
    _print_section("What varies, if asked for: type, default, range", [_setting(one) for one in shown])
    times = [one for one in variations if one["name"].endswith("_at")]
    for text in dict.fromkeys(one["text"] for one in times):
        same = [one for one in times if one["text"] == text]
        names = ", ".join(one["name"] for one in same)
        chosen = "".join(f" Here {one['name']}: {one['value']}." for one in same if one["value"] != one["default"])
        print_text(f"{names}: {format_range(same[0])}, {same[0]['default']} unless given. {text}{chosen}", indent=2)


def _print_section(title: str, rows: Sequence[tuple[str, ...]]) -> None:
    print()
    print_heading(title)
    print_columns(rows or [("none", "")])


def _setting(one: Description) -> tuple[str, ...]:
    value, default = format_value(one["value"]), format_value(one["default"])
    text = one["text"] if value == default else f"{one['text']} Here: {value}."
    return one["name"], one["type"], default, format_range(one), text


def _spec(one: Description) -> tuple[str, ...]:
    hidden = " Hidden: not visible in the frames." if one.get("hidden") else ""
    return one["name"], format_type(one), format_range(one), one["text"] + hidden
