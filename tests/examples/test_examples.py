"""The examples run as their page says. Those of learners are tested in tests/learners."""

import re
import subprocess
import sys
from pathlib import Path

from scripts.support.server_process import serving

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = (EXAMPLES / "README.md").read_text()
TIMEOUT_S = 240.0
"""Kernels that were never compiled on this machine take most of a minute."""


def run(name: str, *flags: str | Path, code: int = 0, warnings: str = "error", timeout_s: float = TIMEOUT_S) -> str:
    """Return the output of an example, run as readers do. Other libraries may warn of their own future."""
    command = [sys.executable, "-W", warnings, EXAMPLES / name, *flags]
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout if code == 0 else result.stderr


def test_random_agents_count_frames() -> None:
    printed = run("random_agents.py", "--seconds", "0.2")
    assert re.fullmatch(r"[1-9][\d,]* frames a second, each \(64, 64, 3\), local\n", printed)


def test_random_agents_step_a_server() -> None:
    with serving() as server:
        assert "frames a second" in run("random_agents.py", "--seconds", "0.1", "--address", server.address)


def test_the_page_names_every_example_and_no_other() -> None:
    named = set(re.findall(r"\]\((\w+\.py)\)", PAGE))
    assert named == {path.name for path in EXAMPLES.glob("*.py")}
    links = re.findall(r"\]\(([^):\s]+)\)", PAGE)
    assert [link for link in links if not (EXAMPLES / link).exists()] == []
    for name, flags in re.findall(r"^python examples/(\w+\.py) ?([^#\n]*)", PAGE, re.MULTILINE):
        # As the page has them: most examples need libraries that this environment has not.
        assert set(re.findall(r"--\w+", flags)) <= set(re.findall(r'"(--\w+)"', (EXAMPLES / name).read_text()))
