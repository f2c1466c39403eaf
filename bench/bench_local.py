"""A single lane in process: what a step costs beside drawing, against an earlier version of worldloom."""

from worldloom.bench.measuring import Report
from worldloom.bench.peers.comparisons import WORLDLOOM
from worldloom.bench.peers.process import PeerProcess
from worldloom.bench.previous_version import COMMIT, HistoryError, extract

WHAT = f"catch, 1 lane, 64² rgb, local, against the version of commit {COMMIT}"
ARGUMENTS = ["--family", "catch", "--envs", "1", "--width", "64", "--height", "64"]
ROUND_S = 1.0


def bench_local_against_the_version_before(report: Report) -> None:
    try:
        before = extract(COMMIT)
    except HistoryError as error:
        report.not_measured(WHAT, str(error))
        return
    processes: dict[str, PeerProcess] = {}
    try:
        for name, import_from in (("now", None), ("before", before)):
            report.note(f"starting {name}")
            processes[name] = PeerProcess(WORLDLOOM, ARGUMENTS, None, import_from)
            processes[name].wait_until_ready()
        runs = {name: process.measure_rate for name, process in processes.items()}
        rounds = report.in_turn(runs, ROUND_S, compared=("now", "before"))
    finally:
        for process in processes.values():
            process.close()
    report.ratio_row(
        WHAT,
        rounds.ratio("now", "before"),
        f"{rounds.rate('now'):,.0f} against {rounds.rate('before'):,.0f} steps/s",
        at_least=4,
    )
