"""`worldloom fleet watch`: a page over the servers of a fleet on a real Ray, while they come and go."""

import asyncio
import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from scripts.support.ray_cluster import RayCluster
from scripts.support.server_process import WORLDLOOM
from tests.fleet.conftest import kill, wait_until
from tests.support.live_views import TIMEOUT_S, get, watch_all
from worldloom.client import VectorEnv
from worldloom.fleet import Fleet, FleetError, FleetStatus, NoSuchFleet, ServerStatus
from worldloom.fleet.spec import FleetSpec, make_secrets
from worldloom.fleet.watching import FleetServers
from worldloom.server import cli
from worldloom.server.web.page_url import PageError

pytest.importorskip("ray")
pytest.importorskip("aiohttp")
LANES, SIZE = 4, 32


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    arguments = ["--web", "0.0.0.0:0", "--threads", "1"]
    with RayCluster(1), Fleet(2, 0.4, name="seen", serve_arguments=arguments) as made:
        yield made


def test_a_page_over_a_fleet(fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--name", "seen", "--address", fleet._ray_address]
    assert cli.main(["fleet", "credentials", *where, str(tmp_path / "secrets")]) == 0
    token, ca = tmp_path / "secrets/token", tmp_path / "secrets/ca.pem"
    assert capsys.readouterr().out == f"wrote {token} and {ca}\n"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (token, ca)] == [0o600, 0o600]
    assert (token.read_text(), ca.read_text()) == (fleet.token, Path(fleet.tls_ca).read_text())
    command = [str(WORLDLOOM), "fleet", "watch", *where, "--web", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        try:
            assert watch.stdout is not None
            line = watch.stdout.readline()
            assert line.startswith("live view at http://127.0.0.1:"), line or watch.communicate()
            look_at_the_page(fleet, line.removeprefix("live view at ").strip())
            watch.send_signal(signal.SIGTERM)
            _, log = watch.communicate(timeout=TIMEOUT_S)
        finally:
            watch.kill()
    assert watch.returncode == 0
    assert fleet.token not in log
    assert "Traceback" not in log


def look_at_the_page(fleet: Fleet, url: str) -> None:
    def read(path: str) -> str:
        status, text = asyncio.run(get(f"{url}{path}", fleet.token))
        assert status == 200, text
        return text

    def names() -> list[str]:
        return [one["name"] for one in json.loads(read("api/servers"))["servers"] if "problem" not in one]

    assert asyncio.run(get(f"{url}api/servers"))[0] == 401
    assert names() == ["server-1", "server-2"]
    servers = fleet.status().servers
    pages = [f"https://{address}/" for one in json.loads(read("targets")) for address in one["targets"]]
    assert pages == [one.page for one in servers]
    address = servers[1].address
    assert address is not None
    with VectorEnv(address, "catch", LANES, width=SIZE, height=SIZE, token=fleet.token, tls_ca=fleet.tls_ca) as env:
        expected = env.reset(seed=3)[0]["eye.rgb"]
        hello, frames = asyncio.run(watch_all(url, "/servers/1", SIZE, fleet.token))
        np.testing.assert_array_equal(frames, expected)
    assert hello["server"] == address
    kill(servers[0].pid)
    wait_until(lambda: names() == ["server-2", "server-3"], "the page of another server")
    assert os.path.basename(json.loads(read("api/servers"))["servers"][1]["path"]) == "2"


def test_pages_of_a_fleet_may_be_open_to_other_machines() -> None:
    """Its servers have TLS and a token."""
    FleetSpec("a", 1, 1.0, 0.0, make_secrets(), serve_arguments=("--web", "0.0.0.0:0", "--web-host", "a.example"))
    with pytest.raises(ValueError, match="serve_arguments: --web-control without --web: expected --web HOST:PORT"):
        FleetSpec("a", 1, 1.0, 0.0, make_secrets(), serve_arguments=("--web-control",))


class StoppingFleet:
    """The answers of a fleet whose servers have no page they could show, and which then ends."""

    name = "a"

    def __init__(self, *pages: str | None) -> None:
        self.answers: list[FleetStatus | FleetError] = [
            FleetStatus("a", 2, 1, False, None, 0, 0, None, tuple(map(self.server, pages)), ()),
            FleetError("the fleet did not answer within 10 s"),
            NoSuchFleet("no fleet is called 'a'"),
        ]

    def server(self, page: str | None) -> ServerStatus:
        return ServerStatus("server-1", "ready", "", "192.0.2.7 a", "192.0.2.7:9", page, (), 1, 1, 1.0, 0, 0.0, 0.0)

    def status(self) -> FleetStatus:
        answer = self.answers.pop(0)
        if isinstance(answer, FleetError):
            raise answer
        return answer


def test_fleets_without_pages_and_fleets_that_end() -> None:
    servers = FleetServers(cast(Fleet, StoppingFleet(None, "https://127.0.0.1:8/", "https://0.0.0.0:8/")))
    servers.update()  # without an answer
    no_page, elsewhere, found = servers.listed()
    with pytest.raises(
        PageError, match=r"have no page: start them with `worldloom fleet up … -- --web 0\.0\.0\.0:0`, or"
    ):
        asyncio.run(no_page.find_page())
    with pytest.raises(PageError, match=r"at https://127\.0\.0\.1:8/, which can only be opened on its own machine"):
        asyncio.run(elsewhere.find_page())
    assert asyncio.run(found.find_page()) == "https://192.0.2.7:8/"
    with pytest.raises(NoSuchFleet, match=r"^the fleet 'a' was ended$"):
        servers.update()
