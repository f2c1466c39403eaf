"""`worldloom demo`: options, checks before anything starts, and an orderly end on SIGINT and SIGTERM."""

import argparse
import math
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from worldloom.server.cli import EXIT_INTERRUPTED, EXIT_OK
from worldloom.server.config import OPTIONS, Limits, ServeConfig

MAX_LANES, MAX_STREAMS, MIN_SIZE, MAX_SIZE, MAX_FRAMES, MAX_SECONDS = 16_384, 64, 8, 512, 250, 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `worldloom demo`."""
    renderer = next(option for option in OPTIONS if option.name == "renderer")
    parser.add_argument("--renderer", choices=renderer.choices, default=renderer.default, help="renderer to draw with")
    parser.add_argument("--device", type=int, metavar="N", help="graphics device to draw on, as doctor lists them")
    parser.add_argument(
        "--lanes", type=_whole(1, MAX_LANES), default=256, metavar="N", help="lanes of each family's vector world"
    )
    parser.add_argument(
        "--streams", type=_whole(1, MAX_STREAMS), default=8, metavar="N", help="single streams of each family"
    )
    parser.add_argument("--seconds", type=_seconds, default=3.0, metavar="S", help="time to step for in all")
    parser.add_argument(
        "--size", type=_whole(MIN_SIZE, MAX_SIZE), default=64, metavar="PIXELS", help="width and height of a frame"
    )
    parser.add_argument("--frames", type=_whole(1, MAX_FRAMES), default=40, metavar="N", help="frames of the video")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/demo.png"),
        metavar="FILE",
        help="contact sheet to write; the video is written beside it as a GIF",
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo and return the exit code."""
    if args.out.suffix.lower() != ".png":
        raise ValueError(f"--out {args.out}: expected a name that ends in .png")
    video = args.out.with_suffix(".gif")
    _check_step_bytes(args.lanes, args.size)
    for path in (args.out, video):
        _check_writable(path)
    ServeConfig(renderer=args.renderer, device=args.device)  # raises for what the server would not accept
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else clients log that their server has ended
    received: list[int] = []

    def stop(number: int, _frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        from worldloom.demo.run import run_demo

        run_demo(args, video)
    except (KeyboardInterrupt, RuntimeError):
        if not received:
            raise
        # A KeyboardInterrupt inside the acquire or release of a lock may surface as a RuntimeError of that lock.
        if received[0] != signal.SIGINT:
            return 128 + received[0]
        start = "\n" if sys.stderr.isatty() else ""  # after the ^C that a terminal shows
        print(f"{start}stopped, and the server with it", file=sys.stderr)
        return EXIT_INTERRUPTED
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    return EXIT_OK


def _check_step_bytes(lanes: int, size: int) -> None:
    step_bytes, max_bytes = lanes * size * size * 3, Limits().max_reply_bytes // 2
    if step_bytes > max_bytes:
        raise ValueError(
            f"--lanes {lanes} of --size {size} are {step_bytes:,} bytes of frames in a step: "
            f"expected at most {max_bytes:,}; give fewer lanes or a smaller size"
        )


def _check_writable(path: Path) -> None:
    """Create the folder and check that the file can be written, before anything is drawn."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        existed = path.exists()
        with path.open("ab"):
            pass
        if not existed:
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
    if not 0 < number <= MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"expected a number above 0, at most {MAX_SECONDS:.0f}, got {text!r}")
    return number
