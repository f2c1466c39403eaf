"""One server, shared by the tests of clients."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.support.server_process import serving
from tests.support.shared_server import Served


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    socket: Path = tmp_path_factory.mktemp("server") / "worldloom.sock"
    with serving("--listen", f"unix:{socket}") as process:
        yield Served(process, process.address, f"unix:{socket}")
