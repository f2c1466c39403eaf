"""One server, shared by the tests of clients."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.support.server_process import serving
from tests.support.shared_server import Served


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    socket: Path = tmp_path_factory.mktemp("server") / "worldloom.sock"
    # Worlds of killed clients stay while the tests run: some count worlds before and after.
    with serving("--listen", f"unix:{socket}", "--lost-world-s", "600") as process:
        yield Served(process, process.address, f"unix:{socket}")
