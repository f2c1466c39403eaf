"""Without MuJoCo everything else works, and asking for its worlds names the extra to install."""

import subprocess
import sys

import pytest

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
from worldloom.server.cli import main
sys.exit(main({arguments!r}))
"""


def run(names: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    code = BLOCKED.format(names=names, arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("names", "family"),
    [(("mujoco", "dm_control"), "dmc"), (("mujoco", "dm_control"), "mujoco"), (("dm_control",), "dmc")],
)
def test_asking_for_its_worlds_names_the_extra(names: tuple[str, ...], family: str) -> None:
    done = run(names, "describe", family)
    assert done.returncode == 1
    assert "pip install 'worldloom[mujoco]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_list_of_worlds_names_the_extra() -> None:
    done = run(("mujoco", "dm_control"), "worlds")
    assert done.returncode == 0
    assert "Find the coloured goals" in done.stdout
    assert done.stdout.count("worldloom[mujoco]") == 2


def test_other_worlds_do_not_need_it() -> None:
    assert "rail" in run(("mujoco", "dm_control"), "describe", "cartpole").stdout


def test_models_work_without_dm_control() -> None:
    assert "control_steps" in run(("dm_control",), "describe", "mujoco").stdout
