"""Program of a fleet's server: `worldloom serve`, tied to its parent and bound to its processors.

    python -m worldloom.fleet.serve_process PARENT_PID PROCESSORS ARGUMENT...

The system kills it when the thread that started it ends, however that ends: so a node that is killed leaves no server.
Processors are bound before anything is imported that chooses a number of threads by them. Ray is not loaded here: gRPC
and Ray in one process disturb each other.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Have the system kill this process when its parent's thread ends; exit at once if the parent has ended already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "the parent's death signal cannot be set")
    if os.getppid() != parent_pid:
        sys.exit("the parent has ended")


def main(words: Sequence[str]) -> int:
    """Serve, and return the exit code."""
    parent_pid, processors, *arguments = words
    die_with_parent(int(parent_pid))
    os.sched_setaffinity(0, {int(number) for number in processors.split(",")})
    from worldloom.server.cli import main as run_command

    return run_command(["serve", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
