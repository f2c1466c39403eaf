"""`worldloom data`: describe, check, show and export datasets."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np

from worldloom.data.card import make_command
from worldloom.data.check import check_dataset
from worldloom.data.console import format_bytes
from worldloom.data.export import export_dataset
from worldloom.data.files import replace_file
from worldloom.data.layout import Column, Format
from worldloom.data.minari_export import export_minari
from worldloom.data.sheets import (
    find_frames,
    make_dataset_film,
    make_dataset_sheet,
    make_lane_film,
    make_lane_sheet,
)
from worldloom.data.whole import WholeDataset
from worldloom.server.cli import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK
from worldloom.terminal import print_columns, print_heading, print_table, print_text, show_progress

_MINARI = "minari"
_SHOWN_ROWS = 12
_MAX_CELL_ELEMENTS = 4
"""Elements of an array that a cell of a table shows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `worldloom data` with their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions")

    def add(name: str, text: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        action.set_defaults(run_action=run)
        action.add_argument("directory", type=Path, metavar="DIR", help="directory of the dataset")
        return action

    info = add("info", "show what a dataset has, how it was made, and how complete it is", _info)
    info.add_argument("--json", action="store_true", help="print it as JSON")
    add("check", "compare every file with its checksum; exit code 1 if something is damaged", _check)
    show = add("show", "show rows as a table, and save frames as a contact sheet (PNG) or a film (GIF)", _show)
    which = show.add_mutually_exclusive_group()
    which.add_argument("--episode", type=int, metavar="N", help="number of an episode, as in its column")
    which.add_argument("--lane", type=int, metavar="N", help="number of a lane")
    show.add_argument("--rows", type=int, default=_SHOWN_ROWS, metavar="N", help="rows of the table (default: 12)")
    show.add_argument("-o", "--out", type=Path, metavar="FILE", help="file for frames, .png or .gif")
    export = add("export", "write a dataset again in another format", _export)
    export.add_argument("--to", required=True, choices=(*get_args(Format), _MINARI), help="format")
    export.add_argument("-o", "--out", type=Path, metavar="DIR", help="new directory, for parquet and npy")
    export.add_argument("--pictures", metavar="KIND", help="frames in Parquet, as for `worldloom collect`")
    minari = export.add_argument_group("for minari")
    minari.add_argument("--id", metavar="ID", help="id in Minari, (NAMESPACE/)NAME-vVERSION")
    minari.add_argument(
        "--cut-episodes", action="store_true", help="also export episodes that the end of the collection has cut"
    )
    minari.add_argument("--author", metavar="NAME", help="name of the author")
    minari.add_argument("--author-email", metavar="ADDRESS", help="address of the author")
    minari.add_argument("--code-permalink", metavar="URL", help="link to the code that made the dataset")


def run(args: argparse.Namespace) -> int:
    """Run an action; return the exit code."""
    code: int = args.run_action(args)
    return code


def _info(args: argparse.Namespace) -> int:
    whole = WholeDataset(args.directory)
    if args.json:
        print(json.dumps(_describe(whole), indent=2))
        return EXIT_OK
    about = _describe(whole)
    description = whole.description
    print_heading(f"{args.directory}: {description.family}, {about['rows']:,} rows of {description.lanes:,} lanes")
    state = "complete"
    if not whole.is_complete:
        state = (
            f"incomplete: {about['rows']:,} of {about['all_rows']:,} rows; "
            f"go on with `worldloom collect --resume -o {args.directory}`"
        )
    ended = f"{about['episodes']:,} have ended"
    if about["episodes"]:
        ended += f", with a mean return of {about['mean_return']:.6g} in {about['mean_length']:.6g} steps"
    each = about["size_bytes"] / max(1, about["rows"])
    facts = [
        ("state", state),
        ("episodes", ended),
        ("size", f"{format_bytes(about['size_bytes'])} in {_count(about['shards'], 'shard')}, {each:,.0f} bytes a row"),
        ("format", f"{description.format}, pictures {description.pictures}"),
        ("policy", description.policy),
        ("seed", str(description.seed)),
        ("settings", ", ".join(f"{name}={value}" for name, value in description.settings.items()) or "defaults"),
        ("shadows", "drawn" if description.arguments.get("shadows", False) else "not drawn"),
        ("renderer", description.renderer),
    ]
    if description.parts:
        facts.append(("parts", ", ".join(f"{place.path} ({place.lanes} lanes)" for place in description.parts)))
    print_columns(facts)
    print()
    print_heading("Columns")
    print_columns([(one.name, one.dtype, " × ".join(map(str, one.shape)), _role(one)) for one in description.columns])
    print()
    print_heading("How to read it")
    print_text(f"from worldloom.data import Dataset; dataset = Dataset({str(args.directory)!r})", indent=2)
    command = make_command(description)
    if command is not None:
        print()
        print_heading("How to make it again")
        print_text(command, indent=2)
    return EXIT_OK


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _role(column: Column) -> str:
    return f"{column.role}, {column.encoding}" if column.is_frame else column.role


def _describe(whole: WholeDataset) -> dict[str, Any]:
    """Return the facts about a dataset, for JSON."""
    description, indexes = whole.description, whole.part_indexes
    episodes = sum(one.episodes for one in indexes)
    return {
        "directory": str(whole.directory),
        "is_complete": whole.is_complete,
        "rows": sum(one.rows for one in indexes),
        "all_rows": description.rows,
        "episodes": episodes,
        "mean_return": sum(one.return_sum for one in indexes) / episodes if episodes else None,
        "mean_length": sum(one.length_sum for one in indexes) / episodes if episodes else None,
        "shards": sum(len(one.shards) for one in indexes),
        "size_bytes": sum(one.size_bytes for one in indexes),
        "command": make_command(description),
        "description": json.loads(description.to_json()),
    }


def _check(args: argparse.Namespace) -> int:
    with show_progress(f"checking {args.directory}", plain_lines=False) as update:
        found = check_dataset(args.directory, lambda fraction, size: update(fraction, format_bytes(size)))
    for problem in found.problems:
        print(f"damaged: {problem}")
    for note in found.notes:
        print(f"note: {note}")
    if found.is_complete:
        state = f"complete, {found.rows:,} rows"
    else:
        state = (
            f"incomplete, {found.rows:,} of {found.all_rows:,} rows; "
            f"go on with `worldloom collect --resume -o {args.directory}`"
        )
    compared = f"{_count(found.files, 'file')}, {format_bytes(found.size_bytes)}"
    if found.problems:
        print(f"{args.directory} is damaged: {_count(len(found.problems), 'problem')} in {compared}")
        return EXIT_FAILURE
    print(f"{args.directory} is good: {compared}; {state}")
    return EXIT_OK


def _show(args: argparse.Namespace) -> int:
    whole = WholeDataset(args.directory)
    if args.rows < 0:
        raise ValueError(f"--rows is {args.rows}: expected 0 or more")
    if not whole.steps:
        raise ValueError(f"{args.directory} has no complete shard yet: expected some rows to show")
    is_chosen = args.episode is not None or args.lane is not None
    lane, begin, end = _find_rows(whole, args.episode, args.lane)
    if args.out is not None:
        _save_frames(whole, args.out, (lane, begin, end) if is_chosen else None)
    if args.rows:
        _print_rows(whole, lane, begin, min(end, begin + args.rows))
        if end - begin > args.rows:
            print(f"… {end - begin - args.rows:,} more rows of this {'episode' if args.lane is None else 'lane'}")
    if args.out is not None:
        print(f"saved {args.out}")
    return EXIT_OK


def _find_rows(whole: WholeDataset, episode: int | None, lane: int | None) -> tuple[int, int, int]:
    """Return the lane, counted from the dataset's first, and the steps to show; the first episode by default."""
    description = whole.description
    first, lanes = description.first_lane, description.lanes
    if lane is not None:
        if not first <= lane < first + lanes:
            raise ValueError(f"--lane is {lane}: expected {first} to {first + lanes - 1}")
        return lane - first, 0, whole.steps
    number = first if episode is None else episode
    place = number % description.all_lanes - first if number >= 0 else -1
    found = whole.find_episodes(place) if 0 <= place < lanes else []
    for one, begin, end in found:
        if one == number:
            return place, begin, end
    known = f"{found[0][0]} to {found[-1][0]} in steps of {description.all_lanes}" if found else "one of its lanes"
    raise ValueError(f"there is no episode {number}: expected {known}, as the column `episode` has them")


def _save_frames(whole: WholeDataset, path: Path, rows: tuple[int, int, int] | None) -> None:
    """Save a sheet or a film, of the rows of a lane or of many lanes."""
    column = find_frames(whole.description)
    if column is None:
        raise ValueError(f"{whole.directory} has no frames: expected a dataset with observations of a camera")
    if path.suffix not in (".png", ".gif"):
        raise ValueError(f"the file is {path}: expected a name that ends with .png or .gif")
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent} is no directory: expected one for {path.name}")
    is_film = path.suffix == ".gif"
    if rows is not None:
        make = (
            make_lane_film(whole, whole.description, column, *rows)
            if is_film
            else make_lane_sheet(whole, column, *rows)
        )
    elif is_film:
        make = make_dataset_film(whole, whole.description, column, whole.steps)
    else:
        make = make_dataset_sheet(whole, whole.description, column, whole.steps)
    replace_file(path, make)


def _print_rows(whole: WholeDataset, lane: int, begin: int, end: int) -> None:
    """Print rows of a lane without their frames."""
    columns = [column for column in whole.description.columns if not column.is_frame and column.name != "seed"]
    rows = whole.read([column.name for column in columns], slice(lane, lane + 1), slice(begin, end))
    table = [[_format(rows[column.name][0, k]) for column in columns] for k in range(end - begin)]
    print_table(table, 0, [column.name for column in columns])


def _format(value: Any) -> str:
    """Return the text of a value of a row: a number, or the first elements of an array."""
    array = np.asarray(value)
    if array.dtype.kind == "b" and not array.shape:
        return "yes" if array else "-"
    shown = [f"{one:.4g}" if array.dtype.kind == "f" else str(one) for one in array.reshape(-1)[:_MAX_CELL_ELEMENTS]]
    return " ".join(shown) + (" …" if array.size > _MAX_CELL_ELEMENTS else "")


def _export(args: argparse.Namespace) -> int:
    is_minari = args.to == _MINARI
    missing, surplus = ("id", "out") if is_minari else ("out", "id")
    if getattr(args, missing) is None:
        raise ValueError(f"--to {args.to} without --{missing}: expected it, the place of the new dataset")
    if getattr(args, surplus) is not None or (is_minari and args.pictures is not None):
        raise ValueError(f"--to {args.to} with --{surplus if getattr(args, surplus) is not None else 'pictures'}: "
                         "expected none")  # fmt: skip
    try:
        with show_progress(f"exporting {args.directory}", plain_lines=False) as update:
            if is_minari:
                options = {name: getattr(args, name) for name in ("author", "author_email", "code_permalink")}
                path = export_minari(
                    args.directory,
                    args.id,
                    cut_episodes=args.cut_episodes,
                    on_progress=lambda fraction: update(fraction, ""),
                    **options,
                )
            else:
                path = export_dataset(
                    args.directory, args.out, args.to, args.pictures, lambda fraction: update(fraction, "")
                )
    except KeyboardInterrupt:
        print("stopped; nothing was exported", file=sys.stderr)
        return EXIT_INTERRUPTED
    print(f"exported to {path}" + (f": minari.load_dataset({args.id!r})" if is_minari else ""))
    return EXIT_OK
