"""Progress bars and tables for people at a terminal, drawn by rich, and plain text everywhere else.

Progress goes to stderr: bars on a terminal, a few plain lines elsewhere. Tables go to stdout: fitted to the window on a
terminal; elsewhere plain columns without colours, one row a line, for grep and awk. Where COLUMNS is set, lines are
wrapped to it in either case.

Every package may use this module; it imports nothing of worldloom. rich is imported when something is drawn with it:
importing it takes longer than most commands need to start.
"""

import io
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress
    from rich.table import Table

_REDRAW_S = 0.1
_BAR_WIDTH = 24
_PLAIN_LINES = 4
"""Parts that plain lines divide the progress into."""
_MAX_TEXT_WIDTH = 120
"""Longer lines of text are hard to read, however wide the window."""
_UNWRAPPED_WIDTH = 100_000
"""Width where nothing is to be wrapped."""
_MIN_TEXT_WIDTH = 30
"""A last column narrower than this is written below the others instead."""


def is_terminal(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal that can redraw lines."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class _Bars:
    """The progress bars of this process: one display of rich, since several threads may report at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._display: Progress | None = None
        self._count = 0

    @contextmanager
    def add(self, title: str) -> Iterator[Callable[[float, str], None]]:
        """Show one more bar; the display is wiped when the last one ends."""
        with self._lock:
            if self._display is None:
                self._display = _make_display()
                self._display.start()
            display = self._display
            self._count += 1
        task = display.add_task(title, total=1.0, note="")
        redrawn_s = -_REDRAW_S

        def update(fraction: float, note: str = "") -> None:
            nonlocal redrawn_s
            if time.monotonic() - redrawn_s >= _REDRAW_S:
                redrawn_s = time.monotonic()
                display.update(task, completed=fraction, note=note, refresh=True)

        try:
            yield update
        finally:
            display.remove_task(task)
            with self._lock:
                self._count -= 1
                if not self._count:
                    self._display = None
                    display.stop()


def _make_display() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    return Progress(
        BarColumn(_BAR_WIDTH, table_column=Column(no_wrap=True)),
        # One line: what is interrupted while it is wider than the window could not be wiped.
        TextColumn(
            "{task.percentage:>3.0f}% {task.description}  {task.fields[note]}",
            markup=False,
            table_column=Column(no_wrap=True, overflow="ellipsis"),
        ),
        console=Console(file=sys.stderr),
        auto_refresh=False,  # no thread: callers report often enough
        transient=True,
    )


_bars = _Bars()


@contextmanager
def show_progress(title: str, plain_lines: bool = True) -> Iterator[Callable[[float, str], None]]:
    """Show a progress bar on stderr while the block runs; yield the function that updates it.

    The function takes the fraction that is done, 0 to 1, and a note. It may be called often. Where stderr is not a
    terminal, the title is written as a line and then another at each quarter, unless `plain_lines` is False.
    """
    if is_terminal(sys.stderr):
        with _bars.add(title) as update:
            update(0.0, "")
            yield update
        return
    written = 0

    def write_line(fraction: float, note: str = "") -> None:
        nonlocal written
        if plain_lines and int(fraction * _PLAIN_LINES) > written:
            written = int(fraction * _PLAIN_LINES)
            print(f"{title}: {fraction:.0%}  {note}".rstrip(), file=sys.stderr, flush=True)

    if plain_lines:
        print(title, file=sys.stderr, flush=True)
    yield write_line


def print_heading(text: str) -> None:
    """Print a heading, bold on a terminal."""
    from rich.text import Text

    _print(Text(text, style="bold"), _text_width())


def print_text(text: str, indent: int = 0) -> None:
    """Print a paragraph, wrapped and indented."""
    from rich.text import Text

    _print(Text(text), _text_width(), indent)


def print_columns(rows: Sequence[Sequence[str]], indent: int = 2) -> None:
    """Print rows of cells in columns; the last cell of each row is a text that may be wrapped.

    Columns without any content are left out. In a window too narrow for the texts they go below the other cells.
    """
    if not rows:
        return
    from rich.table import Table
    from rich.text import Text

    width = _text_width()
    used = [column for column in range(len(rows[0]) - 1) if any(row[column] for row in rows)]
    taken = indent + sum(2 + max(len(row[column]) for row in rows) for column in used)
    if width - taken < _MIN_TEXT_WIDTH:
        for row in rows:
            _print(Text("  ".join(row[column] for column in used)), width, indent)
            if row[-1]:
                _print(Text(row[-1]), width, indent + 4)
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for place in range(len(used)):
        table.add_column(no_wrap=True, style="cyan" if place == 0 else "")
    table.add_column()
    for row in rows:
        table.add_row(*(Text(row[column]) for column in used), Text(row[-1]))
    _print(table, width, indent)


def print_table(rows: Sequence[Sequence[str]], text_columns: int, heads: Sequence[str] = (), indent: int = 2) -> None:
    """Print a table of figures: the first columns are texts, aligned left, the others figures, aligned right."""
    width = _window_width()
    _print(_make_table(rows, text_columns, heads, width - indent), width, indent)


@contextmanager
def show_live() -> Iterator[Callable[[str, Sequence[Sequence[str]], int, Sequence[str], Sequence[str]], None]]:
    """Show a table on a terminal that is drawn anew while the block runs; yield the function that does.

    Its arguments are a heading, the rows, the number of columns that are texts, the heads, and lines below the table.
    """
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:

        def draw(
            heading: str, rows: Sequence[Sequence[str]], text_columns: int, heads: Sequence[str], notes: Sequence[str]
        ) -> None:
            table = _make_table(rows, text_columns, heads, console.width)
            live.update(Group(Text(heading, style="bold"), table, *map(Text, notes)), refresh=True)

        yield draw


def _make_table(rows: Sequence[Sequence[str]], text_columns: int, heads: Sequence[str], width: int) -> "Table":
    from rich.table import Table
    from rich.text import Text

    widths = [max(map(len, column)) for column in zip(*rows, *([heads] if heads else []), strict=True)]
    gap = 2 if sum(widths) + 2 * len(widths) - 2 <= width else 1
    table = Table(box=None, show_header=bool(heads), header_style="bold", padding=(0, gap, 0, 0), pad_edge=False)
    for column in range(len(widths)):
        table.add_column(
            Text(heads[column] if heads else ""),
            justify="left" if column < text_columns else "right",
            overflow="fold",
            style="cyan" if column == 0 else "",
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _window_width() -> int:
    """Return the columns of the window, or what COLUMNS says, or a width at which nothing is wrapped."""
    if is_terminal(sys.stdout) or "COLUMNS" in os.environ:
        return shutil.get_terminal_size().columns
    return _UNWRAPPED_WIDTH


def _text_width() -> int:
    width = _window_width()
    return width if width == _UNWRAPPED_WIDTH else min(width, _MAX_TEXT_WIDTH)


def _print(content: "RenderableType", width: int, indent: int = 0) -> None:
    from rich.console import Console
    from rich.padding import Padding

    shown = Padding(content, (0, 0, 0, indent), expand=False)
    if is_terminal(sys.stdout):
        Console(file=sys.stdout, width=width, highlight=False).print(shown)
        return
    text = io.StringIO()
    Console(file=text, width=width, color_system=None, highlight=False).print(shown)
    for line in text.getvalue().splitlines():
        print(line.rstrip())
