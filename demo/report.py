"""What a demo says of itself, in columns: one for each crowd of clients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from worldloom.demo.clients import Reading


@dataclass(frozen=True)
class Figures:
    """What one crowd reached."""

    name: str
    way: str
    """How pictures come."""
    worlds: int
    steps: Mapping[str, int]
    """Of worlds, by family, as the clients counted them."""
    gained: Reading
    """As the server counted meanwhile."""


def report(found: Sequence[Figures]) -> list[str]:
    """The table."""

    def row(name: str, cell: Callable[[Figures], str]) -> list[str]:
        return [name, *(cell(one) for one in found)]

    rows = [row("", lambda one: one.name)]
    rows.append(row("pictures come", lambda one: one.way))
    rows.append(row("worlds", lambda one: f"{one.worlds:,}"))
    rows.append(row("frames a second", lambda one: f"{one.gained.frames / one.gained.second:,.0f}"))
    rows += [row(f"  {family}", partial(_family, family)) for family in found[0].steps]
    rows.append(row("mean batch, streams", lambda one: f"{_in_a_batch(one, one.gained.steps):,.1f}"))
    rows.append(row("mean batch, worlds", lambda one: f"{_in_a_batch(one, one.gained.lane_steps):,.1f}"))
    if all(_stages_s(one) > 0 for one in found):
        rows.append(row("time of a batch, ms", lambda one: f"{1e3 * _in_a_batch(one, _stages_s(one)):.2f}       "))
        # Without those that took no time, such as what only the other renderer does.
        stages = [stage for stage in found[0].gained.stage_s if any(one.gained.stage_s[stage] for one in found)]
        rows += [row(f"  {stage}", partial(_stage, stage)) for stage in stages]
    return _in_columns(rows)


def _in_a_batch(one: Figures, count: float) -> float:
    return count / max(1, one.gained.ticks)


def _stages_s(one: Figures) -> float:
    return sum(one.gained.stage_s.values())


def _family(family: str, one: Figures) -> str:
    return f"{one.steps[family] / one.gained.second:,.0f}"


def _stage(stage: str, one: Figures) -> str:
    spent_s = one.gained.stage_s[stage]
    return f"{1e3 * _in_a_batch(one, spent_s):.2f} {spent_s / _stages_s(one):6.1%}"


def _in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first column at the left, the others at the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "   ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
        for row in rows
    ]
