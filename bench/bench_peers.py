"""Few lanes in process beside other environments that render, where `.venv-peers` has them.

`make bench-peers` measures more of them; docs/peers.md describes what is compared.
"""

import pytest

from worldloom.bench.measuring import Report
from worldloom.bench.peers.__main__ import PYTHON, PeerProcesses, start_implementations
from worldloom.bench.peers.comparisons import COMPARISONS

ENVS = 64
ROUND_S = 1.0


@pytest.mark.parametrize("names", [("bigfish",), ("vizdoom", "vizdoom-few")], ids=["bigfish", "vizdoom"])
def bench_other_environments(report: Report, names: tuple[str, ...]) -> None:
    comparisons = [comparison for comparison in COMPARISONS if comparison.name in names]
    if not PYTHON.exists():
        for comparison in comparisons:
            report.not_measured(comparison.title, "`make peers` sets the other environments up")
        return
    with PeerProcesses(PYTHON) as processes:
        runs = start_implementations(comparisons, ENVS, processes, report.note)
        rounds = report.in_turn(runs, ROUND_S)
    for comparison in comparisons:
        ours = comparison.key(comparison.ours, ENVS)
        family, size = comparison.ours.name.removeprefix("worldloom, "), f"{comparison.width}×{comparison.height}"
        what = f"{family}, {comparison.envs_of(comparison.ours, ENVS)} lanes, {size} rgb, local"
        for other in comparison.others:
            theirs = comparison.key(other, ENVS)
            report.ratio_row(
                f"{what}, against {comparison.envs_of(other, ENVS)} of {other.name}",
                rounds.ratio(ours, theirs),
                f"{rounds.rate(ours):,.0f} against {rounds.rate(theirs):,.0f} frames/s",
                at_least=other.at_least,
            )
