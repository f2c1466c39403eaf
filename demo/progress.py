"""How far something is: a bar that grows on a terminal, plain lines elsewhere. Both on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_BAR = 24
_REDRAW_S = 0.1
_LINES = 4
"""Into how many parts plain lines divide the whole."""


@contextmanager
def progress(what: str) -> Iterator[Callable[[float, str], None]]:
    """Call what comes back with the part that is done, 0 to 1, and a word on it. The bar is wiped away at the end."""
    out = sys.stderr
    is_terminal = out.isatty()
    shown_at_s = -_REDRAW_S
    lines_done = 0
    if not is_terminal:
        print(what, file=out, flush=True)

    def show(part: float, note: str) -> None:
        nonlocal shown_at_s, lines_done
        if is_terminal:
            if time.monotonic() - shown_at_s >= _REDRAW_S:
                shown_at_s = time.monotonic()
                bar = "#" * round(part * _BAR)
                print(f"\r\033[K[{bar:.<{_BAR}}] {what}  {note}", end="", file=out, flush=True)
        elif int(part * _LINES) > lines_done:
            lines_done = int(part * _LINES)
            print(f"{what}: {part:.0%}  {note}".rstrip(), file=out, flush=True)

    try:
        show(0.0, "")
        yield show
    finally:
        if is_terminal:
            print("\r\033[K", end="", file=out, flush=True)
