"""`worldloom collect`: options, the progress bar, and what is said at the end."""

import argparse
import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from worldloom.client.errors import ClientError
from worldloom.data.collection import Progress, Stopped
from worldloom.data.collector import Collector
from worldloom.data.console import (
    StopSignals,
    add_server_arguments,
    find_server,
    format_bytes,
    format_seconds,
    parse_size,
)
from worldloom.data.layout import CARD_FILE, DESCRIPTION_FILE, FILM_FILE, SHEET_FILE
from worldloom.server.cli import EXIT_INTERRUPTED, EXIT_OK
from worldloom.server.commands.families import add_families, add_family_options
from worldloom.terminal import show_progress
from worldloom.worlds.randomisation.settings import VARIATION_SETTINGS
from worldloom.worlds.registry import add_family, find_family
from worldloom.worlds.settings import parse_assignments

_FAMILY_OPTIONS = {
    "--family": "families",
    "--model-dir": "model_dirs",
    "--texture-dir": "texture_dirs",
    "--gym-id": "gym_id",
    "--gym-import": "gym_import",
    "--gym-kwarg": "gym_kwarg",
}
"""Options of families, which are not kept in a dataset, and the names of their values."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `worldloom collect`."""
    parser.add_argument(
        "family", nargs="?", metavar="FAMILY", help="family of worlds, or MODULE:CLASS of your own; not with --resume"
    )
    parser.add_argument("more_words", nargs="*", default=[], metavar="NAME=VALUE", help="settings of the family")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="directory of the dataset")
    parser.add_argument("--lanes", type=int, metavar="N", help="lanes that are stepped at once (default: 64)")
    parser.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help="rows of all lanes together, rounded up to as many for each, at least 2 (default: 100000)",
    )
    parser.add_argument(
        "--policy", metavar="POLICY", help="random, idle, or MODULE:CALLABLE of your own (default: random)"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="seed of worlds and policy (default: random)")
    parser.add_argument("--observations", metavar="NAMES", help="names with commas between (default: eye.rgb)")
    parser.add_argument(
        "--size", type=parse_size, metavar="PIXELS", help="size of frames, such as 64 or 160x120 (default: 64)"
    )
    parser.add_argument("--samples", type=int, choices=(1, 4), help="samples per pixel (default: 1)")
    parser.add_argument("--shadows", action="store_true", default=None, help="draw the shadows of lights")
    parser.add_argument(
        "--action-repeat", type=int, metavar="N", help="times that a step applies its actions (default: 1)"
    )
    parser.add_argument("--resume", action="store_true", help="go on with a collection that was stopped")
    files = parser.add_argument_group("files")
    files.add_argument("--format", choices=("parquet", "npy"), help="format of the shards (default: parquet)")
    files.add_argument(
        "--pictures",
        metavar="KIND",
        help="frames in Parquet: raw, zstd:LEVEL, png:LEVEL, jpeg:QUALITY or webp:QUALITY (default: zstd:1)",
    )
    files.add_argument("--minari", metavar="ID", help="also export the complete dataset to Minari, by this id")
    files.add_argument("--shard-mb", type=float, metavar="MB", help="size of a shard before compression (default: 128)")
    files.add_argument(
        "--writers", type=int, metavar="N", help="threads that encode and write (default: one a processor; npy: one)"
    )
    add_family_options(parser)
    where = parser.add_argument_group("where it is drawn; in this process by default")
    add_server_arguments(where)
    where.add_argument(
        "--fleet",
        nargs="?",
        const="default",
        metavar="NAME",
        help="on the servers of a fleet, with a collector beside each (default name: default)",
    )
    where.add_argument(
        "--own-directories",
        action="store_true",
        help="with --fleet: each node has a directory of its own under this path, instead of one that all share",
    )
    where.add_argument(
        "--parts", type=int, metavar="N", help="with --fleet: parts that lanes are divided into (default: one a server)"
    )
    where.add_argument("--learner", metavar="NAME", help="with --fleet: whose quota the lanes count against")


def run(args: argparse.Namespace) -> int:
    """Collect a dataset, and say where it is; return the exit code. SIGTERM and SIGHUP stop it as Ctrl-C does."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else clients log that their server has ended
    signals = StopSignals()
    try:
        collect = _make_collector(args, signals.poll)
        with show_progress(f"collecting {args.out}") as update:
            progress = collect(lambda now: update(now.drawn_rows / now.all_rows, describe_progress(now)))
        exported = None if args.minari is None else _export_to_minari(args)
    except (KeyboardInterrupt, Stopped):
        start = "\n" if sys.stderr.isatty() else ""  # after the ^C that a terminal shows
        has_begun = (args.out / DESCRIPTION_FILE).exists()
        where = "" if args.fleet is None else f" --fleet {args.fleet}"
        command = f"worldloom collect --resume{where}{_repeat_family_options(args)} -o {args.out}"
        advice = f"go on with: {command}" if has_begun else "nothing was collected yet"
        print(f"{start}stopped; {advice}", file=sys.stderr)
        return EXIT_INTERRUPTED if signals.number is None else 128 + signals.number
    except ClientError as error:  # of an env that could not be made
        raise RuntimeError(str(error)) from error
    finally:
        signals.restore()
    print(f"{args.out}: {describe_result(progress)}")
    shown = [name for name in (CARD_FILE, SHEET_FILE, FILM_FILE) if (args.out / name).exists()]
    if shown:
        print(f"see {', '.join(str(args.out / name) for name in shown)}")
    if exported is not None:
        print(f"{exported}: {args.minari} for Minari")
    return EXIT_OK


def _export_to_minari(args: argparse.Namespace) -> Path:
    from worldloom.data.minari_export import export_minari

    with show_progress(f"exporting to Minari as {args.minari}") as update:
        return export_minari(args.out, args.minari, on_progress=lambda fraction: update(fraction, ""))


def _make_collector(
    args: argparse.Namespace, should_stop: Callable[[], bool]
) -> Callable[[Callable[[Progress], object]], Progress]:
    """Return the function that collects, and reports its progress to a function; arguments are checked before."""
    _add_families(args)
    arguments = _make_arguments(args)
    if args.minari is not None:
        from worldloom.data.minari_export import check_minari_id  # most collections do not need it

        check_minari_id(args.minari)
    if args.fleet is not None:
        return _make_fleet_collector(args, arguments)
    for option in ("own_directories", "parts", "learner"):
        if getattr(args, option):
            raise ValueError(f"--{option.replace('_', '-')}: expected --fleet with it")
    family = arguments.pop("family", None)
    address, env_arguments = find_server(args)
    make = partial(Collector, args.out, family, address=address, env_arguments=env_arguments, **arguments)
    make()  # which checks the arguments
    return lambda report: make(on_progress=report, should_stop=should_stop).run()


def _given_family_options(args: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the options of families that were given, with their values."""
    return [(option, str(value)) for option, name in _FAMILY_OPTIONS.items() for value in getattr(args, name) or ()]


def _repeat_family_options(args: argparse.Namespace) -> str:
    """Return the options of families as a part of a command, which --resume needs again."""
    return "".join(f" {option} {shlex.quote(value)}" for option, value in _given_family_options(args))


def _add_families(args: argparse.Namespace) -> None:
    given = _given_family_options(args)
    if given and (args.server is not None or args.fleet is not None):
        where = "--fleet" if args.server is None else "--server"
        raise ValueError(f"{given[0][0]} with {where}: expected one of them; servers are started with such options")
    add_families(args.families, args.model_dirs, args.gym_id, args.gym_import, args.gym_kwarg, args.texture_dirs)


def _make_fleet_collector(
    args: argparse.Namespace, arguments: dict[str, Any]
) -> Callable[[Callable[[Progress], object]], Progress]:
    if args.server is not None or args.renderer is not None:
        raise ValueError("--fleet with --server or --renderer: expected one of them")
    try:
        from worldloom.data.fleet_collection import collect_on_fleet
        from worldloom.fleet import Fleet

        fleet = Fleet.connect(args.fleet)
    except ModuleNotFoundError as error:
        raise RuntimeError(str(error)) from error
    family = arguments.pop("family", None)
    given = {name: getattr(args, name) for name in ("parts", "learner") if getattr(args, name) is not None}
    return lambda report: collect_on_fleet(
        fleet, args.out, family, own_directories=args.own_directories, on_progress=report, **given, **arguments
    )


def _make_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of Collector that were given."""
    names = (
        "lanes",
        "steps",
        "policy",
        "seed",
        "samples",
        "shadows",
        "action_repeat",
        "format",
        "pictures",
        "shard_mb",
        "writers",
    )
    found: dict[str, Any] = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.observations is not None:
        found["observations"] = [name.strip() for name in args.observations.split(",") if name.strip()]
        if not found["observations"]:
            raise ValueError(f"--observations is {args.observations!r}: expected names, such as eye.rgb,position")
    if args.size is not None:
        found["width"], found["height"] = args.size
    words = list(args.more_words)
    family = args.family
    if family is not None and "=" in family:  # a setting, since --resume needs no family
        words.insert(0, family)
        family = None
    if family is not None:
        found["family"], settings = _find_settings(family, words, args.server is not None or args.fleet is not None)
        if settings or not args.resume:
            found["settings"] = settings
    elif words:
        raise ValueError(f"the setting {words[0]!r} without a family: expected FAMILY NAME=VALUE …")
    found["resume"] = args.resume
    return found


def _find_settings(family: str, words: list[str], is_remote: bool) -> tuple[str, dict[str, Any]]:
    """Return the name of a family and its settings. A server may have families that this process does not know."""
    if ":" in family:
        family = add_family(family).name
    try:
        table = find_family(family).settings
    except ValueError:
        if not is_remote:
            raise
        pairs = [word.partition("=") for word in words]
        return family, {name: yaml.safe_load(text) for name, _, text in pairs}
    return family, parse_assignments((*table, *VARIATION_SETTINGS), words)


def describe_progress(progress: Progress) -> str:
    """Return a note for a progress bar."""
    left = "" if progress.left_s == float("inf") else f", {format_seconds(progress.left_s)} left"
    returns = f", mean return {progress.mean_return:.3g}" if progress.episodes else ""
    return (
        f"{progress.frames_per_s:,.0f} frames/s, {progress.episodes:,} episodes{returns}, "
        f"{format_bytes(progress.size_bytes)}{left}"
    )


def describe_result(progress: Progress) -> str:
    """Return a sentence about a complete dataset."""
    returns = f" (mean return {progress.mean_return:.4g})" if progress.episodes else ""
    rate = f" at {progress.frames_per_s:,.0f} frames/s" if progress.collected_rows else ""
    each = progress.size_bytes / max(1, progress.rows)
    return (
        f"{progress.rows:,} rows{rate}, {progress.episodes:,} episodes{returns}, "
        f"{format_bytes(progress.size_bytes)}, {each:,.0f} bytes a row"
    )
