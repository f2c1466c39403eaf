"""The programs of docs/fleet.md run, on a Ray of their own that the first of them starts."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/fleet.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("ray_folder")
def test_the_program_for_a_laptop_runs() -> None:
    """The one for a cluster differs by its size."""
    [program] = [one for one in PROGRAMS if "Fleet(servers=2) as" in one]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout == 2 * "up 32 lanes\n"


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_can_be_compiled(program: str) -> None:
    compile(program, PAGE, "exec")
