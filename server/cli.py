"""The command line: `worldloom COMMAND`. Each command is a module that is imported only when it is used.

A command module has `add_arguments(parser)` and `run(args)`, which returns the exit code. A list of words at the end of
a command line is called `more_words`; its default is [], without which argparse calls it required. Exit codes: 0 all is
well, 1 it failed, 2 the command line was wrong, 130 interrupted.
"""

import argparse
import importlib
import importlib.metadata
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, cast

EXIT_OK, EXIT_FAILURE, EXIT_INTERRUPTED = 0, 1, 130


class Command(NamedTuple):
    """An entry of COMMANDS."""

    module: str
    summary: str


COMMANDS = {
    "serve": Command("worldloom.server.commands.serve", "serve worlds to dm_env_rpc clients"),
    "watch": Command("worldloom.server.commands.watch", "show several servers live on one page"),
    "worlds": Command("worldloom.server.commands.worlds", "list the families of worlds"),
    "describe": Command(
        "worldloom.server.commands.describe", "describe a family of worlds: settings, actions, observations, cameras"
    ),
    "demo": Command(
        "worldloom.demo.command", "run a server and clients of every family, measure them, and save images"
    ),
    "profile": Command(
        "worldloom.profiler.command", "measure what rendering costs on this machine, or attach to a running server"
    ),
    "collect": Command("worldloom.data.collect_command", "collect a dataset of frames, actions and rewards"),
    "render": Command(
        "worldloom.data.render_command",
        "draw states of a MuJoCo model: a film, PNG files, an array, or columns of a dataset",
    ),
    "data": Command("worldloom.data.data_command", "describe, check, show and export datasets"),
    "fleet": Command(
        "worldloom.fleet.command", "run many servers on a Ray cluster: up, status, scale, drain, upgrade, down"
    ),
    "doctor": Command(
        "worldloom.server.commands.doctor",
        "show graphics devices, the renderer that is chosen and why, and what to install",
    ),
}


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """A help formatter that shows defaults of options that have one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False, []) else super()._get_help_string(action)


class CommandModule(Protocol):
    """The interface of a command module."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of the command."""

    def run(self, args: argparse.Namespace) -> int:
        """Run the command; return the exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        with _plain_warnings():
            return _run(argv)
    except KeyboardInterrupt:  # at any time: importing a command takes a second too
        return EXIT_INTERRUPTED


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print warnings as one line, without the source line that they came from."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"worldloom: {_one_line(message)}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def _run(argv: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in words if not word.startswith("-")), None)
    try:
        parser = _make_parser(chosen)
    except ModuleNotFoundError as error:
        if "pip install" not in str(error):
            raise
        print(f"worldloom {chosen}: {error}", file=sys.stderr)  # an extra that is not installed
        return EXIT_FAILURE
    args = _parse(parser, words)
    if args.command is None:
        parser.print_help()
        return EXIT_OK
    try:
        code = _load(args.command).run(args)
        sys.stdout.flush()  # raises BrokenPipeError here, where it can be handled
    except BrokenPipeError:
        # The reader has gone (`| head`): leave nothing for the interpreter to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
    except (ValueError, OSError, RuntimeError, ModuleNotFoundError) as error:
        is_known = not isinstance(error, ModuleNotFoundError) or "pip install" in str(error)
        if args.traceback or not is_known:
            raise
        print(f"worldloom {args.command}: {_one_line(error)}", file=sys.stderr)
        return EXIT_FAILURE
    return code


def _make_parser(chosen: str | None) -> argparse.ArgumentParser:
    """Return the parser; only the chosen command is imported, so that --help is quick."""
    parser = argparse.ArgumentParser(prog="worldloom", description="Pixel observations of many worlds at once.")
    parser.add_argument("--version", action="version", version=f"worldloom {importlib.metadata.version('worldloom')}")
    parser.add_argument("--traceback", action="store_true", help="show where in the code an error came from")
    subparsers = parser.add_subparsers(
        dest="command",
        metavar="COMMAND",
        title="commands",
        description="`worldloom COMMAND --help` shows the options of a command.",
    )
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(
            name,
            help=command.summary,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            formatter_class=_Help,
        )
        if name == chosen:
            _load(name).add_arguments(subparser)
    return parser


def _parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Parse the command line; words of a list may also follow options, which argparse does not support."""
    args, left = parser.parse_known_args(words)
    more_words: list[str] | None = getattr(args, "more_words", None)
    if left and (more_words is None or any(word.startswith("-") for word in left)):
        parser.error(f"unrecognized arguments: {' '.join(left)}")
    if more_words is not None:
        args.more_words = [*more_words, *left]
    return args


def _load(name: str) -> CommandModule:
    return cast(CommandModule, importlib.import_module(COMMANDS[name].module))


def _one_line(error: Exception | str) -> str:
    return " ".join(str(error).split()) or type(error).__name__
