"""How far a sweep has come, on a terminal."""

import sys
import time
from typing import Self

_WIDTH = 24
_WIPE = "\r\033[K"


class Progress:
    """A line that changes as cases are done, and is wiped away at the end. Elsewhere than on a terminal, one line."""

    def __init__(self, count: int, expected_s: float) -> None:
        self._count = count
        self._done = 0
        self._began_s = time.monotonic()
        self._expected_s = expected_s
        self._is_terminal = sys.stderr.isatty()

    def __enter__(self) -> Self:
        if not self._is_terminal:
            print(
                f"measuring {self._count} configurations, about {self._expected_s:.0f} s", file=sys.stderr, flush=True
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal:
            print(_WIPE, end="", file=sys.stderr, flush=True)

    def show(self, name: str) -> None:
        """This one is next."""
        if self._is_terminal:
            bar = "#" * round(_WIDTH * self._done / self._count)
            left_s = self._expected_s
            if self._done:
                left_s = (time.monotonic() - self._began_s) / self._done * (self._count - self._done)
            line = f"{_WIPE}[{bar:.<{_WIDTH}}] {self._done} of {self._count}, {left_s:.0f} s left: {name}"
            print(line, end="", file=sys.stderr, flush=True)
        self._done += 1
