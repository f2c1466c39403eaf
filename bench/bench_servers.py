"""Cost of several servers: one env over them against one server with as many threads; shares of several clients."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from worldloom.bench.load import worldloom_process
from worldloom.bench.measuring import Report
from worldloom.bench.players import Player

ROUND_S = 1.2
CLIENTS = 3
CLIENT_LANES = 512
_CLIENT = """
import sys
from worldloom.bench.players import Player

player = Player((sys.argv[1:], "auto"), "maze", {lanes})
print("ready", flush=True)
for seconds in map(float, sys.stdin):
    print(player.play(seconds), flush=True)
"""


@contextlib.contextmanager
def one_thread_each(count: int) -> Iterator[list[str]]:
    """Run servers that draw with one thread each, and yield their addresses."""
    with contextlib.ExitStack() as cleanup:
        yield [cleanup.enter_context(worldloom_process("--threads", "1")).address for _ in range(count)]


@pytest.mark.parametrize(("count", "lanes"), [(2, 1024), (2, 4096), (4, 1024), (4, 4096)])
def bench_sharing(report: Report, count: int, lanes: int) -> None:
    with one_thread_each(count) as addresses, worldloom_process("--threads", str(count)) as one:
        several, single = Player((addresses, "auto"), "maze", lanes), Player((one.address, "auto"), "maze", lanes)
        with several.env, single.env:
            runs = {"several": several.play, "one": single.play}
            rounds = report.in_turn(runs, ROUND_S, rounds=7, compared=("several", "one"))
    report.ratio_row(
        f"maze, {lanes} lanes, 64² rgb: one env over {count} servers of one thread each, against one server of {count} "
        "threads",
        rounds.ratio("several", "one"),
        f"{rounds.rate('several'):,.0f} against {rounds.rate('one'):,.0f} frames/s",
        at_least=0.9,
        figures={f"{count} servers, {lanes} lanes": rounds.rate("several")},
    )


def bench_three_clients(report: Report) -> None:
    """Clients in processes of their own step at the same time, over the same two servers."""
    with one_thread_each(2) as addresses, contextlib.ExitStack() as cleanup:
        clients = [cleanup.enter_context(_client(addresses)) for _ in range(CLIENTS)]
        rates: list[list[float]] = []

        def play_round() -> None:
            for client in clients:
                assert client.stdin is not None
                client.stdin.write(f"{ROUND_S}\n")
                client.stdin.flush()
            rates.append([float(client.stdout.readline()) for client in clients if client.stdout is not None])

        report.seconds(play_round, rounds=7)
    shares = sorted(min(each) * CLIENTS / sum(each) for each in rates[1:])
    totals = sorted(sum(each) for each in rates[1:])
    report.ratio_row(
        f"maze, {CLIENTS} clients of {CLIENT_LANES} lanes on 2 servers: frames/s of the slowest against an equal share",
        shares[len(shares) // 2],
        f"{totals[len(totals) // 2]:,.0f} frames/s together",
        at_least=0.8,
    )


@contextlib.contextmanager
def _client(addresses: list[str]) -> "Iterator[subprocess.Popen[str]]":
    program = _CLIENT.format(lanes=CLIENT_LANES)
    process = subprocess.Popen(
        [sys.executable, "-c", program, *addresses], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()
