"""A client loads only the packages that it needs. Each test looks at the modules of a fresh Python."""

import json
import subprocess
import sys

import pytest

from tests.support.shared_server import Served

ENGINE = (
    "worldloom.server",
    "worldloom.worlds",
    "worldloom.render",
    "worldloom.kernels.compiling",
    "numba",
    "moderngl",
    "mujoco",
)
STEP = """
import sys, worldloom
with worldloom.VectorEnv(sys.argv[1], "catch", 2, transport=sys.argv[2]) as env:
    env.reset(seed=1)
    assert env.step({"paddle": [0, 1]})[0]["eye.rgb"].any()
"""
STEP_DM_ENV = """
import sys, worldloom
env = worldloom.make_dm_env(sys.argv[1], "catch")
env.reset()
assert env.step({"paddle": 0}).observation["eye"]["rgb"].any()
env.close()
"""


def loaded(code: str, *arguments: str, packages: tuple[str, ...]) -> list[str]:
    """Run code in a fresh Python, and return which of these packages it has loaded."""
    show = f"\nimport json, sys\nprint(json.dumps([name for name in {packages!r} if name in sys.modules]))"
    command = [sys.executable, "-c", code + show, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    found: list[str] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("transport", ["grpc", "shm"])
def test_clients_of_servers_load_no_engine(server: Served, transport: str) -> None:
    assert loaded(STEP, server.tcp, transport, packages=("gymnasium", "grpc", *ENGINE)) == ["gymnasium", "grpc"]


def test_dm_env_clients_of_servers_load_no_engine(server: Served) -> None:
    assert loaded(STEP_DM_ENV, server.tcp, packages=("dm_env", "grpc", "gymnasium", *ENGINE)) == ["dm_env", "grpc"]


def test_a_local_env_loads_the_engine_and_no_grpc() -> None:
    packages = ("worldloom.server", "worldloom.kernels.compiling", "numba", "grpc", "dm_env")
    assert loaded(STEP, "local", "auto", packages=packages) == [
        "worldloom.server",
        "worldloom.kernels.compiling",
        "numba",
    ]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import worldloom", []),
        ("import worldloom.client", []),
        ("from worldloom.client import LostConnection", []),
        ("from worldloom.client import VectorEnv", ["numpy", "gymnasium"]),
        ("from worldloom import VectorEnv", ["numpy", "gymnasium"]),
    ],
)
def test_imports_load_what_they_need(code: str, expected: list[str]) -> None:
    assert loaded(code, packages=("numpy", "gymnasium", "grpc", "dm_env", *ENGINE)) == expected


def test_commands_about_other_families_load_no_gymnasium() -> None:
    code = "from worldloom.server import cli; cli.main(['describe', 'maze'])"
    assert loaded(code, packages=("worldloom.server", "gymnasium")) == ["worldloom.server"]
