"""`worldloom profile --attach`: what a server does that runs already, looked at from outside."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.support.server_process import WORLDLOOM, ServerProcess, serving
from scripts.support.stream_client import free_port
from tests.profiler.test_command import profile, written
from tests.profiler.test_written import check_trace
from worldloom.client import VectorEnv

CERTS = Path(__file__).parents[1] / "server" / "transports" / "certs"
A_TICK_OR_TWO = 0.1
"""Counters are read one after the other, while the server goes on."""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving() as started:
        yield started


def test_a_running_server_is_looked_at(
    server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen(
        [WORLDLOOM.with_name("python"), "-c", _PLAYER, server.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as player:
        assert player.stdout is not None
        assert player.stdout.readline() == b"playing\n"
        assert profile("--attach", server.address, "--seconds", "1", "--out", tmp_path) == 0
        player.communicate(timeout=30)
    text = capsys.readouterr().out
    told = written(tmp_path)
    assert (told["kind"], told["worlds"], told["lanes"], told["server"]["renderer"]) == ("attach", 1, 16, "cpu")
    assert told["per_s"]["steps"] > 1
    assert told["per_s"]["lane_steps"] == pytest.approx(16 * told["per_s"]["steps"], rel=A_TICK_OR_TWO)
    assert told["per_s"]["frames.rgb"] == pytest.approx(told["per_s"]["lane_steps"], rel=A_TICK_OR_TWO)
    assert told["mean_batch"] == pytest.approx(1, rel=A_TICK_OR_TWO)
    assert 0.95 <= told["accounted"] <= 1.05
    assert f"{100 * told['stage_share']['draw']:.1f} %" in text
    assert re.search(r"lane steps +[\d,.]+", text)
    trace = json.loads((tmp_path / "trace.json").read_text())
    check_trace(trace)
    assert any(event["name"] == "tick" for event in trace["traceEvents"])


_PLAYER = """
import sys, threading
from worldloom.client import VectorEnv
env = VectorEnv(sys.argv[1], "catch", 16, transport="grpc")
env.reset(seed=0)
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
actions = env.action_space.sample()
for step in range(100_000):
    env.step(actions)
    if step == 3:
        print("playing", flush=True)
    if over.is_set():
        break
env.close()
"""


def test_an_idle_server_waits(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert profile("--attach", server.address, "--seconds", "0.3") == 0
    share = re.search(r"^ +wait +#+ +([\d.]+) %", capsys.readouterr().out, re.MULTILINE)
    assert share
    assert float(share[1]) > 80


def test_a_server_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{free_port()}"
    assert profile("--attach", address) == 1
    assert f"no server at {address}: start one with `worldloom serve --listen {address}`" in capsys.readouterr().err


def test_a_server_with_tokens_tls_and_no_timers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("open-sesame\n")
    files = [
        "--tls-cert",
        CERTS / "server.pem",
        "--tls-key",
        CERTS / "server-key.pem",
        "--tls-client-ca",
        CERTS / "ca.pem",
    ]
    ours = ("--tls-ca", CERTS / "ca.pem", "--tls-cert", CERTS / "client.pem", "--tls-key", CERTS / "client-key.pem")
    with serving("--token-file", str(token), "--no-timers", *map(str, files)) as guarded:
        address = guarded.address.replace("127.0.0.1", "localhost")
        attach = ("--attach", address, "--seconds", "0.1")
        assert profile(*attach, *ours) == 1
        assert "give --token-file FILE" in capsys.readouterr().err
        assert profile(*attach, "--token-file", token) == 1
        assert "give --tls-ca FILE" in capsys.readouterr().err
        assert profile(*attach, *ours, "--token-file", token) == 0
        assert "not measured: the server was started with --no-timers" in capsys.readouterr().out
        how: Any = {"tls_ca": CERTS / "ca.pem", "tls_cert": CERTS / "client.pem", "tls_key": CERTS / "client-key.pem"}
        with VectorEnv(address, "catch", 2, token="open-sesame", **how) as env:
            env.reset()  # timers or none, it serves
