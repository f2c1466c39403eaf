"""The server that tests of clients share."""

from typing import NamedTuple

from scripts.support.server_process import ServerProcess


class Served(NamedTuple):
    """A server, and its addresses."""

    process: ServerProcess
    tcp: str
    unix: str
