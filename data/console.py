"""Parts that the commands of this package share: sizes in options, signals, and how figures are written."""

import argparse
import signal


def parse_size(text: str) -> tuple[int, int]:
    """Return the width and height of an option such as 64 or 160x120."""
    sides = text.lower().replace("×", "x").split("x")
    if len(sides) > 2 or not all(side.isdecimal() and 0 < int(side) < 2**16 for side in sides):
        raise argparse.ArgumentTypeError(f"expected a size such as 64 or 160x120, got {text!r}")
    return int(sides[0]), int(sides[-1])


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
