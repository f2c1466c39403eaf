"""Tables of a sweep for the terminal, and the texts of times that all outputs share."""

from collections.abc import Iterable, Mapping, Sequence

from worldloom.profiler.measure import Measurement
from worldloom.profiler.results import CostFit, SweepResult
from worldloom.server.engine.timing import STAGES
from worldloom.terminal import print_heading, print_table, print_text

_SHORT_NAMES = {"simulate": "sim", "readback": "read", "unpack": "unpk"}
"""Heads of stages whose names are wider than their figures."""
_GROUP_HEADS = ("family", "outputs", "renderer", "transport")


def stages_in_use(shares: Iterable[Mapping[str, float]]) -> list[str]:
    """Return the stages that took any time."""
    known = list(shares)
    return [stage for stage in STAGES if any(one[stage] > 0 for one in known)]


def short_time(seconds: float | None) -> str:
    """Return a time with about three digits, in a suitable unit."""
    if seconds is None:
        return "-"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def print_sweep(result: SweepResult) -> None:
    """Print a table for each family, the fits, and what could not be measured."""
    for family in dict.fromkeys(one.configuration.family for one in result.measured):
        print_heading(f"{family}: frames a second, µs of a frame, and the share of each stage in %")
        _print_measurements([one for one in result.measured if one.configuration.family == family])
        print()
    if result.fits:
        print_heading("a step takes: fixed + for each lane + for each pixel of a lane; error of the fit")
        _print_fits(result.fits)
        print()
    for side, fits in result.cpu_fits.items():
        if fits:
            print_heading(f"processor time of the {side} in a step: fixed + for each lane + for each pixel of a lane")
            _print_fits(fits)
            print()
    for configuration, problem in result.failed:
        print_text(f"not measured: {configuration.name}: {problem}")


def fit_cells(one: CostFit) -> list[str]:
    """Return the figures of a fit as texts: fixed, a lane, a pixel, median and largest error."""
    times = [short_time(value) for value in (one.fixed_s, one.lane_s, one.pixel_s)]
    return [*times, *(f"{100 * error:.0f} %" for error in (one.median_error, one.largest_error))]


FIT_HEADS = (*_GROUP_HEADS, "fixed", "a lane", "a pixel", "half within", "all within")


def _print_measurements(measured: Sequence[Measurement]) -> None:
    stages = stages_in_use(one.shares for one in measured)
    heads = ["renderer", "transport", "outputs", "size", "lanes", "frames/s", "µs"]
    heads += [_SHORT_NAMES.get(stage, stage) for stage in stages]
    rows = []
    for one in measured:
        of = one.configuration
        cells = [of.renderer, of.transport, of.output_names, of.size, str(of.lanes)]
        cells += [f"{one.frames_per_s:,.0f}", f"{one.frame_us:.1f}"]
        rows.append([*cells, *(f"{100 * one.shares[stage]:.0f}" for stage in stages)])
    print_table(rows, text_columns=4, heads=heads)


def _print_fits(fits: Sequence[CostFit]) -> None:
    print_table([[*one.group, *fit_cells(one)] for one in fits], text_columns=4, heads=FIT_HEADS)
