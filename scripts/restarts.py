"""Restarts of a server under clients that step, and how they reconnect: `python -m scripts.restarts`.

Each client is a process with a VectorEnv, which steps until it loses its connection and then calls `reconnect`. The
server is stopped with SIGTERM, so that clients reconnect while it answers its last requests, and started again on the
same port. Every client must be served by the new server in time. Prints a table; exits with 1 if one was not.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from scripts.report import Report
from worldloom.client import ClientError, LostConnection, VectorEnv
from worldloom.server.launch import ServerProcess

WAIT_S = 120.0
"""Time for `reconnect`; long enough for a server to start on a loaded machine."""
TIMEOUT_S = 60.0
"""Time for a reply, as by default."""
MOST_S = 30.0
"""Most time between the start of the new server and the first reply that the last client gets from it. Less than
TIMEOUT_S: a client that waits for a reply that never comes is found."""


def run_client(address: str, restarts: int) -> None:
    """Step, and reconnect after each restart. Prints `ready`, then a line of JSON for each reconnection."""
    with VectorEnv(address, "catch", 4, width=16, height=16, transport="grpc", timeout_s=TIMEOUT_S) as env:
        env.reset()
        print("ready", flush=True)
        for _ in range(restarts):
            error = None
            try:
                while True:
                    env.step({"paddle": [0, 1, -1, 0]})
            except LostConnection:
                pass
            try:
                env.reconnect(WAIT_S)
                env.reset()
            except ClientError as failure:
                error = f"{type(failure).__name__}: {failure}"
            print(json.dumps({"at_s": time.monotonic(), "error": error}), flush=True)
            if error is not None:
                return


@contextmanager
def client(address: str, restarts: int) -> Iterator[subprocess.Popen[str]]:
    """A client in a process of its own, killed at the end if it is still there."""
    command = [sys.executable, "-m", "scripts.restarts", "--client", address, "--restarts", str(restarts)]
    quiet = {**os.environ, "GRPC_VERBOSITY": "ERROR"}  # it reports each server that stops
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=quiet) as process:
        try:
            yield process
        finally:
            process.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    """Return the next line that a client prints; RuntimeError if it has ended."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("a client ended: see above")
    return line.rstrip()


def restart(server: ServerProcess, address: str) -> ServerProcess:
    """Stop a server as service managers do, and start another at its address."""
    code = server.stop()
    if code != 0:
        raise RuntimeError(f"the server ended with exit code {code}: expected 0\n{server.log}")
    return ServerProcess("--listen", address, "--renderer", "cpu", "--log-level", "warning")


def run_restarts(clients: int, restarts: int) -> Report:
    """Restart a server under clients, and report how they reconnected."""
    report = Report()
    server = ServerProcess("--listen", "127.0.0.1:0", "--renderer", "cpu", "--log-level", "warning")
    address, taken_s = server.address, []
    with ExitStack() as cleanup:
        processes = [cleanup.enter_context(client(address, restarts)) for _ in range(clients)]
        try:
            for process in processes:
                if (line := read_line(process)) != "ready":
                    raise RuntimeError(f"a client printed {line!r}: expected 'ready'")
            for number in range(restarts):
                server = restart(server, address)
                started_s = time.monotonic()
                found: list[dict[str, Any]] = [json.loads(read_line(process)) for process in processes]
                taken_s += [one["at_s"] - started_s for one in found]
                for error in filter(None, (one["error"] for one in found)):
                    report.expect(False, f"restart {number}: {error}")
                if report.problems:
                    break
        finally:
            server.stop()
    late = sum(one > MOST_S for one in taken_s)
    report.row("clients", f"{clients}, in a process each")
    report.row("restarts of the server", str(restarts))
    report.row("reconnections", f"{len(taken_s) - len(report.problems)} of {clients * restarts}")
    report.row("until the last was served", f"{max(taken_s):.1f} s after the new server listened")
    report.expect(not late, f"{late} clients were served only after more than {MOST_S:g} s")
    return report


def main(given: list[str] | None = None) -> int:
    """Run, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=50, help="processes (default: %(default)s)")
    parser.add_argument("--restarts", type=int, default=4, help="restarts of the server (default: %(default)s)")
    parser.add_argument("--client", metavar="ADDRESS", help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    if arguments.client is not None:
        run_client(arguments.client, arguments.restarts)
        return 0
    return run_restarts(arguments.clients, arguments.restarts).tell()


if __name__ == "__main__":
    sys.exit(main())
