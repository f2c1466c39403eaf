"""`worldloom fleet`: start, show, change and end fleets of servers on a Ray cluster.

Ray is imported when an action runs, so that `worldloom fleet --help` works without it.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from worldloom.fleet.errors import FleetError, NoRayCluster, NoSuchFleet
from worldloom.fleet.status import FleetStatus, summarise
from worldloom.server.commands.watch import add_page_options, read_page_options, serve_hub
from worldloom.server.logs import set_up_logs
from worldloom.terminal import is_terminal, print_heading, print_table, print_text, show_live, show_progress

if TYPE_CHECKING:
    from worldloom.fleet.fleet import Fleet

_HEADS = ("server", "state", "node", "address", "lanes", "frames/s", "age")
_TEXT_COLUMNS = 4
_POLL_S = 0.2
_LINE_S = 10.0
"""Time between lines about what is waited for, where there is no terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `worldloom fleet` with their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions")

    def add(name: str, text: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        action.set_defaults(run_action=run)
        action.add_argument("--name", default="default", help="name of the fleet (default: default)")
        action.add_argument(
            "--address",
            metavar="HOST:PORT",
            help="address of the Ray cluster (default: the one that runs on this machine or that RAY_ADDRESS names)",
        )
        return action

    up = add("up", "start a fleet, which stays until `down`; starts Ray on this machine if there is none", _up)
    up.add_argument("--servers", type=int, default=1, metavar="N", help="number of servers (default: 1)")
    up.add_argument(
        "--quota",
        action="append",
        default=[],
        metavar="LEARNER=LANES",
        help="most lanes of a learner; the learner * is each one without a quota of its own. May be given again",
    )
    _add_server_options(up)
    _add_wait(up, 600.0)
    status = add("status", "show servers, lanes, frames a second and losses; live on a terminal", _status)
    status.add_argument("--once", action="store_true", help="show it once, also on a terminal")
    status.add_argument("--json", action="store_true", help="print it once, as JSON")
    scale = add("scale", "change the number of servers; those that are too many are drained", _scale)
    scale.add_argument("servers", type=int, metavar="N", help="number of servers")
    _add_wait(scale, 0.0)
    drain = add("drain", "have a server hand its lanes over and end; another takes its place", _drain)
    drain.add_argument("server", metavar="SERVER", help="name of the server, such as server-3")
    _add_wait(drain, 0.0)
    upgrade = add("upgrade", "replace all servers, one after another, without losing a lane", _upgrade)
    _add_server_options(upgrade)
    _add_wait(upgrade, 0.0)
    watch = add("watch", "show all servers live on one page, whoever comes and goes", _watch)
    add_page_options(watch)
    credentials = add("credentials", "write the token and the certificate that clients need into files", _credentials)
    credentials.add_argument("directory", type=Path, metavar="DIRECTORY", help="directory of `token` and `ca.pem`")
    add("down", "end a fleet, and the Ray that `up` has started", _down)


def _add_server_options(action: argparse.ArgumentParser) -> None:
    """Add options that are absent from the namespace unless given."""
    for name, kind, metavar, text in (
        ("--cpus-per-server", float, "N", "processors of each server (default: as many as are free on the nodes)"),
        ("--gpus-per-server", float, "N", "graphics cards of each server (default: 1 where there are some)"),
        ("--drain-s", float, "S", "seconds that a server which is drained has to hand its lanes over (default: 600)"),
        ("--cache-dir", str, "PATH", "directory of compiled kernels on every node (default: that of each node's user)"),
        ("--python", str, "PATH", "Python on every node that runs `worldloom serve` (default: that of Ray)"),
    ):
        action.add_argument(name, type=kind, default=argparse.SUPPRESS, metavar=metavar, help=text)
    action.add_argument(
        "serve_arguments",
        nargs="*",
        default=argparse.SUPPRESS,
        metavar="-- OPTION",
        help="further options of `worldloom serve`, after --",
    )


def _add_wait(action: argparse.ArgumentParser, default_s: float) -> None:
    action.add_argument(
        "--wait-s",
        type=float,
        default=default_s,
        metavar="S",
        help=f"seconds to wait until all servers are ready (default: {default_s:g})",
    )


def run(args: argparse.Namespace) -> int:
    """Do the chosen action; return the exit code."""
    try:
        code: int = args.run_action(args)
    except ModuleNotFoundError as error:
        raise RuntimeError(str(error)) from error
    return code


def _server_changes(args: argparse.Namespace) -> dict[str, Any]:
    names = ("cpus_per_server", "gpus_per_server", "drain_s", "cache_dir", "python")
    given: dict[str, Any] = {name: getattr(args, name) for name in names if hasattr(args, name)}
    if getattr(args, "serve_arguments", []):
        given["serve_arguments"] = tuple(args.serve_arguments)
    return given


def _up(args: argparse.Namespace) -> int:
    from worldloom.fleet.fleet import Fleet
    from worldloom.fleet.ray_session import connect_to_ray, end_own_ray, start_own_ray, uninterrupted
    from worldloom.fleet.spec import FleetSpec, make_secrets

    quotas = dict(_parse_quota(text) for text in args.quota)
    changes = _server_changes(args)
    # Checked before there is a Ray, which takes seconds to start.
    sizes = {"cpus_per_server": 1.0, "gpus_per_server": 0.0}
    FleetSpec(name=args.name, servers=args.servers, quotas=quotas, secrets=make_secrets(), **{**sizes, **changes})
    signal.signal(signal.SIGTERM, _exit)  # Ray does the same, but only once it runs
    try:
        connect_to_ray(args.address, may_start=False)
    except NoRayCluster:
        if args.address is not None:
            raise
        print("no Ray cluster is running: starting one on this machine", file=sys.stderr)
        start_own_ray()
    try:
        fleet = Fleet(
            args.servers,
            name=args.name,
            quotas=quotas,
            detached=True,
            wait_s=0,
            **changes,
        )
        try:
            _wait(fleet, args.wait_s)
        except NoSuchFleet:
            raise FleetError(f"the fleet {args.name!r} was ended by `down` before all its servers were ready") from None
        except BaseException:
            with uninterrupted():
                fleet.down()
            raise
    except BaseException:
        with uninterrupted():
            end_own_ray()
        raise
    print(f"fleet {args.name!r} is up: {args.servers} servers")
    return 0


def _exit(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


def _parse_quota(text: str) -> tuple[str, int]:
    learner, equals, lanes = text.rpartition("=")
    if not equals or not lanes.isdigit():
        raise ValueError(f"--quota is {text!r}: expected LEARNER=LANES, such as a=1024")
    return learner, int(lanes)


def _connect(args: argparse.Namespace) -> "Fleet":
    from worldloom.fleet.fleet import Fleet

    return Fleet.connect(args.name, args.address)


def _wait(fleet: "Fleet", wait_s: float) -> None:
    """Wait until all servers are ready, and show how far they are."""
    if wait_s <= 0:
        return
    next_line_s = time.monotonic() + _LINE_S
    with show_progress("waiting for servers", plain_lines=False) as update:

        def show(status: FleetStatus) -> None:
            nonlocal next_line_s
            notes = [f"{one.server} {one.detail}" for one in status.servers if one.detail]
            update(status.ready / status.wanted, ", ".join(notes[:3]))
            if time.monotonic() > next_line_s and not is_terminal(sys.stderr):
                next_line_s = time.monotonic() + _LINE_S
                print(f"waiting: {summarise(status)}", file=sys.stderr, flush=True)

        fleet.wait_until_ready(wait_s, show)


def _status(args: argparse.Namespace) -> int:
    fleet = _connect(args)
    if args.json:
        print(json.dumps(fleet.status().as_dict(), indent=2))
        return 0
    if args.once or not is_terminal(sys.stdout):
        status = fleet.status()
        print_heading(heading_of(status))
        print_table(rows_of(status), _TEXT_COLUMNS, _HEADS, indent=0)
        for note in notes_of(status):
            print_text(note)
        return 0
    with show_live() as draw:
        while True:
            status = fleet.status()
            draw(heading_of(status), rows_of(status), _TEXT_COLUMNS, _HEADS, notes_of(status))
            time.sleep(_POLL_S * 3)


def heading_of(status: FleetStatus) -> str:
    """Return a line about the whole fleet."""
    text = f"fleet {status.name}: {status.ready} of {status.wanted} servers ready"
    return f"{text}, {status.lanes:,} lanes, {status.frames_per_s:,.0f} frames/s"


def rows_of(status: FleetStatus) -> list[tuple[str, ...]]:
    """Return a row of the table for each server."""
    rows: list[tuple[str, ...]] = [
        (
            one.server,
            f"{one.state}: {one.detail}" if one.detail else one.state,
            one.node or "-",
            one.address or "-",
            f"{one.lanes:,}",
            f"{one.frames_per_s:,.0f}",
            f"{one.age_s:,.0f} s",
        )
        for one in status.servers
    ]
    return rows or [("-",) * len(_HEADS)]


def notes_of(status: FleetStatus) -> list[str]:
    """Return lines about learners, losses and problems."""
    notes = []
    for one in status.learners:
        quota = "" if one.quota is None else f" of {one.quota:,}"
        notes.append(f"learner {one.learner}: {one.lanes:,}{quota} lanes")
    if status.is_upgrading:
        notes.append("an upgrade is under way")
    if (loss := status.last_loss) is not None:
        after = "not replaced yet" if loss.replaced_after_s is None else f"replaced after {loss.replaced_after_s:.1f} s"
        ago_s = max(0.0, time.time() - loss.when_unix_s)
        notes.append(
            f"last loss, of {status.losses}: {loss.server} ({loss.node}), {ago_s:,.0f} s ago: {loss.reason}; {after}"
        )
    if status.problem is not None:
        notes.append(f"problem: {status.problem}")
    return notes


def _scale(args: argparse.Namespace) -> int:
    fleet = _connect(args)
    fleet.scale(args.servers)
    return _conclude(fleet, args, f"{args.servers} servers are wanted")


def _drain(args: argparse.Namespace) -> int:
    fleet = _connect(args)
    fleet.drain(args.server, args.wait_s)
    return _conclude(fleet, args, f"{args.server} hands its lanes over")


def _upgrade(args: argparse.Namespace) -> int:
    fleet = _connect(args)
    fleet.upgrade(**_server_changes(args))
    return _conclude(fleet, args, "servers are replaced one after another")


def _conclude(fleet: "Fleet", args: argparse.Namespace, text: str) -> int:
    _wait(fleet, args.wait_s)
    print(f"fleet {args.name!r}: {'done' if args.wait_s > 0 else text}")
    return 0


def _watch(args: argparse.Namespace) -> int:
    from worldloom.fleet.watching import FleetServers
    from worldloom.server.web.hub import Hub
    from worldloom.server.web.page_lookup import ServerAccess

    with _connect(args) as fleet:
        where = read_page_options(args, fleet.token)
        set_up_logs("info", "text")
        servers = FleetServers(fleet)
        print(
            "viewers sign in with the token that `worldloom fleet credentials DIRECTORY` writes",
            file=sys.stderr,
        )
        access = ServerAccess(fleet.token, Path(fleet.tls_ca))
        return serve_hub(Hub(where, access, servers.listed), servers.update)


def _credentials(args: argparse.Namespace) -> int:
    fleet = _connect(args)
    directory: Path = args.directory
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in (("token", fleet.token), ("ca.pem", Path(fleet.tls_ca).read_text())):
        (directory / name).unlink(missing_ok=True)  # whose mode may let others read it
        descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w") as file:
            file.write(text)
    print(f"wrote {directory / 'token'} and {directory / 'ca.pem'}")
    return 0


def _down(args: argparse.Namespace) -> int:
    from worldloom.fleet.ray_session import end_own_ray

    try:
        fleet = _connect(args)
    except NoSuchFleet:
        # An `up` that was killed leaves a Ray without fleets.
        if not end_own_ray(wait_for_starter=False):
            raise
        print(f"no fleet is called {args.name!r}; the Ray of an earlier `up` had no fleet, and is down")
        return 0
    fleet.down()
    has_ended_ray = end_own_ray()
    print(f"fleet {args.name!r} is down{', and Ray with it' if has_ended_ray else ''}")
    return 0
