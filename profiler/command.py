"""`worldloom profile`: options, the sweep, and the files of its results.

Most options take several values with commas between: `16,64,256`. Plots and the report need matplotlib, which the extra
`report` brings; without it everything else is written.
"""

import argparse
import importlib
import importlib.util
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from worldloom.client.connections import Credentials
from worldloom.client.errors import ClientError
from worldloom.kernels.outputs import OUTPUT_NAMES
from worldloom.profiler.attach import observe_server, print_activity
from worldloom.profiler.measure import TRANSPORTS, Configuration, SweepServers, list_configurations, measure
from worldloom.profiler.results import SweepResult
from worldloom.profiler.tables import print_sweep, stages_in_use
from worldloom.profiler.trace import sweep_trace, trace_events
from worldloom.render.choose import NAMES, choose
from worldloom.render.devices import explain_missing, list_devices
from worldloom.server.cli import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK
from worldloom.server.transports.security import read_token
from worldloom.terminal import print_text, show_progress
from worldloom.worlds.randomisation.settings import VARIATION_SETTINGS
from worldloom.worlds.registry import add_family, find_family
from worldloom.worlds.settings import parse_assignments

MAX_LANES, MAX_SIDE, MAX_SECONDS = 65_536, 4096, 3600.0

T = TypeVar("T")


def _several(parse_one: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Return a parser of values with commas between; repeated values count once."""

    def parse(text: str) -> tuple[T, ...]:
        return tuple(dict.fromkeys(parse_one(word.strip()) for word in text.split(",")))

    return parse


def _lanes(text: str) -> int:
    """Parse one value of --lanes."""
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MAX_LANES:
        raise argparse.ArgumentTypeError(f"expected whole numbers from 1 to {MAX_LANES}, got {text!r}")
    return int(text)


def _size(text: str) -> tuple[int, int]:
    """Parse one value of --size: 64, or 160x120."""
    sides = text.lower().replace("×", "x").split("x")
    if len(sides) > 2 or not all(side.isdecimal() and 1 <= int(side[:9]) <= MAX_SIDE for side in sides):
        raise argparse.ArgumentTypeError(
            f"expected sizes such as 64 or 160x120, each side from 1 to {MAX_SIDE} pixels, got {text!r}"
        )
    return int(sides[0]), int(sides[-1])


def _outputs(text: str) -> tuple[str, ...]:
    """Parse one value of --outputs: rgb, or rgb+depth."""
    names = text.split("+")
    if not all(name in OUTPUT_NAMES for name in names):
        raise argparse.ArgumentTypeError(
            f"expected some of {', '.join(OUTPUT_NAMES)}, with + between those of one frame, got {text!r}"
        )
    return tuple(output for output in OUTPUT_NAMES if output in names)


def _one_of(choices: Sequence[str]) -> Callable[[str], str]:
    """Return a parser of one of these values."""

    def parse(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(choices)}, got {text!r}")
        return text

    return parse


def _seconds(text: str) -> float:
    """Parse the value of --seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"expected a number above 0, at most {MAX_SECONDS:.0f}, got {text!r}")
    return number


DEFAULTS: dict[str, Any] = {
    "family": ("maze",),
    "lanes": (16, 64, 256),
    "size": ((32, 32), (64, 64), (128, 128)),
    "outputs": (("rgb",), ("depth",)),
    "renderer": ("auto",),
    "transport": ("local", "socket", "tcp"),
}
"""Default values of what a sweep varies."""
SECONDS, ATTACH_SECONDS = 1.0, 2.0
_ACCESS = ("token_file", "tls_ca", "tls_cert", "tls_key")
_OVERHEAD_S = 0.5
"""Time of a configuration beside the measuring: creating a world, warming up."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `worldloom profile`."""
    parser.add_argument("more_words", nargs="*", default=[], metavar="NAME=VALUE", help="settings of the family")
    axes = parser.add_argument_group("what is varied", "each takes several values with commas between")
    for name, metavar, read, text in (
        ("family", "NAMES", str, "family of worlds, or MODULE:CLASS of your own (default: maze)"),
        ("lanes", "NUMBERS", _lanes, "lanes of the world (default: 16,64,256)"),
        ("size", "PIXELS", _size, "size of a frame, such as 64 or 160x120 (default: 32,64,128)"),
        ("outputs", "NAMES", _outputs, "outputs of a frame, such as rgb or rgb+depth (default: rgb,depth)"),
        ("renderer", "NAMES", _one_of(NAMES), "auto, gl or cpu (default: auto)"),
        (
            "transport",
            "NAMES",
            _one_of(TRANSPORTS),
            "local (no server), socket, shm, unix, tcp or tls (default: local,socket,tcp)",
        ),
    ):
        axes.add_argument(f"--{name}", type=_several(read), metavar=metavar, help=text)
    parser.add_argument(
        "--seconds",
        type=_seconds,
        metavar="S",
        help=f"time to measure each configuration for (default: {SECONDS:g}; with --attach {ATTACH_SECONDS:g})",
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="also write JSON, a trace, plots and a report there")
    running = parser.add_argument_group("attach to a running server instead")
    running.add_argument("--attach", metavar="ADDRESS", help="HOST:PORT or unix:PATH: show what that server does")
    running.add_argument("--token-file", type=Path, metavar="FILE", help="the file that the server was started with")
    running.add_argument("--tls-ca", type=Path, metavar="FILE", help="certificates that the server's is signed with")
    running.add_argument(
        "--tls-cert", type=Path, metavar="FILE", help="your certificate, where the server requires one"
    )
    running.add_argument("--tls-key", type=Path, metavar="FILE", help="key of that certificate")


def run(args: argparse.Namespace) -> int:
    """Measure, print the results, and write their files; return the exit code. SIGTERM and SIGHUP end the servers."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else clients log that their server has ended
    before = {one: signal.signal(one, _exit) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        return _run(args)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _exit(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _run(args: argparse.Namespace) -> int:
    if args.attach is not None:
        return _attach(args)
    for name in _ACCESS:
        if getattr(args, name) is not None:
            raise ValueError(
                f"--{name.replace('_', '-')}: expected --attach ADDRESS with it; a sweep starts its own servers"
            )
    given = {name: getattr(args, name) or value for name, value in DEFAULTS.items()}
    families, places = _find_families(given["family"])
    settings = {
        name: parse_assignments((*find_family(name).settings, *VARIATION_SETTINGS), args.more_words)
        for name in families
    }
    renderers = _find_renderers(given["renderer"])
    configurations = list_configurations(
        families, given["lanes"], given["size"], given["outputs"], renderers, given["transport"]
    )
    _create_folder(args.out)
    result = SweepResult(settings, args.seconds or SECONDS, len(configurations))
    was_interrupted = _sweep(configurations, places, result)
    if not result.measured:
        if was_interrupted:
            return EXIT_INTERRUPTED
        configuration, problem = result.failed[0]
        raise RuntimeError(f"nothing was measured: {configuration.name}: {problem}")
    print_sweep(result)
    if was_interrupted:
        print(f"interrupted: {len(result.measured)} of {result.planned} configurations were measured")
    _save(args.out, result)
    if was_interrupted:
        return EXIT_INTERRUPTED
    return EXIT_FAILURE if result.failed else EXIT_OK


def _sweep(configurations: Sequence[Configuration], places: Sequence[str], result: SweepResult) -> bool:
    """Measure one after the other; return True if interrupted. What was measured before is kept."""
    count = len(configurations)
    left_s = count * (1.2 * result.seconds + _OVERHEAD_S)
    try:
        with (
            SweepServers(configurations, places) as servers,
            show_progress(f"measuring {count} configuration{'s' * (count != 1)}, about {left_s:.0f} s") as update,
        ):
            began_s = time.monotonic()
            for done, one in enumerate(configurations):
                if done:
                    left_s = (time.monotonic() - began_s) / done * (count - done)
                update(done / count, f"{done} of {count}, {left_s:.0f} s left: {one.name}")
                try:
                    target = servers.target(one.renderer, one.transport)
                    result.measured.append(measure(one, target, result.settings[one.family], result.seconds))
                except (ClientError, ValueError, OSError, RuntimeError) as error:
                    result.failed.append((one, " ".join(str(error).split())))
    except KeyboardInterrupt:
        return True
    return False


def _attach(args: argparse.Namespace) -> int:
    for name in DEFAULTS:
        if getattr(args, name) is not None:
            raise ValueError(f"--{name} is for a sweep: expected none with --attach, which creates no world")
    if args.more_words:
        raise ValueError(f"{args.more_words[0]!r} is for a sweep: expected no settings with --attach")
    credentials = Credentials(read_token(args.token_file), args.tls_ca, args.tls_cert, args.tls_key)
    _create_folder(args.out)
    activity = observe_server(args.attach, credentials, args.seconds or ATTACH_SECONDS)
    print_activity(activity)
    if args.out is not None:
        _write_json(args.out / "profile.json", activity.as_dict())
        events = trace_events(1, activity.address, activity.spans, activity.ticks)
        _write_json(args.out / "trace.json", {"traceEvents": events, "displayTimeUnit": "ms"})
        print(f"\nsaved profile.json and trace.json in {args.out}")
    return EXIT_OK


def _save(out: Path | None, result: SweepResult) -> None:
    if out is None:
        return
    _write_json(out / "profile.json", result.as_dict())
    _write_json(out / "trace.json", sweep_trace(result.measured))
    problem = _problem_of_matplotlib()
    if problem is not None:
        print(f"saved in {out}: profile.json, trace.json")
        print_text(f'Plots and the report need matplotlib{problem}: pip install "worldloom[report]"')
        return
    saved = ["profile.json", "trace.json", *_save_report(out, result)]
    print(f"saved in {out}: {', '.join(saved)}")


def _problem_of_matplotlib() -> str | None:
    """Return why matplotlib cannot be used, empty if it is not installed; None if it can."""
    if importlib.util.find_spec("matplotlib") is None:
        return ""
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        return f", which fails to load here ({error})"
    return None


def _save_report(out: Path, result: SweepResult) -> list[str]:
    """Write the report and the plots; return the names of the files."""
    # Imported here: matplotlib comes with an extra, and takes a second to load.
    from worldloom.profiler import plots
    from worldloom.profiler.report import render_report

    (out / "report.html").write_text(render_report(result), encoding="utf-8")
    stages = stages_in_use(one.shares for one in result.measured)
    timelines = plots.timeline_panels(result.measured)
    plots.save_png(out / "throughput.png", plots.throughput_panels(result.measured), columns=3)
    plots.save_png(out / "stages.png", [plots.stage_panel(result.measured)], columns=1, stages=stages)
    plots.save_png(out / "growth.png", plots.growth_panels(result.measured, result.fits), columns=3)
    if timelines:
        plots.save_png(out / "timeline.png", timelines, columns=2, stages=stages)
    names = ["report.html", "throughput.png", "stages.png", "growth.png"]
    return [*names, "timeline.png"] if timelines else names


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _find_families(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of families, and the MODULE:CLASS of those that are not installed."""
    places = [name for name in names if ":" in name]
    if places and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does; a command's own search path lacks it
    return [add_family(name).name if ":" in name else find_family(name).name for name in names], places


def _find_renderers(names: Sequence[str]) -> list[str]:
    """Return the renderers that the names mean on this machine."""
    if "gl" in names and not list_devices():
        raise RuntimeError(f"--renderer gl: no graphics device was found. {explain_missing()} Or use --renderer cpu")
    return list(dict.fromkeys(choose(name).name for name in names))


def _create_folder(path: Path | None) -> None:
    """Create the folder and check that it can be written, before anything is measured."""
    if path is None:
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".profile"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OSError(f"--out {path}: cannot write there: {error.strerror} ({error.filename})") from error
