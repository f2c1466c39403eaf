"""One page over the servers of a fleet, whoever comes and goes.

The actors of the servers know their pages, so nothing is asked of the servers by gRPC.
"""

from collections.abc import Sequence
from functools import partial

from worldloom.fleet.errors import FleetError, NoSuchFleet
from worldloom.fleet.fleet import Fleet
from worldloom.fleet.status import ServerStatus
from worldloom.protos.addresses import parse_address
from worldloom.server.web.hub import ListedServer
from worldloom.server.web.page_url import PageError, reachable_url


class FleetServers:
    """The servers of a fleet for a page over them."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._servers: Sequence[ListedServer] = ()
        self.update()

    def listed(self) -> Sequence[ListedServer]:
        """Return the servers that there were at the last `update`. For any thread."""
        return self._servers

    def update(self) -> None:
        """Ask the fleet for its servers, and keep those known if it does not answer; NoSuchFleet if it was ended."""
        try:
            servers = self._fleet.status().servers
        except NoSuchFleet:
            raise NoSuchFleet(f"the fleet {self._fleet.name!r} was ended") from None
        except FleetError:
            return
        self._servers = [ListedServer(one.server, partial(_find_page, one)) for one in servers if one.address]


async def _find_page(server: ServerStatus) -> str:
    if server.page is None or server.address is None:
        raise PageError(
            "the servers of the fleet have no page: start them with `worldloom fleet up … -- --web 0.0.0.0:0`, or "
            "`worldloom fleet upgrade -- --web 0.0.0.0:0`"
        )
    return reachable_url(server.page, parse_address(server.address))
