"""`worldloom watch`: one page over several servers, each of which has a page of its own.

The options of the page, and serving it until a signal, are also those of `worldloom fleet watch`.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from worldloom.protos.addresses import Address, parse_address
from worldloom.server.config import WebOptions, check_page_exposure
from worldloom.server.launch import LIVE_VIEW
from worldloom.server.logs import set_up_logs
from worldloom.server.options import ConfigError

if TYPE_CHECKING:
    from worldloom.server.web.http_server import WebAddress
    from worldloom.server.web.hub import Hub

DEFAULT_WEB = "127.0.0.1:9080"
_FIRST_S = 60.0
"""Time for all servers to be asked once; each takes a few seconds at most."""
_POLL_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `worldloom watch`."""
    parser.add_argument(
        "addresses", nargs="+", metavar="ADDRESS", help="HOST:PORT or unix:PATH of a server that has --web"
    )
    add_page_options(parser)
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file with the token that the servers were started with; viewers sign in with it, too",
    )
    parser.add_argument("--tls-ca", type=Path, metavar="FILE", help="certificates that the servers' are signed with")
    parser.add_argument(
        "--client-cert", type=Path, metavar="FILE", help="certificate to show to servers, where they require one"
    )
    parser.add_argument("--client-key", type=Path, metavar="FILE", help="key of that certificate")


def add_page_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the page itself."""
    parser.add_argument(
        "--web",
        default=DEFAULT_WEB,
        metavar="HOST:PORT",
        help="address of the page; port 0 picks a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--web-host",
        action="append",
        default=[],
        metavar="NAME",
        help="name by which browsers reach the page, beside addresses and localhost; may be given again",
    )
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate chain of the page, in PEM")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="private key of that certificate")
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="let other machines open the page without a token or without TLS: anyone there can watch",
    )


def read_page_options(args: argparse.Namespace, token: str | None) -> "WebAddress":
    """Return the address and the rules of the page; ConfigError for options that do not fit."""
    # Imported here: gRPC takes a while to load, and --help should appear at once.
    from worldloom.server.transports.listening import check_free
    from worldloom.server.transports.security import read_credentials
    from worldloom.server.web.http_server import WebAddress

    options = WebOptions(web=args.web, web_host=tuple(args.web_host))
    options.check()
    address = options.web_address
    assert address is not None
    if (args.tls_cert is None) != (args.tls_key is None):
        raise ConfigError("--tls-cert, --tls-key: expected both of them or none")
    if not args.insecure:
        check_page_exposure(address, has_token=token is not None, has_tls=args.tls_cert is not None)
    read_credentials(args.tls_cert, args.tls_key, None)  # raises what is wrong with the files
    check_free(address, "--web")
    return WebAddress(address, options.web_host, token, args.tls_cert, args.tls_key)


def run(args: argparse.Namespace) -> int:
    """Serve the page until a signal; return the exit code."""
    addresses = _parse_addresses(args.addresses)
    from worldloom.server.transports.security import read_token
    from worldloom.server.web.hub import Hub, ListedServer
    from worldloom.server.web.page_lookup import ServerAccess, find_page

    token = read_token(args.token_file)
    access = ServerAccess(token, args.tls_ca, args.client_cert, args.client_key)
    access.check()
    where = read_page_options(args, token)
    set_up_logs("info", "text")
    servers = [ListedServer(name, partial(find_page, address, access)) for name, address in addresses.items()]
    return serve_hub(Hub(where, access, lambda: servers))


def _parse_addresses(texts: Sequence[str]) -> dict[str, Address]:
    found = [parse_address(text) for text in texts]
    return {str(address): address for address in found}


def serve_hub(hub: "Hub", update: Callable[[], None] = lambda: None) -> int:
    """Serve the page of several servers until SIGINT or SIGTERM; return the exit code.

    RuntimeError if there are servers, but none has a page that can be reached. `update` is called again and again.
    """
    try:
        with _until_signal():
            _serve(hub, update)
    finally:
        hub.stop()
    return 0


def _serve(hub: "Hub", update: Callable[[], None]) -> None:
    url = hub.start()
    problems = hub.first_problems.result(_FIRST_S)
    if problems and all(problems.values()):
        raise RuntimeError("; ".join(dict.fromkeys(problems.values())))
    for name, problem in problems.items():
        if problem:
            print(f"worldloom: {name} cannot be watched yet: {problem}", file=sys.stderr)
    print(f"{LIVE_VIEW}{url}", flush=True)
    while hub.is_serving:
        update()
        time.sleep(_POLL_S)
    raise RuntimeError("the page failed: the log above says where; please report it")


class _StopSignal(BaseException):
    """The process was told to stop."""


@contextmanager
def _until_signal() -> Iterator[None]:
    """Run a block until it is done, or the process gets SIGINT or SIGTERM. Further signals are ignored."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def stop(_number: int, _frame: object) -> None:
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)
        raise _StopSignal

    for one in numbers:
        signal.signal(one, stop)
    with suppress(_StopSignal):
        yield
