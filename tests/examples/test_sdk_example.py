"""The example of the Cogment SDK runs as its page says: in a maze of ours, and in an environment of its own."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from scripts.support.server_process import serving
from scripts.support.stream_client import free_port
from tests.server.cogment.sdk.programs import PYTHON, Program

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples/trials/sdk"
TIMEOUT_S = 60.0


@contextmanager
def service(name: str, port: int) -> Iterator[Program]:
    """A program of the example that listens at a port."""
    started = Program(FOLDER / name, str(port))
    try:
        started.wait_for(f"listening on port {port}")
        yield started
    finally:
        started.close()


@pytest.mark.parametrize(("file", "ticks"), [("cogment.yaml", 200), ("corridor.yaml", 60)])
def test_a_human_and_an_agent_play(file: str, ticks: int, tmp_path: Path) -> None:
    agent_port, environment_port = free_port(), free_port()
    text = (FOLDER / file).read_text()
    for usual, port in (("127.0.0.1:9001", agent_port), ("127.0.0.1:9002", environment_port)):
        text = text.replace(usual, f"127.0.0.1:{port}")
    (tmp_path / file).write_text(text)
    with ExitStack() as at_the_end:
        agent = at_the_end.enter_context(service("agent.py", agent_port))
        if file == "corridor.yaml":
            at_the_end.enter_context(service("environment.py", environment_port))
        server = at_the_end.enter_context(serving("--cogment", str(tmp_path / file)))
        command = [str(PYTHON), str(FOLDER / "client.py"), server.address]
        played = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert played.returncode == 0, played.stderr
        told = agent.wait_for("the agent's rewards are")
    of_human = re.fullmatch(r"trial (\S+) is over after (\d+) ticks: the human's rewards are (\d+)\n", played.stdout)
    of_agent = re.fullmatch(r"trial (\S+): the agent's rewards are (\d+)\n", told)
    assert of_human, played.stdout
    assert of_agent, told
    assert of_human[1] == of_agent[1]
    rewards = int(of_human[3]) + int(of_agent[2])
    assert int(of_human[2]) == ticks or rewards == 8
    if file == "corridor.yaml":  # the agent sees the goal at all times, at most 14 steps away
        assert int(of_agent[2]) >= 2


def test_the_page_names_all_files_and_commands() -> None:
    page = (FOLDER / "README.md").read_text()
    for path in FOLDER.iterdir():
        if path.is_file() and path.name != "README.md":
            assert f"]({path.name})" in page
    commands = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for command in commands:
        for word in command.split():
            if word.startswith("examples/"):
                assert (ROOT / word).is_file()
