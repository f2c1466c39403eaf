"""Puts what was measured into a page: between two marks, so that the words around it stay."""

from collections.abc import Iterable, Sequence
from pathlib import Path

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table; columns that hold numbers only are set to the right."""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    if any(len(row) != len(heads) for row in rows):
        raise ValueError(
            f"rows of {sorted({len(row) for row in rows})} cells: expected {len(heads)}, one for each head"
        )
    rules = ["---:" if all(_is_number(row[k]) for row in rows) else "---" for k in range(len(heads))]
    return [f"| {' | '.join(row)} |" for row in [heads]] + [
        f"|{'|'.join(rules)}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def ratio(value: float, to: float | None) -> str:
    """How many times as much, in words as tables have it."""
    if to is None:
        return ""
    times = value / to
    return f"{times:.0f} ×" if times >= 10 else f"{times:.1f} ×" if times >= 2 else f"{times:.2f} ×"


def put_between(text: str, lines: Sequence[str]) -> str:
    """The text with these lines between its marks, in place of those that were there."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the page has no place for a table: expected {BEGIN} and after it {END}, each once")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return "\n".join([before + BEGIN, *lines, END + after])


def write_page(page: Path, lines: Sequence[str]) -> None:
    """Put these lines into a file."""
    page.write_text(put_between(page.read_text(), lines))


def _is_number(cell: str) -> bool:
    return not cell.strip("0123456789.,× ")
