"""The launcher of servers: it waits, shows progress, says why a server did not start, and leaves nothing behind."""

import contextlib
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from worldloom.server import launch
from worldloom.server.launch import CompileProgress, ServerProcess, ServerStartError

PYTHON = (sys.executable, "-c")
LISTENS = "import time; print('listening on 127.0.0.1:1', flush=True); time.sleep(60)"


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    threads, processes = threading.active_count(), children()
    yield
    assert threading.active_count() == threads
    assert children() <= processes, "no process, and none that nobody waited for"


def children() -> set[str]:
    """Return the process ids of the children of this process, ended ones that were not waited for included."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
            found |= set(task.joinpath("children").read_text().split())
    return found


def test_it_ends_with_its_block() -> None:
    with ServerProcess(program=(*PYTHON, LISTENS)) as server:
        assert server.addresses == [server.address] == ["127.0.0.1:1"]
        os.kill(server.pid, 0)
    assert server.process.returncode == -signal.SIGTERM
    assert server.stop() == -signal.SIGTERM, "stopping twice changes nothing"


def test_it_waits_for_every_address() -> None:
    code = (
        "import time\nfor n in 1, 2: print(f'listening on 127.0.0.1:{n}', flush=True); time.sleep(0.3)\ntime.sleep(60)"
    )
    with ServerProcess("--listen", "127.0.0.1:0", "--listen", "unix:x", program=(*PYTHON, code)) as server:
        assert server.addresses == ["127.0.0.1:1", "127.0.0.1:2"]


def test_one_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "STOP_TIMEOUT_S", 0.5)
    code = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {LISTENS}"
    with ServerProcess(program=(*PYTHON, code)) as server:
        pass
    assert server.process.returncode == -signal.SIGKILL


def test_one_that_ends_at_once_says_why() -> None:
    with pytest.raises(ServerStartError, match=r"did not start \(exit code 3\): no paper") as caught:
        ServerProcess(program=(*PYTHON, "import sys; print('no paper', file=sys.stderr); print('out'); sys.exit(3)"))
    assert (caught.value.exit_code, caught.value.output, caught.value.log) == (3, "out\n", "no paper\n")


def test_one_that_takes_too_long() -> None:
    with pytest.raises(ServerStartError, match=r"did not start within 0\.3 s: it wrote no reason"):
        ServerProcess(program=(*PYTHON, "import time; time.sleep(60)"), start_timeout_s=0.3)


def test_one_that_dies_is_noticed() -> None:
    with ServerProcess(program=(*PYTHON, LISTENS)) as server:
        server.process.kill()
        assert server.wait() == -signal.SIGKILL


def test_ctrl_c_while_it_starts_ends_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(CompileProgress, "update", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ServerProcess(program=(*PYTHON, "import time; time.sleep(60)"), folder=tmp_path)


def test_a_lot_of_output_does_not_block_it() -> None:
    code = "import sys; print('listening on x', flush=True)\nfor n in range(20000): print(n, file=sys.stderr)"
    with ServerProcess(program=(*PYTHON, code)) as server:
        assert server.wait() == 0
    assert server.log.count("\n") == 20000


def test_its_stderr_is_shown_and_compiling_is_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["worldloom: compiling its kernels", "worldloom: compiled 8 of 16 functions", "WARNING something else"]
    text = "\n".join(lines)
    code = f"import sys, time; print({text!r}, file=sys.stderr, flush=True); time.sleep(0.3); {LISTENS}"
    with ServerProcess(program=(*PYTHON, code), show_stderr=True) as server:
        deadline_s = time.monotonic() + 10
        while "WARNING" not in server.log:
            assert time.monotonic() < deadline_s
    shown = capsys.readouterr().err.splitlines()
    assert "WARNING something else" in shown
    assert "compiling kernels, once on this machine: about a minute: 50%  0 s" in shown
    assert shown[-1] == "compiled the kernels in 0 s"
    assert not any(line.startswith("worldloom: ") for line in shown)


def test_progress_of_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", out := io.StringIO())
    with CompileProgress() as compiling:
        compiling.update("")
        assert out.getvalue() == ""  # kernels from the cache are not reported
        compiling.update("worldloom: compiling its kernels, once on this machine\n")
        for count in (8, 16, 24):
            compiling.update(f"worldloom: compiled {count} of 32 functions\n")
        compiling.update("worldloom: compiled 8 of 64 functions\n")  # more functions were found
        compiling.finish()
    assert out.getvalue().splitlines() == [
        "compiling kernels, once on this machine: about a minute",
        *(f"compiling kernels, once on this machine: about a minute: {part}%  0 s" for part in (25, 50, 75)),
        "compiled the kernels in 0 s",
    ]
