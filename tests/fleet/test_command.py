"""`worldloom fleet` on a machine where no Ray runs: `up` starts one, `down` ends it. Each command is a process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fleet.conftest import TIMEOUT_S, find_processes, wait_until
from worldloom.kernels.compiling import CACHE_FOLDER
from worldloom.server import cli

pytest.importorskip("ray")
WORLDLOOM = Path(sys.executable).parent / "worldloom"
Run = Callable[..., tuple[int, str, str]]


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(ray_folder: Path, tmp_path: Path) -> Start:
    """Start a command as a user who has a home of their own, into which Ray writes its token."""
    environment = {name: value for name, value in os.environ.items() if name not in ("RAY_AUTH_MODE", "COLUMNS")}
    environment |= {"HOME": str(tmp_path), "WORLDLOOM_CACHE_DIR": str(CACHE_FOLDER.parent)}

    def start_command(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(WORLDLOOM), "fleet", *words],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start_command


@pytest.fixture
def run(start: Start) -> Run:
    """Run a command to its end; return its exit code, output and errors."""

    def run_command(*words: str) -> tuple[int, str, str]:
        with start(*words) as process:
            out, err = process.communicate(timeout=200)
        return process.returncode, out, err

    return run_command


def test_a_fleet_from_the_command_line(run: Run, ray_folder: Path) -> None:
    assert run("status") == (
        1,
        "",
        no_ray := (
            "worldloom fleet: there is no Ray cluster on this machine, and RAY_ADDRESS names none: "
            "expected the address of a running one\n"
        ),
    )
    code, out, err = run(
        "up", "--servers", "2", "--cpus-per-server", "0.5", "--quota", "a=64", "--", "--max-lanes", "99"
    )
    assert (code, out) == (0, "fleet 'default' is up: 2 servers\n"), err
    try:
        code, out, _ = run("status")
        lines = out.splitlines()
        assert (code, lines[0]) == (0, "fleet default: 2 of 2 servers ready, 0 lanes, 0 frames/s")
        assert lines[1].split() == ["server", "state", "node", "address", "lanes", "frames/s", "age"]
        assert [line.split()[:2] for line in lines[2:4]] == [["server-1", "ready"], ["server-2", "ready"]]
        assert lines[4:] == ["learner a: 0 of 64 lanes"]
        assert run("scale", "1", "--wait-s", "100")[:2] == (0, "fleet 'default': done\n")
        code, out, _ = run("status", "--json")
        status = json.loads(out)
        assert (status["wanted"], status["ready"], [one["server"] for one in status["servers"]]) == (1, 1, ["server-1"])
        command = Path(f"/proc/{status['servers'][0]['pid']}/cmdline").read_bytes().split(b"\0")
        assert command[command.index(b"--max-lanes") + 1] == b"99"
        assert run("upgrade", "--drain-s", "5")[:2] == (0, "fleet 'default': servers are replaced one after another\n")
        code, out, err = run("drain", "server-9")
        assert (code, out) == (1, "")
        assert err.startswith("worldloom fleet: server is 'server-9': expected one of server-")
        assert run("status", "--name", "other")[2] == (
            "worldloom fleet: no fleet is called 'other': there are default; `worldloom fleet up` makes one\n"
        )
    finally:
        down = run("down")
    assert down[:2] == (0, "fleet 'default' is down, and Ray with it\n")
    wait_until(lambda: not find_processes(str(ray_folder)), "the end of Ray")
    assert run("down") == (1, "", no_ray)


def test_wrong_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fleet", "up", "--quota", "many"]) == 1
    assert capsys.readouterr().err == "worldloom fleet: --quota is 'many': expected LEARNER=LANES, such as a=1024\n"
    with pytest.raises(SystemExit):
        cli.main(["fleet"])
    assert "the following arguments are required: ACTION" in capsys.readouterr().err


WITHOUT_RAY = """
import sys
sys.modules["ray"] = None  # as if it were not installed
from worldloom.server import cli
sys.exit(cli.main(sys.argv[1:]))
"""


def test_without_ray_it_tells_what_to_install() -> None:
    def main(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", WITHOUT_RAY, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=100)

    missing = main("fleet", "status")
    assert (missing.returncode, missing.stderr) == (
        1,
        "worldloom fleet: worldloom.fleet needs ray, which is not installed: pip install 'worldloom[fleet]'\n",
    )
    shown = main("fleet", "up", "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "--cpus-per-server" in shown.stdout


@pytest.mark.parametrize("code", ["import worldloom", "from worldloom.server import cli; cli.main(['worlds'])"])
def test_nothing_else_loads_ray(code: str) -> None:
    show = "\nimport sys\nassert not {'ray', 'cryptography'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code + show], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--servers", "0"], "servers is 0: expected a whole number of 1 to 10000"),
        (["--cpus-per-server", "0"], "cpus_per_server is 0.0: expected a number above 0"),
        (["--", "--nonsense"], "serve_arguments: unrecognized arguments: --nonsense"),
    ],
)
def test_arguments_are_checked_before_ray_is_started(run: Run, words: list[str], problem: str) -> None:
    assert run("up", *words) == (1, "", f"worldloom fleet: {problem}\n")


@pytest.mark.parametrize(("stage", "number"), [("gcs_server", signal.SIGTERM), ("--drain-s", signal.SIGINT)])
def test_an_interrupted_up_leaves_nothing(
    start: Start, ray_folder: Path, stage: str, number: signal.Signals, tmp_path: Path
) -> None:
    """Once while Ray starts, once while the server compiles its kernels."""
    with start("up", "--cache-dir", str(tmp_path / "empty")) as up:
        wait_until(lambda: find_processes(stage), stage)
        up.send_signal(number)
        up.communicate(timeout=TIMEOUT_S)
    assert up.returncode != 0
    assert not find_processes(str(ray_folder))


def test_down_ends_the_ray_of_an_up_that_was_killed(start: Start, run: Run, ray_folder: Path) -> None:
    with start("up") as up:
        wait_until(lambda: find_processes("raylet/raylet"), "Ray")
        up.kill()
    out = ""

    def is_down() -> bool:
        nonlocal out
        code, out, _ = run("down")
        return code == 0

    wait_until(is_down, "Ray, which may still be starting,")
    assert out in (
        "no fleet is called 'default'; the Ray of an earlier `up` had no fleet, and is down\n",
        "fleet 'default' is down, and Ray with it\n",
    )
    wait_until(lambda: not find_processes(str(ray_folder)), "the end of Ray")


def test_another_fleet_takes_what_is_free(start: Start, run: Run, ray_folder: Path, tmp_path: Path) -> None:
    processors = len(os.sched_getaffinity(0))
    if processors < 2:
        pytest.skip("needs two processors")
    assert run("up", "--cpus-per-server", "1")[0] == 0
    try:
        assert run("up", "--name", "b")[:2] == (0, "fleet 'b' is up: 1 servers\n")
        code, _, err = run("up", "--name", "c", "--wait-s", "12")
        assert code == 1
        assert "\nwaiting: 0 of 1 servers are ready; server-1 placing" in f"\n{err}"
        assert "worldloom fleet: the fleet was not ready within 12 s: 0 of 1 servers are ready" in err
        assert run("down", "--name", "b")[:2] == (0, "fleet 'b' is down\n")
        with start("up", "--name", "b", "--cache-dir", str(tmp_path / "empty")) as compiling:
            wait_until(lambda: run("status", "--name", "b")[0] == 0, "the fleet")
            assert run("down", "--name", "b")[0] == 0
            _, err = compiling.communicate(timeout=TIMEOUT_S)
        assert err.endswith("worldloom fleet: the fleet 'b' was ended by `down` before all its servers were ready\n")
    finally:
        down = run("down")
    assert down[:2] == (0, "fleet 'default' is down, and Ray with it\n")
    wait_until(lambda: not find_processes(str(ray_folder)), "the end of Ray")
