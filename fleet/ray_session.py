"""The connection to Ray, the names of a fleet's actors there, and a Ray of one's own on this machine.

A Ray that `worldloom fleet up` starts is one process with a label of its own in its command line (`ray start --block`),
which the head node has too: so `down` finds and ends that one and no other. The label also names the process that
started it: as long as that is its parent, `up` still runs and ends its Ray itself if it fails.
"""

import logging
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from worldloom.extras import explain_missing_extra
from worldloom.fleet.errors import FleetError, NoRayCluster, NoSuchFleet

os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray warns of its own default otherwise
with explain_missing_extra("worldloom.fleet", "fleet"):
    import ray
    from ray._private.authentication.authentication_token_setup import (
        enable_token_auth_by_default,
        ensure_token_if_auth_enabled,
    )
    from ray._private.state import available_resources_per_node
    from ray._private.utils import read_ray_address
    from ray.util.placement_group import get_current_placement_group, remove_placement_group

__all__ = ["ray"]

NAMESPACE = "worldloom"
_RECONCILER = re.compile(r"fleet/([a-z0-9-]+)")
_LABEL = "worldloom-started"
_OBJECT_STORE_BYTES = 100 << 20
"""Size of Ray's object store where we start Ray: control messages need little."""
_CONNECT_TIMEOUT_S = 3.0
_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 30.0
_POLL_S = 0.1


def reconciler_name(fleet: str) -> str:
    """Return the name of the actor that reconciles a fleet."""
    return f"fleet/{fleet}"


def server_name(fleet: str, number: int) -> str:
    """Return the name of a server's actor and placement group."""
    return f"fleet/{fleet}/server-{number}"


def parse_server_name(fleet: str, name: str) -> int | None:
    """Return the number in the name of a server's actor; None if it is not one of this fleet."""
    found = re.fullmatch(rf"fleet/{re.escape(fleet)}/server-(\d+)", name)
    return None if found is None else int(found[1])


def list_actor_names() -> list[str]:
    """Return the names of all actors of all fleets."""
    return [one["name"] for one in ray.util.list_named_actors(all_namespaces=True) if one["namespace"] == NAMESPACE]


def list_fleets() -> list[str]:
    """Return the names of the fleets on this Ray cluster."""
    return sorted(found[1] for name in list_actor_names() if (found := _RECONCILER.fullmatch(name)))


def find_reconciler(fleet: str) -> Any:
    """Return the handle of a fleet's reconciler; NoSuchFleet lists the fleets that there are."""
    try:
        return ray.get_actor(reconciler_name(fleet), namespace=NAMESPACE)
    except ValueError:
        others = list_fleets()
        there = f"there are {', '.join(others)}" if others else "there is none on this Ray cluster"
        raise NoSuchFleet(f"no fleet is called {fleet!r}: {there}; `worldloom fleet up` makes one") from None


def list_free_cpus() -> list[float]:
    """Return the processors of each node that nothing has reserved."""
    return [one.get("CPU", 0.0) for one in available_resources_per_node().values()]


def remove_own_placement_group() -> None:
    """Give back the resources of the actor that calls this; Ray ends the actor with them."""
    group = get_current_placement_group()
    if group is not None:
        remove_placement_group(group)


def connect_to_ray(address: str | None, may_start: bool) -> bool:
    """Connect this process to Ray, unless it is; return True if that has started a Ray, which ends with this process.

    Args:
        address: Address of a Ray cluster. None is the one that is running on this machine or that RAY_ADDRESS names.
        may_start: Start a Ray of this process if there is none.
    """
    if ray.is_initialized():
        return False
    named = address or os.environ.get("RAY_ADDRESS")
    is_named = named not in (None, "auto")
    found = named if is_named else read_ray_address()
    if found is not None and _answers(found):
        try:
            # Ray uses the token of this user for clusters that it finds itself, and for no others.
            _initialise(address=found if is_named else "auto")
        except (ConnectionError, RuntimeError) as error:
            raise FleetError(
                f"the Ray cluster at {found} cannot be joined ({error}): expected one that this user may join, by its "
                "address or RAY_ADDRESS"
            ) from error
        return False
    if address is not None or not may_start:
        where = f"at {address}" if address is not None else "on this machine, and RAY_ADDRESS names none"
        raise NoRayCluster(f"there is no Ray cluster {where}: expected the address of a running one")
    _initialise(address="local", object_store_memory=_OBJECT_STORE_BYTES, include_dashboard=False)
    return True


def _answers(address: str) -> bool:
    """True if something listens at the address of a Ray cluster: Ray itself would try for minutes."""
    if "://" in address:  # of Ray Client, whose server may be behind a proxy
        return True
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S):
            return True
    except (OSError, ValueError):
        return False


def _initialise(**options: Any) -> None:
    with _quiet_ray():
        ray.init(**options, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)


@contextmanager
def _quiet_ray() -> Iterator[None]:
    """Keep Ray from asking for permission to collect usage statistics, and from reporting that it starts."""
    before = os.environ.get("RAY_USAGE_STATS_ENABLED")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("RAY_USAGE_STATS_ENABLED", None)


def start_own_ray() -> None:
    """Start a Ray on this machine that outlives this process, and connect to it.

    Ray listens on all interfaces, and whoever may join it can run programs. So it gets a token, as a Ray has that
    `ray.init` starts, unless RAY_AUTH_MODE says otherwise; Ray keeps it in the user's home, and finds it there.
    """
    label = f"{secrets.token_hex(8)}-{os.getpid()}"
    enable_token_auth_by_default()
    ensure_token_if_auth_enabled(create_token_if_missing=True)
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    command = [
        *(sys.executable, "-c", "import sys; from ray.scripts.scripts import main; sys.exit(main())"),
        *(
            "start",
            "--head",
            "--block",
            "--port=0",
            "--node-ip-address=127.0.0.1",
            "--include-dashboard=false",
            "--disable-usage-stats",
        ),
        *(f"--object-store-memory={_OBJECT_STORE_BYTES}", f"--labels={_LABEL}={label}"),
    ]
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while True:
            with suppress(NoRayCluster):
                connect_to_ray(None, may_start=False)
                if own_ray_label() == label:
                    return
                ray.shutdown()
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise FleetError("Ray did not start on this machine: `ray start --head --block` says why")
            time.sleep(_POLL_S)
    except BaseException:
        with uninterrupted():
            ray.shutdown()
            _end_session(process.pid)
        raise


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore SIGINT in the `with` block, so that a second Ctrl-C does not leave half of something behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def own_ray_label() -> str | None:
    """Return the label of the Ray that this process is connected to, if `start_own_ray` has started it."""
    for node in ray.nodes():
        if node["Alive"] and "node:__internal_head__" in node["Resources"]:
            label: str | None = node.get("Labels", {}).get(_LABEL)
            return label
    return None


def end_own_ray(wait_for_starter: bool = True) -> bool:
    """Disconnect, and end the Ray if `start_own_ray` started it and it has no fleets; return True if it was ended.

    Args:
        wait_for_starter: If another process that started the Ray still runs, wait until one of both has ended. Without
            it, such a Ray is left alone: its fleet may be about to be made.
    """
    label = own_ray_label()
    if label is None or list_fleets():
        return False
    found = _find_process(f"--labels={_LABEL}={label}")
    if found is None or (not wait_for_starter and _has_other_starter(found, label)):
        return False
    ray.shutdown()
    deadline_s = time.monotonic() + _END_TIMEOUT_S
    while _has_other_starter(found, label) and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
    _end_session(found)
    return True


def _has_other_starter(pid: int, label: str) -> bool:
    """True if the process that started a Ray with this label runs, and is not this one."""
    starter = int(label.rpartition("-")[2])
    return starter != os.getpid() and _read_stat(pid)[1:2] == [str(starter)]


def _end_session(leader: int) -> None:
    """End a Ray by the process that leads its session, and kill what that leaves: it may not be ready for signals."""
    with suppress(ProcessLookupError):
        os.kill(leader, signal.SIGTERM)
    deadline_s = time.monotonic() + _END_TIMEOUT_S
    while _is_running(leader) and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
    deadline_s = time.monotonic() + _END_TIMEOUT_S
    # No other process gets the number of a session as long as one of its processes lives.
    while left := [pid for pid in _list_processes() if _read_stat(pid)[3:4] == [str(leader)] and _is_running(pid)]:
        if time.monotonic() > deadline_s:
            raise FleetError(f"Ray (processes {left}) did not end within {_END_TIMEOUT_S:g} s of SIGKILL")
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)


def _list_processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _find_process(word: str) -> int | None:
    """Return the process on this machine that has this word in its command line."""
    for pid in _list_processes():
        with suppress(OSError):
            if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return pid
    return None


def _read_stat(pid: int) -> list[str]:
    """Return state, parent, process group, session and more of a process; nothing if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return []


def _is_running(pid: int) -> bool:
    return _read_stat(pid)[:1] not in ([], ["Z"], ["X"])
