"""The example of a trial runs as docs/cogment.md says: an agent, a server, a human."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.support.server_process import serving
from scripts.support.stream_client import free_port

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples/trials"
PAGE = (ROOT / "docs/cogment.md").read_text()
TIMEOUT_S = 60.0


@contextmanager
def agent() -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The example's agent service, and its endpoint."""
    command = [sys.executable, "-W", "error", str(FOLDER / "agent.py"), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        impatience = threading.Timer(TIMEOUT_S, process.kill)
        impatience.start()
        try:
            assert process.stdout is not None
            found = re.fullmatch(r"seeking goals for (grpc://127\.0\.0\.1:\d+)\n", process.stdout.readline())
            assert found
            yield process, found[1]
        finally:
            impatience.cancel()
            process.kill()


def test_a_human_and_an_agent_play(tmp_path: Path) -> None:
    with agent() as (process, endpoint):
        text = (FOLDER / "trial.yaml").read_text()
        assert "grpc://127.0.0.1:9001" in text
        (tmp_path / "trial.yaml").write_text(text.replace("grpc://127.0.0.1:9001", endpoint))
        with serving("--cogment", str(tmp_path / "trial.yaml")) as server:
            command = [sys.executable, "-W", "error", str(FOLDER / "play.py"), "--address", server.address]
            played = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
            assert played.returncode == 0, played.stderr
            assert process.stdout is not None
            told = process.stdout.readline()
    of_human = re.fullmatch(r"trial (\S+) is over after (\d+) ticks: (\d+) goals\n", played.stdout)
    of_agent = re.fullmatch(r"trial (\S+): (\d+) goals\n", told)
    assert of_human, played.stdout
    assert of_agent, told
    assert of_human[1] == of_agent[1]
    goals, ticks = int(of_human[3]) + int(of_agent[2]), int(of_human[2])
    assert goals <= 8
    assert ticks == 200 or goals == 8


def test_the_client_says_in_a_sentence_what_is_missing(tmp_path: Path) -> None:
    """Without a server, and with one whose agent is not there."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-W", "error", str(FOLDER / "play.py"), "--address"]
    alone = subprocess.run([*command, address], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert alone.returncode == 1
    assert alone.stderr == (
        f"there is no server at {address}: start one with worldloom serve --cogment examples/trials/trial.yaml, or say "
        "where it is with --address\n"
    )
    text = (FOLDER / "trial.yaml").read_text().replace("127.0.0.1:9001", f"127.0.0.1:{free_port()}")
    (tmp_path / "trial.yaml").write_text(text)
    with serving("--cogment", str(tmp_path / "trial.yaml")) as server:
        played = subprocess.run([*command, server.address], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert played.returncode == 1
    assert played.stderr.startswith("the trial failed: UNAVAILABLE: agent 1 (seeker) at grpc://127.0.0.1:")
    assert played.stderr.count("\n") == 1


def test_the_page_shows_the_example_as_it_is() -> None:
    shown = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert (FOLDER / "trial.yaml").read_text() in shown
    commands = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert commands[:3] == [
        "python examples/trials/agent.py\n",
        "worldloom serve --cogment examples/trials/trial.yaml\n",
        "python examples/trials/play.py\n",
    ]
    for name in ("agent.py", "play.py"):
        assert (
            "--help"
            in subprocess.run(
                [sys.executable, FOLDER / name, "--help"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
            ).stdout
        )
