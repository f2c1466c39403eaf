"""The words of the command line that stand for several values: `16,64,256`.

`worldloom profile`: what pixels cost on this machine, or what a running server does.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from worldloom.client.connections import LOCAL, Credentials
from worldloom.client.errors import ClientError
from worldloom.kernels.outputs import OUTPUT_NAMES
from worldloom.profiler import charts
from worldloom.profiler import command as flags
from worldloom.profiler.attach import Watched, watch, watched_lines
from worldloom.profiler.findings import Findings
from worldloom.profiler.measure import TRANSPORTS, Case, make_cases, measure
from worldloom.profiler.pens import save_png
from worldloom.profiler.progress import Progress
from worldloom.profiler.report import make_report
from worldloom.profiler.servers import Servers
from worldloom.profiler.tables import stages_in_use, sweep_lines
from worldloom.profiler.trace import make_trace, trace_events
from worldloom.render.choose import NAMES, choose
from worldloom.render.devices import explain_missing, list_devices
from worldloom.server.cli import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK
from worldloom.server.transports.security import read_token
from worldloom.worlds.registry import add_family, find_family
from worldloom.worlds.settings import parse_assignments

MOST_LANES, MOST_SIDE, MOST_SECONDS = 65_536, 4096, 3600.0

T = TypeVar("T")


def several(read: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """A list with commas between; a value that is there twice counts once."""

    def parse(text: str) -> tuple[T, ...]:
        return tuple(dict.fromkeys(read(word.strip()) for word in text.split(",")))

    return parse


def a_number_of_lanes(text: str) -> int:
    """One value of --lanes."""
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MOST_LANES:
        raise argparse.ArgumentTypeError(f"expected whole numbers from 1 to {MOST_LANES}, got {text!r}")
    return int(text)


def a_size(text: str) -> tuple[int, int]:
    """One value of --size: 64, or 160x120."""
    sides = text.lower().replace("×", "x").split("x")
    if len(sides) > 2 or not all(side.isdecimal() and 1 <= int(side[:9]) <= MOST_SIDE for side in sides):
        raise argparse.ArgumentTypeError(
            f"expected sizes such as 64 or 160x120, each side from 1 to {MOST_SIDE} pixels, got {text!r}"
        )
    return int(sides[0]), int(sides[-1])


def some_outputs(text: str) -> tuple[str, ...]:
    """One value of --outputs: rgb, or rgb+depth."""
    names = text.split("+")
    if not all(name in OUTPUT_NAMES for name in names):
        raise argparse.ArgumentTypeError(
            f"expected some of {', '.join(OUTPUT_NAMES)}, with + between those of one picture, got {text!r}"
        )
    return tuple(output for output in OUTPUT_NAMES if output in names)


def one_of(choices: Sequence[str]) -> Callable[[str], str]:
    """A value among few."""

    def parse(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(choices)}, got {text!r}")
        return text

    return parse


def seconds(text: str) -> float:
    """The value of --seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"expected a number above 0, at most {MOST_SECONDS:.0f}, got {text!r}")
    return number


DEFAULTS: dict[str, Any] = {
    "family": ("maze",),
    "lanes": (16, 64, 256),
    "size": ((32, 32), (64, 64), (128, 128)),
    "outputs": (("rgb",), ("depth",)),
    "renderer": ("auto",),
    "transport": ("local", "shm", "tcp"),
}
"""The axes of a sweep."""
SECONDS, ATTACH_SECONDS = 1.0, 2.0
_ACCESS = ("token_file", "tls_ca", "tls_cert", "tls_key")
_OVERHEAD_S = 0.5
"""Beside the measuring: making a world, warming up."""
_FILES = ("profile.json", "trace.json", "report.html", "throughput.png", "stages.png", "growth.png", "timeline.png")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `worldloom profile`."""
    parser.add_argument("more_words", nargs="*", metavar="NAME=VALUE", help="settings of the family")
    axes = parser.add_argument_group("what is swept", "each takes several values with commas between")
    for name, metavar, read, text in (
        ("family", "NAMES", str, "what kind of world, or MODULE:CLASS of your own (default: maze)"),
        ("lanes", "NUMBERS", flags.a_number_of_lanes, "how many worlds (default: 16,64,256)"),
        ("size", "PIXELS", flags.a_size, "of a picture, such as 64 or 160x120 (default: 32,64,128)"),
        ("outputs", "NAMES", flags.some_outputs, "of a picture, such as rgb or rgb+depth (default: rgb,depth)"),
        ("renderer", "NAMES", flags.one_of(NAMES), "what draws: auto, gl or cpu (default: auto)"),
        (
            "transport",
            "NAMES",
            flags.one_of(TRANSPORTS),
            "the way to the worlds: local (no server), shm, unix or tcp (default: local,shm,tcp)",
        ),
    ):
        axes.add_argument(f"--{name}", type=flags.several(read), metavar=metavar, help=text)
    parser.add_argument(
        "--seconds",
        type=flags.seconds,
        metavar="S",
        help=f"how long to measure each configuration (default: {SECONDS:g}; with --attach {ATTACH_SECONDS:g})",
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="also write JSON, a trace, plots and a report there")
    running = parser.add_argument_group("a running server instead")
    running.add_argument("--attach", metavar="ADDRESS", help="HOST:PORT or unix:PATH: show what that server does")
    running.add_argument("--token-file", type=Path, metavar="FILE", help="that the server was started with")
    running.add_argument("--tls-ca", type=Path, metavar="FILE", help="certificates that the server's is signed with")
    running.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate of yours, where one is wanted")
    running.add_argument("--tls-key", type=Path, metavar="FILE", help="its key")


def run(args: argparse.Namespace) -> int:
    """Measure, say what was found, and write it down."""
    if args.attach is not None:
        return _attach(args)
    for name in _ACCESS:
        if getattr(args, name) is not None:
            raise ValueError(
                f"--{name.replace('_', '-')}: expected --attach ADDRESS with it; a sweep has its own servers"
            )
    given = {name: getattr(args, name) or value for name, value in DEFAULTS.items()}
    families, places = _find_families(given["family"])
    settings = {name: parse_assignments(find_family(name).settings, args.more_words) for name in families}
    renderers = _find_renderers(given["renderer"])
    cases = make_cases(families, given["lanes"], given["size"], given["outputs"], renderers, given["transport"])
    _make_folder(args.out)
    findings = Findings(settings, args.seconds or SECONDS, len(cases))
    was_interrupted = _sweep(cases, places, findings)
    if not findings.measured:
        if was_interrupted:
            return EXIT_INTERRUPTED
        case, problem = findings.failed[0]
        raise RuntimeError(f"nothing was measured: {case.name}: {problem}")
    print("\n".join(sweep_lines(findings)))
    if was_interrupted:
        print(f"interrupted: {len(findings.measured)} of {findings.planned} configurations were measured")
    _save(args.out, findings)
    if was_interrupted:
        return EXIT_INTERRUPTED
    return EXIT_FAILURE if findings.failed else EXIT_OK


def _sweep(cases: Sequence[Case], places: Sequence[str], findings: Findings) -> bool:
    """Measure one after the other; whether it was interrupted, which keeps what was measured before."""
    expected_s = len(cases) * (1.2 * findings.seconds + _OVERHEAD_S)
    try:
        with Servers(cases, places) as servers, Progress(len(cases), expected_s) as progress:
            for case in cases:
                progress.show(case.name)
                try:
                    is_local = case.transport == LOCAL
                    address = LOCAL if is_local else servers.address(case.renderer, case.transport)
                    findings.measured.append(measure(case, address, findings.settings[case.family], findings.seconds))
                except (ClientError, ValueError, OSError, RuntimeError) as error:
                    findings.failed.append((case, " ".join(str(error).split())))
    except KeyboardInterrupt:
        return True
    return False


def _attach(args: argparse.Namespace) -> int:
    for name in DEFAULTS:
        if getattr(args, name) is not None:
            raise ValueError(f"--{name} is for a sweep: expected none with --attach, where others choose what is drawn")
    if args.more_words:
        raise ValueError(f"{args.more_words[0]!r} is for a sweep: expected no settings with --attach")
    credentials = Credentials(read_token(args.token_file), args.tls_ca, args.tls_cert, args.tls_key)
    _make_folder(args.out)
    watched = watch(args.attach, credentials, args.seconds or ATTACH_SECONDS)
    print("\n".join(watched_lines(watched)))
    if args.out is not None:
        _write_json(args.out / "profile.json", watched.as_dict())
        _write_json(args.out / "trace.json", _trace_of(watched))
        print(f"\nsaved profile.json and trace.json in {args.out}")
    return EXIT_OK


def _trace_of(watched: Watched) -> dict[str, Any]:
    return {"traceEvents": trace_events(1, watched.address, watched.spans, watched.ticks), "displayTimeUnit": "ms"}


def _save(out: Path | None, findings: Findings) -> None:
    if out is None:
        return
    _write_json(out / "profile.json", findings.as_dict())
    _write_json(out / "trace.json", make_trace(findings.measured))
    (out / "report.html").write_text(make_report(findings), encoding="utf-8")
    save_png(out / "throughput.png", charts.throughput_panels(findings.measured), columns=3)
    stages = stages_in_use(one.shares for one in findings.measured)
    save_png(out / "stages.png", [charts.stage_panel(findings.measured)], columns=1, legend=stages)
    save_png(out / "growth.png", charts.growth_panels(findings.measured, findings.fits), columns=3)
    timelines = charts.timeline_panels(findings.measured)
    if timelines:
        save_png(out / "timeline.png", timelines, columns=2, legend=stages)
    saved = [name for name in _FILES if (out / name).exists()]
    print(f"saved in {out}: {', '.join(saved)}")


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _find_families(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The families' names, and where those are that are not installed."""
    places = [name for name in names if ":" in name]
    if places and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does; a command's own search path lacks it
    return [add_family(name).name if ":" in name else find_family(name).name for name in names], places


def _find_renderers(names: Sequence[str]) -> list[str]:
    """What the names stand for on this machine."""
    if "gl" in names and not list_devices():
        raise RuntimeError(f"--renderer gl: no graphics device was found. {explain_missing()} Or say --renderer cpu")
    return list(dict.fromkeys(choose(name).name for name in names))


def _make_folder(path: Path | None) -> None:
    """Find out before anything is measured whether it can be written down."""
    if path is None:
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".profile"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OSError(f"--out {path}: cannot write there: {error.strerror} ({error.filename})") from error
