"""Parts that the commands of this package share: options of sizes and servers, signals, and how figures are written."""

import argparse
import signal
from pathlib import Path
from typing import Any

from worldloom.render.choose import NAMES
from worldloom.server.transports.security import read_token

_SERVER_OPTIONS = ("token_file", "tls_ca", "tls_cert", "tls_key")


def parse_size(text: str) -> tuple[int, int]:
    """Return the width and height of an option such as 64 or 160x120."""
    sides = text.lower().replace("×", "x").split("x")
    if len(sides) > 2 or not all(side.isdecimal() and 0 < int(side) < 2**16 for side in sides):
        raise argparse.ArgumentTypeError(f"expected a size such as 64 or 160x120, got {text!r}")
    return int(sides[0]), int(sides[-1])


def add_server_arguments(group: "argparse._ArgumentGroup") -> None:
    """Declare the options that say where frames are drawn."""
    group.add_argument("--renderer", choices=NAMES, help="renderer of this process (default: auto)")
    group.add_argument("--server", metavar="ADDRESS", help="HOST:PORT or unix:PATH of a server")
    group.add_argument("--token-file", type=Path, metavar="FILE", help="the file that the server was started with")
    group.add_argument("--tls-ca", type=Path, metavar="FILE", help="certificates that the server's is signed with")
    group.add_argument("--tls-cert", type=Path, metavar="FILE", help="your certificate, where the server requires one")
    group.add_argument("--tls-key", type=Path, metavar="FILE", help="key of that certificate")


def find_server(args: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Return the address to draw at, and the arguments of a client for it."""
    given = {name: getattr(args, name) for name in _SERVER_OPTIONS if getattr(args, name) is not None}
    if args.server is None:
        if given:
            option = next(iter(given)).replace("_", "-")
            raise ValueError(f"--{option}: expected --server ADDRESS with it")
        return "local", {} if args.renderer is None else {"renderer": args.renderer}
    if args.renderer is not None:
        raise ValueError("--renderer with --server: expected one of them; the server has its own renderer")
    if "token_file" in given:
        given["token"] = read_token(given.pop("token_file"))
    return args.server, given


class StopSignals:
    """Signals that stop a run: the first one when the run comes to its next step, a further one at once.

    An exception that a signal raises at any place may meet an import, which leaves modules half made and locks held.
    Before the first step is asked about, such as while kernels are compiled, the first signal raises it nevertheless.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        """The signal that came first."""
        self._is_polled = False
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._before = {one: signal.signal(one, self._handle) for one in numbers}

    def poll(self) -> bool:
        """Return whether a signal has come."""
        self._is_polled = True
        return self.number is not None

    def restore(self) -> None:
        """Give the signals back to those who had them before."""
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def _handle(self, number: int, _frame: object) -> None:
        is_first = self.number is None
        self.number = self.number or number
        if not (self._is_polled and is_first):
            raise KeyboardInterrupt


def format_seconds(seconds: float) -> str:
    """Return a time as people say it: 45 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def format_bytes(size: float) -> str:
    """Return a size with its unit: 12.5 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
