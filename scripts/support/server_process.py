"""`worldloom serve` in another process, with what tests and long runs check of it."""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from worldloom.server import launch

IDLE_TIMEOUT_S = 30.0
WORLDLOOM = Path(sys.executable).parent / "worldloom"


class ServerProcess(launch.ServerProcess):
    """A server on the cpu renderer and a free port, whose memory and threads can be looked at."""

    def __init__(self, *flags: str) -> None:
        super().__init__("--listen", "127.0.0.1:0", "--renderer", "cpu", *flags)

    @property
    def resident_bytes(self) -> int:
        """Memory it has, its kernels and libraries included, but not what it shares with clients."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = dict(re.findall(r"^(VmRSS|RssShmem):\s+(\d+) kB$", status, re.MULTILINE))
        assert len(found) == 2, status
        return (int(found["VmRSS"]) - int(found["RssShmem"])) * 1024

    def wait_until_idle(self) -> None:
        """Wait until it has nothing left to do: all its threads have been asleep for a while."""
        deadline_s = time.monotonic() + IDLE_TIMEOUT_S
        quiet = 0
        while quiet < 40:
            assert time.monotonic() < deadline_s, "the server is busy for too long"
            tasks = Path(f"/proc/{self.pid}/task").glob("*/stat")
            quiet = quiet + 1 if all(_state(task) == "S" for task in tasks) else 0
            time.sleep(0.005)

    def stop_cleanly(self) -> None:
        """End it; assert exit code 0 and no error in its log."""
        code = self.stop()
        assert code == 0, f"exit code {code}: expected 0\n{self.log}"
        assert " ERROR " not in self.log, self.log
        assert "Traceback" not in self.log, self.log


@contextmanager
def serving(*flags: str) -> Iterator[ServerProcess]:
    """A server with these flags, stopped at the end of the block; it must end cleanly."""
    server = ServerProcess(*flags)
    try:
        yield server
    except BaseException:
        server.kill()
        sys.stderr.write(server.log[-4000:])
        raise
    server.stop_cleanly()


def failed_start(*arguments: str, folder: Path | None = None) -> str:
    """Return the line in which a server says why it cannot start."""
    try:
        server = launch.ServerProcess(*arguments, folder=folder)
    except launch.ServerStartError as error:
        failed = error
    else:
        server.kill()
        raise AssertionError(f"the server started: {arguments}")
    assert failed.exit_code == 1, failed
    assert failed.output == ""
    lines = failed.log.splitlines()
    assert "Traceback" not in failed.log
    assert lines[-1].startswith("worldloom serve: ")
    assert all(" INFO " in line for line in lines[:-1])
    return lines[-1].removeprefix("worldloom serve: ")


def _state(stat: Path) -> str:
    """State of a thread: R for running, S for sleeping."""
    try:
        return stat.read_text().rpartition(") ")[2][0]
    except OSError:  # it has just ended
        return "S"
