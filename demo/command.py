"""`worldloom demo`: a server and real clients in one go, what they reached together, and pictures of it.

What happens in a demo, from the start of its server to the last picture.
"""

import argparse
import math
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import grpc
from dm_env_rpc.v1.error import DmEnvRpcError

from worldloom.client import ClientError
from worldloom.demo.clients import FAMILIES, Crowd, SingleStreams, VectorWorlds, Watch
from worldloom.demo.film import FRAME_S, shoot
from worldloom.demo.own_server import flags_of, own_server
from worldloom.demo.progress import progress
from worldloom.demo.report import Figures, report
from worldloom.render.gif import write_gif
from worldloom.render.png import write_png
from worldloom.server.cli import EXIT_INTERRUPTED, EXIT_OK
from worldloom.server.config import OPTIONS, Limits, ServeConfig

MOST_LANES, MOST_STREAMS, LEAST_SIZE, MOST_SIZE, MOST_FRAMES, MOST_SECONDS = 16_384, 64, 8, 512, 250, 3600.0
_TERMINATED = 128 + signal.SIGTERM


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `worldloom demo`."""
    renderer = next(option for option in OPTIONS if option.name == "renderer")
    parser.add_argument("--renderer", choices=renderer.choices, default=renderer.default, help="what draws")
    parser.add_argument("--device", type=int, metavar="N", help="the graphics device to draw on, as doctor lists them")
    parser.add_argument(
        "--lanes", type=_whole(1, MOST_LANES), default=256, metavar="N", help="worlds in each family's vector world"
    )
    parser.add_argument(
        "--streams", type=_whole(1, MOST_STREAMS), default=8, metavar="N", help="single streams of each family"
    )
    parser.add_argument("--seconds", type=_seconds, default=3.0, metavar="S", help="how long to step in all")
    parser.add_argument(
        "--size", type=_whole(LEAST_SIZE, MOST_SIZE), default=64, metavar="PIXELS", help="width and height of a picture"
    )
    parser.add_argument("--frames", type=_whole(1, MOST_FRAMES), default=40, metavar="N", help="frames of the film")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/demo.png"),
        metavar="FILE",
        help="the sheet to write; the film goes beside",
    )


def run(args: argparse.Namespace) -> int:
    """Serve, step, say how fast it went, and save pictures."""
    if args.out.suffix.lower() != ".png":
        raise ValueError(f"--out {args.out}: expected a name that ends in .png")
    film = args.out.with_suffix(".gif")
    _check_size(args.lanes, args.size)
    for path in (args.out, film):
        _make_writable(path)
    ServeConfig(renderer=args.renderer, device=args.device)  # what cannot be is told before a server is started
    told: list[int] = []

    def stop(number: int, _frame: object) -> None:
        told.append(number)
        raise KeyboardInterrupt

    before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        # Imported here: gRPC takes a while to load, and a wrong option is told at once.
        from worldloom.demo.command import show

        show(args, film)
    except (KeyboardInterrupt, RuntimeError):
        if not told:
            raise
        # Where a lock was being taken or given back, stopping may come out as an error of that lock.
        if told[0] == signal.SIGTERM:
            return _TERMINATED
        start = "\n" if sys.stderr.isatty() else ""  # after the ^C that a terminal shows
        print(f"{start}stopped, and the server with it", file=sys.stderr)
        return EXIT_INTERRUPTED
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    return EXIT_OK


def _check_size(lanes: int, size: int) -> None:
    step_bytes, most_bytes = lanes * size * size * 3, Limits().max_reply_bytes // 2
    if step_bytes > most_bytes:
        raise ValueError(
            f"--lanes {lanes} of --size {size} are {step_bytes:,} bytes of pictures in a step: "
            f"expected at most {most_bytes:,}; take fewer, or smaller ones"
        )


def _make_writable(path: Path) -> None:
    """Make the folder, and find out before anything is drawn whether the picture can be saved."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        was_there = path.exists()
        with path.open("ab"):
            pass
        if not was_there:
            path.unlink()
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror} ({error.filename})") from error


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, got {text!r}")
        return number

    return parse


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"expected a number above 0, at most {MOST_SECONDS:.0f}, got {text!r}")
    return number


_REMARK = "(All clients are threads of one Python process.)"


def show(args: argparse.Namespace, film: Path) -> None:
    """Serve, step, say how fast it went, and save pictures. What goes wrong is a RuntimeError in one line."""
    print("starting a server in another process", file=sys.stderr, flush=True)
    with own_server(*flags_of([("renderer", args.renderer), ("device", args.device)])) as server:
        try:
            with closing(Watch(server.address)) as watch:
                drawn_by = f"{watch.text('server.renderer')}, {watch.text('server.device')}"
                print(f"server: process {server.pid} at {server.address}, renderer {drawn_by}", flush=True)
                found = []
                for crowd in (
                    lambda: SingleStreams(server.address, args.streams, args.size),
                    lambda: VectorWorlds(server.address, args.lanes, args.size),
                ):
                    with closing(crowd()) as clients:
                        found.append(_measure(clients, watch, args.seconds / 2))
            print(f"\n{args.size} x {args.size} rgb\n" + "\n".join(report(found)) + f"\n{_REMARK}\n", flush=True)
            _take_pictures(server.address, args.frames, args.out, film)
        except grpc.RpcError as error:
            raise RuntimeError(f"lost the server at {server.address}: {error.details()}") from error
        except (ClientError, DmEnvRpcError) as error:
            raise RuntimeError(str(error)) from error


def _measure(crowd: Crowd, watch: Watch, seconds: float) -> Figures:
    """Step for so long."""
    with progress(f"{crowd.name}, {seconds:g} s") as tell:
        before = watch.read()
        began_s = time.perf_counter()

        def is_over() -> bool:
            passed_s = time.perf_counter() - began_s
            steps = [crowd.steps(family) for family in FAMILIES]
            tell(min(1.0, passed_s / seconds), f"{sum(steps) / passed_s:,.0f} frames a second")
            return passed_s >= seconds and all(steps)

        crowd.step_until(is_over)
        steps = {family: crowd.steps(family) for family in FAMILIES}
        return Figures(crowd.name, crowd.way, crowd.worlds, steps, watch.read().since(before))


def _take_pictures(address: str, count: int, sheet: Path, film: Path) -> None:
    with progress("filming") as tell:
        frames, still = shoot(address, count, lambda part: tell(0.6 * part, ""))
        write_png(sheet, still)
        tell(0.6, "writing it")
        write_gif(film, frames, FRAME_S)
    print(f"saved {sheet}: some of the worlds; of its last row of them also depth and labels")
    print(f"saved {film}: {count} frames of them")
