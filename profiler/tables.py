"""What was measured, in columns for a terminal."""

from collections.abc import Iterable, Mapping, Sequence

from worldloom.profiler.findings import Findings, Fit
from worldloom.profiler.measure import Measured
from worldloom.server.engine.timing import STAGES

_SHORT = {"simulate": "sim", "readback": "read", "unpack": "unpk"}
"""Stages whose names are longer than their numbers."""
_TEXT_COLUMNS = 4


def stages_in_use(shares: Iterable[Mapping[str, float]]) -> list[str]:
    """The stages that took any time at all."""
    known = list(shares)
    return [stage for stage in STAGES if any(one[stage] > 0 for one in known)]


def sweep_lines(findings: Findings) -> list[str]:
    """All of it."""
    lines: list[str] = []
    families = list(dict.fromkeys(one.case.family for one in findings.measured))
    for family in families:
        lines += [f"{family}: frames a second, µs of a frame, and the share of each stage in %"]
        lines += [*_case_rows([one for one in findings.measured if one.case.family == family]), ""]
    if findings.fits:
        lines += ["a step takes: fixed + for each lane + for each pixel of a lane; by how much that misses", ""]
        lines += [*_fit_rows(findings.fits), ""]
    for case, problem in findings.failed:
        lines += [f"not measured: {case.name}: {problem}"]
    return lines


def in_table(rows: Sequence[Sequence[str]], text_columns: int) -> list[str]:
    """Aligned columns, the first ones to the left and the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if number < text_columns else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines


def short_time(seconds: float | None) -> str:
    """With three digits or so, in the unit that suits it."""
    if seconds is None:
        return "-"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _case_rows(measured: Sequence[Measured]) -> list[str]:
    stages = stages_in_use(one.shares for one in measured)
    head = ["renderer", "transport", "outputs", "size", "lanes", "frames/s", "µs"]
    rows = [[*head, *(_SHORT.get(stage, stage) for stage in stages)]]
    for one in measured:
        case = one.case
        cells = [case.renderer, case.transport, case.shown, case.size, str(case.lanes)]
        cells += [f"{one.frames_per_s:,.0f}", f"{one.frame_us:.1f}"]
        rows.append([*cells, *(f"{100 * one.shares[stage]:.0f}" for stage in stages)])
    return in_table(rows, _TEXT_COLUMNS)


def _fit_rows(fits: Sequence[Fit]) -> list[str]:
    rows = [["family", "outputs", "renderer", "transport", "fixed", "a lane", "a pixel", "half within", "all within"]]
    for one in fits:
        family, outputs, renderer, transport = one.group
        times = [short_time(one.fixed_s), short_time(one.lane_s), short_time(one.pixel_s)]
        errors = [f"{100 * one.median_error:.0f} %", f"{100 * one.largest_error:.0f} %"]
        rows.append([family, outputs, renderer, transport, *times, *errors])
    return in_table(rows, _TEXT_COLUMNS)
