"""The examples run as their page says, and PPO learns."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.support.server_process import serving

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = (EXAMPLES / "README.md").read_text()
TIMEOUT_S = 240.0
"""Kernels that were never compiled on this machine take most of a minute."""
SMALL = ("--rows", "5", "--columns", "3", "--lanes", "64")
"""A board that is learnt in two seconds; one ball in three is caught by accident."""


def run(name: str, *flags: str | Path, code: int = 0) -> str:
    """What an example prints, run from the command line as readers do."""
    command = [sys.executable, "-W", "error", EXAMPLES / name, *flags]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout if code == 0 else result.stderr


def last_returns(printed: str) -> tuple[float, float]:
    """Of PPO and of random actions, from the last line."""
    found = re.search(r"^mean return (\S+), random (\S+)\. Learning curve: .*\.png$", printed.splitlines()[-1])
    assert found, printed
    return float(found[1]), float(found[2])


def test_random_agents_count_frames() -> None:
    printed = run("random_agents.py", "--seconds", "0.2")
    assert re.fullmatch(r"[1-9][\d,]* frames a second, each \(64, 64, 3\), local\n", printed)


def test_ppo_learns_to_catch(tmp_path: Path) -> None:
    out = tmp_path / "new" / "curve.png"
    printed = run("ppo_catch.py", *SMALL, "--steps", "40000", "--seconds", "20", "--out", out)
    learnt, random = last_returns(printed)
    assert random == pytest.approx(-1 / 3, abs=0.08)  # 4000 episodes: five times the spread of their mean
    assert learnt > random + 0.7, printed
    assert out.read_bytes().startswith(b"\x89PNG")
    assert (
        len(re.findall(r"^ +\S+ s  .* mean return of the last 200 episodes: +-?\d\.\d\d$", printed, re.MULTILINE)) > 2
    )


def test_the_same_seed_learns_the_same_with_a_server_or_without(tmp_path: Path) -> None:
    few = (*SMALL, "--steps", "8192")
    here, there, other = (tmp_path / f"{name}.png" for name in ("here", "there", "other"))
    run("ppo_catch.py", *few, "--out", here)
    run("ppo_catch.py", *few, "--out", other, "--seed", "1")
    with serving() as server:
        assert f"VectorEnv('{server.address}'" in run("ppo_catch.py", *few, "--out", there, "--address", server.address)
        assert "frames a second" in run("random_agents.py", "--seconds", "0.1", "--address", server.address)
    assert here.read_bytes() == there.read_bytes()
    assert here.read_bytes() != other.read_bytes()


def test_too_little_to_learn_from_is_told(tmp_path: Path) -> None:
    told = run("ppo_catch.py", *SMALL, "--steps", "100", "--out", tmp_path / "none.png", code=1)
    assert told == "no episode ended: expected more --steps or --seconds\n"


def test_the_page_names_every_example_and_no_other() -> None:
    named = set(re.findall(r"\]\((\w+\.py)\)", PAGE))
    assert named == {path.name for path in EXAMPLES.glob("*.py")}
    links = re.findall(r"\]\(([^):\s]+)\)", PAGE)
    assert [link for link in links if not (EXAMPLES / link).exists()] == []
    for name, flags in re.findall(r"^python examples/(\w+\.py) ?([^#\n]*)", PAGE, re.MULTILINE):
        assert set(re.findall(r"--\w+", flags)) <= set(re.findall(r"--\w+", run(name, "--help")))
