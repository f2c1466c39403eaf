"""URLs of pages, as they can be opened from here. Without aiohttp and gRPC, for programs that load neither."""

import urllib.parse

from worldloom.protos.addresses import Address, TcpAddress, UnixAddress

_ANY_HOST = ("0.0.0.0", "::")


class PageError(RuntimeError):
    """A page that cannot be found or opened; the text says why and what to do."""


def reachable_url(url: str, address: Address) -> str:
    """Return the URL of a page as it can be opened from here, where its server is reached at an address.

    PageError if it can only be opened on another machine: the same address leads to another page here, or to none.
    """
    parts = urllib.parse.urlsplit(url)
    is_here = isinstance(address, UnixAddress) or address.is_loopback
    if not is_here and TcpAddress(parts.hostname or "", parts.port or 0).is_loopback:
        raise PageError(
            f"the page of the server at {address} is at {url}, which can only be opened on its own machine: start it "
            "with another --web, or give an address of this machine if it runs here"
        )
    if parts.hostname not in _ANY_HOST:
        return url
    host = "127.0.0.1" if isinstance(address, UnixAddress) else address.host
    host = f"[{host}]" if ":" in host else host
    return parts._replace(netloc=f"{host}:{parts.port}").geturl()
